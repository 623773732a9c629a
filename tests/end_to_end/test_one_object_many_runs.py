"""A declaration does not change: a second run of one pipeline object is like a run of a new object."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs
import polars as pl
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

import beamlike as bl
from beamlike.io import Part
from tests.support.parcels import Crates, Parcels

COLUMNS = {"user": str, "at": int}


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@attrs.define
class ByRun:
    """A sink of rows by the run that wrote them."""

    runs: dict[str, list[tuple[Any, ...]]] = attrs.field(factory=dict)

    def write(self, frame: pl.DataFrame, part: Part) -> None:
        self.runs.setdefault(part.query, []).extend(frame.select("user", "n").rows())


# Sources


def frame(times: Iterable[int]) -> pl.DataFrame:
    return pl.DataFrame({"user": "ada", "at": list(times)}, schema={"user": pl.String, "at": pl.Int64})


def put_file(kind: str, times: Sequence[int]) -> None:
    Path("in").mkdir(exist_ok=True)
    name = f"in/{len(list(Path('in').iterdir())):03d}.{kind}"
    {
        "parquet": frame(times).write_parquet,
        "csv": frame(times).write_csv,
        "jsonl": frame(times).write_ndjson,
    }[kind](name)


def put_in_table(times: Sequence[int]) -> None:
    with closing(sqlite3.connect("in.db")) as database, database:
        database.execute("CREATE TABLE IF NOT EXISTS plays (id INTEGER PRIMARY KEY, user TEXT, at INTEGER)")
        database.executemany("INSERT INTO plays (user, at) VALUES ('ada', ?)", [(at,) for at in times])


def put_in_delta(times: Sequence[int]) -> None:
    frame(times).write_delta("in", mode="append")


def put_parcel(times: Sequence[int]) -> None:
    Path("in").mkdir(exist_ok=True)
    Parcels("in").put([("ada", at) for at in times], times[-1])


@attrs.define
class Numbered:
    """A source of the lines of a file, whose reader remembers the greatest number that it has read."""

    path: str
    bounded = False
    watermark = bl.AnnouncedWatermark()

    def schema(self) -> Mapping[str, Any]:
        return {"user": pl.String, "at": pl.Int64}

    def opened(self, position: Mapping[str, Any]) -> Opened:
        return Opened(self.path, position.get("greatest", 0))

    def plan(self, position: Mapping[str, Any], rows: int) -> bl.PlannedBatch | None:
        raise AssertionError("a run asks what it has opened")

    def read(self, taken: bl.PlannedBatch) -> pl.DataFrame:
        first, end = taken.input
        return frame(map(int, Path(self.path).read_text().split()[first:end]))


@attrs.define
class Opened(Numbered):
    """The reader of one run."""

    greatest: int

    def plan(self, position: Mapping[str, Any], rows: int) -> bl.PlannedBatch | None:
        first, lines = position.get("next", 0), Path(self.path).read_text().split()
        if first == len(lines):
            return None
        self.greatest = max(self.greatest, *map(int, lines[first:]))
        after = {"next": len(lines), "greatest": self.greatest}
        return bl.PlannedBatch([first, len(lines)], after, watermark=self.greatest * 1_000_000)


def put_lines(times: Sequence[int]) -> None:
    with Path("in").open("a") as lines:
        lines.writelines(f"{at}\n" for at in times)


SOURCES: Mapping[str, tuple[Callable[[], Any], Callable[[Sequence[int]], None]]] = {
    "parquet": (lambda: bl.Parquet("in"), lambda times: put_file("parquet", times)),
    "csv": (lambda: bl.CSV("in"), lambda times: put_file("csv", times)),
    "jsonl": (lambda: bl.JSONLines("in", COLUMNS), lambda times: put_file("jsonl", times)),
    "table": (lambda: bl.Table("sqlite:///in.db", "plays", grows="id"), put_in_table),
    "delta": (lambda: bl.Delta("in"), put_in_delta),
    "announcing": (lambda: Parcels("in"), put_parcel),
    "in parts": (lambda: Crates(Parcels("in")), put_parcel),
    "opened": (lambda: Numbered(str(Path("in").absolute())), put_lines),
}


def gone() -> None:
    for name in ("in", "in.db"):
        shutil.rmtree(name, ignore_errors=True)
        Path(name).unlink(missing_ok=True)


def counted(source: Any) -> tuple[bl.Pipeline, ByRun]:
    """Declares counts of plays in ten seconds."""
    p, out = bl.Pipeline("plays"), ByRun()
    watermark = None if hasattr(source, "watermark") else bl.MonotonousTimestamps()
    plays = p.read("plays", source, timestamp="at", timestamp_unit="s", watermark=watermark)
    windows = plays.window_into(bl.FixedWindows("10s")).group_by("user", name="windows")
    windows.aggregate(n=bl.count()).write("out", out)
    return p, out


def told(run: Any) -> list[Any]:
    """Returns the watermark of the source after each batch, and the rows that were late."""
    return [
        (batch.sources["plays"].watermark, dict(batch.stages["windows"].dropped or {}))
        for batch in run.batches
    ]


Runner = Callable[..., Any]


def local(folder: str, **choices: Any) -> Any:
    return bl.LocalRunner(checkpoint=folder, **choices)


def second_run(kind: str, runner: Runner, *, shared: bool) -> list[Any]:
    """Runs on one checkpoint, then recreates the input and runs on another one."""
    make, put = SOURCES[kind]
    gone()
    put([1000, 1011])
    declared = counted(make())
    declared[0].run(runner(f"{shared}-a", drain=True))
    gone()
    put([1, 2, 25])
    p, out = declared if shared else counted(make())
    out.runs.clear()
    first = p.run(runner(f"{shared}-b"))
    put([30, 41])
    last = p.run(runner(f"{shared}-b", drain=True))
    [rows] = out.runs.values()
    return [told(first), told(last), sorted(rows)]


@pytest.mark.parametrize("kind", SOURCES)
def test_a_source_is_read_anew_on_another_checkpoint(kind: str) -> None:
    expected = second_run(kind, local, shared=False)
    assert second_run(kind, local, shared=True) == expected
    assert [row[-1] for row in expected[-1]] == [1, 1, 1, 2]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("kind", [pytest.param("opened", marks=pytest.mark.long), "delta"])
def test_a_source_is_read_anew_on_another_checkpoint_on_spark(kind: str, spark: Any) -> None:
    def runner(folder: str, **choices: Any) -> Any:
        return bl.SparkRunner(str(Path(folder).absolute()), session=spark, shards=1, **choices)

    rows = second_run(kind, runner, shared=True)[-1]
    assert [row[-1] for row in rows] == [1, 1, 1, 2]


@pytest.mark.parametrize("kind", ["parquet", "csv", "table", "delta"])
def test_a_source_object_that_another_pipeline_reads_has_the_columns_of_then(kind: str) -> None:
    make, put = SOURCES[kind]
    put([1])
    source = make()
    before = bl.Pipeline("before").read("plays", source)
    gone()
    if kind == "table":
        with closing(sqlite3.connect("in.db")) as database, database:
            database.execute("CREATE TABLE plays (id INTEGER PRIMARY KEY, city TEXT)")
    elif kind == "delta":
        pl.DataFrame({"city": ["rome"]}).write_delta("in")
    else:
        Path("in").mkdir()
        {"parquet": pl.DataFrame.write_parquet, "csv": pl.DataFrame.write_csv}[kind](
            pl.DataFrame({"city": ["rome"]}), f"in/1.{kind}"
        )
    assert "city" in bl.Pipeline("after").read("plays", source).schema
    assert "city" in bl.Pipeline("read again").read("plays", bl.Refreshed(source, "5m")).schema
    assert "at" in before.schema


# Sinks


@attrs.frozen
class Target:
    """A destination of sinks, and its rows."""

    sink: Callable[[], Any]
    rows: Callable[[], Sequence[tuple[Any, ...]]]


def from_files(kind: str) -> Sequence[tuple[Any, ...]]:
    reads = {"parquet": pl.read_parquet, "csv": pl.read_csv, "jsonl": pl.read_ndjson}
    frames = [reads[kind](file) for file in sorted(Path("out").glob(f"*.{kind}"))]
    return sorted(pl.concat([one.select("user", "n") for one in frames]).rows())


def from_table() -> Sequence[tuple[Any, ...]]:
    with closing(sqlite3.connect("out.db")) as database:
        return sorted(database.execute('SELECT "user", n FROM counts').fetchall())


CATALOG = {"type": "sql", "uri": "sqlite:///out.db", "warehouse": "out"}


def from_iceberg() -> Sequence[tuple[Any, ...]]:
    table = load_catalog("default", **CATALOG).load_table("games.counts")
    return sorted(pl.DataFrame(pl.from_arrow(table.scan().to_arrow())).select("user", "n").rows())


def iceberg(**choices: Any) -> Any:
    Path("out").mkdir(exist_ok=True)
    return bl.Iceberg("games.counts", CATALOG, **choices)


def from_delta() -> Sequence[tuple[Any, ...]]:
    return sorted(pl.read_delta("out").select("user", "n").rows())


TARGETS = {
    "parquet": Target(lambda: bl.Parquet("out"), lambda: from_files("parquet")),
    "csv": Target(lambda: bl.CSV("out"), lambda: from_files("csv")),
    "jsonl": Target(lambda: bl.JSONLines("out"), lambda: from_files("jsonl")),
    "table": Target(lambda: bl.Table("sqlite:///out.db", "counts"), from_table),
    "table, append": Target(lambda: bl.Table("sqlite:///out.db", "counts", mode="append"), from_table),
    "delta": Target(lambda: bl.Delta("out"), from_delta),
    "delta, upsert": Target(lambda: bl.Delta("out", mode="upsert"), from_delta),
    "iceberg": Target(iceberg, from_iceberg),
    "iceberg, upsert": Target(lambda: iceberg(mode="upsert"), from_iceberg),
}


def written(sink: Any) -> bl.Pipeline:
    p = bl.Pipeline("plays")
    rows = bl.Rows([{"user": "ada", "at": 1}, {"user": "bob", "at": 2}, {"user": "ada", "at": 25}], None, 1)
    plays = p.read("plays", rows, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    plays.window_into(bl.FixedWindows("10s")).group_by("user").aggregate(n=bl.count()).write("out", sink)
    return p


ONCE = [("ada", 1), ("ada", 1), ("bob", 1)]


@pytest.mark.parametrize("upkeep", ["left", "removed", "with another column"])
@pytest.mark.parametrize("kind", TARGETS)
def test_a_sink_of_a_second_run_knows_nothing_of_the_first(kind: str, upkeep: str) -> None:
    target = TARGETS[kind]
    p = written(target.sink())
    p.run(local("a", drain=True))
    assert target.rows() == ONCE
    if upkeep != "left":
        shutil.rmtree("out", ignore_errors=True)
        Path("out.db").unlink(missing_ok=True)
        Path("out").mkdir()
    if upkeep == "with another column":
        other(kind)
    p.run(local("b", drain=True))
    twice = upkeep == "left" and not (kind == "table" or "upsert" in kind)
    assert target.rows() == sorted(ONCE * (2 if twice else 1))


def other(kind: str) -> None:
    """Creates a table without the engine's own columns that distinguish rows; sinks then leave these out."""
    if kind == "table, append":
        with closing(sqlite3.connect("out.db")) as database, database:
            database.execute('CREATE TABLE counts ("user" TEXT, n BIGINT)')
    elif kind == "delta":
        DeltaTable.create("out", pl.DataFrame(schema={"user": pl.String, "n": pl.Int64}).to_arrow().schema)


