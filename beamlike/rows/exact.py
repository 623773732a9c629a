"""Exact conversion of values: which types are compatible, and which values a cast would lose or change.

A whole number or a decimal keeps every digit, and a time must be in the range of its unit. Only two roundings are
allowed: a float to the nearest float of a smaller type, and a time to a coarser unit.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from beamlike.rows.dtypes import as_dtype

_TEXT: Final = (pl.String, pl.Categorical, pl.Enum)
_TICKS: Final = {"ms": 0, "us": 3, "ns": 6}
_SATURATED: Final = 2**63 - 1
"""The number of nanoseconds that polars returns for a Parquet INT96 time out of range."""


def stands_for(found: pl.DataType, dtype: pl.DataType) -> bool:
    """True if values of type `found` may be converted to `dtype`, provided that each value fits. Fields of structs
    are matched by name.
    """
    if isinstance(found, pl.Map):
        return stands_for(_entries(found), _entries(dtype) if isinstance(dtype, pl.Map) else dtype)
    if isinstance(found, pl.Struct) and isinstance(dtype, pl.Struct):
        there, wanted = fields(found), fields(dtype)
        shared = there.keys() & wanted.keys()
        return bool(shared) and all(stands_for(there[name], wanted[name]) for name in shared)
    if isinstance(found, pl.List | pl.Array) and isinstance(dtype, type(found)):
        return _width(found) == _width(dtype) and stands_for(as_dtype(found.inner), as_dtype(dtype.inner))
    return (
        type(found) is type(dtype)
        or found == pl.Null
        or (found.is_numeric() and dtype.is_numeric())
        or (found == pl.Date and isinstance(dtype, pl.Datetime))
        or (isinstance(found, _TEXT) and isinstance(dtype, _TEXT))
    )


def always_fits(found: pl.DataType, dtype: pl.DataType) -> bool:
    """True if every value of type `found` is also a value of `dtype`, so that no check is needed."""
    if found == dtype:
        return True
    if isinstance(found, pl.Datetime) and isinstance(dtype, pl.Datetime):
        return _TICKS[dtype.time_unit] <= _TICKS[found.time_unit]
    if found.is_nested() or found.is_decimal() or dtype.is_decimal() or found.is_temporal():
        return False
    try:
        both = [pl.Series(dtype=found).to_frame(""), pl.Series(dtype=dtype).to_frame("")]
        return pl.concat(both, how="vertical_relaxed").schema[""] == dtype
    except pl.exceptions.PolarsError:
        return False


def lost(given: pl.Series, cast: pl.Series) -> pl.Series:
    """Returns a mask of the rows whose value, or a part of it, was lost or changed by a non-strict cast."""
    found, dtype = given.dtype, cast.dtype
    if isinstance(found, pl.Struct) and isinstance(dtype, pl.Struct):
        return _lost_in_struct(given, cast)
    if isinstance(found, pl.List | pl.Array | pl.Map) and isinstance(dtype, pl.List | pl.Array | pl.Map):
        return _lost_in_list(given, cast)
    gone = given.is_not_null() & cast.is_null()
    if found == dtype and not isinstance(found, pl.Datetime):
        return gone
    return gone | _is_changed(given, cast).fill_null(False)


def _is_changed(given: pl.Series, cast: pl.Series) -> pl.Series:
    found, dtype = given.dtype, cast.dtype
    if isinstance(found, pl.Datetime) and found.time_unit == "ns":
        saturated = given.to_physical() == _SATURATED
        return saturated if _is_coarser(found, dtype) else saturated | _differs(given, cast)
    if (found.is_float() and dtype.is_float()) or (found.is_decimal() and dtype.is_float()):
        wide = given.cast(pl.Float64)
        return wide.is_finite() & cast.is_infinite()
    are_numbers = all(
        kind.is_numeric() or kind.is_temporal() or kind == pl.Boolean for kind in (found, dtype)
    )
    if dtype.is_float() or _is_coarser(found, dtype) or not are_numbers:
        return pl.repeat(False, len(given), eager=True)
    return _differs(given, cast)


def _differs(given: pl.Series, cast: pl.Series) -> pl.Series:
    return cast.cast(given.dtype, strict=False).ne_missing(given)


def _is_coarser(found: pl.DataType, dtype: pl.DataType) -> bool:
    """True if `dtype` is a time with the same unit as `found`, or a coarser one."""
    kinds = (pl.Datetime, pl.Duration)
    if not (isinstance(found, kinds) and isinstance(dtype, kinds)):
        return False
    return _TICKS[dtype.time_unit] <= _TICKS[found.time_unit]


def _lost_in_struct(given: pl.Series, cast: pl.Series) -> pl.Series:
    there = fields(given.dtype)
    masks = [
        lost(given.struct.field(name), cast.struct.field(name))
        for name in fields(cast.dtype)
        if name in there
    ]
    within = (
        pl.select(pl.any_horizontal(masks)).to_series() if masks else pl.repeat(False, len(given), eager=True)
    )
    return given.is_not_null() & within


def _lost_in_list(given: pl.Series, cast: pl.Series) -> pl.Series:
    values, others = _as_list(given), _as_list(cast)
    inner = [one.explode(empty_as_null=False, keep_nulls=False) for one in (values, others)]
    if len(inner[0]) != len(inner[1]):  # In one of the two, a whole list is null.
        return given.is_not_null() & (cast.is_null() | (values.list.len() != others.list.len()))
    bad = lost(*inner)
    if not bad.any():
        return given.is_not_null() & cast.is_null()
    ends = values.list.len().fill_null(0).cast(pl.Int64).cum_sum()
    count = pl.concat([pl.Series([0], dtype=pl.Int64), bad.cast(pl.Int64).cum_sum()])
    upto = count.gather(ends)
    return (upto - upto.shift(1, fill_value=0)) > 0


def _as_list(values: pl.Series) -> pl.Series:
    if isinstance(values.dtype, pl.Map):
        return values.cast(_entries(values.dtype))
    return values.arr.to_list() if isinstance(values.dtype, pl.Array) else values


def _entries(dtype: pl.Map) -> pl.List:
    """Returns the type of a map's entries."""
    return pl.List(pl.Struct({"key": dtype.key, "value": dtype.value}))


def _width(dtype: pl.DataType) -> int | None:
    return dtype.size if isinstance(dtype, pl.Array) else None


def fields(dtype: pl.DataType) -> dict[str, pl.DataType]:
    """Returns the fields of a struct by name."""
    return {name: as_dtype(inner) for name, inner in dict(dtype).items()}  # type: ignore[call-overload]
