"""Changes: rows, some of which retract earlier rows. A retraction has the flag `PANE_RETRACTED`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from windowing.columns import EVENT_TIME, PANE_RETRACTED, WINDOW_COLUMNS

WEIGHT: Final = "__weight"
"""A column of rows that are stored with their retractions summed up: how often each arrived, less its retractions."""

_NUMBER: Final = "__row"
_NEW: Final = "__new"
_BACK: Final = "__back"


def weight() -> pl.Expr:
    """Returns the weight of each change: -1 for a retraction, else 1, as Int64 in the column `WEIGHT`."""
    return pl.when(PANE_RETRACTED).then(-1).otherwise(1).cast(pl.Int64).alias(WEIGHT)


def repeated(rows: pl.DataFrame, times: pl.Series) -> pl.DataFrame:
    """Returns each row as often as `times`, whole numbers of at least 0, says."""
    places = pl.int_range(len(rows), dtype=pl.UInt32, eager=True)
    return rows[places.repeat_by(times).explode(keep_nulls=False, empty_as_null=False)]


def content(rows: pl.DataFrame) -> list[str]:
    """Returns the columns in which a row and its retraction are equal: the user's columns, the event time and the
    window.
    """
    own = (EVENT_TIME, *WINDOW_COLUMNS)
    return [name for name in rows.columns if not name.startswith("__") or name in own]


def summed(rows: pl.DataFrame, on: Sequence[str] | None = None) -> pl.DataFrame:
    """Returns the net changes of a bundle: pairs of a row and its retraction are removed, in whatever order they
    arrived.

    If more equal rows arrive than are retracted, the last ones stay. `on` are the columns in which a row and its
    retraction are equal; by default, their `content`.
    """
    if PANE_RETRACTED not in rows.columns or not rows[PANE_RETRACTED].any():
        return rows
    return rows.filter(_stays(rows, list(content(rows) if on is None else on)))


def difference(before: pl.DataFrame, after: pl.DataFrame) -> pl.DataFrame:
    """Returns the changes from the rows `before` to `after`, which have the same columns. Retractions are first."""
    both = pl.concat(
        rows.with_columns(pl.lit(flag).alias(PANE_RETRACTED))
        for rows, flag in ((before, True), (after, False))
    )
    return summed(both)


def without_retracted(
    stored: pl.DataFrame, retractions: pl.DataFrame, on: Sequence[str]
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Divides stored rows by what is retracted: (the other rows, the retracted ones, retractions without a row).

    `on` are the columns in which a row and its retraction are equal. Each retraction is of one stored row.
    """
    if retractions.is_empty():
        return stored, stored.clear(), retractions
    parts = [(stored, False), (retractions, True)]
    both = pl.concat(rows.select(*on, pl.lit(flag).alias(PANE_RETRACTED)) for rows, flag in parts)
    stays = _stays(both, on)
    kept, unmatched = stays.head(len(stored)), stays.tail(len(retractions))
    return stored.filter(kept), stored.filter(~kept), retractions.filter(unmatched)


def _stays(rows: pl.DataFrame, columns: Sequence[str]) -> pl.Series:
    """Returns a mask of the rows that are left when each retraction removes an equal row, and itself."""
    # Few rows are retractions. By their hashes, most of the others are known to be equal to none of them.
    hashes = rows.select(columns).hash_rows()
    near = hashes.is_in(hashes.filter(rows[PANE_RETRACTED]).implode())
    numbered = rows.select(*columns, PANE_RETRACTED).with_row_index(_NUMBER)
    retracted = pl.col(PANE_RETRACTED)
    numbers = (
        numbered.filter(near)
        .group_by(columns)
        .agg(pl.col(_NUMBER).filter(~retracted).alias(_NEW), pl.col(_NUMBER).filter(retracted).alias(_BACK))
    )
    excess = pl.col(_NEW).list.len().cast(pl.Int64) - pl.col(_BACK).list.len().cast(pl.Int64)
    left = pl.concat_list(
        pl.col(_NEW).list.tail(excess.clip(lower_bound=0)),
        pl.col(_BACK).list.tail((-excess).clip(lower_bound=0)),
    )
    stay = numbers.select(left.alias(_NUMBER))[_NUMBER].explode()
    return ~near | numbered[_NUMBER].is_in(stay.implode())
