"""A complete source ends when its input is read, and other sources go on without it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import polars as pl
import pytest

import beamlike as bl
from beamlike.errors import CheckpointError, SourceError
from beamlike.observe import why
from beamlike.records.history import History
from tests.end_to_end.test_one_object_many_runs import COLUMNS, SOURCES, gone, put_in_delta, put_in_table
from windowing.time import MAX_TIME

Put = Callable[[Iterable[int]], None]
Runner = Callable[..., Any]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@attrs.frozen
class Numbers:
    """A user-defined source, which reads the numbers in a file from a position on, and may be complete."""

    path: str
    complete: bool = False
    bounded = True

    def schema(self) -> Mapping[str, Any]:
        return dict(COLUMNS)

    def plan(self, position: Mapping[str, Any], rows: int) -> bl.PlannedBatch | None:
        lines, first = Path(self.path).read_text().split(), position.get("next", 0)
        if first == len(lines):
            return None
        return bl.PlannedBatch([first, len(lines)], {"next": len(lines)})

    def read(self, taken: bl.PlannedBatch) -> pl.DataFrame:
        first, end = taken.input
        times = [int(line) for line in Path(self.path).read_text().split()[first:end]]
        return pl.DataFrame({"user": ["ada"] * len(times), "at": times}, schema=COLUMNS)


def put_numbers(times: Iterable[int]) -> None:
    with Path("in").open("a") as lines:
        lines.writelines(f"{at}\n" for at in times)


PAST: Mapping[str, tuple[Callable[..., Any], Put]] = {
    "parquet": (lambda **how: bl.Parquet("in", COLUMNS, **how), SOURCES["parquet"][1]),
    "csv": (lambda **how: bl.CSV("in", COLUMNS, **how), SOURCES["csv"][1]),
    "json": (lambda **how: bl.JSONLines("in", COLUMNS, **how), SOURCES["jsonl"][1]),
    "a table": (lambda **how: bl.Table("sqlite:///in.db", "plays", **how), put_in_table),
    "a table that grows": (lambda **how: bl.Table("sqlite:///in.db", "plays", grows="id", **how), put_in_table),
    "delta": (lambda **how: bl.Delta("in", **how), put_in_delta),
    "one's own": (lambda **how: Numbers(str(Path("in").absolute()), **how), put_numbers),
}  # fmt: skip
"""The sources that a user can declare complete, and how they get rows."""
WITHOUT_NEW_ROWS = ("a table",)
"""Sources that are read once, and are not asked for more."""


def put_live(*times: int) -> None:
    """Appends a file to the live source."""
    Path("live").mkdir(exist_ok=True)
    name = f"live/{len(os.listdir('live')):03}.jsonl"
    Path(name).write_text("".join(f'{{"user": "ada", "at": {at}}}\n' for at in times))


def pipeline(past: Any, got: list[Any], *, more: bool = False) -> bl.Pipeline:
    """Declares plays in ten seconds, from the past and live; with `more`, also those of the past alone."""
    p = bl.Pipeline("plays")
    how: Any = {"timestamp": "at", "timestamp_unit": "s", "watermark": bl.MonotonousTimestamps()}
    old = p.read("past", past, **how)
    new = p.read("live", bl.JSONLines("live", COLUMNS, order="path"), **how)

    def counted(rows: bl.Collection, name: str) -> None:
        windows = rows.window_into(bl.FixedWindows("10s")).group_by("user", name=name)
        windows.aggregate(n=bl.count()).write(f"out {name}", bl.Callback(lambda rows, _: take(name, rows)))

    def take(name: str, rows: pl.DataFrame) -> None:
        seen = rows.select(pl.col("window_start").dt.epoch("s"), "n", "pane_timing").sort("window_start")
        got.extend((name, *row) for row in seen.rows())

    counted(bl.flatten(old.select("user", "at"), new), "both")
    if more:
        counted(old, "past alone")
    return p


def local(folder: str, **choices: Any) -> Any:
    return bl.LocalRunner(checkpoint=folder, **choices)


@pytest.fixture
def on_spark(spark: Any) -> Runner:
    def runner(folder: str, **choices: Any) -> Any:
        return bl.SparkRunner(str(Path(folder).absolute()), session=spark, shards=2, **choices)

    return runner


FIRST = [("both", 0, 2, "on_time"), ("both", 10, 1, "on_time")]
"""The panes after the past (1, 5, 12) and the first of live (25): the watermark is that of live alone."""
SECOND = [("both", 20, 2, "on_time")]
"""The panes after the next of live (28, 40)."""


def backfill_then_live(kind: str, runner: Runner, caplog: pytest.LogCaptureFixture) -> None:
    make, put = PAST[kind]
    gone()
    put([1, 5])
    put([12])
    put_live(25)
    got: list[Any] = []
    first = pipeline(make(complete=True), got).run(runner("checkpoint"))
    assert got == FIRST
    assert first.batches[-1].sources["past"].over
    assert not first.batches[-1].sources["live"].over
    got.clear()
    # It is still over after a restart, and its later input is reported.
    put([26])
    put_live(28, 40)
    with caplog.at_level(logging.WARNING, "beamlike"):
        second = pipeline(make(complete=True), got).run(runner("checkpoint"))
    assert got == SECOND
    record = second.batches[-1].sources["past"]
    assert (record.over, record.watermark, record.elements) == (True, MAX_TIME, 0)
    told = why(History.open("checkpoint"))
    assert any("no longer waits for `past`, whose input has ended" in str(one) for one in told)
    late = [one for one in map(str, told) if "source `past` has ended, and does not read" in one]
    assert len(late) == len(record.changed) == int(kind not in WITHOUT_NEW_ROWS)
    if kind not in WITHOUT_NEW_ROWS:
        assert "(complete=True" in caplog.text
        assert late[0] in repr(second)
    with pytest.raises(CheckpointError, match="source 'past' is over in this checkpoint"):
        pipeline(make(), got).run(runner("checkpoint"))


@pytest.mark.parametrize("kind", PAST)
def test_a_backfill_and_a_live_source_are_one_pipeline(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    backfill_then_live(kind, local, caplog)


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["parquet", pytest.param("delta", marks=pytest.mark.slow), "one's own"])
def test_so_are_they_on_spark(kind: str, on_spark: Runner, caplog: pytest.LogCaptureFixture) -> None:
    backfill_then_live(kind, on_spark, caplog)


def test_without_it_the_past_holds_the_watermark() -> None:
    put_numbers([1, 5, 12])
    put_live(25, 40)
    got: list[Any] = []
    run = pipeline(Numbers("in"), got).run(local("checkpoint"))
    assert got == FIRST[:1]
    assert not run.batches[-1].sources["past"].over


def rows(**how: Any) -> bl.Rows:
    return bl.Rows([{"user": "ada", "at": at} for at in (1, 5, 12)], COLUMNS, **how)


def test_rows_in_memory_may_be_complete() -> None:
    put_live(25)
    got: list[Any] = []
    for panes in (FIRST, []):
        got.clear()
        pipeline(rows(complete=True), got).run(local("checkpoint"))
        assert got == panes
    pipeline(rows(), got := []).run(local("another"))
    assert got == FIRST[:1]


def batches_of(run: Any) -> list[tuple[int, int]]:
    """Returns the watermarks of both sources after each of the first three batches."""
    return [(one.sources["past"].watermark, one.sources["live"].watermark) for one in run.batches][:3]


@pytest.mark.spark
def test_the_source_is_over_with_its_last_file_on_all_runners(on_spark: Runner) -> None:
    for times in ([1, 5], [12]):
        SOURCES["parquet"][1](times)
    for at in (3, 25, 40):
        put_live(at)
    found = []
    for runner in (bl.LocalRunner(chunk_rows=1), local("here"), on_spark("there")):
        p, got = bl.Pipeline("plays"), []  # type: ignore[var-annotated]
        how: Any = {"timestamp": "at", "timestamp_unit": "s", "watermark": bl.MonotonousTimestamps()}
        past = bl.Parquet("in", COLUMNS, complete=True, max_files_per_trigger=1, order="path")
        live = bl.JSONLines("live", COLUMNS, max_files_per_trigger=1, order="path")
        both = bl.flatten(p.read("past", past, **how), p.read("live", live, **how))
        counts = both.window_into(bl.FixedWindows("10s")).group_by("user").aggregate(n=bl.count())
        counts.write("out", bl.Callback(lambda rows, batch, got=got: got.append((batch, *rows["n"]))))
        run = p.run(runner)
        found.append((batches_of(run), [one for one in got if one[0] < 3]))
    assert found[0] == found[1] == found[2]
    second = 1_000_000
    assert found[0][0] == [
        (5 * second, 3 * second),
        (MAX_TIME, 25 * second),
        (MAX_TIME, 40 * second),
    ]


def test_an_empty_folder_is_over_at_once_and_a_file_that_comes_later_fails_if_so_asked() -> None:
    Path("in").mkdir()
    put_live(5, 25)
    past = bl.Parquet("in", COLUMNS, complete=True, on_change="error")
    got: list[Any] = []
    run = pipeline(past, got).run(local("checkpoint"))
    assert got == [("both", 0, 1, "on_time")]
    assert [one.sources["past"].over for one in run.batches] == [True]
    SOURCES["parquet"][1]([7])
    with pytest.raises(
        SourceError, match=r"came after the source was over \(complete=True\), and is not read"
    ):
        pipeline(past, got).run(local("checkpoint"))


def test_it_may_be_declared_on_a_restart() -> None:
    put_numbers([1, 5])
    put_live(25)
    got: list[Any] = []
    pipeline(Numbers("in"), got).run(local("checkpoint"))
    assert got == []
    put_numbers([12])
    pipeline(Numbers("in", complete=True), got).run(local("checkpoint"))
    assert got == FIRST


def test_the_end_of_a_complete_source_is_no_drain() -> None:
    put_numbers([1, 5, 12])
    put_live(25)
    found = {}
    for complete in (True, False):
        p, out = bl.Pipeline("plays"), bl.Memory()
        how: Any = {"timestamp": "at", "timestamp_unit": "s", "watermark": bl.MonotonousTimestamps()}
        for name, source in {
            "past": Numbers("in", complete=complete),
            "live": bl.JSONLines("live", COLUMNS),
        }.items():
            windows = p.read(name, source, **how).window_into(bl.FixedWindows("10s"))
            counts = windows.group_by("user", name=f"counts of {name}").aggregate(n=bl.count())
            seen = counts.with_columns(of=bl.lit(name), cause=bl.pane_cause(), drained=bl.pane_drained())
            seen.write(f"{name} out", out)
        run = p.run(bl.LocalRunner(checkpoint=f"complete {complete}", drain=True))
        found[complete] = out.frame().sort("of", "window_start").select("of", "cause", "drained").rows()
        assert run.batches[-1].stages["counts of live"].drained == 1
    live = ("live", "drained", True)
    assert found[True] == [live, ("past", "over", False), ("past", "over", False)]
    assert found[False] == [live, ("past", "over", False), ("past", "drained", True)]


def new_stage_on_a_restart(runner: Runner) -> None:
    put_numbers([1, 5, 12])
    put_live(25)
    past, got = Numbers(str(Path("in").absolute()), complete=True), []  # type: ignore[var-annotated]
    pipeline(past, got).run(runner("checkpoint"))
    put_live(28, 40)
    got.clear()
    run = pipeline(past, got, more=True).run(runner("checkpoint"))
    assert got == SECOND
    assert run.batches[-1].stages["past alone"].input == MAX_TIME


def test_a_stage_that_is_new_on_a_restart_knows_that_it_is_over() -> None:
    new_stage_on_a_restart(local)


@pytest.mark.spark
def test_so_does_one_on_spark(on_spark: Runner) -> None:
    new_stage_on_a_restart(on_spark)


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["parquet", "one's own"])
def test_a_savepoint_moves_it_between_the_runners(kind: str, on_spark: Runner, spark: Any) -> None:
    make, put = PAST[kind]
    gone()
    put([1, 5, 12])
    put_live(25)
    got: list[Any] = []
    pipeline(make(complete=True), got).run(local("a"))
    ways: Iterator[tuple[str, str, Any, dict[str, Any]]] = iter(
        [
            ("a", "b", on_spark, {"runner": "spark", "session": spark, "shards": 2}),
            ("b", "c", local, {"runner": "local"}),
        ]
    )
    for number, (before, after, runner, where) in enumerate(ways):
        got.clear()
        session = {"session": spark} if before == "b" else {}
        bl.savepoint.save(before, f"saved {number}", **session)
        restored = pipeline(make(complete=True), got)
        bl.savepoint.restore(f"saved {number}", after, restored, **where)
        put([26 + number])
        put_live(30 + 20 * number)
        run = restored.run(runner(after))
        assert got == [("both", 20 + 10 * number, 1, "on_time")]
        record = run.batches[-1].sources["past"]
        assert (record.over, record.elements, len(record.changed)) == (
            True,
            0,
            min(number, 1) + 1 if kind == "parquet" else 1,
        )
    with pytest.raises(CheckpointError, match="is over in this checkpoint"):
        pipeline(make(), got).run(local("c"))


def test_a_batch_in_which_it_is_over_is_replayed_and_a_stage_is_built_anew() -> None:
    make, put = PAST["parquet"]
    put([1, 5, 12])
    put_live(25)
    got: list[Any] = []
    pipeline(make(complete=True), got).run(local("checkpoint"))
    replayed = bl.replay("checkpoint", pipeline(make(complete=True), got), batch=0)
    assert replayed.comparison.differences == ()
    put_live(28)
    pipeline(make(complete=True), got).run(local("checkpoint"))
    built = bl.rebuild("checkpoint", "saved", pipeline(make(complete=True), got), stage="both")
    assert built.read == {"past": 3, "live": 2}
    bl.savepoint.restore("saved", "after", pipeline(make(complete=True), got), runner="local")
    put_live(40)
    got.clear()
    pipeline(make(complete=True), got).run(local("after"))
    assert got == SECOND


def only_past(past: Any, got: list[Any], *, timers: bool = False) -> bl.Pipeline:
    """Counts of windows of the past alone; with `timers`, in a pipeline in which processing time passes."""
    p = bl.Pipeline("plays")
    how: Any = {"timestamp": "at", "timestamp_unit": "s", "watermark": bl.MonotonousTimestamps()}
    old = p.read("past", past, **how)
    trigger = bl.AfterWatermark(early=bl.AfterProcessingTime("1h")) if timers else bl.DefaultTrigger()
    windows = old.window_into(bl.FixedWindows("10s"), trigger=trigger, accumulation="discarding")
    counts = windows.group_by("user").aggregate(n=bl.count())
    counts.write("out", bl.Callback(lambda rows, _: got.extend(rows["n"])))
    return p


def ends_by_itself(runner: Runner, caplog: pytest.LogCaptureFixture, *, timers: bool = False) -> None:
    """Checks that a run with an interval ends when all its sources have ended, and a resumed run, too."""
    SOURCES["parquet"][1]([1, 5, 12])
    got: list[Any] = []
    for expected in ([1, 2], []):
        got.clear()
        caplog.clear()
        with caplog.at_level(logging.INFO, "beamlike"):
            run = only_past(bl.Parquet("in", COLUMNS, complete=True), got, timers=timers).run(
                runner("checkpoint", trigger="1 second")
            )
        assert sorted(got) == expected
        assert "plays: all sources are over, so the run ends" in caplog.text
        assert History.open("checkpoint").closed == "ended"
        assert run.batches or not expected


@pytest.mark.parametrize("timers", [False, True])
def test_a_run_with_an_interval_ends_if_all_its_sources_are_over(
    caplog: pytest.LogCaptureFixture, timers: bool
) -> None:
    ends_by_itself(local, caplog, timers=timers)


@pytest.mark.spark
def test_so_does_one_with_an_interval_on_spark(on_spark: Runner, caplog: pytest.LogCaptureFixture) -> None:
    ends_by_itself(on_spark, caplog)


def test_explain_says_when_it_is_over_and_pipeline_files_know_it() -> None:
    put_numbers([1])
    Path("live").mkdir()
    text = pipeline(Numbers("in", complete=True), []).explain()
    assert "over        when all its input is read" in text
    p = bl.Pipeline("p")
    p.read("past", bl.Parquet("live", COLUMNS, complete=True)).write("out", bl.Parquet("out"))
    assert "complete: true" in p.to_yaml()
    Path("p.yaml").write_text(p.to_yaml())
    assert bl.from_yaml("p.yaml").explain() == p.explain()
