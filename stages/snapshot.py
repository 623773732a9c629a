"""All state of a stage as plain data, to store elsewhere, deal to other shards, and restore."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import polars as pl

from stages.clock import StepClock, Watermarks
from stages.sizes import size_of
from stages.stage import Stage
from stages.state.buckets import partition
from stages.state.due_soon import MAYBE_OVERLAPS
from stages.state.index import Index
from stages.state.runs import Runs
from stages.state.storage import Storage
from stages.state.store import StateStore
from stages.state.tables import Tables
from stages.state.working_set import WorkingSet
from windowing.clocks import Times


@attrs.frozen
class Snapshot:
    """The rows of one shard, by the table of its operator, and its watermarks and times.

    `arrived` is the number of elements that have arrived at it; of several shards that become one, the largest such
    number.
    """

    rows: Mapping[str, pl.DataFrame]
    watermarks: Watermarks
    times: Times
    arrived: int


def save(stage: Stage, store: StateStore) -> Snapshot:
    """Reads the state of the stage from the store. Pending arrivals are among its rows; the clock does not move."""
    state = stage.tables(store)
    rows = {name: _rows(storage, state) for name, storage in state.storages.items()}
    return Snapshot(rows, state.watermarks, state.times, state.arrived)


def restore(stage: Stage, store: StateStore, saved: Snapshot) -> None:
    """Writes the snapshot to a store without state of the stage. A table that the snapshot lacks is empty."""
    state = stage.tables(store)
    for name, storage in state.storages.items():
        if name in saved.rows:
            state.indices[name] = _put(storage, saved.rows[name], saved.times)
    state.now = saved.times
    state.save(store, stage.name, saved.watermarks, saved.arrived)


def _rows(storage: Storage, state: Tables) -> pl.DataFrame:
    if storage.table.by_key:
        return Runs(storage).everything()
    clock = StepClock.standing(state.watermarks, state.times)
    return storage.kept.flushed(WorkingSet.everything(storage), clock)


def _put(storage: Storage, rows: pl.DataFrame, times: Times) -> Index:
    if storage.table.by_key:
        return Runs(storage).append(rows, times)
    buckets = storage.buckets
    for bucket, part in partition(buckets.place(rows)).items():
        buckets = buckets.split(bucket, size_of(part))
    nothing = rows.clear().with_columns(pl.lit(False).alias(MAYBE_OVERLAPS))
    return storage.replace([], partition(buckets.place(rows)), nothing, times)
