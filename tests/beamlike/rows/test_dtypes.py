"""Types as users write them."""

from __future__ import annotations

from datetime import datetime

import polars as pl
import pytest

from beamlike.rows.dtypes import as_dtype


def test_a_dict_of_types_is_a_struct() -> None:
    written = {"call": int, "came": datetime, "where": {"x": float}}
    inner = pl.Struct({"x": pl.Float64()})
    made = pl.Struct({"call": pl.Int64(), "came": pl.Datetime("us", "UTC"), "where": inner})
    assert as_dtype(written) == made


@pytest.mark.parametrize("wrong", [{}, {"call": "int"}])
def test_a_dict_of_anything_else_is_none(wrong: object) -> None:
    with pytest.raises(TypeError):
        as_dtype(wrong)
