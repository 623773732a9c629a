"""`check_orders` plays orders of arrival that watermarks allow, and finds results that depend on the order."""

from __future__ import annotations

import itertools
import sys
from random import Random
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import beamlike as bl
from beamlike.errors import UnknownName, WrongType
from beamlike.testing import check_orders
from beamlike.testing.orders.arrivals import Arrivals
from beamlike.testing.orders.courses import can_shard
from tests.support.examples import share

ROWS = [{"user": "ab"[number % 3 % 2], "points": number % 5, "at": 4 * number} for number in range(18)]


def plays(watermark: Any = None) -> bl.Collection:
    watermark = watermark or bl.BoundedOutOfOrderness("15s")
    p = bl.Pipeline("p")
    return p.read("plays", bl.Rows(ROWS), timestamp="at", timestamp_unit="s", watermark=watermark)


def per_window(windows: bl.WindowFn, **choices: Any) -> Any:
    return plays().window_into(windows, **choices).group_by("user")


EARLY = bl.AfterWatermark(early=bl.AfterCount(1))


@pytest.mark.parametrize(
    "collection",
    [
        per_window(bl.Sessions("6s")).aggregate(n=bl.count(), best=bl.max("points")),
        per_window(bl.SlidingWindows("20s", "10s")).aggregate(mean=bl.mean("points")),
        per_window(bl.FixedWindows("10s"), trigger=EARLY, accumulation=bl.ACCUMULATING).aggregate(
            n=bl.count()
        ),
        per_window(bl.Sessions("6s"), trigger=EARLY, accumulation=bl.RETRACTING).aggregate(n=bl.count()),
        plays(bl.MonotonousTimestamps()).group_by("user").running(total=bl.sum("points")),
    ],
    ids=lambda collection: type(collection.windowing.windows).__name__,
)
def test_what_does_not_depend_on_the_order_passes(collection: bl.Collection) -> None:
    check_orders(collection, {"plays": ROWS}, seeds=6)


def test_a_list_in_the_order_of_arrival_is_found_with_two_rows_and_a_test() -> None:
    collected = per_window(bl.FixedWindows("10s")).aggregate(all=bl.collect("points")).named("collected")
    with pytest.raises(AssertionError) as error:
        check_orders(collected, {"plays": ROWS}, seeds=10)
    text = str(error.value)
    assert text.startswith("a final result depends on the order of arrival, first in step 'collected'\n")
    assert text.count("by event time only:") == text.count("in this order only:") == 1
    assert "plays = bl.TestStream({'user': pl.String, 'points': pl.Int64, 'at': pl.Int64})" in text
    (elements,) = (line for line in text.splitlines() if "add_elements" in line)
    assert elements.count("'user'") == 2


def test_the_first_step_that_depends_on_the_order_is_named() -> None:
    p = bl.Pipeline("p")
    read = p.read(
        "plays", bl.Rows(ROWS), timestamp="at", timestamp_unit="s", watermark=bl.BoundedOutOfOrderness("15s")
    )
    sums = read.group_by("user").running(order="arrival", total=bl.sum("points")).named("sums")
    best = sums.window_into(bl.FixedWindows("20s")).group_by("user").aggregate(best=bl.max("total"))
    best.write("best", bl.Memory())
    with pytest.raises(AssertionError, match="first in step 'sums'"):
        check_orders(p, {"plays": ROWS}, seeds=10)


def test_a_function_that_is_not_pure_is_named() -> None:
    count = itertools.count()
    numbered = plays().map(lambda row: {"n": next(count)}, schema={"n": int}, name="numbered")
    with pytest.raises(
        AssertionError, match=r"two runs of the same rows .* functions are called in 'numbered'"
    ):
        check_orders(numbered.aggregate(n=bl.sum("n")), {"plays": ROWS}, seeds=1)


def test_a_result_that_depends_on_the_number_of_shards_is_found() -> None:
    """A function of frames receives the panes of a shard, which are all panes only if there is one."""
    hour = per_window(bl.FixedWindows("1h")).aggregate(n=bl.count())
    schema = {"user": str, "of_all": int}
    shares = hour.map_batches(lambda rows: rows.select("user", of_all=pl.col("n").sum()), schema=schema)
    with pytest.raises(AssertionError) as error:
        check_orders(shares.named("shares"), {"plays": ROWS}, seeds=4)
    lines = str(error.value).splitlines()
    assert "  the run had 7 shards" in lines
    assert any("in this order only:" in line and "of_all=" in line for line in lines)


def test_without_pyspark_there_is_one_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    for name in [
        name for name in sys.modules if name.startswith(("beamlike.spark", "beamlike.testing.shards"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    assert not can_shard()


def test_panes_of_which_none_is_final_are_told(caplog: pytest.LogCaptureFixture) -> None:
    parts = per_window(bl.FixedWindows("10s"), trigger=EARLY).aggregate(n=bl.count()).named("parts")
    check_orders(parts, {"plays": ROWS}, seeds=3)
    assert "check_orders compared no rows of 'parts': " in caplog.text


def test_what_is_given_is_checked() -> None:
    counts = per_window(bl.FixedWindows("10s")).aggregate(n=bl.count())
    with pytest.raises(UnknownName, match="names 'play'; the sources are plays; did you mean 'plays'"):
        check_orders(counts, {"play": ROWS})
    with pytest.raises(bl.PlanError, match=r"step 'plays': check_orders: rows=\{\.\.\.\} has no rows"):
        check_orders(counts, {})
    with pytest.raises(WrongType, match="seeds must be a whole number of at least 1, not 0"):
        check_orders(counts, {"plays": ROWS}, seeds=0)
    with pytest.raises(WrongType, match="takes a pipeline or a collection, not 7"):
        check_orders(7, {"plays": ROWS})  # type: ignore[arg-type]


strategies = st.sampled_from(
    [
        bl.MonotonousTimestamps(),
        bl.BoundedOutOfOrderness("1us"),
        bl.BoundedOutOfOrderness("9s"),
        bl.BoundedOutOfOrderness("9s", per_split="user"),
        bl.PercentileLateness(0.9),
    ]
)


@share(2)
@given(strategies, st.integers(0, 1_000))
def test_no_row_of_an_order_is_late(watermark: Any, seed: int) -> None:
    counts = plays(watermark).window_into(bl.FixedWindows("1us")).aggregate(n=bl.count())
    counts.write("counts", bl.Memory())
    plan = counts.pipeline.plan()
    arrivals = Arrivals.of(plan.sources["plays"], bl.Rows(ROWS).frame)
    order = arrivals.order(Random(seed).randrange)
    assert sorted(number for bundle in order for number in bundle) == list(range(len(ROWS)))
    assert arrivals.is_allowed(order)
