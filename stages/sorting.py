"""Sorts rows by several columns, nulls last.

To sort by several columns, of which the first contains numbers, polars takes two to three times as long with nulls
last, and constant columns cost as much as others. So nulls last is requested only if there are some, and constant
columns are left out.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl


def in_order(rows: pl.DataFrame, by: Sequence[pl.Expr], descending: Sequence[bool] = ()) -> pl.DataFrame:
    """The rows by these columns, of which some are `descending`; equal rows are in any order."""
    if len(rows) < 2:
        return rows
    order = rows.select(column.alias(f"{number}") for number, column in enumerate(by))
    flags = dict(zip(order.columns, descending or [False] * len(by), strict=True))
    differing = [name for name in order.columns if not _is_constant(order[name])]
    if not differing:
        return rows
    columns = order.select(differing)
    last = any(column.null_count() for column in columns)
    places = columns.select(
        pl.arg_sort_by(differing, descending=[flags[name] for name in differing], nulls_last=last)
    )
    # To gather from several chunks takes polars many times as long.
    return rows.rechunk()[places.to_series()]


def _is_constant(column: pl.Series) -> bool:
    """True if a column of integers or Booleans has one value throughout; False for other types."""
    plain = column.dtype.is_integer() or column.dtype == pl.Boolean
    return plain and not column.null_count() and bool(column.min() == column.max())
