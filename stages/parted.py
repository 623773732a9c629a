"""Splits and joins frames without a copy if a part has all rows: an operation on few rows costs as much as on many."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import polars as pl


def parted(rows: pl.DataFrame, mask: pl.Series | pl.Expr) -> tuple[pl.DataFrame, pl.DataFrame]:
    """(the rows for which the mask is true, the others); the mask has no nulls."""
    if rows.is_empty():
        return rows, rows
    where = rows.select(mask).to_series() if isinstance(mask, pl.Expr) else mask
    count = where.sum()
    if count == len(rows):
        return rows, rows.clear()
    if count == 0:
        return rows.clear(), rows
    return rows.filter(where), rows.filter(~where)


def together(*parts: pl.DataFrame) -> pl.DataFrame:
    """All rows of parts with the same columns, in this order."""
    some = [part for part in parts if len(part)]
    return (some or [parts[0]])[0] if len(some) < 2 else pl.concat(some)


def replaced(columns: Iterable[str], new: Mapping[str, pl.Expr]) -> list[pl.Expr]:
    """Expressions for these columns: the new one of the name if there is one, else the column."""
    return [new[name].alias(name) if name in new else pl.col(name) for name in columns]
