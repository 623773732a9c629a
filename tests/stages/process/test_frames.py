"""Results of functions of frames: a cast that would lose information is an error that names the column."""

from datetime import UTC, datetime
from typing import Any

import polars as pl
import pytest

from stages.errors import ResultError
from stages.process.frames import fitting, two_frames

FRAME = pl.DataFrame({"x": [1]})


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (pl.Int32(), pl.Int64()),
        (pl.Int64(), pl.UInt8()),
        (pl.Int64(), pl.Float64()),
        (pl.Null(), pl.String()),
        (pl.String(), pl.Enum(["a"])),
        (pl.Datetime("ms"), pl.Datetime("us", "UTC")),
        (pl.List(pl.Int8), pl.List(pl.Int64)),
        (pl.Struct({"a": pl.Int8, "b": pl.Null}), pl.Struct({"b": pl.String, "a": pl.Int64})),
    ],
)
def test_a_smaller_type_becomes_the_declared_one(given: pl.DataType, wanted: pl.DataType) -> None:
    frame = pl.DataFrame({"x": pl.Series([None], dtype=given)})
    assert fitting(frame, {"x": wanted}, "it").schema == {"x": wanted}


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (pl.Float64(), pl.Int64()),
        (pl.String(), pl.Int64()),
        (pl.Int64(), pl.String()),
        (pl.Int64(), pl.Datetime("us", "UTC")),
        (pl.List(pl.Float64), pl.List(pl.Int64)),
        (pl.Struct({"a": pl.Int64, "b": pl.Int64}), pl.Struct({"a": pl.Int64})),
    ],
)
def test_another_type_is_an_error(given: pl.DataType, wanted: pl.DataType) -> None:
    frame = pl.DataFrame({"x": pl.Series([None], dtype=given)})
    with pytest.raises(ResultError, match=r"it: column 'x' is .* and was declared .*; cast it"):
        fitting(frame, {"x": wanted}, "it")


def test_a_value_that_is_too_large_is_an_error() -> None:
    with pytest.raises(ResultError, match=r"the state: .*300"):
        fitting(pl.DataFrame({"x": [300]}), {"x": pl.UInt8()}, "the state")


def test_a_time_without_a_zone_is_utc() -> None:
    frame = pl.DataFrame({"x": [datetime(2026, 1, 1)]})
    assert fitting(frame, {"x": pl.Datetime("us", "UTC")}, "it")["x"].to_list() == [
        datetime(2026, 1, 1, tzinfo=UTC)
    ]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (None, "got None"),
        (FRAME, "got polars DataFrame"),
        ([FRAME, FRAME], "got a list of polars DataFrame, polars DataFrame"),
        ((FRAME, FRAME.lazy()), r"polars LazyFrame; collect\(\)"),
        ((FRAME, FRAME.to_pandas()), "pandas DataFrame"),
        ((), "a tuple of nothing"),
    ],
)
def test_what_is_not_two_frames_is_told_by_its_kind(given: Any, told: str) -> None:
    with pytest.raises(ResultError, match=told):
        two_frames(given)
