"""Runs in process on several threads: rows, their order, records and errors are those of a single thread."""

from __future__ import annotations

import itertools
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import beamlike as bl
from beamlike.records.model import BatchRecord
from beamlike.runtime.loop.live_run import LiveRun
from tests.end_to_end.test_random_files import Pair, by_event_time, declare, files
from tests.support.examples import share
from tests.support.strategies import all_windows, fixed_windows, sliding_windows, windowings
from tests.support.threads import threads

pairs = st.tuples(windowings(windows=all_windows).filter(by_event_time), fixed_windows | sliding_windows)


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def outcome(
    folder: Path, given: list[Pair], most: int, **options: Any
) -> tuple[list[BatchRecord], dict[str, Any]]:
    """Returns the records of a run, and the rows of each sink in their order."""
    p, sinks = declare(folder, given, most)
    run = p.run(bl.LocalRunner(clock=lambda: 0, **options))
    return list(run.batches), {name: sink.frame().to_dicts() for name, sink in sinks.items()}


@share(6)
@given(given=st.lists(pairs, min_size=1, max_size=2), number=st.integers(0, 9), most=st.integers(1, 3))
def test_records_and_rows_in_their_order_do_not_depend_on_threads(
    given: list[Pair], number: int, most: int
) -> None:
    with TemporaryDirectory() as name:
        folder = files(Path(name), number)
        alone = outcome(folder, given, most)
        with threads(3):
            assert outcome(folder, given, most) == alone
            kept = outcome(folder, given, most, checkpoint=f"{name}/checkpoint", drain=True)
        assert kept == outcome(folder, given, most, checkpoint=f"{name}/another", drain=True)


def one_batch(p: bl.Pipeline) -> LiveRun:
    """Starts a run that stops after its first batch."""
    known = threading.Event()

    def on_batch(record: BatchRecord) -> None:
        known.wait()
        run.stop()

    run = bl.LocalRunner(checkpoint="in-parts", on_batch=on_batch).start(p.plan())
    known.set()
    run.wait()
    return run


@pytest.mark.parametrize("count", [1, 2, 3])
def test_what_was_read_ahead_by_a_run_that_stops_is_for_the_next(tmp_path: Path, count: int) -> None:
    folder = files(tmp_path / "rows")
    p, expected = declare(folder, [])
    p.run(bl.LocalRunner(checkpoint="at-once"))
    runs, sinks = list[int](), dict[str, list[dict[str, Any]]]()
    while not runs or runs[-1]:
        p, taken = declare(folder, [])
        with threads(count):
            runs.append(len(one_batch(p).batches))
        for name, sink in taken.items():
            sinks.setdefault(name, []).extend(sink.frame().to_dicts())
    assert runs == [1] * 6 + [0]
    assert sinks == {name: sink.frame().to_dicts() for name, sink in expected.items()}


@pytest.mark.parametrize("options", [{}, {"checkpoint": "checkpoint"}])
@pytest.mark.parametrize("damaged", [1, 2])
def test_what_is_set_aside_does_not_depend_on_when_it_was_read(
    tmp_path: Path, damaged: int, options: dict[str, Any]
) -> None:
    """Some rows are too far in the future during the previous batch, some also later; one file is damaged."""
    (tmp_path / "rows").mkdir()
    hours = [[0, 1], [2, 25, 99], [2, 26, 99], [4, 26], [5, 199], [6, 25]]
    for number, times in enumerate(hours):
        frame = pl.DataFrame({"at": [3_600 * hour for hour in times]})
        frame.write_parquet(tmp_path / f"rows/part-{number:02}.parquet", compression="uncompressed")
    file = tmp_path / f"rows/part-{damaged:02}.parquet"
    whole = file.read_bytes()
    file.write_bytes(whole[:4] + b"\0" * 30 + whole[34:])
    told = []
    for count in (1, 3):
        p, now, letters, out = bl.Pipeline("future"), itertools.count(), bl.Memory(), bl.Memory()
        files = bl.Parquet(tmp_path / "rows", {"at": int}, max_files_per_trigger=1, order="path")
        watermark = bl.MonotonousTimestamps()
        rows = p.read("rows", files, timestamp="at", timestamp_unit="s", watermark=watermark, max_future="1d")
        rows.dead_letters().write("letters", letters)
        rows.write("out", out)
        with threads(count):
            run = p.run(
                bl.LocalRunner(
                    clock=lambda now=now: next(now) * 900_000_000,
                    **{name: f"{path}-{count}" for name, path in options.items()},
                    **({"drain": True} if options else {}),
                )
            )
        told.append((run.batches, letters.frame().to_dicts(), out.frame().to_dicts()))
    assert told[0] == told[1]
    _, letters, out = told[0]
    assert sum("in the future" in letter["error"] for letter in letters) == 2
    assert sum("cannot be read" in letter["error"] for letter in letters) == 1
    assert len(out) == sum(map(len, hours)) - len(hours[damaged]) - 2


def read_files(p: bl.Pipeline, folder: Path, name: str) -> bl.Collection:
    """Reads a file in each batch."""
    return p.read(
        name,
        bl.JSONLines(folder / name, {"at": int}, max_files_per_trigger=1, order="path"),
        timestamp="at",
        timestamp_unit="us",
        watermark=bl.BoundedOutOfOrderness("1s"),
    )


