"""Values as text: ISO 8601 times are read and written, columns parsed from text, and rows written as JSON.

Times without a zone are UTC, in text too. Text that cannot be read is null, never an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Literal

import polars as pl

from beamlike.rows.numbers import decimal_of, float_of
from windowing.columns import RESERVED_PREFIX

TimeUnit = Literal["ns", "us", "ms"]

# In order of frequency. A format is tried only on text that the earlier formats could not read.
_FORMS: Final = (
    "%+",  # RFC 3339, with a zone, after `T` or a blank
    "%Y-%m-%d %H:%M:%S%.f",
    "%Y-%m-%dT%H:%M:%S%.f",
    "%Y-%m-%d",
    "%Y-%m-%d %H:%M",
    "%Y-%m-%dT%H:%M",
    "%Y-%m-%d %H:%M:%S%.f%#z",
    "%Y-%m-%dT%H:%M:%S%.f%#z",
    "%Y-%m-%d %H:%M%#z",
    "%Y-%m-%dT%H:%M%#z",
    "%Y%m%dT%H%M%S%.f",
    "%Y%m%dT%H%M%S%.f%#z",
)
_TICKS: Final = {"ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DAYS_SHOWN: Final = 260_000 * 365  # polars aborts when it formats a date about 262_000 years from 1970
_SECONDS_SHOWN: Final = _DAYS_SHOWN * 86_400
_SECONDS_IN_NS: Final = 9_223_372_035  # the range of Int64 nanoseconds
_SPECIAL: Final = (pl.Datetime, pl.Date, pl.Binary, pl.Duration)


def read_times(text: pl.Series, time_unit: TimeUnit = "us") -> pl.Series:
    """Parses ISO 8601 text to Datetime(time_unit, UTC). Fractions finer than the unit are cut off."""
    found = _read(text, _FORMS[0], time_unit)
    for form in _FORMS:
        left = (found.is_null() & text.is_not_null()).arg_true()
        if left.is_empty():
            break
        found = found.scatter(left, _read(text.gather(left).str.strip_chars(), form, time_unit))
    return found


def _read(text: pl.Series, form: str, time_unit: TimeUnit) -> pl.Series:
    return text.str.to_datetime(form, time_unit=time_unit, time_zone="UTC", strict=False, cache=False)


def time_of(text: pl.Expr, time_unit: TimeUnit = "us") -> pl.Expr:
    """Returns `read_times` as an expression over a String column."""
    read = text.map_batches(
        lambda values: read_times(values, time_unit),
        return_dtype=pl.Datetime(time_unit, "UTC"),
        is_elementwise=True,
    )
    if time_unit != "ns":
        return read
    # In nanoseconds, polars wraps times around that are outside of 1677 to 2262.
    seconds = time_of(text, "us").to_physical() // 1_000_000
    return pl.when(seconds.is_between(-_SECONDS_IN_NS, _SECONDS_IN_NS)).then(read)


def reads_natively(dtype: pl.DataType) -> bool:
    """True if polars' own readers of CSV and JSON read the type, and make other values null."""
    return dtype.is_integer() or dtype in (pl.Float64, pl.Boolean, pl.String)


