"""An aggregate with a condition equals the aggregate of only the rows that fulfil it."""

from __future__ import annotations

from typing import Any

import attrs
import narwhals as nw
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import beamlike as bl
from beamlike.expressions.row_expression import ExpressionOfRows
from stages.aggregates.base import Aggregate
from stages.aggregates.builtin import Collect, Count, First, Last, Max, Min
from stages.aggregates.combine_fn import Combine
from stages.aggregates.totals import Mean, Sum
from stages.errors import StepError
from tests.stages.aggregates.test_chosen import ORDERLESS, Row, cases
from tests.support.aggregated import law, run_rows, windowings
from tests.support.runs import InOrder
from tests.support.strategies import us
from windowing import FixedWindows, Windowing
from windowing.columns import EVENT_TIME

FLAGGED = ExpressionOfRows(bl.col("flag") & (bl.event_time().dt.microsecond() < 4))
"""Null where the flag is, and so for no such row."""

EVERY: dict[str, Aggregate] = {
    **ORDERLESS,
    "n": Count(),
    "known": Count("v"),
    "values": Collect("v"),
    "first": First("v"),
    "last": Last("v"),
}
NUMERIC: dict[str, Aggregate] = {"sum": Sum("v"), "mean": Mean("v")}
ORDERED: dict[str, Aggregate] = {"min": Min("v"), "max": Max("v")}


def under(aggregates: dict[str, Aggregate], condition: ExpressionOfRows) -> dict[str, Aggregate]:
    return {name: attrs.evolve(aggregate, where=condition) for name, aggregate in aggregates.items()}


def flagged(row: Row) -> bool:
    return row["flag"] is True and row[EVENT_TIME] < 4


@law
@given(cases(), windowings)
def test_rows_for_which_the_condition_is_not_true_do_not_count(
    case: tuple[pl.Schema, list[list[Row]]], windowing: Windowing
) -> None:
    columns, bundles = case
    dtype = columns["v"]
    aggregates = EVERY | ORDERED | (NUMERIC if dtype.is_numeric() or dtype == pl.Boolean else {})
    aggregates = {**aggregates, "combined": Combine(InOrder(), "v", pl.List(dtype))}
    if dtype.is_integer():
        aggregates.pop("sum")  # these may be beyond its type
    kept = [[row for row in bundle if flagged(row)] for bundle in bundles]
    # Another row, for which no condition is true, so that there is a pane.
    other: dict[str, Any] = {"v": None, "by": None, "flag": None, EVENT_TIME: 0}
    (wanted,) = run_rows(under(aggregates, FLAGGED), columns, [*kept, [other]], windowing)
    (found,) = run_rows(under(aggregates, FLAGGED), columns, [*bundles, [other]], windowing)
    assert repr(found) == repr(wanted)
    if any(kept):
        (alone,) = run_rows(aggregates, columns, kept, windowing)
        assert repr(found) == repr(alone)


@law
@given(st.lists(st.lists(st.integers(-9, 9), max_size=4), min_size=1, max_size=4).filter(any), windowings)
def test_sums_take_the_rows_of_their_condition(bundles: list[list[int]], windowing: Windowing) -> None:
    condition = ExpressionOfRows(bl.col("v") > 3)
    rows = [[{"v": value, EVENT_TIME: 1} for value in bundle] for bundle in bundles]
    aggregates = under({"sum": Sum("v"), "n": Count()}, condition) | {"all": Sum("v")}
    panes = run_rows(aggregates, pl.Schema({"v": pl.Int64()}), rows, windowing)
    values = [value for bundle in bundles for value in bundle]
    chosen = [value for value in values if value > 3]
    assert panes == [{"sum": sum(chosen), "n": len(chosen), "all": sum(values)}]


class Picky(InOrder):
    def add_input(self, accumulator: list[int], element: int) -> list[int]:
        if element == 2:
            raise ValueError("not that one")
        return [*accumulator, element]


def test_a_function_is_not_called_for_rows_of_which_the_condition_is_not_true() -> None:
    combine = Combine(Picky(), "v", pl.List(pl.Int64()), where=ExpressionOfRows(bl.col("v") != 2))
    rows = [{"v": value, EVENT_TIME: 1} for value in (1, 2, 3)]
    panes = run_rows(
        {"values": combine}, pl.Schema({"v": pl.Int64()}), [rows], Windowing(FixedWindows(us(10)))
    )
    assert panes == [{"values": [1, 3]}]


def test_a_condition_that_fails_says_where_to_compute_it() -> None:
    condition = ExpressionOfRows(bl.col("v").cast(nw.Int64) > 1)
    rows = [{"v": "one", EVENT_TIME: 1}]
    told = r"step 'stage': count: where=.* fails: .*; compute it with with_columns\(...\) before"
    with pytest.raises(StepError, match=told):
        run_rows(
            {"n": Count(where=condition)},
            pl.Schema({"v": pl.String()}),
            [rows],
            Windowing(FixedWindows(us(10))),
        )
