"""All state of a stage as plain data, to be kept elsewhere, dealt to other shards, and put back."""

from __future__ import annotations

import attrs
import polars as pl

from stages.operator import Admitted
from stages.progress.watermarks import Times, Watermarks
from stages.stage import Stage
from stages.state import chunks
from stages.state.buckets import BUCKET, partition
from stages.state.due_soon import STALE
from stages.state.index import Index
from stages.state.store import StateStore
from stages.state.working_set import WorkingSet


@attrs.frozen
class Snapshot:
    """The rows of one shard, with the columns of its operator's table; and where it stood.

    `arrived` is how many elements had come to it; where several shards become one, the most that had come to any.
    """

    rows: pl.DataFrame
    watermarks: Watermarks
    times: Times
    arrived: int


def save(stage: Stage, store: StateStore) -> Snapshot:
    """What the store has of the stage. Arrivals that waited have become part of its rows; no clock moves."""
    storage = stage.storage(store)
    index, working_set = storage.index, WorkingSet.everything(storage)
    advanced = stage.operator.advance(
        working_set.rows,
        Admitted(working_set.incoming),
        index.watermarks,
        index.times,
        index.times,
        working_set.unmerged,
    )
    return Snapshot(advanced.rows, index.watermarks, index.times, index.arrived)


def restore(stage: Stage, store: StateStore, saved: Snapshot) -> None:
    """Puts this into a store that has nothing of the stage."""
    storage = stage.storage(store)
    buckets = storage.buckets
    for bucket, part in partition(placed := buckets.place(saved.rows), _numbers(placed)).items():
        buckets = buckets.split(bucket, chunks.size_of(part))
    nothing = saved.rows.clear().with_columns(pl.lit(False).alias(STALE))
    index: Index = storage.replace([], [buckets.place(saved.rows)], nothing, saved.times)
    stood = attrs.evolve(index, watermarks=saved.watermarks, times=saved.times, arrived=saved.arrived)
    stood.save(store, stage.name)


def _numbers(placed: pl.DataFrame) -> list[int]:
    return placed[BUCKET].unique().sort().to_list()
