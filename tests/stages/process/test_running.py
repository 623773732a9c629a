"""Running aggregates equal those computed row by row, however rows are bundled and sharded."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import beamlike as bl
from beamlike.expressions.row_expression import ExpressionOfRows
from stages.aggregates.builtin import Count, First, Last, Max, Min
from stages.aggregates.totals import Mean, Sum
from stages.operator import MAIN
from stages.process.cumulative import Cumulative, OfAggregate, Previous, cumulative
from stages.process.keyed import Order
from stages.process.running import Running
from stages.stage import Stage
from stages.state.store import DictStore
from windowing.clocks import Times
from windowing.columns import EVENT_TIME
from windowing.time import MAX_TIME
from windowing.windowing import Windowing

SCHEMA = pl.Schema({"user": pl.String(), "value": pl.Int64(), "number": pl.Int64()})
POSITIVE = ExpressionOfRows(bl.col("value") > 0)
CONDITIONAL = {
    "Count": Count(where=POSITIVE),
    "Mean": Mean("value", where=POSITIVE),
    "Max": Max("value", where=POSITIVE),
    "First": First("value", where=POSITIVE),
    "Last": Last("value", where=POSITIVE),
}
AGGREGATES: dict[str, Cumulative] = {
    **{type(one).__name__: OfAggregate(one, "") for one in (Count("value"), Sum("value"), Mean("value"))},
    **{type(one).__name__: OfAggregate(one, "") for one in (Min("value"), Max("value"))},
    **{type(one).__name__: OfAggregate(one, "") for one in (First("value"), Last("value"))},
    "Previous": Previous("value"),
    **{f"{name} where": OfAggregate(one, "") for name, one in CONDITIONAL.items()},
}

Row = tuple[str, int, int | None]
"""User, event time, value."""


def stage(order: Order) -> Stage:
    return Stage("so far", Running(("user",), SCHEMA, Windowing(), AGGREGATES, order=order, title="running"))


def results(bundles: list[list[Row]], order: Order) -> pl.DataFrame:
    """Returns the results for rows in these bundles, in order of arrival."""
    store, frames, number = DictStore(), [], 0
    for bundle in bundles:
        rows = [(user, value, number + n, at) for n, (user, at, value) in enumerate(bundle)]
        arrivals = pl.DataFrame(rows, {**SCHEMA, EVENT_TIME: pl.Int64()}, orient="row")
        frames.append(stage(order).step(store, {MAIN: arrivals}, Times.of(0)).panes)
        number += len(bundle)
    end = stage(order).step(
        store, {MAIN: stage(order).operator.inputs[MAIN].no_arrivals()}, Times.of(MAX_TIME)
    )
    assert (end.live, end.pending) == (0, 0)
    return pl.concat([*frames, end.panes]).sort("number")


def by_hand(rows: list[Row], order: Order) -> Iterator[dict[str, object]]:
    """Computes the results row by row."""
    numbered = list(enumerate(rows))
    for number, (user, at, _) in numbered:
        mine = [(time, other, value) for other, (who, time, value) in numbered if who == user]
        if order == "time":
            seen = sorted(one for one in mine if one[:2] <= (at, number))
        else:
            seen = [one for one in mine if one[1] <= number]
        values = [value for *_, value in seen if value is not None]
        yield {
            "number": number,
            "Count": len(values),
            "Sum": sum(values),
            "Mean": fmean(values) if values else None,
            "Min": min(values, default=None),
            "Max": max(values, default=None),
            "First": min(seen, key=lambda one: one[:2])[2],
            "Last": max(seen, key=lambda one: one[:2])[2],
            "Previous": seen[-2][2] if len(seen) > 1 else None,
            **conditional([one for one in seen if (one[2] or 0) > 0]),
        }


def conditional(seen: list[tuple[int, int, int | None]]) -> dict[str, object]:
    values = [value for *_, value in seen if value is not None]
    return {
        "Count where": len(values),
        "Mean where": fmean(values) if values else None,
        "Max where": max(values, default=None),
        "First where": min(seen, key=lambda one: one[:2])[2] if seen else None,
        "Last where": max(seen, key=lambda one: one[:2])[2] if seen else None,
    }


ROWS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 5), st.none() | st.integers(-3, 3)),
    min_size=1,
    max_size=12,
)


@given(ROWS, st.data(), st.sampled_from(["time", "arrival"]))
def test_a_running_aggregate_is_that_of_the_rows_so_far(
    rows: list[Row], data: st.DataObject, order: Order
) -> None:
    cut = data.draw(st.integers(0, len(rows)))
    found = results([rows[:cut], rows[cut:]], order)
    expected = pl.DataFrame(
        list(by_hand(rows, order)),
        schema_overrides={"Mean": pl.Float64, "Mean where": pl.Float64},
        infer_schema_length=None,
    )
    assert found.select(expected.columns).rows() == expected.rows()
    assert found[EVENT_TIME].to_list() == [at for _, at, _ in rows]


@pytest.mark.parametrize("dtype", [pl.Enum(["b", "a"]), pl.Categorical()])
def test_the_least_of_an_enum_has_no_running_form(dtype: pl.DataType) -> None:
    aggregate = cumulative(bl.min("x"), "min(x)")
    assert aggregate is not None
    with pytest.raises(TypeError, match="cast the column to String"):
        aggregate.dtype(pl.Schema({"x": dtype}))
