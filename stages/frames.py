"""Operations on frames: rows in two parts, parts as one frame, rows in order, and the size of rows in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import polars as pl

_VIEW: Final = 16
"""The bytes of a text beside its content."""


def partition(rows: pl.DataFrame, mask: pl.Series | pl.Expr) -> tuple[pl.DataFrame, pl.DataFrame]:
    """(the rows for which the mask is true, the others); the mask has no nulls.

    A part of all rows, or of none, is made without a copy: an operation on few rows costs as much as on many.
    """
    if rows.is_empty():
        return rows, rows
    where = rows.select(mask).to_series() if isinstance(mask, pl.Expr) else mask
    count = where.sum()
    if count == len(rows):
        return rows, rows.clear()
    if count == 0:
        return rows.clear(), rows
    return rows.filter(where), rows.filter(~where)


def concat_nonempty(*parts: pl.DataFrame) -> pl.DataFrame:
    """All rows of parts with the same columns, in this order."""
    some = [part for part in parts if len(part)]
    return (some or [parts[0]])[0] if len(some) < 2 else pl.concat(some)


def replaced(columns: Iterable[str], new: Mapping[str, pl.Expr]) -> list[pl.Expr]:
    """Expressions for these columns: the new one of the name if there is one, else the column."""
    return [new[name].alias(name) if name in new else pl.col(name) for name in columns]


def in_order(rows: pl.DataFrame, by: Sequence[pl.Expr], descending: Sequence[bool] = ()) -> pl.DataFrame:
    """The rows by these columns, nulls last, of which some are `descending`; equal rows are in any order."""
    if len(rows) < 2:
        return rows
    order = rows.select(column.alias(f"{number}") for number, column in enumerate(by))
    flags = dict(zip(order.columns, descending or [False] * len(by), strict=True))
    # Polars sorts by several columns, the first of numbers, two to three times as slowly with nulls last, and constant
    # columns cost as much as others. So nulls last is requested only if there are some, and constant columns are left
    # out.
    differing = [name for name in order.columns if not _is_constant(order[name])]
    if not differing:
        return rows
    columns = order.select(differing)
    last = any(column.null_count() for column in columns)
    places = columns.select(
        pl.arg_sort_by(differing, descending=[flags[name] for name in differing], nulls_last=last)
    )
    # Polars gathers from several chunks many times as slowly.
    return rows.rechunk()[places.to_series()]


def _is_constant(column: pl.Series) -> bool:
    """True if a column of integers or Booleans has one value throughout; False for other types."""
    plain = column.dtype.is_integer() or column.dtype == pl.Boolean
    return plain and not column.null_count() and bool(column.min() == column.max())


def size_of(frame: pl.DataFrame) -> int:
    """The approximate size of the rows in bytes. Polars leaves out the 16 that a text has beside its content."""
    views = sum(isinstance(dtype, pl.String | pl.Binary) for dtype in frame.dtypes)
    return int(frame.estimated_size()) + _VIEW * views * len(frame)
