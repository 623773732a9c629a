"""Multisets: sorted lists of distinct values, each with its count, as accumulators. The multisets of all groups are
added at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import polars as pl

from stages.aggregates.lists import GROUP
from stages.frames import at
from stages.packed import packed

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

VALUE: Final = "value"
COUNT: Final = "count"


def added(items: pl.DataFrame) -> pl.DataFrame:
    """Adds up the counts of equal values of each group; values whose count is 0 are left out.

    Items have the columns GROUP, VALUE and COUNT. The result is sorted by group and value, nulls first, and by the
    fields of a value if it is a struct.
    """
    import numpy as np  # slow to import

    if items.is_empty():
        return items
    # Most items are in order already, since lists are sorted. A stable sort uses this, and takes a quarter of the time.
    order, differs = _order(items)
    last = np.flatnonzero(np.append(differs, True))
    totals = np.diff(np.cumsum(items[COUNT].to_numpy()[order])[last], prepend=0)
    # Counts of 0 are removed, so a value that was added and retracted leaves no trace in state.
    there = totals != 0
    values = at(items.select(GROUP, VALUE), order[last[there]])
    return values.with_columns(pl.Series(COUNT, totals[there]), pl.col(GROUP).set_sorted())


def _order(items: pl.DataFrame) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
    """Returns the positions of the items in order of group and value, and for each neighbours a flag: true if they
    differ.
    """
    import numpy as np

    columns = _columns(items)
    if (key := packed(columns)) is not None:
        order = np.argsort(key, kind="stable")
        ordered = key[order]
        return order, ordered[1:] != ordered[:-1]
    order = columns.select(pl.arg_sort_by(columns.columns, maintain_order=True)).to_series().to_numpy()
    same = at(columns.rechunk(), order).select(pl.all_horizontal(pl.all().eq_missing(pl.all().shift(1))))
    return order, ~same.to_series().to_numpy()[1:]


def _columns(items: pl.DataFrame) -> pl.DataFrame:
    """Returns the columns by which items are sorted: the group, and the value or its fields."""
    dtype = items.schema[VALUE]
    if not isinstance(dtype, pl.Struct):
        return items.select(GROUP, VALUE)
    fields = (pl.col(VALUE).struct.field(field.name).alias(f"__{field.name}") for field in dtype.fields)
    return items.select(GROUP, *fields)
