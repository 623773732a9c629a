"""The due-soon buffer: the rows of a shard that are due next, stored apart from their buckets.

If each key is due at a time of its own, as sessions are, nearly every bucket has a due row in every step. To avoid
reading them all, a step that reads a bucket moves the rows that are due next, the *due-soon rows*, to one buffer for
the whole shard. The rest of a bucket is due later than all of its due-soon rows. A step reads a slice of the buffer:
rows that are due or have the key of an arrival. If the buffer is small, or a bucket is loaded, the step reads all rows.

    buffer (bucket -1)    row of bucket 128 | row of bucket 130 | row of bucket 128 | ...   each with MAYBE_OVERLAPS
    bucket 128            its other rows, due later
    bucket 130            its other rows, due later

Invariant: a due-soon row whose flag MAYBE_OVERLAPS is false overlaps with no row or waiting arrival of its bucket.
An arrival that matches a due-soon row is merged into it at once, and the bucket of the row is not read. The grown row
may overlap with rows or waiting arrivals in that bucket, so the flag is set in all due-soon rows of its key. The bucket
of a flagged row is read when the row is due. If the result depends on the order of arrivals, a bucket with waiting
arrivals is read as soon as an arrival matches one of its due-soon rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Final

import attrs
import polars as pl

from stages.state.buckets import BUCKET
from stages.state_tables import BucketTable, KeyedTable, StateTable
from windowing.clocks import Times

BUFFER: Final = -1
"""The bucket number of the due-soon buffer in the index."""

MAYBE_OVERLAPS: Final = "__stale"
"""The Boolean column of a due-soon row: true if it may overlap with a row or waiting arrival of its bucket."""

SHARE: Final = 16
"""The share of a read bucket's rows that move to the buffer is one in this many: each is read some 16 times at most."""

FROM_BYTES: Final = 500_000
"""The size of a bucket in memory (bytes) below which no rows move to the buffer, since reading all is cheap."""


@attrs.frozen(slots=False)
class DueSoonTable(StateTable[KeyedTable]):
    """The due-soon rows of a table as a table that is read by key, with only one bucket: BUFFER."""

    rows_of: StateTable[BucketTable]

    @cached_property
    def table(self) -> KeyedTable:
        table = self.rows_of.table
        schema = pl.Schema({**table.schema, MAYBE_OVERLAPS: pl.Boolean()})
        return KeyedTable(
            row=table.row,
            waits=table.waits,
            keys=table.keys,
            bounds=table.bounds,
            schema=schema,
            incoming=schema,
            missing=table.missing,
        )

    @cached_property
    def timing(self) -> tuple[bytes, ...]:
        return self.rows_of.timing

    @property
    def clocks(self) -> tuple[str, ...]:
        return self.rows_of.clocks

    def deadlines(self, times: Times) -> Mapping[str, pl.Expr]:
        return self.rows_of.deadlines(times)


@attrs.frozen
class DueSoonBuffer:
    """The due-soon rows of a table on a shard: all of them, or those that a step needs.

    `rows` have the table's columns, BUCKET and MAYBE_OVERLAPS. An empty frame has the table's columns only.
    """

    rows: pl.DataFrame
    state_table: StateTable[BucketTable]

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns of the table."""
        return self.state_table.table.keys

    def matches(self, placed: pl.DataFrame) -> pl.Series | None:
        """Returns a flag for each arrival: true if it merges with a due-soon row. None if there are no due-soon
        rows.
        """
        return None if self.rows.is_empty() else self.state_table.matches(placed, self.rows)

    def with_arrivals(self, matching: pl.DataFrame) -> DueSoonBuffer:
        """Returns the buffer before the arrivals `matching` are merged into its rows.

        If rows of the table may merge, MAYBE_OVERLAPS is set in all rows that have the key of one of these arrivals.
        """
        if matching.is_empty() or not self.state_table.table.rows_merge:
            return self
        return attrs.evolve(self, rows=mark(self.rows, matching, self.keys))

    def overlapping_and(self, due: pl.Expr) -> list[int]:
        """Returns the buckets to read because of due rows: rows for which `due` is true and MAYBE_OVERLAPS is set."""
        return self.rows.filter(pl.col(MAYBE_OVERLAPS) & due.fill_null(False))[BUCKET].unique().to_list()

    def overlapping_keys(self) -> pl.DataFrame:
        """Returns the keys of due-soon rows that may overlap with rows or arrivals of their bucket (MAYBE_OVERLAPS)."""
        if self.rows.is_empty():
            return self.rows
        return self.rows.filter(pl.col(MAYBE_OVERLAPS)).select(self.keys).unique()


def mark(rows: pl.DataFrame, marked: pl.DataFrame, keys: tuple[str, ...]) -> pl.DataFrame:
    """Sets MAYBE_OVERLAPS in the rows that have the key of a row of `marked`. Other rows do not change."""
    marks = marked.select(keys).unique().with_columns(pl.lit(True).alias("__mark"))
    joined = rows.join(marks, on=list(keys), how="left", nulls_equal=True, maintain_order="left")
    either = pl.col(MAYBE_OVERLAPS) | pl.col("__mark").fill_null(False)
    return joined.with_columns(either.alias(MAYBE_OVERLAPS)).drop("__mark")


def divide(rows: pl.DataFrame, deadline: pl.Expr) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Divides the rows of a bucket into (due-soon rows, rows that stay in the bucket).

    Due-soon rows are about a sixteenth of the rows. There are none if this would be more than half of the rows.
    """
    due = rows.select(deadline.alias("due"))["due"]
    horizon = due.quantile(1 / SHARE, "lower")
    # Rows that are due at the same time must stay together, so that the bucket is due later than its due-soon rows.
    soon = (due <= horizon).fill_null(False)
    if 2 * int(soon.sum() or 0) > len(rows):
        return rows.clear(), rows
    return rows.filter(soon), rows.filter(~soon)
