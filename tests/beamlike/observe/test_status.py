"""The status of a run: its lag, and when lag is reported as trouble."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import beamlike as bl
from beamlike.cli.main import main
from beamlike.observe.status import Status
from beamlike.system.activity import ActivityTracker, CurrentBatch
from tests.support.histories import SECOND, at, batch, history, source_record, stage_record
from windowing.time import MAX_TIME, MIN_TIME

MINUTE = 60 * SECOND


def going(
    now: float,
    alive: bool | None = True,
    closed: str | None = None,
    *,
    since: float | None = None,
    **marks: Any,
) -> Status:
    """Returns the status of a run whose only complete batch began at 60 s, and the current one at `since`; `marks` are
    watermarks in seconds.
    """
    sources = {"mobile": source_record(marks.get("source", 55)), "console": source_record(0, idle=True)}
    stages = {"sessions": stage_record(50, marks.get("stage", 50))}
    made = history(batch(7, 60, sources, stages))
    made.alive, made.closed = alive, closed
    made.in_hand = None if since is None else CurrentBatch(8, at(since))
    return Status.of(made, now=at(now))


def test_it_says_what_is_behind_the_furthest_first() -> None:
    assert list(going(70).lines()) == [
        "the run is running; the last batch is 7, which began 10s ago, and it waits for input",
        "stage sessions: 20s behind",
        "source mobile: 15s behind",
    ]


@pytest.mark.parametrize(
    ("now", "troubles"),
    [
        (75, []),
        (116, ["stage sessions is 1m6s behind, more than 1m", "source mobile is 1m1s behind, more than 1m"]),
    ],
)
def test_a_lag_is_trouble_when_it_is_longer_than_allowed(now: float, troubles: list[str]) -> None:
    assert sorted(going(now, since=now - 1).troubles(MINUTE)) == sorted(troubles)


def test_the_age_of_the_current_batch_is_trouble_too() -> None:
    """Otherwise, all watermarks may be at their end, and an idle source has no lag."""
    quiet = going(131, since=70, source=MAX_TIME, stage=MIN_TIME)
    told = ["the current batch began 1m1s ago, more than 1m"]
    assert list(quiet.troubles(MINUTE)) == list(quiet.troubles(max_age=MINUTE)) == told
    assert list(quiet.troubles()) == []


def test_a_lag_is_no_matter_of_life() -> None:
    """A run that reads history, or has a silent source beside others, must not be killed for that."""
    assert list(going(100_000, since=99_990).troubles(max_age=MINUTE)) == []


@pytest.mark.parametrize("source", [55, 0, -1e7, MAX_TIME])
@pytest.mark.parametrize("now", [63, 1_000, 1e8])
def test_a_run_that_has_read_all_input_is_not_behind(source: float, now: float) -> None:
    assert list(going(now, source=source).troubles(MINUTE, MINUTE)) == []


def test_a_run_that_pauses_between_two_batches_does_not_wait_for_input() -> None:
    assert len([*going(61, source=0).troubles(20 * SECOND)]) == 1


def test_the_last_batch_counts_where_nobody_knows_whether_the_run_lives() -> None:
    told = ["the last batch began 1m1s ago, more than 1m"]
    assert list(going(121, None, source=MAX_TIME, stage=MIN_TIME).troubles(max_age=MINUTE)) == told


@pytest.mark.parametrize(
    ("alive", "closed", "troubles"),
    [
        (False, None, ["the run was killed"]),
        (False, "failed", ["the run failed"]),
        (False, "stopped", []),
        (False, "ended", []),
    ],
)
def test_how_a_run_ended(alive: bool, closed: str | None, troubles: list[str]) -> None:
    assert list(going(1_000, alive, closed).troubles(MINUTE)) == troubles


def test_a_run_without_a_batch() -> None:
    empty = history()
    empty.alive = True
    assert list(Status.of(empty, now=at(0)).lines()) == ["the run is running, without a batch"]


def test_the_command_says_it_and_exits_with_it(tmp_path: Any) -> None:
    records = tmp_path / "records.jsonl"
    rows = bl.Rows([{"n": 1, "at": "1970-01-01T00:00:00Z"}])
    read = bl.Pipeline("one").read("rows", rows, timestamp="at", watermark=bl.MonotonousTimestamps())
    read.write("out", bl.Memory()).pipeline.run(bl.LocalRunner(records=records, clock=lambda: 0))
    fine = CliRunner().invoke(main, ["status", str(records), "--max-lag", "5m"])
    assert (fine.exit_code, fine.output.splitlines()[0]) == (0, "the run has ended; the last batch is 1")
    lines = records.read_text().splitlines()
    records.write_text("\n".join(lines[:-1]) + "\n")
    silent = CliRunner().invoke(main, ["status", str(records), "--max-lag", "5m"])
    assert silent.exit_code == 1
    assert "Trouble: the last batch began" in silent.output
    assert silent.output.startswith("the run is running, or was killed")
    assert CliRunner().invoke(main, ["status", str(records), "--max-lag", "soon"]).exit_code == 2


def first_batch(alive: bool | None = True) -> Status:
    """Returns the status, at 70 s, of a run whose first batch began at 60 s."""
    tracker = ActivityTracker(lambda: at(60))
    tracker.begin(0)
    tracker.enter("step", "slow")
    made = history()
    made.alive, made.in_hand = alive, tracker.in_hand
    return Status.of(made, now=at(70))


def test_during_the_first_batch_it_says_what_that_is_at() -> None:
    assert list(first_batch().lines()) == [
        "the run is running, without a complete batch",
        "batch 0 has been running for 10s: step `slow`, for 10s",
    ]


def test_a_first_batch_that_takes_longer_than_allowed_is_trouble() -> None:
    assert list(first_batch().troubles(20 * SECOND)) == []
    assert list(first_batch().troubles(5 * SECOND)) == ["the current batch began 10s ago, more than 5s"]
    assert list(first_batch().troubles()) == []


def test_a_run_that_has_not_begun_a_batch_is_starting(tmp_path: Path) -> None:
    (tmp_path / "beamlike").mkdir()
    (tmp_path / "beamlike" / "manifest.json").write_text("{}")
    result = CliRunner().invoke(main, ["status", str(tmp_path)])
    assert result.exit_code == 1
    assert f"the run of the checkpoint {str(tmp_path)!r} has no records yet: it is starting" in result.stderr
