"""Accumulators that are lists. The lists of all groups are merged at once, since a call for each group is slow."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import polars as pl

from stages.frames import partition

GROUP: Final = "__group"
"""The column with the position of an item's group."""
ITEM: Final = "__item"
"""The column with an item of a list, if items are no structs."""

Merge = Callable[[pl.DataFrame], pl.DataFrame]
"""A function from the items of all groups to the merged items, sorted by the column `GROUP`.

Items that are structs have a column for each field, other items have the column `ITEM`.
"""


def merged(lists: pl.Expr, merge: Merge) -> pl.Expr:
    """Returns an aggregation that concatenates and merges the lists of a group. A single list is returned unchanged."""
    dtype = pl.self_dtype().inner_dtype()
    return lists.implode().map_batches(partial(_merged, merge), return_dtype=dtype, is_elementwise=True)


def chosen(lists: pl.Expr, dtype: pl.DataType, choose: Merge, field: str) -> pl.Expr:
    """Returns an expression for a field of the item that `choose` returns for each list; null if it returns none."""
    together = partial(_chosen, choose, field)
    return lists.map_batches(together, return_dtype=dtype, is_elementwise=True)


def only(item: pl.Expr, there: pl.Expr, dtype: pl.List) -> pl.Expr:
    """Returns an expression for a list with one item, empty where `there` is false."""
    return pl.when(there).then(pl.concat_list(item)).otherwise(pl.lit([], dtype))


def _merged(merge: Merge, groups: pl.Series) -> pl.Series:
    assert isinstance(groups.dtype, pl.List)
    dtype = groups.dtype.inner
    assert isinstance(dtype, pl.List)
    if not groups.explode().list.len().max():
        return pl.repeat([], len(groups), dtype=dtype, eager=True).alias(groups.name)
    numbered = groups.alias(ITEM).to_frame().with_row_index(GROUP)
    several, single = partition(numbered, pl.col(ITEM).list.len() > 1)
    unchanged = single.with_columns(pl.col(ITEM).list.first())
    if several.is_empty():
        return unchanged[ITEM].fill_null(pl.Series([[]], dtype=dtype))
    items = _items(several.explode(ITEM), dtype)
    combined = _item(merge(items), dtype).group_by(GROUP, maintain_order=True).agg(ITEM)
    if len(combined) == len(numbered):
        return combined[ITEM].cast(dtype)
    # Rechunked, since polars gathers lists from several chunks ten times as slowly.
    both = pl.concat([unchanged, combined.cast(unchanged.schema)], rechunk=True)
    found = numbered.select(GROUP).join(both, on=GROUP, how="left", maintain_order="left")[ITEM]
    return found.fill_null(pl.Series([[]], dtype=dtype))


def _chosen(choose: Merge, field: str, lists: pl.Series) -> pl.Series:
    assert isinstance(lists.dtype, pl.List)
    numbered = lists.alias(ITEM).to_frame().with_row_index(GROUP)
    found = choose(_items(numbered, lists.dtype)).select(GROUP, field)
    return numbered.select(GROUP).join(found, on=GROUP, how="left", maintain_order="left")[field]


def _items(lists: pl.DataFrame, dtype: pl.List) -> pl.DataFrame:
    items = lists.explode(ITEM, empty_as_null=False, keep_nulls=False)
    return items.unnest(ITEM) if isinstance(dtype.inner, pl.Struct) else items


def _item(items: pl.DataFrame, dtype: pl.List) -> pl.DataFrame:
    if not isinstance(dtype.inner, pl.Struct):
        return items
    return items.select(GROUP, pl.struct(field.name for field in dtype.inner.fields).alias(ITEM))
