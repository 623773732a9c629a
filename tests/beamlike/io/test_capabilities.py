"""The capabilities of each source and sink of the package, as the engine queries them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import beamlike as bl
from beamlike.io import capabilities, sinks, sources
from beamlike.io.base import WrittenBySpark, WrittenInFrames
from beamlike.io.sinks import Place

READ = (
    sources.ReadInChunks,
    sources.ReadInFiles,
    sources.ReadFromMemory,
    sources.ReadAsPlanned,
    sources.ReadInParts,
    sources.ReadBySpark,
    sources.ReadInSteps,
    sources.AcceptsEventTime,
    sources.SchemaFromSpark,
)
WRITTEN = (
    WrittenInFrames,
    WrittenBySpark,
    sinks.HasLocation,
    sinks.AcceptsSchema,
    sinks.HasCheck,
    sinks.Lockable,
    sinks.HasStart,
    sinks.RecordsBatches,
    sinks.Replacing,
    sinks.TwoPhase,
    sinks.HasTakeBack,
)


def named(kinds: Any, thing: object) -> set[str]:
    return {kind.__name__ for kind in kinds if isinstance(thing, kind)}


@pytest.mark.parametrize(
    ("source", "can"),
    [
        (bl.Parquet("plays"), {"ReadInChunks", "ReadInFiles", "AcceptsEventTime"}),
        (bl.CSV("plays"), {"ReadInChunks", "ReadInFiles", "AcceptsEventTime"}),
        (bl.Rows([{"n": 1}]), {"ReadInChunks", "ReadFromMemory"}),
        (bl.SparkSource(lambda spark: spark, {"n": int}), {"ReadBySpark", "SchemaFromSpark"}),
        (bl.TestStream({"n": int}), {"ReadInChunks", "ReadInSteps"}),
        (bl.Delta("plays"), {"ReadInChunks", "ReadInParts"}),
        (bl.Table("sqlite:///plays.db", "plays", grows="id"), {"ReadInChunks", "ReadInParts"}),
    ],
)
def test_sources(source: Any, can: set[str]) -> None:
    assert named(READ, source) == can


TABLE = {
    "WrittenInFrames",
    "HasLocation",
    "AcceptsSchema",
    "HasCheck",
    "Lockable",
    "HasStart",
    "RecordsBatches",
}
FILES = {*TABLE, "Replacing", "TwoPhase"}


@pytest.mark.parametrize(
    ("sink", "can", "by_tasks"),
    [
        (bl.JSONLines("out"), FILES, True),
        (bl.Table("sqlite:///out.db", "t"), TABLE, False),
        (bl.Delta("out"), {*TABLE, "TwoPhase"}, True),
        (bl.Memory(), {"WrittenInFrames", "HasStart", "RecordsBatches", "HasTakeBack"}, False),
        (bl.Console(), {"WrittenInFrames"}, False),
        (bl.Callback(print), {"WrittenInFrames", "HasTakeBack"}, False),
        (bl.SparkSink("delta", "out"), {"WrittenBySpark"}, False),
    ],
)
def test_sinks(sink: Any, can: set[str], by_tasks: bool) -> None:
    assert named(WRITTEN, sink) == can
    assert sinks.written_by_tasks(sink) is by_tasks


def test_a_sink_says_where_it_writes_and_what() -> None:
    assert bl.Parquet("out", partition_by="day").place() == Place(
        "folder", "out", path="out", names=(f"day={sinks.ANY}", f"part-{sinks.ANY}.parquet")
    )
    one, other = (bl.Table(f"sqlite:///{path}", "t").place() for path in ("out.db", "./in/../out.db"))
    assert one.key == other.key
    assert (one.kind, one.name, one.path) == ("table", "t", "out.db")


def test_what_spark_finds_out_of_a_source_is_a_part_of_its_declaration() -> None:
    source = bl.SparkSource(lambda spark: spark)
    assert source.is_open
    with pytest.raises(ValueError, match=r"p\.read asks Spark"):
        source.schema()
    known = source.with_schema(pl.Schema({"n": pl.Int64()}))
    assert not known.is_open
    assert known.schema() == {"n": pl.Int64}


# Names that a user's class has for something else


class Sink:
    """Counts its rows, as a user's class may."""

    def __init__(self) -> None:
        self.rows = 0

    def write(self, frame: pl.DataFrame, part: Any) -> None:
        self.rows += len(frame)


class Source:
    """Two rows, in process."""

    bounded = True

    def schema(self) -> dict[str, Any]:
        return {"n": pl.Int64}

    def chunks(self, rows: int) -> Iterator[pl.LazyFrame]:
        yield pl.LazyFrame({"n": [1, 2]})


