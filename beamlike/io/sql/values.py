"""Converts values from SQL databases to the types of columns. Values that do not fit become dead letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl

from beamlike.io.base import Faulty
from beamlike.io.files.faults import shown, why_unfit, without_lost
from beamlike.rows.values import from_text, json_ready, row_json

_TEXT: Final = (pl.String, pl.Categorical, pl.Enum)
_INFINITY: Final = {
    # The driver moves times from PostgreSQL's epoch, 2000, to 1970. For infinite times this overflows to
    # these values.
    pl.Datetime: {-9_222_425_352_054_775_809: "infinity", -9_222_425_352_054_775_808: "-infinity"},
    pl.Date: {-2_147_472_692: "infinity", -2_147_472_691: "-infinity"},
}


def column_of(name: str, values: Sequence[Any]) -> pl.Series:
    """Returns values from a driver as a column. Values of several types, which SQLite allows, become text."""
    try:
        found = pl.Series(name, values)
    except (TypeError, OverflowError, pl.exceptions.PolarsError):
        found = None
    if found is None or found.dtype == pl.Object:
        return pl.Series(name, list(map(_as_text, values)), dtype=pl.String)
    return found


def _as_text(value: Any) -> str | None:
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return None if value is None else str(value)


def stored(column: pl.Series) -> pl.Series:
    """Returns the column without its extension type. The driver uses one for numbers of any length, stored as text."""
    return column.ext.storage() if isinstance(column.dtype, pl.BaseExtension) else column


def typed(
    frame: pl.DataFrame, columns: Mapping[str, pl.DataType], where: str
) -> tuple[pl.DataFrame, Faulty | None]:
    """Converts rows to the types of `columns`. Returns (the rows that fit, dead letters for rows with a value that does
    not fit).

    Raises a `PolarsError` if the type of a column can never be converted. `where` names the table in dead letters.
    """
    read = frame.select(_cast(frame.schema[name], dtype, name) for name, dtype in columns.items())
    read, bad = without_lost(frame, read)
    infinite = {name: names for name in columns if len((names := infinities(frame[name])).drop_nulls())}
    for names in infinite.values():
        bad = bad | names.is_not_null()
    if not bad.any():
        return read, None
    given = frame.with_columns(_named(frame[name], names) for name, names in infinite.items()).filter(bad)
    read = read.with_columns(
        pl.when(names.is_null()).then(read[name]).alias(name) for name, names in infinite.items()
    )
    errors = f"{where}: " + why_unfit(shown(given), read.filter(bad))
    rows = given.select(row_json(given.schema)).to_series()
    return read.filter(~bad), Faulty(pl.DataFrame({"error": errors, "row": rows}))


def _cast(found: pl.DataType, dtype: pl.DataType, name: str) -> pl.Expr:
    """Converts a column to its type. Values that do not fit are null."""
    column = pl.col(name)
    if isinstance(found, _TEXT) and not isinstance(dtype, _TEXT) and _has_text(dtype):
        return from_text(column, dtype).alias(name)
    if found == pl.Duration and dtype == pl.Time:  # MySQL's drivers return times as durations
        return (column.dt.total_microseconds() * 1000).cast(pl.Time, strict=False)
    return column.cast(dtype, strict=False)


def _has_text(dtype: pl.DataType) -> bool:
    return dtype.is_float() or dtype.is_decimal() or isinstance(dtype, pl.Datetime | pl.Date | pl.Time)


def infinities(column: pl.Series) -> pl.Series:
    """Returns the names of infinite PostgreSQL times; null for every other value."""
    names = _INFINITY.get(type(column.dtype), {})
    if not names or not column.to_physical().is_in(list(names)).any():
        return pl.Series([None], dtype=pl.String).new_from_index(0, len(column))
    return column.to_physical().cast(pl.Int64).replace_strict(names, default=None, return_dtype=pl.String)


def _named(column: pl.Series, names: pl.Series) -> pl.Series:
    """Returns times as text. Infinite times are written by name."""
    return pl.select(
        pl.coalesce(pl.lit(names), json_ready(pl.lit(column), column.dtype)).alias(column.name)
    ).to_series()
