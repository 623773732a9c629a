"""Retracted rows leave no trace in aggregates that declare that they can subtract."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import attrs
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.aggregates.base import Aggregate
from stages.aggregates.builtin import Collect, Count, First, Last, Max, Min, WindowLength
from stages.aggregates.counted import ApproxQuantile, CollectSet, CountDistinct, Median, Mode, Quantile
from stages.aggregates.flags import All
from stages.aggregates.flags import Any as Some
from stages.aggregates.spread import Std, Var
from stages.aggregates.totals import Mean, Sum
from stages.grouping.grouping import Grouping
from stages.operator import MAIN
from stages.stage import Stage
from stages.state.store import DictStore
from tests.stages.aggregates.test_chosen import ORDERLESS, Row, cases
from tests.support.aggregated import law
from tests.support.model import MAX_TIME
from tests.support.strategies import us
from windowing import FixedWindows, Windowing
from windowing.clocks import Times
from windowing.columns import EVENT_TIME, PANE_RETRACTED

SUBTRACTED: dict[str, Aggregate] = {
    "distinct": CountDistinct("v"),
    "set": CollectSet("v"),
    "mode": Mode("v"),
    "any": Some("flag"),
    "all": All("flag"),
}
ANEW: dict[str, Aggregate] = {
    **{name: aggregate for name, aggregate in ORDERLESS.items() if name not in {*SUBTRACTED, "about"}},
    "least": Min("v"),
    "greatest": Max("v"),
    "first": First("v"),
    "last": Last("v"),
    "collected": Collect("v"),
}
"""Aggregates that are computed again from the rows that are left."""
NUMERIC: dict[str, Aggregate] = {
    "median": Median("v"),
    "quantile": Quantile("v", 0.9),
    "near": ApproxQuantile("v", 0.9),
}


@attrs.frozen
class Above:
    """A condition: the value is a number above 0."""

    columns = ("v",)

    def evaluate(self, frame: pl.DataFrame) -> pl.Series:
        return frame.select((pl.col("v").cast(pl.Float64) > 0) & pl.col("v").cast(pl.Float64).is_not_nan())[
            "v"
        ]


def test_only_these_can_be_subtracted() -> None:
    can = {name for name, aggregate in ORDERLESS.items() if aggregate.subtractable}
    assert can == SUBTRACTED.keys()
    refused = {name for name, aggregate in ORDERLESS.items() if not aggregate.for_retractions().subtractable}
    assert refused == {"about"}


def result(
    aggregates: dict[str, Aggregate], columns: pl.Schema, bundles: list[list[Row]]
) -> list[dict[str, Any]]:
    windowing = Windowing(FixedWindows(us(100)))
    stage = Stage("stage", Grouping((), windowing, aggregates, columns, retractions=True))
    store = DictStore()
    schema = {**columns, EVENT_TIME: pl.Int64(), PANE_RETRACTED: pl.Boolean()}
    for bundle in bundles:
        stage.step(store, {MAIN: pl.DataFrame(bundle, schema)}, Times.of(0))
    done = stage.step(store, {MAIN: pl.DataFrame(schema=schema)}, Times.of(MAX_TIME))
    return done.panes.select(list(aggregates)).rows(named=True)


def marked(rows: list[Row], *, retracted: bool = False) -> list[Row]:
    """Returns the rows, or their retractions."""
    return [{**row, PANE_RETRACTED: retracted} for row in rows]


@st.composite
def played(draw: st.DrawFn, stays: list[Row], goes: list[Row]) -> list[list[Row]]:
    """Draws two bundles with all rows, and the retractions of some: with their rows, in any order, or after them."""
    bundles: list[list[Row]] = [[], []]
    for row in stays:
        bundles[draw(st.integers(0, 1))] += marked([row])
    for row in goes:
        first = draw(st.integers(0, 1))
        bundles[first] += marked([row])
        bundles[draw(st.integers(first, 1))] += marked([row], retracted=True)
    return [draw(st.permutations(bundle)) for bundle in bundles]


NUMBERS: dict[str, tuple[pl.DataType, list[Any]]] = {
    "floats": (pl.Float64(), [0.5, -2.0, 0.0, 3e9, math.inf, -math.inf, math.nan]),
    "short floats": (pl.Float32(), [0.5, -2.0, math.inf, -math.inf, math.nan]),
    "whole numbers": (pl.Int64(), [-3, 0, 1, 2**40]),
    "without a sign": (pl.UInt64(), [0, 1, 2**40]),
    "wide": (pl.UInt128(), [0, 2**100, 2**101]),
    "decimals": (pl.Decimal(38, 2), [Decimal("0.25"), Decimal("-7.50")]),
    "booleans": (pl.Boolean(), [True, False]),
}
"""Numbers whose rounded sums, in 64 bits, do not depend on their order."""

OF_NUMBERS: dict[str, Aggregate] = {
    "count": Count(),
    "count of values": Count("v"),
    "count where": Count(where=Above()),
    "sum": Sum("v"),
    "sum where": Sum("v", where=Above()),
    "mean": Mean("v"),
    "var": Var("v"),
    "std": Std("v"),
    "std where": Std("v", where=Above()),
    "median": Median("v"),
    "quantile": Quantile("v", 0.9),
    "near": ApproxQuantile("v", 0.9),
    "distinct": CountDistinct("v"),
    "set": CollectSet("v"),
    "mode": Mode("v"),
    "length": WindowLength(),
}


@pytest.mark.parametrize("kind", NUMBERS)
@law
@given(data=st.data())
def test_of_numbers_that_are_taken_back_nothing_is_left(kind: str, data: st.DataObject) -> None:
    dtype, values = NUMBERS[kind]
    some = st.lists(st.none() | st.sampled_from(values), max_size=5)
    kept, gone = data.draw(some.filter(bool)), data.draw(some)
    stays, goes = ([{"v": value, EVENT_TIME: 0} for value in values] for values in (kept, gone))
    columns = pl.Schema({"v": dtype})
    found = result(OF_NUMBERS, columns, data.draw(played(stays, goes)))
    assert repr(found) == repr(result(OF_NUMBERS, columns, [marked(stays)]))


def test_that_infinities_are_counted_does_not_change_what_an_aggregate_is() -> None:
    for aggregate in (Sum("v", where=Above()), Mean("v", where=Above())):
        taken_back = aggregate.for_retractions()
        assert (taken_back.columns, taken_back.where) == (aggregate.columns, aggregate.where)
        assert taken_back.parts(pl.Schema({"v": pl.Int64()})) == aggregate.parts(pl.Schema({"v": pl.Int64()}))


@law
@given(cases(), st.data())
def test_what_is_taken_back_is_subtracted(
    case: tuple[pl.Schema, list[list[Row]]], data: st.DataObject
) -> None:
    columns, bundles = case
    rows = [row for bundle in bundles for row in bundle]
    aggregates = SUBTRACTED | ANEW | (NUMERIC if columns["v"].is_numeric() else {})
    gone = data.draw(st.lists(st.sampled_from(rows), max_size=4))
    found = result(aggregates, columns, data.draw(played(rows, gone)))
    wanted = result(aggregates, columns, [marked(rows)])
    assert repr(found) == repr(wanted)
