"""The verdict on a run: healthy, waiting for a source or stage, or slow or stuck (figures 3-12 to 3-15)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Self

import attrs
import polars as pl
import pytest

import beamlike as bl
from beamlike.errors import RecordsInUse
from beamlike.observe.report import report
from beamlike.observe.waiting.explain import why
from beamlike.observe.watch import watch
from beamlike.records.history import History
from beamlike.records.model import BatchRecord
from beamlike.records.status_files import RunStatusFile
from beamlike.system import locks
from beamlike.system.activity import ActivityTracker
from tests.beamlike.observe.test_report import Page
from tests.beamlike.observe.test_system_lag import SECOND, Clock
from tests.support.histories import PLAN, history, waiting
from tests.support.simulated import flagship

START = 1_767_225_600 * SECOND
BATCHES = 24


@attrs.frozen
class Devices:
    """A source with a batch every five seconds of an element of each device; device 1 may fall silent."""

    clock: Clock
    silent_after: int = BATCHES
    bounded: bool = True

    def schema(self) -> pl.Schema:
        return pl.Schema({"at": pl.Int64(), "device": pl.Int64()})

    def for_event_time(self, column: str) -> Self:
        return self

    def chunks(self, rows: int) -> Iterator[pl.LazyFrame]:
        for number in range(BATCHES):
            self.clock.now = max(self.clock.now, START + 5 * SECOND * number)
            devices = [1, 2] if number < self.silent_after else [2]
            yield pl.LazyFrame({"at": self.clock.now, "device": devices}, schema=self.schema())


def ran(
    path: Path, *, slower: float = 0.0, silent_after: int = BATCHES, going: bool = True, **windowing: Any
) -> History:
    """Returns the run, as if read before its end; each batch takes `slower` more seconds than the one before."""
    clock = Clock(START)

    def work(row: dict[str, Any]) -> dict[str, Any]:
        clock.take(slower * (row["at"] - START) / SECOND / 5)
        return row

    p = bl.Pipeline("devices")
    strategy = bl.MonotonousTimestamps(per_split="device")
    source = Devices(clock, silent_after)
    read = p.read("devices", source, timestamp="at", timestamp_unit="us", watermark=strategy)
    windows = read.map(work, name="work").window_into(
        bl.FixedWindows(windowing.pop("size", "20s")), **windowing
    )
    windows.aggregate(n=bl.count()).named("counted").write("out", bl.Memory())
    p.run(bl.LocalRunner(records=path / "run.jsonl", clock=clock))
    told = History.open(path / "run.jsonl")
    if going:
        told.batches.pop()
        told.closed = None
    return told


def verdict(told: History, later: int = 1) -> str:
    """Returns the verdict at the top of the page, `later` seconds after the last batch."""
    assert told.latest is not None
    assert told.latest.finished is not None
    page = report(told, told.latest.finished + later * SECOND)
    return Page(page.split("<div class='verdict'>")[1].split("</div>")[0]).text


def test_a_saw_tooth_is_healthy(tmp_path: Path) -> None:
    assert (
        verdict(ran(tmp_path, timestamp_combiner=bl.EARLIEST)) == "Healthy: no lag grows; a batch takes 0s."
    )


def test_data_that_waits_for_a_window_is_told_with_what_it_waits_for(tmp_path: Path) -> None:
    told = verdict(ran(tmp_path, size="1h", timestamp_combiner=bl.EARLIEST))
    assert told.startswith(
        "Data waits: the output watermark of stage counted is at 2026-01-01T00:00:00Z, 1m5"
    )
    assert "waits for the input watermark of stage counted to reach 2026-01-01T01:00:00Z" in told


def test_a_split_that_is_silent_is_named(tmp_path: Path) -> None:
    told = verdict(ran(tmp_path, silent_after=8))
    assert told.startswith("Data waits: the output watermark of stage counted")
    assert told.endswith(
        "waits for source devices , split 1, silent for 1m21s; set idle_after to let it pass."
    )


def test_batches_that_take_longer_and_longer_are_a_slow_system(tmp_path: Path) -> None:
    told = verdict(ran(tmp_path, slower=0.5))
    assert told.startswith("The system is slow: batches take longer and longer, 0s 23 batches ago and ")
    assert told.endswith("Most of that is spent before or in stage counted .")


def test_no_batch_for_long_is_waiting_for_input(tmp_path: Path) -> None:
    told = verdict(ran(tmp_path), later=300)
    assert told == "Waits for input: no batch for 5m, since 2026-01-01T00:01:55Z."


def test_the_end_is_told_with_what_was_lost(tmp_path: Path) -> None:
    assert verdict(ran(tmp_path, going=False)) == "The run has ended, and all windows are closed."
    told = verdict(flagship(held=True))
    assert told.startswith("The run has ended, and all windows are closed. ")
    assert told.endswith("On the way, 8 elements and 7 dead letters were dropped or set aside.")
    stopped = history(waiting(), closed="stopped")
    assert verdict_of(stopped) == "The run was stopped after batch 7, with windows open."


def verdict_of(told: History) -> str:
    return Page(report(told).split("<div class='verdict'>")[1].split("</div>")[0]).text


def test_a_run_that_was_killed_is_told_with_what_it_was_in(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    ran(tmp_path)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:6]))
    status = RunStatusFile.take(path)
    tracker = ActivityTracker(Clock(START), status.write)
    tracker.begin(5)
    tracker.enter("stage", "counted")
    assert why(History.open(path))[0].endswith("; the run is running")
    status._file.close()  # as the end of a process does it
    told = History.open(path)
    assert why(told)[0] == "the run was killed in batch 5, in stage `counted`"
    assert why(told)[1] == "after batch 4, at 2026-01-01T00:00:20Z; the run was killed"
    assert "nothing moves until the run is resumed" in why(told)[-1]
    assert verdict_of(told).startswith(
        "The run was killed in batch 5, in stage counted . The run was killed, after batch 4"
    )
    watch(path, wait=lambda seconds: pytest.fail("it waits for a run that is dead"))


def test_a_first_batch_that_hangs_shows(tmp_path: Path) -> None:
    status = RunStatusFile.take(tmp_path / "run.jsonl")
    told = History(PLAN, in_hand=None, alive=True)
    tracker = ActivityTracker(Clock(START), status.write)
    tracker.begin(0)
    tracker.enter("source", "mobile")
    told.in_hand = tracker.in_hand
    said = "batch 0 has been running for 1m: source `mobile`, for 1m"
    assert said in why(told, now=START + 60 * SECOND)
    status.remove()


@pytest.mark.parametrize("others", [False, True], ids=["it is gone", "it is another run's"])
def test_a_slip_that_is_removed_while_it_is_taken_is_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: bool
) -> None:
    path = tmp_path / "run.jsonl"
    first, lock, taken = RunStatusFile.take(path), locks._lock, list[RunStatusFile]()

    def late(file: IO[bytes]) -> bool:
        """Ends the run that held the slip, between open and lock, and perhaps begins another one."""
        monkeypatch.undo()
        first.remove()
        if others:
            taken.append(RunStatusFile.take(path))
        return lock(file)

    monkeypatch.setattr(locks, "_lock", late)
    with pytest.raises(RecordsInUse) if others else contextlib.nullcontext():
        taken.append(RunStatusFile.take(path))
    with pytest.raises(RecordsInUse):
        RunStatusFile.take(path)
    (second,) = taken
    second.remove()
    RunStatusFile.take(path).remove()


def test_a_second_run_in_process_does_not_go_on_with_the_records_of_the_first(tmp_path: Path) -> None:
    first = ran(tmp_path, going=False)
    seen: list[BatchRecord] = []
    p = bl.Pipeline("other")
    rows = p.read(
        "rows", bl.Rows([{"at": 1}]), timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps()
    )
    rows.write("out", bl.Memory())
    p.run(bl.LocalRunner(records=tmp_path / "run.jsonl", on_batch=seen.append))
    told = History.open(tmp_path / "run.jsonl")
    assert (told.plan.pipeline, told.batches, told.closed) == ("other", seen, "ended")
    # A reader that followed the first run sees the second.
    assert first.refresh()
    assert (first.plan.pipeline, first.batches) == ("other", seen)


def test_records_do_not_replace_a_file_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "run.jsonl").write_text("mine\n")
    with pytest.raises(FileExistsError, match=r"run.jsonl' is not a records file; name another one"):
        ran(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["run.jsonl"]


def test_the_page_has_rows_of_sinks_lags_of_splits_and_a_legend_for_window_ends(tmp_path: Path) -> None:
    text = Page(report(ran(tmp_path, silent_after=8))).text
    assert "out 1 Every row is accounted for." in text
    day = "2026-01-01"
    assert f"devices 1 {day} 00:00:35 1m20s 1m20s ago devices 2 {day} 00:01:55 0s 0s ago" in text
    assert "ends of windows" in text
