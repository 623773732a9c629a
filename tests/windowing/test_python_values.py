"""Values of columns and dicts of rows are those that polars makes."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_series_equal
from polars.testing.parametric import dataframes

from tests.support.edges import KEYS
from windowing.python_rows import python_has
from windowing.python_values import column_of_times, dicts_of, tuples_of, values_of

_TIMES = [pl.Date, pl.Datetime("us"), pl.Datetime("ms"), pl.Datetime("us", "UTC"), pl.Datetime("ms", "UTC")]
_OTHERS = [pl.Datetime("ns"), pl.Duration("us"), pl.Duration("ms"), pl.Int64, pl.String, pl.List(pl.Int8)]


_ZONES = st.sampled_from(["UTC", "Asia/Tokyo", "Asia/Kolkata", "America/Bogota"]).map(ZoneInfo)
_KNOWN_EVERYWHERE = st.datetimes(datetime(1995, 1, 1), timezones=_ZONES)
"""Times of zones without summer time. polars refuses some times of others, and has another database of earlier ones."""


@given(dataframes(allowed_dtypes=[*_TIMES, *_OTHERS], min_cols=1, max_cols=8, max_size=40, allow_null=True))
def test_they_are_those_of_polars(frame: pl.DataFrame) -> None:
    fits = python_has(frame)
    rows = frame if fits is None else frame.filter(fits)
    assert [*dicts_of(rows)] == rows.rows(named=True)
    assert [*tuples_of(rows)] == rows.rows()
    assert [*map(repr, dicts_of(rows))] == [*map(repr, rows.rows(named=True))]


@pytest.mark.parametrize("kind", KEYS)
def test_values_at_the_edge_of_a_type_are_those_of_polars_or_an_error(kind: str) -> None:
    for place in range(len(KEYS[kind])):
        value = KEYS[kind].slice(place, 1)
        if python_has(value.to_frame()) is None:
            assert values_of(value) == value.to_list()
        elif kind in ("day", "milliseconds", "microseconds"):  # others are left to polars, which may panic
            with pytest.raises((OverflowError, TypeError)):
                values_of(value)


def test_the_shortest_duration_is_no_null() -> None:
    shortest = pl.Series([-(2**63), None, 5]).cast(pl.Duration("us"))
    assert values_of(shortest) == [timedelta(microseconds=-(2**63)), None, timedelta(microseconds=5)]


def test_a_time_in_utc_has_the_zone_that_polars_gives() -> None:
    at = pl.Series([datetime(2026, 1, 1)], dtype=pl.Datetime("us", "UTC"))
    (value,) = values_of(at)
    assert value.tzinfo is ZoneInfo("UTC")
    assert values_of(pl.Series([date(2026, 1, 1), None])) == [date(2026, 1, 1), None]


def test_a_column_may_have_any_name() -> None:
    names = ["a b", "'", '"', "\\", "}", "\n", "", "lambda", "é", "v0", "{x}", "__import__('os')"]
    frame = pl.DataFrame({name: [number] for number, name in enumerate(names)})
    assert [*dicts_of(frame)] == [{name: number for number, name in enumerate(names)}]


def test_rows_without_columns_are_empty_dicts() -> None:
    rows = pl.DataFrame({"a": [1, 2]}).drop("a")
    assert [*dicts_of(rows)] == [{}, {}]
    assert [*dicts_of(pl.DataFrame())] == []


def test_the_dicts_of_many_rows_and_columns_are_plain_and_their_own() -> None:
    frame = pl.DataFrame({f"c{number}": range(20_000) for number in range(300)})
    found: list[dict[str, Any]] = [*dicts_of(frame[:, :2])]
    assert {type(row) for row in found} == {dict}
    assert len({*map(id, found)}) == 20_000
    assert [row["c1"] for row in found] == [*range(20_000)]
    assert next(dicts_of(frame)) == frame.row(0, named=True)
    assert [*dicts_of(frame.clear())] == [] == [*tuples_of(pl.DataFrame())]


@given(
    st.lists(st.none() | st.datetimes(timezones=st.none()) | _KNOWN_EVERYWHERE, max_size=9),
    st.sampled_from(
        [pl.Datetime("us", "UTC"), pl.Datetime("us"), pl.Datetime("ms"), pl.Datetime("us", "Asia/Tokyo")]
    ),
)
def test_a_column_of_times_is_the_one_that_polars_makes(
    values: list[datetime | None], dtype: pl.DataType
) -> None:
    column = column_of_times("at", values, dtype)
    if column is not None:
        assert_series_equal(column, pl.Series("at", values, dtype=dtype, strict=True))


@pytest.mark.parametrize("dtype", [pl.Datetime("us", "UTC"), pl.Datetime("us")])
@pytest.mark.parametrize(
    "value",
    [
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=3))),
        datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-3))),
        pd.Timestamp("2026-01-01", tz="UTC"),
        "2026-01-01",
        date(2026, 1, 1),
        5,
    ],
)
def test_other_values_are_left_to_polars(value: Any, dtype: pl.DataType) -> None:
    assert column_of_times("at", [None, value], dtype) is None


def test_times_of_the_first_and_the_last_instant_become_a_column() -> None:
    ends = [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)]
    column = column_of_times("at", ends, pl.Datetime("us", "UTC"))
    assert column is not None
    assert values_of(column) == ends