def failing(folder: Path, source: str) -> bl.Pipeline:
    """Declares a run that fails on a later file of a source, which has no rows."""
    files(folder)
    (folder / source / "part-03.jsonl").write_text("[")
    p = bl.Pipeline("failing", on_error="fail")
    for name in ("rows", "others"):
        for path in (folder / name).glob("*"):
            path.write_text("\n".join(line for line in path.read_text().splitlines() if line != "no row"))
        read_files(p, folder, name).aggregate(n=bl.count()).write(f"out of {name}", bl.Memory())
    return p


@pytest.mark.parametrize("source", ["rows", "others"])
@pytest.mark.parametrize("options", [{}, {"checkpoint": "checkpoint"}])
def test_what_cannot_be_read_fails_the_run_in_the_same_way(
    tmp_path: Path, source: str, options: dict[str, Any]
) -> None:
    told, before = set[tuple[str, int]](), threading.active_count()
    for count in (1, 3):
        p, seen = failing(tmp_path / str(count), source), list[BatchRecord]()
        runner = bl.LocalRunner(
            on_batch=seen.append, **{name: f"{path}-{count}" for name, path in options.items()}
        )
        with threads(count), pytest.raises(bl.StepError) as caught:
            p.run(runner)
        told.add((str(caught.value).replace(str(tmp_path / str(count)), ""), len(seen)))
    ((_, batches),) = told
    assert batches > 0
    assert threading.active_count() == before


@pytest.mark.parametrize("fails", [False, True])
def test_functions_of_the_users_are_called_in_the_thread_of_the_run(tmp_path: Path, fails: bool) -> None:
    called = set[int]()

    def noted(row: dict[str, Any]) -> dict[str, Any]:
        called.add(threading.get_ident())
        if fails and row["at"] > 60:
            raise KeyboardInterrupt
        return row

    folder, before = files(tmp_path / "rows"), threading.active_count()
    p = bl.Pipeline("called")
    for name in ("rows", "others"):
        read = read_files(p, folder, name)
        read.map(noted).aggregate(n=bl.count()).map(lambda row: row).write(f"out of {name}", bl.Memory())
    with threads(3):
        run: Callable[[], object] = p.run
        if fails:
            with pytest.raises(KeyboardInterrupt):
                run()
        else:
            run()
    assert called == {threading.get_ident()}
    assert threading.active_count() == before


def test_sinks_get_rows_of_several_stages_in_the_order_of_the_plan(tmp_path: Path) -> None:
    """Stages of several levels write to one sink. Those of a lower level finish first, but need not be first."""
    out = {}
    for count in (1, 3):
        p = bl.Pipeline("levels")
        source = bl.Rows([{"at": at} for at in (1, 2, 3)])
        rows = p.read("rows", source, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
        first = rows.window_into(bl.FixedWindows("1s"))
        shallow = first.aggregate(n=bl.count()).named("z")
        deep = first.aggregate(n=bl.count()).named("a").aggregate(n=bl.sum("n")).named("b")
        sink = bl.Memory()
        bl.flatten(shallow.select("n"), deep.select("n")).write("out", sink)
        with threads(count):
            p.run()
        out[count] = sink.frame().to_dicts()
    assert out[1] == out[3]


def two_files(folder: Path, called: list[int], on_batch: Callable[[BatchRecord], None] | None = None) -> None:
    """Writes each one-row batch to two folders, and appends its number to `called`."""
    p = bl.Pipeline("two")
    for number in range(3):
        (folder / "in").mkdir(parents=True, exist_ok=True)
        (folder / "in" / f"{number}.csv").write_text(f"at\n{number}\n")
    source = bl.CSV(folder / "in", {"at": int}, max_files_per_trigger=1)
    rows = p.read("rows", source, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    rows.write("callback", bl.Callback(lambda frame, number: called.append(number)))
    rows.write("tables", bl.Parquet(folder / "tables"))
    rows.write("lines", bl.JSONLines(folder / "lines"))
    p.run(bl.LocalRunner(on_batch=on_batch))


def test_files_of_several_sinks_do_not_depend_on_threads(tmp_path: Path) -> None:
    lines, tables, called = list[Any](), list[Any](), list[int]()
    for count in (1, 3):
        folder = tmp_path / str(count)
        with threads(count):
            two_files(folder, called)
        lines.append({file.name: file.read_text() for file in (folder / "lines").glob("*.jsonl")})
        tables.append(
            {file.name: pl.read_parquet(file).to_dicts() for file in (folder / "tables").glob("*.parquet")}
        )
    assert lines[0] == lines[1]
    assert tables[0] == tables[1]
    assert len(lines[0]) == len(tables[0]) == 3
    assert called == [0, 1, 2] * 2


@pytest.mark.parametrize("count", [1, 3])
def test_where_a_file_cannot_be_written_no_sink_has_the_batch(tmp_path: Path, count: int) -> None:
    def no_folder(record: BatchRecord) -> None:
        beside = tmp_path / "lines" / ".part-two.jsonl.tmp"
        shutil.rmtree(beside)
        beside.write_text("a file where the folder was")

    called = list[int]()
    with threads(count), pytest.raises(bl.SinkError, match=r"sink 'lines': batch 1 could not be written"):
        two_files(tmp_path, called, no_folder)
    assert called == [0]
