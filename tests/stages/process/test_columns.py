"""Python values as columns of state: a value that its type cannot hold is an error, however deeply nested."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

from stages.process.columns import MISFITS, as_column, one_by_one, require_kept

STRUCT = pl.Struct({"a": pl.List(pl.Int64)})


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (STRUCT, {"a": ["x"]}),
        (STRUCT, {"a": [1], "b": 2}),
        (STRUCT, {"a": 1}),
        (STRUCT, 3),
        (pl.List(STRUCT), [{"a": [1]}, {"a": ["x"]}]),
        (pl.Date(), datetime(2026, 1, 1, 5)),
        (pl.Datetime("us"), datetime(2026, 1, 1, tzinfo=UTC)),
        (pl.UInt8(), 300),
    ],
)
def test_what_does_not_fit_raises_and_becomes_no_null(dtype: pl.DataType, value: object) -> None:
    with pytest.raises(MISFITS):
        as_column("x", [None, value], dtype)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (STRUCT, {"a": [1, None]}),
        (pl.List(STRUCT), [{"a": None}, None]),
        (pl.Date(), date(2026, 1, 1)),
        (pl.Int128(), 2**100),
        (pl.Enum(["a"]), "a"),
        (pl.Array(pl.Int64, 2), [1, 2]),
    ],
)
def test_what_fits_comes_back(dtype: pl.DataType, value: object) -> None:
    column = as_column("x", [None, value], dtype)
    assert column.dtype == dtype
    assert column.to_list() == [None, value]


def test_a_key_that_is_left_out_of_a_struct_is_null() -> None:
    assert as_column("x", [{}], STRUCT).to_list() == [{"a": None}]


def test_what_fits_alone_fits_among_others() -> None:
    column, wrong = one_by_one("x", [None, 1.5, "x", Decimal("2.25")], pl.Decimal(10, 2))
    assert column.to_list() == [None, Decimal("1.50"), None, Decimal("2.25")]
    assert wrong == {2}


@pytest.mark.parametrize("dtype", [pl.Object(), pl.Null(), pl.List(pl.Object), pl.Struct({"a": pl.Null})])
def test_types_that_cannot_be_kept_are_refused(dtype: pl.DataType) -> None:
    with pytest.raises(TypeError, match=r"bl\.Value\(object\)"):
        require_kept(dtype)


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e500"])
@pytest.mark.parametrize(
    ("dtype", "within"),
    [
        (pl.Decimal(38, 2), lambda one: one),
        (pl.Int64(), lambda one: one),
        (pl.List(pl.Decimal(38, 2)), lambda one: [one]),
        (pl.List(pl.Int64()), lambda one: [one]),
        (pl.Struct({"a": pl.List(pl.Decimal(38, 2))}), lambda one: {"a": [one]}),
    ],
)
def test_a_decimal_that_no_column_can_have_raises(dtype: pl.DataType, within: Any, number: str) -> None:
    with pytest.raises(MISFITS) as error:
        as_column("x", [within(Decimal(number))], dtype)
    assert isinstance(error.value, Exception)
