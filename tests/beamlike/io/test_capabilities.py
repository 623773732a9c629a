"""What each source and sink of the package can do, as the engine asks for it."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

import beamlike as bl
from beamlike.io import sinks, sources
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
    sources.ToldEventTime,
    sources.AskedOfSpark,
)
WRITTEN = (
    WrittenInFrames,
    WrittenBySpark,
    sinks.Located,
    sinks.Fitted,
    sinks.Checked,
    sinks.Held,
    sinks.Started,
    sinks.Remembering,
    sinks.Replacing,
    sinks.InTwoSteps,
    sinks.Discarding,
    sinks.TakingBack,
)


def named(kinds: Any, thing: object) -> set[str]:
    return {kind.__name__ for kind in kinds if isinstance(thing, kind)}


@pytest.mark.parametrize(
    ("source", "can"),
    [
        (bl.Parquet("plays"), {"ReadInChunks", "ReadInFiles", "ToldEventTime"}),
        (bl.CSV("plays"), {"ReadInChunks", "ReadInFiles", "ToldEventTime"}),
        (bl.Rows([{"n": 1}]), {"ReadInChunks", "ReadFromMemory"}),
        (bl.SparkSource(lambda spark: spark, {"n": int}), {"ReadBySpark", "AskedOfSpark"}),
        (bl.TestStream({"n": int}), {"ReadInChunks", "ReadInSteps"}),
        (bl.Delta("plays"), {"ReadInChunks", "ReadInParts"}),
        (bl.Table("sqlite:///plays.db", "plays", grows="id"), {"ReadInChunks", "ReadInParts"}),
    ],
)
def test_sources(source: Any, can: set[str]) -> None:
    assert named(READ, source) == can


TABLE = {"WrittenInFrames", "Located", "Fitted", "Checked", "Held", "Started", "Remembering"}
FILES = {*TABLE, "Replacing", "InTwoSteps"}


@pytest.mark.parametrize(
    ("sink", "can", "by_tasks"),
    [
        (bl.JSONLines("out"), FILES, True),
        (bl.Table("sqlite:///out.db", "t"), TABLE, False),
        (bl.Delta("out"), {*TABLE, "InTwoSteps"}, True),
        (bl.Memory(), {"WrittenInFrames", "Started", "Remembering", "Discarding"}, False),
        (bl.Console(), {"WrittenInFrames"}, False),
        (bl.Callback(print), {"WrittenInFrames", "TakingBack"}, False),
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