def write(sink: Any) -> bl.Pipeline:
    p = bl.Pipeline("p")
    p.read("rows", bl.Rows([{"n": 1}, {"n": 2}])).write("out", sink)
    return p


def own(base: type, **members: Any) -> Any:
    return type("Mine", (base,), members)()


def nothing(self: Any) -> None:
    raise AssertionError("the engine calls what is the user's own")


def of_frame(self: Any, frame: pl.DataFrame) -> None:
    raise AssertionError("the engine calls what is the user's own")


def of_three(self: Any, one: int, other: int, third: int) -> None:
    raise AssertionError("the engine calls what is the user's own")


def with_a_port(self: Any, port: int = 8080) -> None:
    raise AssertionError("the engine calls what is the user's own")


async def of_run(self: Any, run: str) -> None:
    raise AssertionError("the engine calls what is the user's own")


@pytest.mark.parametrize(
    ("name", "mine", "told"),
    [
        ("check", of_frame, "a runner asks a sink for check(), and this one has check(frame)"),
        ("start", nothing, "a runner asks a sink for start(run), and this one has start()"),
        ("start", with_a_port, "for start(run), and this one has start(port=8080)"),
        ("start", of_run, "for start(run), and this one has async start(run)"),
        ("start", "2026-01-01", "for start(run), and this one has start='2026-01-01'"),
        ("hold", nothing, "for hold(run), and this one has hold()"),
        ("place", "somewhere", "for place(), and this one has place='somewhere'"),
        ("place", of_frame, "for place(), and this one has place(frame)"),
        ("take_back", of_frame, "for take_back(empty, part), and this one has take_back(frame)"),
        ("for_run", of_frame, "for for_run(), and this one has for_run(frame)"),
        ("distributed", nothing, "for distributed as True or False, and this one has distributed()"),
        ("distributed", "yes", "for distributed as True or False, and this one has distributed='yes'"),
        ("write", of_frame, "for write(frame, part), and this one has write(frame)"),
    ],
)
def test_a_name_of_a_sinks_own_that_the_engine_asks_for_is_told(name: str, mine: Any, told: str) -> None:
    with pytest.raises(bl.PlanError) as refused:
        write(own(Sink, **{name: mine}))
    assert str(refused.value).startswith(f"step 'out': Mine: the name {name!r} is taken: ")
    assert told in str(refused.value)
    assert "; rename that, or change it to" in str(refused.value)


@pytest.mark.parametrize(
    ("name", "mine", "told"),
    [
        ("committed", nothing, "a runner asks a source for committed(batch), and this one has committed()"),
        ("close", of_frame, "for close(), and this one has close(frame)"),
        ("resume", nothing, "for resume(position, rows), and this one has resume()"),
        ("opened", nothing, "for opened(position), and this one has opened()"),
        ("looked_up", of_frame, "for looked_up(), and this one has looked_up(frame)"),
        ("split", of_frame, "for split as text, and this one has split(frame)"),
        ("for_event_time", of_three, "for for_event_time(column), and this one has for_event_time(one, "),
        ("reading_event_time", nothing, "for reading_event_time(column, unit)"),
        ("read_by_spark", nothing, "for read_by_spark(spark)"),
        ("all_rows", of_frame, "for all_rows()"),
        ("chunks", nothing, "for chunks(rows)"),
        ("schema", of_frame, "for schema()"),
        ("bounded", nothing, "for bounded as True or False, and this one has bounded()"),
    ],
)
@pytest.mark.parametrize("refreshed", [False, True])
def test_a_name_of_a_sources_own_that_the_engine_asks_for_is_told(
    name: str, mine: Any, told: str, refreshed: bool
) -> None:
    source = own(Source, **{name: mine})
    with pytest.raises(bl.PlanError) as refused:
        bl.Pipeline("p").read("rows", bl.Refreshed(source, "5m") if refreshed else source)
    assert str(refused.value).startswith(f"step 'rows': Mine: the name {name!r} is taken: ")
    assert told in str(refused.value)


def test_names_that_mean_nothing_alone_are_free() -> None:
    """A capability of several methods needs all of them."""
    names = ("publish", "forget", "beside", "prepare", "settle", "upserts", "per_pane")
    sink = own(Sink, **dict.fromkeys(names, nothing))
    write(sink).run()
    assert sink.rows == 2
    names = ("plan", "step", "steps", "found", "pieces", "decode", "is_open")
    assert bl.Pipeline("p").read("rows", own(Source, **dict.fromkeys(names, nothing))).collect().height == 2


