"""A table or query of a SQL database as a source: all rows once, or repeatedly the new rows, found by a
growing column.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, Self

import attrs
import polars as pl

from beamlike.errors import PlanError, unknown_column
from beamlike.io.base import Declared, FromFile
from beamlike.io.planned import planned_chunks
from beamlike.io.sources import Chunk, PlannedBatch, Position
from beamlike.io.sql.names import is_query

if TYPE_CHECKING:
    import sqlalchemy as sa

    from beamlike.io.sql.reading import Selection

_ROWS: Final = 1_000_000
"""The greatest number of rows in a batch. A single task reads it."""


class TableSource:
    """The part of `Table` that reads."""

    url: sa.URL
    table: str
    grows: str | None
    _schema: Declared | None
    _seen: pl.Schema | None

    bounded = True

    def schema(self) -> pl.Schema:
        """Returns the declared columns, or else those of the table.

        Raises `PlanError` for a query without `schema`.
        """
        return self._columns() if self._seen is None else self._seen

    def looked_up(self) -> Self:
        found: Self = attrs.evolve(self, seen=self._columns())  # type: ignore[misc]
        return found

    def _columns(self) -> pl.Schema:
        from beamlike.io.sql import reading

        if self._schema is not None:
            found = pl.Schema(self._schema)
        elif is_query(self.table):
            raise PlanError("Table: give the columns of a query: schema={'id': int, ...}")
        else:
            found = reading.schema_of(self.url, self.table)
        if self.grows is not None:
            if self.grows not in found:
                raise unknown_column(self.grows, found, None, "the table")
            reading.require_growing(self.grows, found[self.grows])
        return found

    def _selection(self) -> Selection:
        from beamlike.io.sql.reading import Selection

        return Selection(self.url, self.table, self.schema())

    def chunks(self, rows: int) -> Iterator[Chunk]:
        end = None if self.grows is None else self._selection().newest(self.grows)
        return (
            iter(()) if self.grows is not None and end is None else planned_chunks(self, rows, {"end": end})
        )

    def plan(self, position: Position, rows: int) -> PlannedBatch | None:
        """Plans the rows after the last value, up to a bound that is determined now; or the whole table, once."""
        if self.grows is None:
            return None if position.get("read") else PlannedBatch([{}], {"read": True})
        above, end = position.get("last"), position.get("end")
        upto, more = self._selection().bound(self.grows, above, end, min(rows, _ROWS))
        return None if upto is None else PlannedBatch([{"above": above, "upto": upto}], {"last": upto}, more)

    def past(self, position: Position, since: int | None) -> PlannedBatch | None:
        """Plans all rows up to a position as one batch."""
        if self.grows is None:
            return PlannedBatch([{}], position) if position.get("read") else None
        last = position.get("last")
        return None if last is None else PlannedBatch([{"above": None, "upto": last}], position)

    def read_part(self, part: Any, rows: int) -> Iterator[FromFile]:
        found, faulty = self._selection().rows(self.grows, part.get("above"), part.get("upto"))
        if faulty is not None:
            yield FromFile(faulty, self.table)
        for piece in found.iter_slices(rows):
            if piece.height:
                yield FromFile(piece.lazy(), self.table)
