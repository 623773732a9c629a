"""Stored records of an earlier version: they are read, shown, and written again unchanged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from beamlike.observe.report import report
from beamlike.observe.waiting.explain import why
from beamlike.records.graph import Spacing
from beamlike.records.history import History
from beamlike.records.lines import line_text, read_line
from beamlike.records.model import SplitRecord, Upstream
from beamlike.system.seals import placed, sealed
from stages.state.index import HoldOwner

DATA = Path(__file__).parents[2] / "data"
KEPT = DATA / "records-1.jsonl"
LINES = KEPT.read_text().splitlines()


@pytest.fixture(name="history")
def _history() -> History:
    return History.open(KEPT)


def test_the_graph_is_read(history: History) -> None:
    plan = history.plan
    assert (plan.pipeline, history.closed) == ("kept", "ended")
    assert (plan.sources["plays"].idle_after, plan.sources["plays"].percentiles) == (3_600_000_000, (66,))
    assert plan.stages["average"].spacing == Spacing(120_000_000, 120_000_000, 0)
    assert plan.stages["average"].inputs == ("sessions",)
    assert plan.stages["monthly"].calendar == {
        "unit": "months", "count": 1, "start": "1970-01-01", "timezone": "UTC",
    }  # fmt: skip
    assert plan.sinks["out"].inputs == ("sessions",)


def test_batches_are_read(history: History) -> None:
    assert [record.batch for record in history.batches] == list(range(6))
    second = history.batches[1]
    assert second.sources["plays"].percentiles == {66: 1741064420000000}
    assert second.sources["plays"].splits["b"] == SplitRecord(1741064420000000, 10_000_000)
    assert second.stages["sessions"].upstream == {"plays": Upstream(1741064420000000)}
    holder = HoldOwner(1741064401000000, "2025-03-04T05:06:07Z", 1741064401000000, 1741064461000000)
    assert second.stages["sessions"].window == holder
    assert second.set_aside == {"number": 1}
    assert second.uses.some == ("monthly", "number", "plays", "sessions")


def test_batches_are_written_as_they_were(history: History) -> None:
    written = [line_text(record).decode().rstrip() for record in history.batches]
    assert written == [line for line in LINES if line.startswith('{"batch":')]


def test_what_is_shown_of_a_run_works_on_them(history: History) -> None:
    assert "Sessions(gap=1m)" in report(history)
    assert why(history)[1] == "all stages are at the end of input: nothing waits any more"
    running = History(history.plan, history.batches[:2])
    assert any("key 2025-03-04T05:06:07Z" in text for text in why(running, stage="sessions"))
    text = "\n".join(why(running, stage="average", window="2025-03-04T05:01:00Z"))
    assert "that window waits for its trigger AfterWatermark(late=AfterCount(1)), or for the input" in text


def test_keys_that_this_version_does_not_know_are_passed_over() -> None:
    history = History(History.open(KEPT).plan)
    history.take(read_line(json.dumps(sealed({**placed(LINES[2])[1], "new": 1}, "records")).encode()))
    assert history.batches == History.open(KEPT).batches[1:2]