def test_a_capability_may_have_its_arguments_under_other_names_and_more_with_defaults() -> None:
    told: list[Any] = []

    class Mine(Sink):
        distributed = False

        def check(self, strict: bool = True) -> None:
            told.append("check")

        def start(self, name: str) -> None:
            told.append(name)

        def hold(self, *args: Any) -> None:
            told.append(args)

        def fitted(self, feed: Any) -> Any:
            told.append(feed.step)
            return self

        upserts = per_pane = False

    write(Mine()).run()
    assert told == ["out", "check", ("p",), "p"]


def test_all_names_of_a_capability_must_fit() -> None:
    with pytest.raises(
        bl.PlanError, match="the name 'upserts' is taken: a runner asks a sink for upserts as True"
    ):
        write(own(Sink, fitted=lambda self, rows: self, upserts=7, per_pane=False))


# Options of the other role


@pytest.mark.parametrize("files", [bl.Parquet, bl.CSV, bl.JSONLines])
@pytest.mark.parametrize(
    ("option", "value"),
    [("schema", {"zzz": int}), ("max_files_per_trigger", 3), ("order", "path"), ("include_file_paths", "f")],
)
def test_options_of_a_reader_are_refused_in_a_sink(files: Any, option: str, value: Any) -> None:
    with pytest.raises(bl.PlanError) as refused:
        write(files("out", **{option: value}))
    kind = files.__name__
    assert str(refused.value) == (
        f"step 'out': {kind}: {option}= is for a source, and would have no effect in a sink; leave it out of "
        f"write(...), and give it to the {kind} that p.read(...) reads"
    )


@pytest.mark.parametrize(
    "sink",
    [
        bl.Table("sqlite:///out.db", "t", grows="n"),
        bl.Table("sqlite:///out.db", "t", schema={"n": int}),
        bl.Delta("out", start_version=0),
    ],
)
def test_options_of_a_source_are_refused_in_a_sink_of_tables(sink: Any) -> None:
    with pytest.raises(bl.PlanError, match=r"= is for a source, and would have no effect in a sink"):
        write(sink)


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (lambda: bl.Parquet("in", partition_by="n"), "partition_by= is"),
        (lambda: bl.CSV("in", {"n": int}, partition_by="n"), "partition_by= is"),
        (lambda: bl.JSONLines("in", {"n": int}, partition_by="n"), "partition_by= is"),
        (lambda: bl.Table("sqlite:///in.db", "t", mode="append"), "mode= is"),
        (lambda: bl.Table("sqlite:///in.db", "t", per_pane=True), "per_pane= is"),
        (lambda: bl.Delta("in", mode="upsert"), "mode= is"),
        (lambda: bl.Refreshed(bl.Delta("in", mode="upsert"), "5m"), "mode= is"),
    ],
)
def test_options_of_a_sink_are_refused_in_a_source(
    make: Callable[[], Any], options: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(bl.PlanError, match=f"{options} for a sink, and would have no effect in a source"):
        bl.Pipeline("p").read("rows", make())


def test_a_class_of_the_other_role_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(bl.PlanError, match=r"got the source Kafka; did you mean bl\.KafkaSink\(\.\.\.\)\?"):
        write(bl.Kafka("localhost:9092", "t"))
    with pytest.raises(bl.PlanError, match=r"got the source SparkSource; did you mean bl\.SparkSink"):
        write(bl.SparkSource(lambda spark: spark, {"n": int}))
    with pytest.raises(bl.PlanError, match=r"got the sink KafkaSink; did you mean bl\.Kafka\(\.\.\.\)\?"):
        bl.Pipeline("p").read("rows", bl.KafkaSink("localhost:9092", "t"))


@pytest.mark.parametrize(("role", "module"), [("sink", sinks), ("source", sources)])
def test_the_signatures_of_every_capability_are_compared(role: Any, module: Any) -> None:
    declared = {kind for kind in vars(module).values() if getattr(kind, "_is_protocol", False)}
    own = {kind for kind in declared if kind.__module__ == module.__name__} - {sources.Reader}
    assert own <= {*capabilities._PROTOCOLS[role]}  # a reader is not declared: `resume` returns it


def test_a_sink_that_forgets_in_another_way_is_told() -> None:
    class Mine:
        remembers = True

        def write(self, frame: pl.DataFrame, part: Any) -> None: ...

        def latest_batch(self) -> int: ...  # type: ignore[empty-body]

        def cut(self, run: str, batch: int) -> str: ...  # type: ignore[empty-body]

    with pytest.raises(
        bl.errors.WrongType, match=r"'latest_batch' is taken: a runner asks a sink for latest_batch\(run\)"
    ):
        bl.Pipeline("p").read("rows", bl.Rows([{"n": 1}])).write("out", Mine())
