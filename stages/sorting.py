"""Rows in order of several columns, nulls last.

To sort by several columns, of which the first is of numbers, polars takes two to three times as long if nulls are to be
last, and columns that have one value throughout cost as much as others. So nulls last is asked for only where there are
some, and such columns are left out.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl


def in_order(rows: pl.DataFrame, by: Sequence[pl.Expr], descending: Sequence[bool] = ()) -> pl.DataFrame:
    """The rows by these columns, of which some are `descending`; equal rows come in any order."""
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
    """Whether a number or a flag has one value throughout; of others that is not looked for."""
    plain = column.dtype.is_integer() or column.dtype == pl.Boolean
    return plain and not column.null_count() and bool(column.min() == column.max())
