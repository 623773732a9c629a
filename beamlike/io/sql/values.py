"""Converts values from SQL databases to the types of columns. Values that do not fit become dead letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl

from beamlike.io.base import Faulty
from beamlike.io.files.faults import shown, why_unfit
from beamlike.rows.exact import lost
from beamlike.rows.values import from_text, json_ready, row_json

_TEXT: Final = (pl.String, pl.Categorical, pl.Enum)
_INFINITY: Final = {
    # The driver moves times from PostgreSQL's epoch, 2000, to 1970. For infinite times this overflows to
    # these values.
    pl.Datetime: {-9_222_425_352_054_775_809: "infinity", -9_222_425_352_054_775_808: "-infinity"},
    pl.Date: {-2_147_472_692: "infinity", -2_147_472_691: "-infinity"},
}


def column_of(name: str, values: Sequence[Any]) -> pl.Series:
    """Returns values from a driver as a column. If they are of several types, which SQLite allows, it is a struct with
    a field for each type.
    """
    kinds = {*map(type, values)} - {type(None)}
    if len(kinds) > 1:
        parts = [
            column_of(kind.__name__, [value if type(value) is kind else None for value in values])
            for kind in sorted(kinds, key=lambda kind: kind.__name__)
        ]
        return pl.DataFrame(parts).to_struct(name)
    try:
        found = pl.Series(name, values)
    except (TypeError, OverflowError, pl.exceptions.PolarsError):
        found = None
    if found is None or found.dtype == pl.Object:
        return pl.Series(name, [None if value is None else str(value) for value in values], dtype=pl.String)
    return found


def is_after_all(bound: object, dtype: pl.DataType) -> bool:
    """True if SQLite orders a value after all values of the type of its column: text after numbers, bytes after
    text.
    """
    return isinstance(bound, bytes) or (isinstance(bound, str) and dtype.is_integer())


def stored(column: pl.Series) -> pl.Series:
    """Returns the column without its extension type. The driver uses one for numbers of any length, stored as text."""
    return column.ext.storage() if isinstance(column.dtype, pl.BaseExtension) else column


def typed(
    frame: pl.DataFrame, columns: Mapping[str, pl.DataType], where: str, *, loose: bool
) -> tuple[pl.DataFrame, Faulty | None]:
    """Converts rows to the types of `columns`. Returns (the rows that fit, dead letters for rows with a value that does
    not fit). Each value is converted by its own type, whatever other values are read with it.

    Raises a `PolarsError` if the type of a column can never be converted; if `loose`, no value of the column then fits.
    `where` names the table in dead letters.
    """
    both = {name: _converted(frame[name], dtype, loose=loose) for name, dtype in columns.items()}
    read = pl.DataFrame([values.alias(name) for name, (values, _) in both.items()])
    bad = pl.select(pl.any_horizontal([lost for _, lost in both.values()])).to_series()
    infinite = {name: names for name in columns if len((names := infinities(frame[name])).drop_nulls())}
    for names in infinite.values():
        bad = bad | names.is_not_null()
    if not bad.any():
        return read, None
    given = frame.with_columns(_named(frame[name], names) for name, names in infinite.items()).filter(bad)
    given = pl.DataFrame([_as_text(given[name]) for name in columns])
    read = read.with_columns(
        pl.when(names.is_null()).then(read[name]).alias(name) for name, names in infinite.items()
    )
    errors = f"{where}: " + why_unfit(shown(given), read.filter(bad))
    rows = given.select(row_json(given.schema)).to_series()
    return read.filter(~bad), Faulty(pl.DataFrame({"error": errors, "row": rows}))


def _converted(column: pl.Series, dtype: pl.DataType, *, loose: bool) -> tuple[pl.Series, pl.Series]:
    """Returns the values of a column in this type, and a mask of those that do not fit, which are null."""
    if isinstance(column.dtype, pl.Struct):
        parts = [_converted(part, dtype, loose=loose) for part in column.struct.unnest()]
        values = pl.select(pl.coalesce([values for values, _ in parts])).to_series()
        return values, pl.select(pl.any_horizontal([mask for _, mask in parts])).to_series()
    read = _read(column, dtype, loose=loose)
    mask = lost(column, read)
    return pl.select(pl.when(~mask).then(read)).to_series(), mask


def _read(column: pl.Series, dtype: pl.DataType, *, loose: bool) -> pl.Series:
    if dtype == pl.Binary and column.dtype.is_numeric():
        return column.clear(len(column)).cast(dtype)
    try:
        return column.to_frame().select(_cast(column.dtype, dtype, column.name)).to_series()
    except pl.exceptions.PolarsError:
        if column.dtype == pl.Binary and isinstance(dtype, _TEXT):  # some are no UTF-8
            return pl.Series(list(map(_utf8, column)), dtype=pl.String).cast(dtype, strict=False)
        if not loose:
            raise
        return pl.Series([None], dtype=dtype).new_from_index(0, len(column))


def _utf8(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def _as_text(column: pl.Series) -> pl.Series:
    """Returns a column of several types as text, as dead letters show it."""
    if not isinstance(column.dtype, pl.Struct):
        return column
    values = (next((one for one in row.values() if one is not None), None) for row in column.to_list())
    texts = [
        value.decode(errors="backslashreplace") if isinstance(value, bytes) else value for value in values
    ]
    return pl.Series(column.name, [None if text is None else str(text) for text in texts], dtype=pl.String)


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
