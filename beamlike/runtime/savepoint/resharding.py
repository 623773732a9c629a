"""Moves state from the shards of a savepoint to the shards of a new run: rows are split by key, and merged again.

The state is sent in envelopes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import TypeVar

import attrs
import polars as pl

from beamlike.plan.model import StagePlan
from beamlike.runtime.batch.envelope import Envelope, Topology
from beamlike.runtime.batch.kept_inputs import keep_inputs, load_inputs
from beamlike.runtime.batch.origins import shard_name
from stages.clock import Watermarks
from stages.facts import from_json, to_json
from stages.progress.inputs import Inputs
from stages.progress.reports import least
from stages.progress.splits import SourceState
from stages.snapshot import Snapshot, restore, save
from stages.state.store import DictStore, StateStore
from windowing.clocks import Times

Name = TypeVar("Name", str, int)


class Piece(StrEnum):
    """The kind of a payload with a part of an old shard's state."""

    ROWS = "rows"  # followed by the name of the state table
    FACTS = "facts"


@attrs.frozen
class _Known:
    """The facts of an old shard other than its rows."""

    inputs: Inputs
    watermarks: Watermarks
    times: Times
    arrived: int


def take_apart(
    stage: StagePlan, shard: int, values: Mapping[str, bytes], before: Topology, now: Topology
) -> Iterator[Envelope]:
    """Yields envelopes with an old shard's state: rows go to new shards by key, and the shard's facts go to every new
    shard.

    `values` has what the old shard stored for the stage. `before` has the shards of the savepoint, `now` the new
    shards.
    """
    store = DictStore({(stage.name, key): value for key, value in values.items()})
    saved = save(stage.stage, store)
    origin = shard_name(stage.name, shard)
    copied = {kept.table.name for kept in stage.stage.operator.tables if kept.table.on_all_shards}
    for table, kept in saved.rows.items():
        if table not in copied:
            sent = now.data(stage.name, kept, origin)
        elif shard == before.shards(stage.name)[0]:
            sent = now.copies(stage.name, kept, origin)
        else:
            continue
        for envelope in sent:
            yield attrs.evolve(envelope, kind=f"{Piece.ROWS}{table}")
    inputs = _as_reported(stage, load_inputs(stage.name, store), before, now)
    payload = to_json(_Known(inputs, saved.watermarks, saved.times, saved.arrived), ordered=True)
    for new in now.shards(stage.name):
        yield Envelope(now.labels[new], stage.name, origin, Piece.FACTS, 0, payload)


def _as_reported(stage: StagePlan, inputs: Inputs, before: Topology, now: Topology) -> Inputs:
    """Converts the inputs for new shards. Sources stay unchanged. The report of each upstream shard is the least of the
    old ones.
    """
    sources = {name: state for name, state in inputs.sources.items() if name in stage.hears}
    reports = {
        origin: inputs.report(name, before.origins(name))
        for name in stage.inputs
        if name in now.stages
        for origin in now.origins(name)
    }
    times = {name: time for name, time in inputs.times.items() if name in sources}
    percentiles = {name: known for name, known in inputs.percentiles.items() if name in stage.inputs}
    return Inputs(sources, reports, inputs.now, times, percentiles)


def put_together(stage: StagePlan, pieces: Iterable[Envelope], store: StateStore) -> None:
    """Writes the state of a new shard from the pieces of old shards into `store`, which must be empty for the stage."""
    sent = sorted(pieces, key=lambda piece: (piece.origin, piece.sequence))
    known = [from_json(_Known, piece.payload) for piece in sent if piece.kind == Piece.FACTS]
    rows = {
        kept.table.name: pl.concat([kept.table.no_rows, *_rows(sent, kept.table.name)])
        for kept in stage.stage.operator.tables
    }
    saved = Snapshot(
        rows,
        Watermarks(min(one.watermarks.input for one in known), min(one.watermarks.output for one in known)),
        Times(_least(one.times.times for one in known)),
        # Arrival numbers: all elements of a key arrived at one old shard, and later elements must get higher
        # numbers.
        max(one.arrived for one in known),
    )
    restore(stage.stage, store, saved)
    inputs = _together([one.inputs for one in known])
    keep_inputs(stage.name, store, inputs)


def _rows(sent: Iterable[Envelope], table: str) -> list[pl.DataFrame]:
    """Returns the rows of a state table among the pieces."""
    return [piece.frame() for piece in sent if piece.kind == f"{Piece.ROWS}{table}"]


def _together(inputs: list[Inputs]) -> Inputs:
    """Merges the inputs of several shards. All shards receive the same reports, so if they differ, the least
    is safe.
    """
    sources: dict[str, SourceState] = {}
    for known in inputs:
        for name, state in known.sources.items():
            if name not in sources or state.watermark < sources[name].watermark:
                sources[name] = state
    origins = {origin for known in inputs for origin in known.reports}
    reports = {origin: least(known.reports[origin] for known in inputs) for origin in sorted(origins)}
    now, times = max(known.now for known in inputs), _least(known.times for known in inputs)
    stages = {name for known in inputs for name in known.percentiles}
    percentiles = {
        name: _least(known.percentiles[name] for known in inputs if name in known.percentiles)
        for name in sorted(stages)
    }
    return Inputs(sources, reports, now, times, percentiles)


def _least(times: Iterable[Mapping[Name, int]]) -> dict[Name, int]:
    """Returns the least time of each name."""
    least: dict[Name, int] = {}
    for known in times:
        for name, time in known.items():
            least[name] = min(time, least.get(name, time))
    return least
