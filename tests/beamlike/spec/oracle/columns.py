"""A table with a column of each of 29 types, with nulls and edge values, here and in DuckDB."""

# ruff: noqa: E501  a line for each form

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

import duckdb
import polars as pl

_ROWS: Final = 24
_INF: Final = float("inf")
_NAN: Final = float("nan")
_NONE: Final = None
_DAY: Final = (date(2024, 2, 29), date(1970, 1, 1), date(1969, 12, 31), date(2024, 3, 31), date(1900, 1, 1))
_MOMENT: Final = (
    datetime(2024, 2, 29, 10, 11, 12, 345678),
    datetime(1970, 1, 1),
    datetime(1969, 12, 31, 23, 59, 59, 999999),
    datetime(2024, 3, 31, 2, 30),
    datetime(2024, 10, 27, 23, 59, 0, 500000),
)
_DECIMALS: Final = ("0", "1.50", "-2.25", "0.05", "10", "-0.01")

COLUMNS: Final[dict[str, tuple[str, pl.DataType, list[Any]]]] = {
    "i8": ("int", pl.Int8(), [0, 1, -1, 2, -7, 100, 127, -128, None]),
    "i16": ("int", pl.Int16(), [0, 1, -1, 300, -7, 32767, -32768, None]),
    "i32": ("int", pl.Int32(), [0, 1, -1, 1_500_000_000, -7, 2**31 - 1, -(2**31), None]),
    "i64": ("int", pl.Int64(), [0, 1, -1, 2, -7, 2**53 + 1, 2**63 - 1, -(2**63), None, 10**12]),
    "j": ("int", pl.Int64(), [3, 0, -2, None, 5, 1, 7, 59]),
    "u8": ("int", pl.UInt8(), [0, 1, 2, 200, 255, None]),
    "u16": ("int", pl.UInt16(), [0, 1, 40000, 65535, None]),
    "u32": ("int", pl.UInt32(), [0, 1, 3, 2**32 - 1, None]),
    "u64": ("int", pl.UInt64(), [0, 1, 2**63, 2**64 - 1, None, 9]),
    "f32": ("float", pl.Float32(), [0.0, 1.5, -2.5, None, _NAN, _INF, -_INF, -0.0, 16777217.0]),
    "f": ("float", pl.Float64(), [0.0, 1.5, -2.5, 0.5, None, _NAN, _INF, -_INF, -0.0, 0.1, 1e18, 2.675, 1e-7]),
    "d2": ("decimal", pl.Decimal(9, 2), [*map(Decimal, _DECIMALS), None, Decimal("9999999.99")]),
    "d4": ("decimal", pl.Decimal(18, 4), [*map(Decimal, _DECIMALS), Decimal("2.3450"), Decimal("-0.1250"), None]),
    "d10": ("decimal", pl.Decimal(38, 10), [*map(Decimal, _DECIMALS), Decimal("1.0000000001"), None]),
    "b": ("bool", pl.Boolean(), [True, False, None]),
    "c": ("bool", pl.Boolean(), [False, None, True, True]),
    "s": ("text", pl.String(), ["", " ", "abc", "ABC", None, "straße", "ünï", "a_b", "a%b", "日本語", "😀x", " pad ", "10"]),
    "t": ("text", pl.String(), ["a", "", None, "b", "abc", "_", "%", "."]),
    "n": ("text", pl.String(), ["1", "-5", "007", "", None, "1.5", "true", "2.5", "2024-02-29", "99999999999", "x"]),
    "e": ("text", pl.Enum(["a", "b", "abc"]), ["a", "b", "abc", None]),
    "dd": ("date", pl.Date(), [*_DAY, None]),
    "ee": ("date", pl.Date(), [date(2024, 2, 29), date(1970, 1, 2), None, date(2024, 12, 30)]),
    "ts": ("ts", pl.Datetime("us"), [*_MOMENT, None]),
    "tsm": ("ts", pl.Datetime("ms"), [one.replace(microsecond=345_000) for one in _MOMENT] + [None]),
    "tsn": ("ts", pl.Datetime("ns"), [*_MOMENT, None]),
    "tz": ("tz", pl.Datetime("us", "UTC"), [one.replace(tzinfo=UTC) for one in _MOMENT] + [None]),
    "tzm": ("tz", pl.Datetime("ms", "UTC"), [datetime(2024, 2, 29, 10, 11, 12, 345_000, UTC), None]),
    "du": ("interval", pl.Duration("us"), []),
    "none": ("null", pl.Null(), [None]),
}  # fmt: skip
"""For each column its kind, its type, and its values. A duration is the difference of two times."""


def _cycled(values: list[Any], rng: random.Random) -> list[Any]:
    found: list[Any] = []
    while len(found) < _ROWS:
        found += rng.sample(values, len(values))
    return found[:_ROWS]


def table() -> pl.DataFrame:
    """Returns the table; its rows have a number `id`."""
    rng = random.Random(7)
    made = {
        name: pl.Series(_cycled(values, rng), dtype=dtype)
        for name, (_, dtype, values) in COLUMNS.items()
        if values
    }
    frame = pl.DataFrame({"id": range(_ROWS), **made})
    return frame.with_columns(du=pl.col("ts") - pl.col("tz").dt.replace_time_zone(None)).select(
        "id", *COLUMNS
    )


def database(frame: pl.DataFrame) -> duckdb.DuckDBPyConnection:
    """Returns a connection with the table `r`. Numbers have 64 bits there, and UInt64 has 128: a sum of narrow integers
    would be an error otherwise.
    """
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    narrow = [name for name, (kind, dtype, _) in COLUMNS.items() if kind == "int" and dtype != pl.UInt64()]
    connection.register("given", frame.with_columns(pl.col("e").cast(pl.String)).to_arrow())
    wider = ", ".join(
        [f"CAST({name} AS BIGINT) AS {name}" for name in narrow]
        + ["CAST(u64 AS HUGEINT) AS u64", "CAST(f32 AS DOUBLE) AS f32"]
    )
    connection.execute(f"CREATE TABLE r AS SELECT * REPLACE ({wider}) FROM given")
    return connection
