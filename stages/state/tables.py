"""The state of a stage: the tables that its operator keeps, each under its own prefix of keys in the store."""

from __future__ import annotations

from collections.abc import Iterable

import attrs
import polars as pl

from stages.clock import Watermarks
from stages.operator import StateTable
from stages.state.index import Holder, Index
from stages.state.patches import rows_with
from stages.state.runs import Runs
from stages.state.storage import Storage
from stages.state.store import StateStore, Within
from stages.state.working_set import WorkingSet, read_working_set
from windowing.clocks import Times


@attrs.define
class Tables:
    """The tables of a stage in a step that moves the clocks to `now`. Each is loaded and written back at most once."""

    storages: dict[str, Storage]
    indices: dict[str, Index]
    now: Times
    _loaded: dict[str, WorkingSet] = attrs.field(factory=dict)

    @classmethod
    def open(
        cls, store: StateStore, stage: str, tables: Iterable[StateTable], now: Times | None = None
    ) -> Tables:
        """Opens the tables of a stage. Without `now`, the clocks do not move."""
        storages = {kept.table.name: storage(store, stage, kept) for kept in tables}
        indices = {name: one.index for name, one in storages.items()}
        return cls(storages, indices, now or next(iter(indices.values())).times)

    @property
    def arrived(self) -> int:
        """The number of elements placed in all previous steps."""
        return self._first.arrived

    @property
    def watermarks(self) -> Watermarks:
        """The watermarks of the stage before this step."""
        return self._first.watermarks

    @property
    def times(self) -> Times:
        """The clocks of the stage before this step."""
        return self._first.times

    def load(
        self,
        kept: StateTable,
        incoming: pl.DataFrame,
        between: tuple[int, int] | None = None,
        requested_keys: pl.DataFrame | None = None,
    ) -> WorkingSet:
        name = kept.table.name
        also = () if between is None else self.storages[name].between(*between)
        self._loaded[name] = read_working_set(
            self.storages[name], incoming, self.now, also=also, requested_keys=requested_keys
        )
        return self._loaded[name]

    def scan(
        self, kept: StateTable, between: tuple[int, int], keys: pl.DataFrame | None = None
    ) -> pl.DataFrame:
        storage = self.storages[kept.table.name]
        buckets = storage.between(*between)
        if keys is None:
            return pl.concat([storage.rows(buckets), storage.waiting(buckets)])
        return rows_with(storage, buckets, keys)

    def lookup(self, kept: StateTable, keys: pl.DataFrame) -> pl.DataFrame:
        return Runs(self.storages[kept.table.name]).lookup(keys)

    def append(self, kept: StateTable, rows: pl.DataFrame) -> None:
        name = kept.table.name
        self.indices[name] = Runs(self.storages[name]).append(rows, self.now)

    def write_back(self, kept: StateTable, rows: pl.DataFrame) -> None:
        name = kept.table.name
        self.indices[name] = self._loaded[name].write_back(rows, self.now)

    def save(self, store: StateStore, stage: str, watermarks: Watermarks, arrived: int) -> None:
        """Saves the indices of all tables, with the watermarks and clocks after the step."""
        for name, index in self.indices.items():
            stands = attrs.evolve(index, watermarks=watermarks, times=self.now, arrived=arrived)
            stands.save(part(store, name), stage)

    @property
    def holder(self) -> Holder | None:
        """The owner of the least hold in all tables; None if no row holds the watermark."""
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
    """The values of a table in a store; a table without a name has the keys without a prefix."""
    return Within(store, f"{table}/") if table else store


def storage(store: StateStore, stage: str, kept: StateTable) -> Storage:
    """Opens a table of a stage in a store."""
    own = part(store, kept.table.name)
    return Storage(stage, kept, own, Index.load(own, stage, kept.clocks))
