"""The state table of one side of an interval join of changes: the rows that are left, with the number of partners.

                        stored as                  a retraction of it
side of an outer join   a row, updated by key      deletes it
other side              a row that never changes   is put beside it unread, with the WEIGHT -1; readers leave both out
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs
import polars as pl

from stages.changes import WEIGHT
from stages.joins.side import UNTIL, JoinSide
from stages.pending_rows import NUMBER
from stages.state_tables import Loaded
from windowing.columns import EVENT_TIME
from windowing.time import MAX_TIME, MIN_TIME

PARTNERS = "__partners"
"""A column of each row of an outer side: the number of its pairs that are left; null in arrivals that delete a row."""


@attrs.frozen(eq=False)
class SideChanges:
    """The changes of one side in a step. The rows have the columns of the state table.

    Attributes:
        new: The rows that arrive.
        retracted: The stored rows that are retracted.
        kept: Stored rows that stay, among them all partners of changes of the other side.
        unmatched: Retractions of rows that are not there.
    """

    new: pl.DataFrame
    retracted: pl.DataFrame
    kept: pl.DataFrame
    unmatched: pl.DataFrame


def changed_pairs(left: SideChanges, right: SideChanges) -> Iterator[tuple[pl.DataFrame, pl.DataFrame, bool]]:
    """Yields the products (left rows, right rows) whose pairs change in a step, with true for pairs that are retracted.

    Retracted pairs are first. Each pair is in one product.
    """
    yield left.retracted, pl.concat([right.kept, right.retracted]), True
    yield left.kept, right.retracted, True
    yield left.new, pl.concat([right.kept, right.new]), False
    yield left.kept, right.new, False


@attrs.frozen(slots=False, eq=False)
class CorrectedSide(JoinSide):
    """The state table of one side of an interval join of changes.

    Attributes:
        corrected: True if rows of this side may be retracted. Such a row is stored at least as long as it may be.
    """

    corrected: bool = attrs.field(default=False, kw_only=True)

    @property
    def marks(self) -> Mapping[str, tuple[pl.DataType, object]]:
        if self.outer:
            return {PARTNERS: (pl.Int64(), 0)}
        return {WEIGHT: (pl.Int32(), 1)} if self.corrected else {}

    @property
    def marks_apart(self) -> bool:
        return False

    @property
    def id(self) -> list[str]:
        """The columns that identify a stored row."""
        return [*self.keys, NUMBER]

    @property
    def certain(self) -> pl.Expr:
        if not self.corrected:
            return super().certain
        last = pl.col(EVENT_TIME) + self.reach if self.reach is not None else pl.col(UNTIL)
        latest = pl.max_horizontal(pl.col(EVENT_TIME), last)
        return latest.clip(MIN_TIME, MAX_TIME - self.lateness - 1) + self.lateness

    def left_of(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Leaves out the rows of retractions that were put beside them, and these retractions."""
        if WEIGHT not in rows.columns:
            return rows
        retractions = rows.filter(pl.col(WEIGHT) < 0)
        if retractions.is_empty():
            return rows
        return rows.join(retractions, on=self.id, how="anti", nulls_equal=True)

    def incoming(self, changes: SideChanges, pairs: pl.DataFrame) -> pl.DataFrame:
        """Returns the rows to write: new ones, and updates. `pairs` has the id of a row and a weight for each pair."""
        if not self.outer:
            weight = [pl.lit(-1, pl.Int32).alias(WEIGHT)] if self.corrected else []
            return pl.concat([changes.new, changes.retracted.with_columns(weight)])
        added = pairs.group_by(self.id).agg(pl.col(WEIGHT).sum().cast(pl.Int64))
        counted = pl.concat([changes.new, changes.kept]).join(
            added, on=self.id, how="left", nulls_equal=True, maintain_order="left"
        )
        is_new = pl.int_range(pl.len()) < len(changes.new)
        written = counted.filter(is_new | (pl.col(WEIGHT) != 0)).with_columns(
            pl.col(PARTNERS) + pl.col(WEIGHT).fill_null(0)
        )
        deleted = changes.retracted.with_columns(pl.lit(None, pl.Int64).alias(PARTNERS))
        return pl.concat([written.select(list(self.rows)), deleted])

    def updated(self, loaded: Loaded) -> pl.DataFrame:
        """Returns the rows that are left of the loaded ones after the arrivals, which `incoming` returned."""
        if not self.outer:
            return self.left_of(pl.concat([loaded.rows, loaded.incoming]))
        others = loaded.rows.join(loaded.incoming, on=self.id, how="anti", nulls_equal=True)
        return pl.concat([others, loaded.incoming.filter(pl.col(PARTNERS).is_not_null())])
