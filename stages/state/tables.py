"""The state of a stage: the tables of its operator, each with its own key prefix in the store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import attrs
import polars as pl

from stages.clock import Watermarks
from stages.state.buckets import touched
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
    """The tables of a stage during one step, which moves the clocks to `now`. Implements `stages.state_tables.State`.

    Each table is loaded and written back at most once.
    """

    storages: dict[str, Storage | Runs]
    indices: dict[str, Index]
    now: Times
    _loaded: dict[str, WorkingSet] = attrs.field(factory=dict)

    @classmethod
    def open(
        cls, store: StateStore, stage: str, tables: Iterable[StateTable[Table]], now: Times | None = None
    ) -> Tables:
        """Opens the tables of a stage. Without `now`, the clocks do not move."""
        storages = {state_table.table.name: open_table(store, stage, state_table) for state_table in tables}
        indices = {name: one.index for name, one in storages.items()}
        return cls(storages, indices, now or next(iter(indices.values())).times)

    @property
    def arrived(self) -> int:
        """The number of elements that the stage received in all previous steps."""
        return self._first.arrived

    @property
    def watermarks(self) -> Watermarks:
        """The input and output watermark of the stage before this step."""
        return self._first.watermarks

    @property
    def times(self) -> Times:
        """The times of the stage's clocks before this step."""
        return self._first.times

    def load(self, state_table: StateTable[BucketTable], incoming: pl.DataFrame) -> WorkingSet:
        return self._load(state_table, incoming)

    def load_between(
        self,
        state_table: StateTable[TimeTable | SharedTable],
        incoming: pl.DataFrame,
        between: tuple[int, int] | None,
    ) -> WorkingSet:
        also = () if between is None else self._buckets(state_table).between(*between)
        return self._load(state_table, incoming, also=also)

    def load_with(
        self, state_table: StateTable[KeyedTable], incoming: pl.DataFrame, requested_keys: pl.DataFrame
    ) -> WorkingSet:
        return self._load(state_table, incoming, requested_keys=requested_keys)

    def write_back(self, state_table: StateTable[BucketTable], rows: pl.DataFrame) -> None:
        name = state_table.table.name
        self.indices[name] = self._loaded[name].write_back(rows, self.now)

    def scan(
        self,
        state_table: StateTable[BucketTable],
        between: tuple[int, int],
        keys: pl.DataFrame | None = None,
    ) -> pl.DataFrame:
        storage = self._buckets(state_table)
        buckets = storage.between(*between)
        if keys is None:
            return storage.not_overdue(pl.concat([storage.rows(buckets), storage.waiting(buckets)]))
        own, spread = storage.table.keys, storage.table.spread
        if own and spread is None and not storage.table.has_due_soon_buffer and {*own} <= {*keys.columns}:
            placed = touched(storage.buckets.place(keys)) if len(keys) else []
            buckets = [bucket for bucket in placed if bucket in storage.sizes]
        return rows_with(storage, buckets, keys)

    def lookup(self, state_table: StateTable[AppendTable], keys: pl.DataFrame) -> pl.DataFrame:
        return self._runs(state_table).lookup(keys)

    def append(self, state_table: StateTable[AppendTable], rows: pl.DataFrame) -> None:
        self.indices[state_table.table.name] = self._runs(state_table).append(rows, self.now)

    def _load(
        self,
        state_table: StateTable[BucketTable],
        incoming: pl.DataFrame,
        *,
        also: Iterable[int] = (),
        requested_keys: pl.DataFrame | None = None,
    ) -> WorkingSet:
        name, storage = state_table.table.name, self._buckets(state_table)
        loaded = read_working_set(storage, incoming, self.now, also=also, requested_keys=requested_keys)
        self._loaded[name] = loaded
        return loaded

    def _buckets(self, state_table: StateTable[BucketTable]) -> Storage:
        # `open_table` returns a `Storage` for each table that is no `AppendTable`.
        storage = self.storages[state_table.table.name]
        assert isinstance(storage, Storage)
        return storage

    def _runs(self, state_table: StateTable[AppendTable]) -> Runs:
        runs = self.storages[state_table.table.name]
        assert isinstance(runs, Runs)
        return runs

    def save(self, store: StateStore, stage: str, watermarks: Watermarks, arrived: int) -> None:
        """Saves the indices of all tables, with the watermarks, clocks and count of arrivals after the step."""
        for name, index in self.indices.items():
            stands = attrs.evolve(index, watermarks=watermarks, times=self.now, arrived=arrived)
            stands.save(part(store, name), stage)

    @property
    def holder(self) -> HoldOwner | None:
        """The row with the least hold in all tables; None if no row holds the watermark."""
        holders = [
            attrs.evolve(holder, table=name, said=self.storages[name].table.said)
            for name, index in self.indices.items()
            if (holder := index.holder) is not None
        ]
        return min(holders, key=lambda holder: holder.hold, default=None)

    @property
    def _first(self) -> Index:
        # All tables are saved with the same watermarks, clocks and count of arrivals, so any index has them.
        return next(iter(self.indices.values()))


def part(store: StateStore, table: str) -> StateStore:
    """Returns the view of a store with the keys of one table: those with its name as a prefix; all keys if it has no
    name.
    """
    return Within(store, f"{table}/") if table else store


def open_table(store: StateStore, stage: str, state_table: StateTable[Table]) -> Storage | Runs:
    """Opens a table of a stage in a store: sorted runs for an `AppendTable`, otherwise buckets."""
    own = part(store, state_table.table.name)
    index = Index.load(own, stage, state_table.clocks)
    if isinstance(state_table.table, AppendTable):
        return Runs(stage, cast(StateTable[AppendTable], state_table), own, index)
    return Storage(stage, cast(StateTable[BucketTable], state_table), own, index)
