"""All aggregates in one pipeline: the same results on both runners, for any shards and batches."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import beamlike as bl
from stages.aggregates.base import Aggregate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KINDS = ("a", "b", None)


def bids(count: int) -> list[dict[str, Any]]:
    """Returns `count` bids, a second apart at most and out of order by up to ten seconds."""
    chance = random.Random(7)
    return [
        {
            "at": number // 2 - chance.randrange(10),
            "auction": f"auction {chance.randrange(4)}",
            "bidder": chance.randrange(9),
            "price": chance.choice([None, float("nan"), 1.5 * chance.randrange(40)]),
            "kind": chance.choice(KINDS),
            "open": chance.choice([None, True, False]),
        }
        for number in range(count)
    ]


class Longest(bl.CombineFn):
    def create_accumulator(self) -> str:
        return ""

    def add_input(self, accumulator: str, element: str | None) -> str:
        return self.merge_accumulators([accumulator, element or ""])

    def merge_accumulators(self, accumulators: list[str]) -> str:
        return max(accumulators)

    def extract_output(self, accumulator: str) -> str:
        return accumulator


def every(**choices: Any) -> dict[str, Aggregate]:
    """Returns all aggregates whose result does not depend on the order of arrival."""
    return {
        "bids": bl.count(**choices),
        "prices": bl.count("price", **choices),
        "bidders": bl.count_distinct("bidder", **choices),
        "about": bl.approx_count_distinct("bidder", **choices),
        "total": bl.sum("bidder", **choices),
        "middle": bl.median("price", **choices),
        "most": bl.quantile("price", 0.9, **choices),
        "var": bl.var("price", **choices),
        "std": bl.std("bidder", **choices),
        "least": bl.min("bidder", **choices),
        "greatest": bl.max("bidder", **choices),
        "often": bl.mode("kind", **choices),
        "some_open": bl.any("open", **choices),
        "all_open": bl.all("open", **choices),
        "kinds": bl.collect_set("kind", **choices),
        "best": bl.arg_max(["price", "bidder"], by="price", **choices),
        "worst": bl.arg_min("kind", by="price", **choices),
        "top": bl.top("bidder", 3, by="price", **choices),
        "bottom": bl.bottom(["price", "kind"], 2, by="price", **choices),
        "some": bl.sample(["bidder", "price"], 3, **choices),
        "longest": bl.combine(Longest(), "kind", str, **choices),
    }


def declare(source: bl.Rows, windows: bl.WindowFn) -> tuple[bl.Pipeline, bl.Memory]:
    """Declares a grouping with all aggregates, twice: of every row, and under a condition."""
    p, out = bl.Pipeline("auctions"), bl.Memory()
    read = p.read(
        "bids", source, timestamp="at", timestamp_unit="s", watermark=bl.BoundedOutOfOrderness("15s")
    )
    conditional = every(where=(bl.col("bidder") > 3) & ~bl.col("kind").is_null())
    aggregates = {**every(), **{f"few_{name}": aggregate for name, aggregate in conditional.items()}}
    read.window_into(windows).group_by("auction").aggregate(**aggregates).write("out", out)
    return p, out


def panes(out: bl.Memory) -> pl.DataFrame:
    """Returns the panes, sorted by auction and window."""
    return out.frame().sort("auction", "window_start")


WINDOWS = [bl.FixedWindows("1m"), bl.SlidingWindows("1m", "30s"), bl.Sessions("3s")]


@pytest.mark.parametrize("windows", WINDOWS, ids=lambda windows: type(windows).__name__)
def test_batches_do_not_show(windows: bl.WindowFn) -> None:
    rows, found = bids(2_000), []
    for size in (None, 300):
        p, out = declare(bl.Rows(rows, rows_per_batch=size), windows)
        p.run()
        found.append(panes(out))
    assert len(found[0]) > 20
    assert_frame_equal(*found, check_exact=True)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("windows", [WINDOWS[0], WINDOWS[2]], ids=["fixed", "sessions"])
def test_spark_gives_the_same(spark: SparkSession, tmp_path: Path, windows: bl.WindowFn) -> None:
    rows = bl.Rows(bids(2_000), rows_per_batch=1_100)
    p, out = declare(rows, windows)
    p.run()
    wanted = panes(out)
    p, out = declare(rows, windows)
    p.run(bl.SparkRunner(str(tmp_path / "checkpoint"), session=spark, shards=3, drain=True))
    assert_frame_equal(panes(out), wanted, check_exact=True)


def test_retractions_are_subtracted_over_two_stages() -> None:
    p, found, wanted = bl.Pipeline("twice"), bl.Memory(), bl.Memory()
    source = bl.Rows(bids(600), rows_per_batch=40)
    read = p.read(
        "bids", source, timestamp="at", timestamp_unit="s", watermark=bl.BoundedOutOfOrderness("15s")
    )
    for accumulation, sink in ((bl.RETRACTING, found), (bl.DISCARDING, wanted)):
        early = bl.AfterWatermark(early=bl.AfterCount(1)) if accumulation is bl.RETRACTING else None
        windowed = read.window_into(bl.FixedWindows("30s"), trigger=early, accumulation=accumulation)
        per_bidder = windowed.group_by("bidder", name=f"{accumulation.value} bidders").aggregate(
            n=bl.count(), open=bl.all("open")
        )
        totals = per_bidder.aggregate(
            sizes=bl.count_distinct("n"),
            set=bl.collect_set("n"),
            often=bl.mode("n", where=bl.col("n") > 2),
            middle=bl.median("n"),
            std=bl.std("n"),
            any=bl.any("open"),
            all=bl.all("open", where=bl.col("bidder") > 4),
        )
        totals.write(accumulation.value, sink)
    p.run()
    names = ["window_start", "sizes", "set", "often", "middle", "std", "any", "all"]
    last = found.frame().filter(~pl.col("pane_retracted")).group_by("window_start").last()
    assert_frame_equal(
        last.select(names).sort("window_start"), wanted.frame().select(names).sort("window_start")
    )
