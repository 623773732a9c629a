"""Counts of equal values of a group are added up, for values of any type."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.aggregates.lists import GROUP
from stages.aggregates.multisets import COUNT, VALUE, added

VALUES: dict[str, tuple[pl.DataType, list[Any]]] = {
    "small numbers": (pl.Int64(), [None, -3, 0, 7]),
    "numbers far apart": (pl.Int64(), [None, -(2**63), -1, 0, 2**63 - 1]),
    "large numbers": (pl.UInt64(), [None, 0, 2**63, 2**64 - 1]),
    "little numbers": (pl.Int8(), [None, -128, 0, 127]),
    "wide numbers": (pl.Int128(), [None, -(2**127), 0, 2**127 - 1]),
    "only null": (pl.Int64(), [None]),
    "numbers with a point": (pl.Float64(), [None, -math.inf, -1.5, 0.0, math.inf]),
    "amounts": (pl.Decimal(10, 2), [None, Decimal("-1.50"), Decimal("0.00"), Decimal("2.25")]),
    "booleans": (pl.Boolean(), [None, False, True]),
    "times": (
        pl.Datetime("us", "UTC"),
        [None, *(dt.datetime(year, 1, 1, tzinfo=dt.UTC) for year in (1, 9999))],
    ),
    "days": (pl.Date(), [None, dt.date(1969, 1, 1), dt.date(2024, 1, 1)]),
    "durations": (pl.Duration("us"), [None, dt.timedelta(seconds=-1), dt.timedelta(days=1)]),
    "text": (pl.String(), [None, "", "a", "b"]),
}


def expected(items: list[tuple[int, Any, int]]) -> list[tuple[int, Any, int]]:
    totals: Counter[tuple[int, Any]] = Counter()
    for group, value, count in items:
        totals[group, value] += count
    there = [(group, value, count) for (group, value), count in totals.items() if count]
    return sorted(there, key=lambda item: (item[0], *order(item[1])))


def order(value: Any) -> tuple[Any, ...]:
    """Returns a sort key by which null is first."""
    if isinstance(value, tuple):
        return tuple(key for field in value for key in order(field))
    return (value is not None, 0 if value is None else value)


def frame(items: list[tuple[int, Any, int]], dtype: pl.DataType) -> pl.DataFrame:
    return pl.DataFrame(
        [*zip(*items, strict=True)] or None,
        schema={GROUP: pl.UInt32, VALUE: dtype, COUNT: pl.Int64},
    )


@pytest.mark.parametrize("name", VALUES)
@given(data=st.data())
def test_the_counts_of_equal_values_are_added_and_sorted_with_null_first(
    name: str, data: st.DataObject
) -> None:
    dtype, values = VALUES[name]
    item = st.tuples(st.integers(0, 3), st.sampled_from(values), st.integers(-2, 2))
    items = data.draw(st.lists(item, max_size=20))
    assert added(frame(items, dtype)).rows() == expected(items)


@given(data=st.data())
def test_values_of_several_fields_are_sorted_field_by_field(data: st.DataObject) -> None:
    fields = [VALUES[data.draw(st.sampled_from(sorted(VALUES)), label=f"type of {name}")] for name in "ab"]
    value = st.tuples(*(st.sampled_from(values) for _, values in fields))
    items = data.draw(st.lists(st.tuples(st.integers(0, 3), value, st.integers(-2, 2)), max_size=20))
    dtype = pl.Struct({name: dtype for name, (dtype, _) in zip("ab", fields, strict=True)})
    structs = [(group, dict(zip("ab", value, strict=True)), count) for group, value, count in items]
    found = added(frame(structs, dtype)).rows()
    assert [(group, tuple(value.values()), count) for group, value, count in found] == expected(items)
