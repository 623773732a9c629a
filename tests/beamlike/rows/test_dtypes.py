"""Types in the notations of users."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

from beamlike.rows.dtypes import as_dtype
from beamlike.steps.python_results import as_columns


def test_a_dict_of_types_is_a_struct() -> None:
    written = {"call": int, "came": datetime, "where": {"x": float}}
    inner = pl.Struct({"x": pl.Float64()})
    made = pl.Struct({"call": pl.Int64(), "came": pl.Datetime("us", "UTC"), "where": inner})
    assert as_dtype(written) == made


@pytest.mark.parametrize("wrong", [{}, {"call": "int"}])
def test_a_dict_of_anything_else_is_none(wrong: object) -> None:
    with pytest.raises(TypeError):
        as_dtype(wrong)


DECIMAL = pl.Decimal(38, 18)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (Decimal, DECIMAL),
        (Decimal | None, DECIMAL),
        (list[Decimal], pl.List(DECIMAL)),
        (list[list[Decimal]], pl.List(pl.List(DECIMAL))),
        (list[Decimal | None], pl.List(DECIMAL)),
        (tuple[Decimal, ...], pl.List(DECIMAL)),
        (tuple[Decimal], pl.List(DECIMAL)),
        (set[Decimal], pl.List(DECIMAL)),
        ({"a": list[list[Decimal]]}, pl.Struct({"a": pl.List(pl.List(DECIMAL))})),
        (list[datetime], pl.List(pl.Datetime("us", "UTC"))),
        (pl.Decimal, pl.Decimal(38, 0)),
        (pl.Decimal(5, 2), pl.Decimal(5, 2)),
    ],
)
def test_a_decimal_has_digits_after_the_point_in_each_annotation(given: Any, expected: pl.DataType) -> None:
    assert as_dtype(given) == expected
    assert str(as_dtype(given)) == str(expected)
    assert as_columns([], pl.Schema({"x": as_dtype(given)}))[0].is_empty()
