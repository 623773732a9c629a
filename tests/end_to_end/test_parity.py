"""The local runner and Spark emit the same panes for the same batches, for any number of shards and batches."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import narwhals as nw
import polars as pl
import pytest
from pyspark.sql import SparkSession

import beamlike as bl
from examples import generate

pytestmark = pytest.mark.spark

Build = Callable[[], tuple[bl.Pipeline, dict[str, bl.Memory]]]


def with_panes(collection: bl.Collection) -> bl.Collection:
    """Returns the collection with all metadata of panes as columns."""
    return collection.with_columns(
        nonspeculative=bl.pane_nonspeculative_index(), first=bl.pane_first(), last=bl.pane_last()
    )


def panes(sink: bl.Memory) -> list[dict[str, Any]]:
    """Returns the rows of a sink, sorted; sums of floats are rounded, because their last digits may differ."""
    frame = sink.frame()
    floats = [name for name, dtype in frame.schema.items() if dtype == pl.Float64]
    rounded = frame.with_columns(pl.col(floats).round(6))
    return rounded.sort(pl.exclude(floats), nulls_last=True).rows(named=True)


def assert_same_panes(build: Build, spark: SparkSession, checkpoint: Path, shards: int) -> None:
    local, expected = build()
    in_process = local.run()
    pipeline, got = build()
    on_spark = pipeline.run(bl.SparkRunner(str(checkpoint), session=spark, shards=shards, drain=True))
    for name in expected:
        assert panes(got[name]) == panes(expected[name]), name
        assert len(panes(expected[name])) > 0, name
    last, their_last = on_spark.batches[-1], in_process.batches[-1]
    assert {n: (s.input, s.output) for n, s in last.stages.items()} == {
        n: (s.input, s.output) for n, s in their_last.stages.items()
    }
    assert totals(on_spark.batches) == totals(in_process.batches)


def totals(batches: Any) -> dict[str, tuple[int, int, int]]:
    """Returns, per stage, the elements, panes and dropped elements of the whole run."""
    names = batches[0].stages
    return {
        name: (
            sum(batch.stages[name].elements for batch in batches),
            sum(sum(batch.stages[name].panes.values()) for batch in batches),
            sum(sum(batch.stages[name].dropped.values()) for batch in batches),
        )
        for name in names
    }


def sessions_of_two_sources(plays: Path, combiner: bl.TimestampCombiner) -> Build:
    def build() -> tuple[bl.Pipeline, dict[str, bl.Memory]]:
        p = bl.Pipeline("flagship")
        sinks = {"lengths": bl.Memory(), "averages": bl.Memory()}
        lengths = []
        for name in ("mobile", "console"):
            source = bl.Parquet(plays / name, max_files_per_trigger=1)
            rows = p.read(name, source, timestamp="event_time", watermark=bl.BoundedOutOfOrderness("5s"))
            windowed = rows.window_into(bl.Sessions("1m"), timestamp_combiner=combiner)
            lengths.append(windowed.group_by("user").aggregate(length=bl.window_length(), plays=bl.count()))
        both = bl.flatten(*lengths)
        with_panes(both).write("lengths", sinks["lengths"])
        average = both.window_into(bl.FixedWindows("2m")).aggregate(
            mean=bl.mean("length"), sessions=bl.count()
        )
        with_panes(average).write("averages", sinks["averages"])
        return p, sinks

    return build


@pytest.mark.parametrize(
    ("shards", "files", "combiner"),
    [
        (3, 4, bl.EARLIEST),
        pytest.param(1, 2, bl.END_OF_WINDOW, marks=pytest.mark.slow),
        pytest.param(2, 3, bl.LATEST, marks=pytest.mark.slow),
    ],
)
def test_the_flagship_gives_the_same_panes_on_both_runners(
    spark: SparkSession, tmp_path: Path, shards: int, files: int, combiner: bl.TimestampCombiner
) -> None:
    plays = generate.write(tmp_path / "plays", generate.Plays(20_000, files, seed=3, ties=True))
    assert_same_panes(sessions_of_two_sources(plays, combiner), spark, tmp_path / "checkpoint", shards)


def clicks() -> list[dict[str, Any]]:
    """Returns clicks of five users over ten minutes, some of them out of order, a few far too late."""
    rng = random.Random(11)
    times = [second + rng.randint(-8, 0) - (150 if rng.random() < 0.05 else 0) for second in range(0, 600, 2)]
    return [{"user": f"u{rng.randrange(5)}", "at": second, "score": rng.randrange(10)} for second in times]


def diamond() -> tuple[bl.Pipeline, dict[str, bl.Memory]]:
    """Declares one source for a stage of level 1 and one of level 2, branches that meet, two sinks, and late panes."""
    p = bl.Pipeline("diamond")
    sinks = {"busy": bl.Memory(), "all": bl.Memory()}
    source = bl.Rows(clicks(), rows_per_batch=60)
    rows = p.read(
        "clicks", source, timestamp="at", timestamp_unit="s", watermark=bl.BoundedOutOfOrderness("5s")
    ).filter(bl.col("score") > 0)
    trigger = bl.AfterWatermark(early=bl.AfterCount(3), late=bl.AfterCount(1))
    per_user = (
        rows.window_into(
            bl.FixedWindows("30s"), trigger=trigger, allowed_lateness="1m", accumulation="discarding"
        )
        .group_by("user")
        .aggregate(clicks=bl.count(), best=bl.max("score"))
    )
    busy = (
        per_user.filter(bl.col("clicks") >= 2)
        .window_into(bl.SlidingWindows("2m", "1m"), timestamp_combiner="earliest")
        .group_by("user")
        .aggregate(clicks=bl.sum("clicks"), best=bl.max("best"))
    )
    with_panes(busy).write("busy", sinks["busy"])
    wide = bl.FixedWindows("3m")
    single = rows.select("user", clicks=bl.lit(1, nw.Int64), best=bl.col("score")).window_into(wide)
    ways = [
        way.window_into(wide, trigger=bl.DefaultTrigger(), allowed_lateness="1m")
        for way in (per_user, single)
    ]
    with_panes(bl.flatten(*ways).aggregate(clicks=bl.sum("clicks"), best=bl.max("best"))).write(
        "all", sinks["all"]
    )
    return p, sinks


@pytest.mark.slow
@pytest.mark.parametrize("shards", [1, 4])
def test_a_diamond_with_two_sinks_gives_the_same_panes_on_both_runners(
    spark: SparkSession, tmp_path: Path, shards: int
) -> None:
    assert_same_panes(diamond, spark, tmp_path / "checkpoint", shards)
