"""Rows that are due soon, kept apart from their buckets.

Where each key has times of its own, as sessions do, some row is due in nearly every bucket by key in every step. So
when a bucket is looked at, the rows of it that are due next come into one place for the whole shard, which every step
reads, and the bucket itself is not due before all of these are. A row there that is due merges with no other, unless
arrivals have reached it since: these it takes up at once, though their bucket is not looked at, and it is `stale` from
then on, as are all rows of its key: what it has become may merge with rows or waiting arrivals in its bucket. When a
stale row is due, or is reached again where the order of arrivals may count, its bucket is looked at.
"""

from __future__ import annotations

from typing import Final

import attrs
import polars as pl

from stages.operator import StateTable
from stages.state.buckets import BUCKET

NEAR: Final = -1
"""The number of that place in the index."""

STALE: Final = "__stale"

SHARE: Final = 16
"""Of the rows of a bucket, one in so many comes there at a time; so each is looked at some 16 times at most."""

FROM_BYTES: Final = 500_000
"""Smaller buckets are cheap to look at as they are."""


@attrs.frozen
class DueSoon:
    """The rows of a table that are due soon, with their bucket; if there are none, just the columns of the table."""

    rows: pl.DataFrame
    kept: StateTable

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns by which rows are placed."""
        return self.kept.table.keys

    def matches(self, placed: pl.DataFrame) -> pl.Series | None:
        """Which of these arrivals reach a row here; None where there is no row."""
        return None if self.rows.is_empty() else self.kept.matches(placed, self.rows)

    def with_arrivals(self, reaching: pl.DataFrame) -> DueSoon:
        """After these have reached rows here: all rows of their keys are stale, where rows may merge."""
        if reaching.is_empty() or not self.kept.table.merges:
            return self
        return attrs.evolve(self, rows=mark_stale(self.rows, reaching, self.keys))

    def stale_and(self, due: pl.Expr) -> list[int]:
        """The buckets of stale rows that are due."""
        return self.rows.filter(pl.col(STALE) & due.fill_null(False))[BUCKET].unique().to_list()

    def stale_keys(self) -> pl.DataFrame:
        """The keys that have stale rows."""
        if self.rows.is_empty():
            return self.rows
        return self.rows.filter(pl.col(STALE)).select(self.keys).unique()


def mark_stale(rows: pl.DataFrame, stale: pl.DataFrame, keys: tuple[str, ...]) -> pl.DataFrame:
    """The rows, those with such a key marked, too."""
    marks = stale.select(keys).unique().with_columns(pl.lit(True).alias("__mark"))
    joined = rows.join(marks, on=list(keys), how="left", nulls_equal=True, maintain_order="left")
    return joined.with_columns((pl.col(STALE) | pl.col("__mark").fill_null(False)).alias(STALE)).drop(
        "__mark"
    )


def divide(rows: pl.DataFrame, deadline: pl.Expr) -> tuple[pl.DataFrame, pl.DataFrame]:
    """(those of a bucket that are due soon, the others): about a sixteenth, or none if too many are due at one time."""
    due = rows.select(deadline.alias("due"))["due"]
    horizon = due.quantile(1 / SHARE, "lower")
    soon = (due <= horizon).fill_null(False)
    if 2 * int(soon.sum() or 0) > len(rows):
        return rows.clear(), rows
    return rows.filter(soon), rows.filter(~soon)
