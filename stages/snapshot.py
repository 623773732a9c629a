"""Snapshots: all state of a stage on a shard as frames, for savepoints and for a change of the number of shards."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import polars as pl

from stages.clock import StepClock, Watermarks
from stages.frames import size_of
from stages.stage import Stage
from stages.state.buckets import split_by_bucket
from stages.state.due_soon import MAYBE_OVERLAPS
from stages.state.index import Index
from stages.state.runs import Runs
from stages.state.storage import Storage
from stages.state.store import StateStore
from stages.state.tables import Tables
from stages.state.working_set import WorkingSet
from windowing.clocks import Times


@attrs.frozen(eq=False)
class Snapshot:
    """The state of a stage on one shard: the rows of each table, watermarks and clocks.

    `arrived` is the number of elements that the shard has received. When shards are merged, it is the largest number.
    """

    rows: Mapping[str, pl.DataFrame]
    watermarks: Watermarks
    times: Times
    arrived: int


def save(stage: Stage, store: StateStore) -> Snapshot:
    """Reads the state of a stage from a store. Waiting arrivals are merged into the rows; the clocks do not move."""
    state = stage.tables(store)
    rows = {name: _rows(storage, state) for name, storage in state.storages.items()}
    return Snapshot(rows, state.watermarks, state.times, state.arrived)


def restore(stage: Stage, store: StateStore, saved: Snapshot) -> None:
    """Writes a snapshot to a store that has no state of the stage. A table that the snapshot lacks is empty."""
    state = stage.tables(store)
    for name, storage in state.storages.items():
        if name in saved.rows:
            state.indices[name] = _put(storage, saved.rows[name], saved.times)
    state.now = saved.times
    state.save(store, stage.name, saved.watermarks, saved.arrived)


def _rows(storage: Storage | Runs, state: Tables) -> pl.DataFrame:
    if isinstance(storage, Runs):
        return storage.everything()
    clock = StepClock.standing(state.watermarks, state.times)
    return storage.state_table.flushed(WorkingSet.everything(storage), clock)


def _put(storage: Storage | Runs, rows: pl.DataFrame, times: Times) -> Index:
    if isinstance(storage, Runs):
        return storage.append(rows, times)
    buckets = storage.buckets
    for bucket, part in split_by_bucket(buckets.place(rows)).items():
        buckets = buckets.split(bucket, size_of(part))
    empty_buffer = rows.clear().with_columns(pl.lit(False).alias(MAYBE_OVERLAPS))
    return storage.replace([], split_by_bucket(buckets.place(rows)), empty_buffer, times)
