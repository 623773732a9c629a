"""Fields of Redis messages in their types: numbers keep every digit, and values that do not fit are faulty."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import polars as pl
import pytest

from beamlike.io.redis.messages import codec_of


@pytest.mark.parametrize(
    ("dtype", "text", "value"),
    [
        (pl.Decimal(20, 2), b"90071992547409.93", Decimal("90071992547409.93")),
        (pl.Decimal(12, 2), b"0.125", None),
        (pl.Decimal(12, 2), b"12345678901.5", None),
        (pl.Float32, b"1e300", None),
        (pl.Float64, b"1e400", None),
        (pl.Float64, b"inf", float("inf")),
    ],
)
def test_numbers_of_fields_are_exact_or_wrong(dtype: Any, text: bytes, value: Any) -> None:
    found = codec_of("v", dtype).decode(pl.Series([text]), "v")
    assert found.frame["v"].to_list() == ([] if value is None else [value])
    assert [index for index, _ in found.wrong] == ([0] if value is None else [])
