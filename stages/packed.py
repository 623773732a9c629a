"""Rows sorted by several columns, most quickly by one integer into which the columns are packed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from stages.frames import at

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_KEY: Final = "__key"
_RANGE: Final = 2**62
"""The number of different integers that are used at most."""


def packed(columns: pl.DataFrame) -> npt.NDArray[np.int64] | None:
    """Returns an integer for each row: equal ones for equal rows, in the order of the columns, nulls first.

    Returns None if the values of the columns are no integers, times or booleans, or too far apart.
    """
    plain = (dtype.is_integer() or dtype.is_temporal() or dtype == pl.Boolean for dtype in columns.dtypes)
    if not columns.width or not all(plain):
        return None
    whole = columns.select(pl.all().to_physical())
    bounds: dict[str, Any] = whole.select(
        *(pl.col(name).min().alias(f"{name}.least") for name in whole.columns),
        *(pl.col(name).max().alias(f"{name}.greatest") for name in whole.columns),
    ).row(0, named=True)
    key, keys = pl.lit(0, pl.Int64), 1
    for name in whole.columns:
        least, greatest = (int(bounds[f"{name}.{bound}"] or 0) for bound in ("least", "greatest"))
        span = greatest - least + 2  # with the null, which is first
        keys *= span
        if keys > _RANGE or max(-least, greatest) > _RANGE:
            return None
        place = (pl.col(name).cast(pl.Int64) - (least - 1)).fill_null(0)
        key = key * span + place
    return whole.select(key.alias(_KEY)).to_series().to_numpy()


def sorted_by(rows: pl.DataFrame, order: Sequence[str | pl.Expr]) -> pl.DataFrame:
    """Sorts rows by columns or expressions, nulls first. The sort is not stable."""
    import numpy as np  # slow to import

    by = [pl.col(each) if isinstance(each, str) else each for each in order]
    key = packed(rows.select(each.alias(f"{number}") for number, each in enumerate(by)))
    if key is None:
        return rows.sort(by)
    # A gather from a frame of several chunks is many times as slow.
    ordered = at(rows.rechunk(), np.argsort(key))
    # Polars groups by a column more quickly if it knows that the column is sorted.
    return ordered.with_columns(pl.col(order[0]).set_sorted()) if isinstance(order[0], str) else ordered
