"""Ends of runs, on both runners: the windows that they close, their reports, and the state after a failed drain."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

import beamlike as bl
from beamlike.records.model import BatchRecord

ROWS = [{"at": 1}, {"at": 2}, {"at": 70}]
NEWEST = bl.MonotonousTimestamps()

Windows = list[tuple[int, bool]]
"""The count of each window, and whether it was drained."""


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(params=["local", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.slow])])
def runner(request: pytest.FixtureRequest) -> Any:
    """Returns a function that makes a runner with a checkpoint, which may drain."""
    if request.param == "local":
        return bl.LocalRunner
    session = request.getfixturevalue("spark")
    return lambda **options: bl.SparkRunner(session=session, shards=1, **options)


def ended(runner: Any, rows: list[dict[str, int]] = ROWS) -> tuple[Any, Windows]:
    """Runs counts by the minute and their sum in a second stage."""
    p = bl.Pipeline("p")
    read = p.read("rows", bl.Rows(rows), timestamp="at", timestamp_unit="s", watermark=NEWEST)
    counts = read.window_into(bl.FixedWindows("1m")).aggregate(n=bl.count())
    out, plain = bl.Memory(), bl.Memory()
    counts.with_columns(drained=bl.pane_drained()).write("out", out)
    counts.write("plain", plain)
    sums = counts.window_into(bl.FixedWindows("1h")).aggregate(n=bl.sum("n"))
    sums.with_columns(drained=bl.pane_drained()).write("sums", total := bl.Memory())
    run = p.run(runner)
    assert all("pane_drained" not in row and row["pane_timing"] == "on_time" for row in plain.rows())
    windows = sorted((row["window_start"], row["n"], row["drained"]) for row in out.rows())
    return run, [(n, drained) for _, n, drained in windows] + [
        (row["n"], row["drained"]) for row in total.rows()
    ]


def test_without_a_checkpoint_all_windows_are_closed_and_complete(runner: Any) -> None:
    run, windows = ended(runner())
    assert windows == [(2, False), (1, False), (3, False)]
    assert "open" not in repr(run)


@pytest.mark.parametrize(
    "runner", ["local", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.slow])], indirect=True
)
def test_with_a_checkpoint_windows_stay_open_which_is_told_and_a_drain_says_of_its_panes(
    runner: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "beamlike")
    run, windows = ended(runner(checkpoint="checkpoint"))
    assert windows == [(2, False)]
    told = "1 element waits in rows.aggregate, whose windows are open"
    assert told in repr(run)
    assert any(
        f"p: {told}; the next run continues with them" in entry.getMessage() for entry in caplog.records
    )
    assert told in repr(ended(runner(checkpoint="checkpoint"))[0])
    run, windows = ended(runner(checkpoint="checkpoint", drain=True))
    assert windows == [(1, True), (3, True)]
    assert "open" not in repr(run)
    assert run.batches[-1].stages["rows.aggregate"].drained == 1


def test_panes_of_a_stream_without_an_end_are_drained_and_those_of_one_with_an_end_are_not() -> None:
    for ends, drained in ((True, False), (False, True)):
        stream = bl.TestStream({"at": int}).add_elements([{"at": 1}])
        stream = stream.advance_watermark_to_infinity() if ends else stream
        read = bl.Pipeline("p").read("rows", stream, timestamp="at", timestamp_unit="s")
        counts = read.window_into(bl.FixedWindows("1m")).aggregate(n=bl.count())
        counts.with_columns(drained=bl.pane_drained()).write("out", out := bl.Memory())
        read.pipeline.run()
        assert [row["drained"] for row in out.rows()] == [drained]


def test_a_pane_that_is_taken_back_by_a_drain_is_as_it_was() -> None:
    p = bl.Pipeline("p")
    read = p.read("rows", bl.Rows(ROWS), timestamp="at", timestamp_unit="s", watermark=NEWEST)
    early = bl.AfterWatermark(early=bl.AfterCount(2))
    windows = read.window_into(bl.FixedWindows("1d"), trigger=early, accumulation="retracting")
    counts = windows.aggregate(n=bl.count()).with_columns(drained=bl.pane_drained())
    counts.write("out", out := bl.Memory())
    p.run(bl.LocalRunner(chunk_rows=2, checkpoint="checkpoint", drain=True))
    assert [(row["n"], row["pane_retracted"], row["drained"]) for row in out.rows()][-1] == (3, False, True)
    assert not any(row["drained"] for row in out.rows() if row["pane_retracted"])


def test_an_early_pane_of_the_step_that_drains_is_early() -> None:
    p = bl.Pipeline("p")
    read = p.read("rows", bl.Rows(ROWS), timestamp="at", timestamp_unit="s", watermark=NEWEST)
    counts = read.window_into(bl.FixedWindows("1d")).aggregate(n=bl.count())
    often = bl.AfterWatermark(early=bl.AfterCount(1))
    sums = counts.window_into(bl.FixedWindows("2d"), trigger=often, accumulation="accumulating")
    asked = sums.aggregate(n=bl.sum("n")).with_columns(cause=bl.pane_cause(), drained=bl.pane_drained())
    asked.write("out", out := bl.Memory())
    p.run(bl.LocalRunner(checkpoint="checkpoint", drain=True))
    assert [(row["pane_timing"], row["cause"], row["drained"]) for row in out.rows()] == [
        ("early", "early", False),
        ("on_time", "drained", True),
    ]


def put(*times: int) -> None:
    Path("in").mkdir(exist_ok=True)
    name = f"{len(list(Path('in').iterdir()))}.jsonl"
    Path("in", name).write_text("".join(json.dumps({"k": "a", "at": at}) + "\n" for at in times))


class Faulty(bl.Process):
    """Sets its timer again and again at the end of input, except if it is `mended`."""

    tick = bl.EventTimer()

    def __init__(self, *, mended: bool) -> None:
        self.mended = mended

    def element(self, row: dict[str, Any]) -> Any:
        self.tick.after("1m")
        return
        yield

    def on_tick(self) -> Any:
        yield {"at": int(self.time.timestamp())}
        if not self.mended:
            self.tick.after("1m")


def ticks(*, mended: bool = False) -> bl.Pipeline:
    p = bl.Pipeline("p")
    source = bl.JSONLines("in", schema={"k": str, "at": int}, order="path")
    rows = p.read("rows", source, timestamp="at", timestamp_unit="s", watermark=NEWEST)
    process = rows.group_by("k", name="ticks").process(Faulty(mended=mended), {"at": int})
    process.write("out", bl.JSONLines("out"))
    return p


def written() -> list[int]:
    lines = [line for part in Path("out").glob("*.jsonl") for line in part.read_text().splitlines()]
    return sorted(json.loads(line)["at"] for line in lines)


@pytest.mark.parametrize(
    "runner", ["local", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.slow])], indirect=True
)
def test_after_a_drain_that_failed_anything_may_follow(runner: Any) -> None:
    put(0, 30, 100)
    ticks().run(runner(checkpoint="checkpoint"))
    with pytest.raises((bl.StepError, bl.RunError), match="timer 'tick' of key a sets itself"):
        ticks().run(runner(checkpoint="checkpoint", drain=True))
    bl.savepoint.save("checkpoint", "savepoint")
    put(120, 130)
    ticks().run(runner(checkpoint="checkpoint"))
    ticks(mended=True).run(runner(checkpoint="checkpoint", drain=True))
    assert written() == [90, 190]


def test_a_drain_that_failed_at_a_sink_is_done_again_to_its_end() -> None:
    put(0, 100)

    def fail(record: BatchRecord) -> None:
        raise RuntimeError("after the sinks have got it")

    ticks(mended=True).run(bl.LocalRunner(checkpoint="checkpoint"))
    with pytest.raises(RuntimeError, match="after the sinks"):
        ticks(mended=True).run(bl.LocalRunner(checkpoint="checkpoint", drain=True, on_batch=fail))
    with pytest.raises(
        bl.CheckpointError, match="was stopped while it was drained; finish that with drain=True"
    ):
        ticks(mended=True).run(bl.LocalRunner(checkpoint="checkpoint"))
    with pytest.raises(
        bl.CheckpointError, match="was stopped while it was drained, and sinks may have a part"
    ):
        bl.savepoint.save("checkpoint", "savepoint")
    ticks(mended=True).run(bl.LocalRunner(checkpoint="checkpoint", drain=True))
    assert written() == [60, 160]
