"""The state of a stage: the tables that its operator keeps, each under its own prefix of keys in the store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import attrs
import polars as pl

from stages.clock import Watermarks
from stages.state.index import HoldOwner, Index
from stages.state.patches import rows_with
from stages.state.runs import Runs
from stages.state.storage import Storage
from stages.state.store import StateStore, Within
from stages.state.working_set import WorkingSet, read_working_set
from stages.state_tables import (
    AppendTable,
    BucketTable,
    KeyedTable,
    SharedTable,
    StateTable,
    Table,
    TimeTable,
)
from windowing.clocks import Times


@attrs.define
class Tables:
    """The tables of a stage in a step that moves the clocks to `now`. Each is loaded and written back at most once."""

    storages: dict[str, Storage | Runs]
    indices: dict[str, Index]
    now: Times
    _loaded: dict[str, WorkingSet] = attrs.field(factory=dict)

    @classmethod
    def open(
        cls, store: StateStore, stage: str, tables: Iterable[StateTable[Table]], now: Times | None = None
    ) -> Tables:
        """Opens the tables of a stage. Without `now`, the clocks do not move."""
        storages = {kept.table.name: open_table(store, stage, kept) for kept in tables}
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

    def load(self, kept: StateTable[BucketTable], incoming: pl.DataFrame) -> WorkingSet:
        return self._load(kept, incoming)

    def load_between(
        self,
        kept: StateTable[TimeTable | SharedTable],
        incoming: pl.DataFrame,
        between: tuple[int, int] | None,
    ) -> WorkingSet:
        also = () if between is None else self._buckets(kept).between(*between)
        return self._load(kept, incoming, also=also)

    def load_with(
        self, kept: StateTable[KeyedTable], incoming: pl.DataFrame, requested_keys: pl.DataFrame
    ) -> WorkingSet:
        return self._load(kept, incoming, requested_keys=requested_keys)

    def write_back(self, kept: StateTable[BucketTable], rows: pl.DataFrame) -> None:
        name = kept.table.name
        self.indices[name] = self._loaded[name].write_back(rows, self.now)

    def scan(
        self,
        kept: StateTable[BucketTable],
        between: tuple[int, int],
        keys: pl.DataFrame | None = None,
    ) -> pl.DataFrame:
        storage = self._buckets(kept)
        buckets = storage.between(*between)
        if keys is None:
            return pl.concat([storage.rows(buckets), storage.waiting(buckets)])
        return rows_with(storage, buckets, keys)

    def lookup(self, kept: StateTable[AppendTable], keys: pl.DataFrame) -> pl.DataFrame:
        return self._runs(kept).lookup(keys)

    def append(self, kept: StateTable[AppendTable], rows: pl.DataFrame) -> None:
        self.indices[kept.table.name] = self._runs(kept).append(rows, self.now)

    def _load(
        self,
        kept: StateTable[BucketTable],
        incoming: pl.DataFrame,
        *,
        also: Iterable[int] = (),
        requested_keys: pl.DataFrame | None = None,
    ) -> WorkingSet:
        name, storage = kept.table.name, self._buckets(kept)
        loaded = read_working_set(storage, incoming, self.now, also=also, requested_keys=requested_keys)
        self._loaded[name] = loaded
        return loaded

    def _buckets(self, kept: StateTable[BucketTable]) -> Storage:
        # `open_table` decides by the kind of table which of the two classes reads it.
        storage = self.storages[kept.table.name]
        assert isinstance(storage, Storage)
        return storage

    def _runs(self, kept: StateTable[AppendTable]) -> Runs:
        runs = self.storages[kept.table.name]
        assert isinstance(runs, Runs)
        return runs

    def save(self, store: StateStore, stage: str, watermarks: Watermarks, arrived: int) -> None:
        """Saves the indices of all tables, with the watermarks and clocks after the step."""
        for name, index in self.indices.items():
            stands = attrs.evolve(index, watermarks=watermarks, times=self.now, arrived=arrived)
            stands.save(part(store, name), stage)

    @property
    def holder(self) -> HoldOwner | None:
        """The owner of the least hold in all tables; None if no row holds the watermark."""
        holders = [
            attrs.evolve(holder, table=name, said=self.storages[name].table.said)
            for name, index in self.indices.items()
            if (holder := index.holder) is not None
        ]
        return min(holders, key=lambda holder: holder.hold, default=None)

    @property
    def _first(self) -> Index:
        # Every table is saved with the same watermarks, clocks and count of arrivals.
        return next(iter(self.indices.values()))


def part(store: StateStore, table: str) -> StateStore:
    """The values of a table in a store; a table without a name has the keys without a prefix."""
    return Within(store, f"{table}/") if table else store


def open_table(store: StateStore, stage: str, kept: StateTable[Table]) -> Storage | Runs:
    """Opens a table of a stage in a store."""
    own = part(store, kept.table.name)
    index = Index.load(own, stage, kept.clocks)
    if isinstance(kept.table, AppendTable):
        return Runs(stage, cast(StateTable[AppendTable], kept), own, index)
    return Storage(stage, cast(StateTable[BucketTable], kept), own, index)
