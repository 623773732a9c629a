"""Floats without a JSON form, NaN and the infinities, which are written as null."""

from __future__ import annotations

import functools
import logging

import polars as pl

_LOG = logging.getLogger("beamlike")


def warn_nonfinite(frame: pl.DataFrame, where: str) -> None:
    """Logs each column with NaN or an infinity that is written as JSON, once for each place `where`."""
    for column in frame.iter_columns():
        if _has_nonfinite(column):
            _warn(where, column.name)


@functools.lru_cache(maxsize=1_000)
def _warn(where: str, column: str) -> None:
    _LOG.warning(
        "%s: column %r has NaN or infinite values, for which JSON has no number: they are written as null",
        where,
        column,
    )


def _has_nonfinite(column: pl.Series) -> bool:
    """True if a float of the column, at any depth, is NaN or infinite."""
    dtype = column.dtype
    if dtype.is_float():
        return not column.is_finite().all()
    if isinstance(dtype, pl.Struct):
        return any(map(_has_nonfinite, column.struct.unnest().iter_columns()))
    if isinstance(dtype, pl.List):
        return _has_nonfinite(column.explode(empty_as_null=False, keep_nulls=False))
    return isinstance(dtype, pl.Array) and _has_nonfinite(column.arr.to_list())
