"""The due-soon buffer: rows that are due next, kept apart from their buckets.

If each key has times of its own, as sessions do, nearly every bucket by key has a row that is due in every step. So
a step that reads a bucket moves the rows of it that are due next, its *hot rows*, to one buffer for the whole shard.
Each step with arrivals or due rows reads the buffer. A bucket is not due before all of its hot rows are done.

    buffer (bucket -1)    row of bucket 128 | row of bucket 130 | row of bucket 128 | ...   each with MAYBE_OVERLAPS
    bucket 128            its other rows, due later
    bucket 130            its other rows, due later

Invariant: a hot row whose MAYBE_OVERLAPS is false overlaps with no row or waiting arrival of its bucket. An arrival
that matches a hot row is merged into it at once, although the bucket of the row is not read. The row may then overlap
with rows or waiting arrivals in that bucket, so all hot rows of its key are marked. The bucket of a marked row is read
when the row is due. If the order of arrivals counts, a bucket with waiting arrivals is read as soon as an arrival for
it matches a hot row.
"""

from __future__ import annotations

from typing import Final

import attrs
import polars as pl

from stages.operator import StateTable
from stages.state.buckets import BUCKET

HOT: Final = -1
"""The number of the buffer in the index."""

MAYBE_OVERLAPS: Final = "__stale"

SHARE: Final = 16
"""One in this many rows of a bucket moves to the buffer at a time, so each row is read some 16 times at most."""

FROM_BYTES: Final = 500_000
"""The size, in memory, below which a bucket keeps all of its rows: it is cheap to read whole."""


@attrs.frozen
class DueSoonBuffer:
    """The hot rows of a table, with their bucket; without hot rows, an empty frame with the columns of the table."""

    rows: pl.DataFrame
    kept: StateTable

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns by which rows are placed."""
        return self.kept.table.keys

    def matches(self, placed: pl.DataFrame) -> pl.Series | None:
        """True for each arrival that becomes part of a hot row; None if there are no hot rows."""
        return None if self.rows.is_empty() else self.kept.matches(placed, self.rows)

    def with_arrivals(self, matching: pl.DataFrame) -> DueSoonBuffer:
        """Marks all rows of the keys of `matching`, arrivals for hot rows, if rows of the table may merge."""
        if matching.is_empty() or not self.kept.table.merges:
            return self
        return attrs.evolve(self, rows=mark(self.rows, matching, self.keys))

    def overlapping_and(self, due: pl.Expr) -> list[int]:
        """The buckets of marked rows that are due."""
        return self.rows.filter(pl.col(MAYBE_OVERLAPS) & due.fill_null(False))[BUCKET].unique().to_list()

    def overlapping_keys(self) -> pl.DataFrame:
        """The keys that have marked rows."""
        if self.rows.is_empty():
            return self.rows
        return self.rows.filter(pl.col(MAYBE_OVERLAPS)).select(self.keys).unique()


def mark(rows: pl.DataFrame, marked: pl.DataFrame, keys: tuple[str, ...]) -> pl.DataFrame:
    """Sets MAYBE_OVERLAPS in the rows that have a key of `marked`; others stay as they are."""
    marks = marked.select(keys).unique().with_columns(pl.lit(True).alias("__mark"))
    joined = rows.join(marks, on=list(keys), how="left", nulls_equal=True, maintain_order="left")
    either = pl.col(MAYBE_OVERLAPS) | pl.col("__mark").fill_null(False)
    return joined.with_columns(either.alias(MAYBE_OVERLAPS)).drop("__mark")


def divide(rows: pl.DataFrame, deadline: pl.Expr) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Divides a bucket into (hot rows, others).

    About a sixteenth of the rows is hot, or none if more than half of the rows are due at one time.
    """
    due = rows.select(deadline.alias("due"))["due"]
    horizon = due.quantile(1 / SHARE, "lower")
    soon = (due <= horizon).fill_null(False)
    if 2 * int(soon.sum() or 0) > len(rows):
        return rows.clear(), rows
    return rows.filter(soon), rows.filter(~soon)
