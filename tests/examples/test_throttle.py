"""Calls pass as in a plain simulation, in process and on Spark."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from click.testing import CliRunner

import beamlike as bl
from examples import throttle
from examples.throttle import LIMIT, PERIOD, Clients, calls, expected, run

SMALL = Clients(clients=2, seconds=40, seed=3)


@pytest.fixture(scope="module")
def coming() -> throttle.Calls:
    return calls(SMALL)


@pytest.fixture(scope="module")
def passed(coming: throttle.Calls) -> throttle.Passed:
    return run(coming)


def test_calls_pass_as_in_the_simulation(coming: throttle.Calls, passed: throttle.Passed) -> None:
    assert passed == expected(coming)
    assert any(waited for *_, waited in passed)


def test_all_calls_pass_in_order(coming: throttle.Calls, passed: throttle.Passed) -> None:
    for client in ("client 1", "client 2"):
        came = [call for rows in coming.values() for who, call in rows if who == client]
        assert [call for _, who, call, _ in passed if who == client] == came


def test_no_client_has_more_than_its_share_in_a_period(passed: throttle.Passed) -> None:
    counts = Counter((who, second) for second, who, *_ in passed)
    for who, second in counts:
        # A period begins with a call, and the one before may have ended in this moment.
        within = sum(counts[who, later] for later in range(second, second + PERIOD))
        assert within <= 2 * LIMIT


def test_what_waits_at_the_end_of_input_passes_there(coming: throttle.Calls) -> None:
    first = {0: [("a", number) for number in range(3 * LIMIT)]}
    found = run(first)
    assert [call for *_, call, _ in found] == list(range(3 * LIMIT))
    assert found[-1][0] < 3 * PERIOD


def test_a_wrong_answer_is_told_and_fails(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle, "expected", lambda coming: [])
    done = CliRunner().invoke(throttle.main, ["--clients", "1", "--work", str(tmp_path)])
    assert done.exit_code == 1
    assert "WRONG" in done.output


@pytest.mark.slow
@pytest.mark.spark
def test_it_is_the_same_on_spark(spark: Any) -> None:
    few = calls(Clients(clients=2, seconds=5))
    assert run(few, bl.SparkRunner(session=spark, shards=2)) == run(few)
