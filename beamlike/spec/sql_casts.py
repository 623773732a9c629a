"""CAST in SQL: the types, and casts of text to times and flags, which polars' `cast` does not have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from typing import Any, Final

import narwhals as nw
import polars as pl

from beamlike.rows.dtypes import as_narwhals

TYPES: Final[Mapping[str, pl.DataType]] = {
    "TINYINT": pl.Int8(), "SMALLINT": pl.Int16(), "INT": pl.Int32(), "BIGINT": pl.Int64(), "FLOAT": pl.Float32(),
    "DOUBLE": pl.Float64(), "BOOLEAN": pl.Boolean(), "TEXT": pl.String(), "VARCHAR": pl.String(), "CHAR": pl.String(),
    "DATE": pl.Date(), "TIMESTAMP": pl.Datetime("us"), "TIMESTAMPTZ": pl.Datetime("us", "UTC"),
}  # fmt: skip
"""The types that a cast may have, besides DECIMAL."""

TIMES: Final[Mapping[str, Callable[[str], date]]] = {
    "DATE": date.fromisoformat,
    "TIMESTAMP": datetime.fromisoformat,
    "TIMESTAMPTZ": datetime.fromisoformat,
}
"""The types of times, each with a function that reads a literal."""

_FLAGS: Final = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
_ZONED: Final = r"(Z|[+-]\d\d:?\d\d)$"


def cast(value: nw.Expr, kind: str, *, is_text: bool) -> nw.Expr:
    """Returns a value as one of `TYPES`. Text that has another form than the type's fails."""
    if is_text and kind in _OF_TEXT:
        return _OF_TEXT[kind](value)
    return value.cast(as_narwhals(TYPES[kind]))  # type: ignore[arg-type]


def time_literal(text: str, kind: str) -> nw.Expr:
    """Returns the literal for a text such as that of `DATE '2026-01-31'`. A time without a zone is in UTC, if it
    needs one. Raises `ValueError` for other text.
    """
    value = TIMES[kind](text)
    if kind == "TIMESTAMPTZ" and isinstance(value, datetime):
        value = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    return nw.lit(value, as_narwhals(TYPES[kind]))


def is_text(value: nw.Expr, columns: Mapping[str, Any]) -> bool:
    """True for an expression of these columns, a polars type for each, that gives text."""
    empty: Any = nw.from_native(pl.DataFrame(schema=columns))
    try:
        return bool(empty.select(value.alias("text")).schema["text"] == nw.String)
    except Exception:  # the step that gets the expression reports it
        return False


# A format is given for each, since polars would guess one from the first row of a batch.


def _date(text: nw.Expr) -> nw.Expr:
    return text.str.to_date("%Y-%m-%d")


def _timestamp(text: nw.Expr) -> nw.Expr:
    return _with_clock(text).str.to_datetime("%Y-%m-%d %H:%M:%S%.f")


def _timestamp_with_zone(text: nw.Expr) -> nw.Expr:
    whole = _with_clock(text)
    zoned = nw.when(whole.str.contains(_ZONED)).then(whole).otherwise(nw.concat_str(whole, nw.lit("Z")))
    return zoned.str.to_datetime("%+")


def _with_clock(text: nw.Expr) -> nw.Expr:
    """Returns the text of a time with a blank before its hour; that of a day gets the hour."""
    blank = text.str.replace("T", " ", n=1, literal=True)
    return nw.when(text.str.len_chars() > 10).then(blank).otherwise(nw.concat_str(text, nw.lit(" 00:00:00")))


def _flag(text: nw.Expr) -> nw.Expr:
    return text.str.to_lowercase().replace_strict(
        [*_FLAGS, None], [*_FLAGS.values(), None], return_dtype=nw.Boolean
    )


_OF_TEXT: Final[Mapping[str, Callable[[nw.Expr], nw.Expr]]] = {
    "DATE": _date, "TIMESTAMP": _timestamp, "TIMESTAMPTZ": _timestamp_with_zone, "BOOLEAN": _flag,
}  # fmt: skip