def from_text(text: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """Parses a String column as `dtype`; null for invalid text. Raises `TypeError` for a type without text form."""
    if isinstance(dtype, pl.Datetime):
        return _zoned(time_of(text, dtype.time_unit), dtype)
    if dtype == pl.Date:
        return text.str.to_date("%Y-%m-%d", strict=False)
    if dtype == pl.Time:
        return text.str.to_time("%H:%M:%S%.f", strict=False)
    if dtype == pl.Binary:
        return text.str.decode("base64", strict=False)
    if dtype.is_float():
        return float_of(text, dtype)
    if isinstance(dtype, pl.Decimal):
        return decimal_of(text, dtype)
    if isinstance(dtype, pl.Categorical | pl.Enum):
        return text.cast(dtype, strict=False)
    raise TypeError(f"text cannot be read as {dtype}; declare String and convert it in a step")


@contextmanager
def naming_column(name: str) -> Iterator[None]:
    """Within this, a `TypeError` for the type of a column names the column."""
    try:
        yield
    except TypeError as error:
        raise TypeError(f"column {name!r}: {error}") from None


def _zoned(time: pl.Expr, dtype: pl.Datetime) -> pl.Expr:
    if dtype.time_zone is None:
        return time.dt.replace_time_zone(None)
    return time if dtype.time_zone == "UTC" else time.dt.convert_time_zone(dtype.time_zone)


def time_text(time: pl.Expr, dtype: pl.Datetime, form: str | None = None) -> pl.Expr:
    """Formats times in ISO 8601 in UTC: `2026-01-01T12:00:00.000000Z`; nine digits for a column in nanoseconds.

    A time outside of the calendar (about 260_000 years away) is written as its number and unit.
    """
    form = form or f"%Y-%m-%dT%H:%M:%S%.{9 if dtype.time_unit == 'ns' else 6}fZ"
    number = time.to_physical()
    limit = _SECONDS_SHOWN * _TICKS[dtype.time_unit]
    naive = number.cast(pl.Datetime(dtype.time_unit))
    if limit < 2**63:  # nanoseconds are always in range
        naive = pl.when(number.is_between(-limit, limit)).then(naive)
    otherwise = pl.concat_str(number.cast(pl.String), pl.lit(dtype.time_unit))
    return pl.coalesce(naive.dt.strftime(form), otherwise)


def _date_text(date: pl.Expr) -> pl.Expr:
    number = date.to_physical()
    shown = pl.when(number.is_between(-_DAYS_SHOWN, _DAYS_SHOWN)).then(date)
    return pl.coalesce(shown.dt.to_string("iso"), pl.concat_str(number.cast(pl.String), pl.lit("d")))


def json_ready(value: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """Returns the column with times as ISO 8601 in UTC and bytes as base64, at any depth."""
    if not _special(dtype):
        return value
    if isinstance(dtype, pl.Datetime):
        return time_text(value, dtype)
    if dtype == pl.Date:
        return _date_text(value)
    if dtype == pl.Binary:
        return value.bin.encode("base64")
    if dtype == pl.Duration:
        return value.dt.to_string("iso")
    if isinstance(dtype, pl.Struct):
        fields = [
            json_ready(value.struct.field(field.name), _instance(field.dtype)).alias(field.name)
            for field in dtype.fields
        ]
        return pl.when(value.is_not_null()).then(pl.struct(fields))
    inner = json_ready(pl.element(), _instance(dtype.inner))  # type: ignore[attr-defined]
    return (value.arr.to_list() if isinstance(dtype, pl.Array) else value).list.eval(inner)


def _special(dtype: pl.DataType) -> bool:
    """True if some part of the type has its own text form."""
    if isinstance(dtype, pl.Struct):
        return any(_special(_instance(field.dtype)) for field in dtype.fields)
    if isinstance(dtype, pl.List | pl.Array):
        return _special(_instance(dtype.inner))
    return dtype in _SPECIAL


def _instance(dtype: object) -> pl.DataType:
    """Returns an instance of a nested type, which may be given as a class."""
    made = dtype() if isinstance(dtype, type) else dtype
    assert isinstance(made, pl.DataType)
    return made


def json_columns(schema: Mapping[str, pl.DataType]) -> list[pl.Expr]:
    """Returns every column in a form for JSON."""
    return [json_ready(pl.col(name), dtype).alias(name) for name, dtype in schema.items()]


def csv_columns(schema: Mapping[str, pl.DataType]) -> list[pl.Expr]:
    """Returns every column in a form for CSV: as for JSON, and nested ones as JSON text."""
    return [_csv_ready(name, dtype).alias(name) for name, dtype in schema.items()]


def _csv_ready(name: str, dtype: pl.DataType) -> pl.Expr:
    value = json_ready(pl.col(name), dtype)
    if not dtype.is_nested():
        return value
    # Only structs can be encoded as JSON, so a list is put in a struct, and `{"v":` and `}` are cut off the
    # text.
    text = pl.struct(value.alias("v")).struct.json_encode().str.strip_prefix('{"v":').str.head(-1)
    return pl.when(pl.col(name).is_not_null()).then(text)


def row_json(schema: Mapping[str, pl.DataType]) -> pl.Expr:
    """Returns the user's columns of a row as one JSON text."""
    users = {name: dtype for name, dtype in schema.items() if not name.startswith(RESERVED_PREFIX)}
    return pl.struct(json_columns(users)).struct.json_encode() if users else pl.lit("{}")
