"""The state of a stage: the tables that its operator keeps, each in a part of the store of its own."""

from __future__ import annotations

from collections.abc import Iterable

import attrs
import polars as pl

from stages.clock import Watermarks
from stages.operator import Kept
from stages.state.index import Holder, Index
from stages.state.patches import rows_with
from stages.state.runs import Runs
from stages.state.storage import Storage
from stages.state.store import StateStore, Within
from stages.state.working_set import WorkingSet, read_working_set
from windowing.clocks import Times


@attrs.define
class Tables:
    """What a stage has kept when a step begins that moves its clocks to `now`; each table is visited and left once."""

    storages: dict[str, Storage]
    indices: dict[str, Index]
    now: Times
    _visits: dict[str, WorkingSet] = attrs.field(factory=dict)

    @classmethod
    def open(cls, store: StateStore, stage: str, tables: Iterable[Kept], now: Times | None = None) -> Tables:
        """What the store has of the stage. Without `now`, its clocks stay where they are."""
        storages = {kept.table.name: storage(store, stage, kept) for kept in tables}
        indices = {name: one.index for name, one in storages.items()}
        return cls(storages, indices, now or next(iter(indices.values())).times)

    @property
    def arrived(self) -> int:
        """How much was placed in all steps before."""
        return self._first.arrived

    @property
    def watermarks(self) -> Watermarks:
        """Where the stage stood before this step."""
        return self._first.watermarks

    @property
    def times(self) -> Times:
        """Where its clocks stood before this step."""
        return self._first.times

    def visit(
        self,
        kept: Kept,
        incoming: pl.DataFrame,
        between: tuple[int, int] | None = None,
        asked: pl.DataFrame | None = None,
    ) -> WorkingSet:
        """Reads what must be looked at of a table when this has come for it, and what is asked for."""
        name = kept.table.name
        also = () if between is None else self.storages[name].between(*between)
        self._visits[name] = read_working_set(self.storages[name], incoming, self.now, also, asked)
        return self._visits[name]

    def peek(self, kept: Kept, between: tuple[int, int], keys: pl.DataFrame | None = None) -> pl.DataFrame:
        """Reads what lies between two times, and leaves it as it is."""
        storage = self.storages[kept.table.name]
        buckets = storage.between(*between)
        if keys is None:
            return pl.concat([storage.rows(buckets), storage.waiting(buckets)])
        return rows_with(storage, buckets, keys)

    def find(self, kept: Kept, keys: pl.DataFrame) -> pl.DataFrame:
        """Reads the rows that have one of these keys."""
        return Runs(self.storages[kept.table.name]).find(keys)

    def add(self, kept: Kept, rows: pl.DataFrame) -> None:
        """Writes these beside those that are there."""
        name = kept.table.name
        self.indices[name] = Runs(self.storages[name]).add(rows, self.now)

    def leave(self, kept: Kept, rows: pl.DataFrame) -> None:
        """Writes these in place of the rows that were looked at, and what waits."""
        name = kept.table.name
        self.indices[name] = self._visits[name].leave(rows, self.now)

    def save(self, store: StateStore, stage: str, watermarks: Watermarks, arrived: int) -> None:
        """Keeps the indices, with where the stage stands now."""
        for name, index in self.indices.items():
            stands = attrs.evolve(index, watermarks=watermarks, times=self.now, arrived=arrived)
            stands.save(part(store, name), stage)

    @property
    def holder(self) -> Holder | None:
        """Who has the least hold, of all tables; None where nothing holds."""
        holders = [
            attrs.evolve(holder, table=name, said=self.storages[name].table.said)
            for name, index in self.indices.items()
            if (holder := index.holder) is not None
        ]
        return min(holders, key=lambda holder: holder.hold, default=None)

    @property
    def _first(self) -> Index:
        return next(iter(self.indices.values()))


def part(store: StateStore, table: str) -> StateStore:
    """The part of a store that a table has; one without a name has all that the others do not."""
    return Within(store, f"{table}/") if table else store


def storage(store: StateStore, stage: str, kept: Kept) -> Storage:
    """What the store has of a table of a stage."""
    own = part(store, kept.table.name)
    return Storage(stage, kept, own, Index.load(own, stage, kept.clocks))
