"""The skew of a stage: how much more than the mean its largest shard receives."""

from __future__ import annotations

import random
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

import beamlike as bl
from beamlike.observe import History
from beamlike.observe.live.charts import RunCharts
from beamlike.records.model import StageRecord
from tests.support.histories import stage_record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@given(st.lists(st.integers(0, 1_000), min_size=1, max_size=20), st.randoms(use_true_random=False))
def test_the_order_in_which_shards_are_merged_does_not_matter(
    elements: list[int], chance: random.Random
) -> None:
    left = [stage_record(5, 5, elements=count) for count in elements]
    while len(left) > 1:
        chance.shuffle(left)
        first, second, *rest = left
        left = [first.plus(second), *rest]
    (found,) = left
    if len(elements) == 1 or not sum(elements):
        assert found.skew is None
    else:
        assert (found.shards, found.most) == (len(elements), max(elements))
        assert found.skew == pytest.approx(max(elements) / (sum(elements) / len(elements)))


def test_the_largest_shards_of_merged_batches_are_added() -> None:
    one, other = (
        reduce(StageRecord.plus, [stage_record(5, 5, elements=n) for n in each]) for each in ([1, 9], [4, 6])
    )
    assert (one.skew, other.skew, one.then(other).most, one.quiet().skew) == (1.8, 1.2, 15, None)


@pytest.mark.spark
@pytest.mark.parametrize("hot", [0.1, 0.9])
def test_a_hot_key_on_spark_shows_on_the_page(hot: float, spark: SparkSession, tmp_path: Path) -> None:
    count = 600
    rows = [{"user": "hot" if n < hot * count else f"u{n}", "at": n} for n in range(count)]
    p = bl.Pipeline("p")
    read = p.read(
        "plays", bl.Rows(rows), timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps()
    )
    # Values are collected, so that rows are not reduced before they are sent to the shards.
    collected = (
        read.window_into(bl.FixedWindows("1h")).group_by("user", name="each").aggregate(at=bl.collect("at"))
    )
    collected.write("out", bl.Memory())
    p.run(bl.SparkRunner(str(tmp_path), session=spark, shards=3, drain=True))
    history = History.open(tmp_path)
    record = next(batch.stages["each"] for batch in history.batches if batch.stages["each"].elements)
    assert record.shards == 3
    assert record.skew is not None
    assert (record.skew > 2.5) == (hot > 0.5)
    (chart,) = [one for one in RunCharts.of(history).stage("each") if one.title == "Skew of the shards"]
    assert record.skew in chart.lines[0].values


def test_the_skew_of_several_batches_is_at_least_that_of_equal_shards() -> None:
    many = StageRecord(0, 0, "", elements=100, shards=4, most=25)
    few = StageRecord(0, 0, "", elements=4, shards=4, most=4)
    assert many.then(few).skew == pytest.approx(29 * 4 / 104)