@pytest.mark.parametrize("kind", [kind for kind in TARGETS if "upsert" not in kind and kind != "table"])
def test_two_runs_at_the_same_time_share_an_object_and_no_state(kind: str) -> None:
    target = TARGETS[kind]
    p, together = written(target.sink()), threading.Barrier(2, timeout=20)
    p.run(local("before", drain=True))  # makes the table

    def run(checkpoint: str) -> None:
        p.run(local(checkpoint, drain=True, on_batch=lambda record: together.wait()))

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(run, ["a", "b"]))
    assert target.rows() == sorted(3 * ONCE)


@pytest.mark.parametrize("kind", ["parquet", "table", "delta", "opened"])
def test_two_runs_at_the_same_time_read_all_of_a_source(kind: str) -> None:
    make, put = SOURCES[kind]
    put([1, 2, 25])
    put([30, 41])
    (p, out), together = counted(make()), threading.Barrier(2, timeout=20)

    def run(checkpoint: str) -> None:
        p.run(local(checkpoint, drain=True, on_batch=lambda record: together.wait()))

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(run, ["a", "b"]))
    assert [sorted(row[-1] for row in rows) for rows in out.runs.values()] == [[1, 1, 1, 2]] * 2


def test_memory_has_the_rows_of_the_run_that_began_last() -> None:
    out = bl.Memory()
    p = written(out)
    for checkpoint in ("a", "b"):
        p.run(local(checkpoint, drain=True))
        assert len(out.rows()) == len(ONCE)


def test_a_sink_of_ones_own_keeps_what_a_run_learns_in_what_it_gives_for_the_run() -> None:
    made: list[Any] = []

    @attrs.define
    class Counting(ByRun):
        seen: int = 0

        def for_run(self) -> Any:
            made.append(Counting())
            return made[-1]

        def write(self, frame: pl.DataFrame, part: Part) -> None:
            self.seen += len(frame)

    sink = Counting()
    p = written(sink)
    for checkpoint in ("a", "b"):
        p.run(local(checkpoint, drain=True))
    assert [one.seen for one in made] == [len(ONCE)] * 2
    assert sink.seen == 0


def test_what_a_sink_gives_for_a_run_must_be_a_sink() -> None:
    class Wrong(ByRun):
        def for_run(self) -> Any:
            return None

    with pytest.raises(bl.PlanError, match=r"step 'out': Wrong\.for_run\(\) must return a sink for one run"):
        written(Wrong()).run()
