"""A query of envelopes in this process: ingest tasks, then each level on its shards, and the final envelopes."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping

import attrs
import polars as pl

from beamlike.plan.model import Plan
from beamlike.plan.stepped import steps_of
from beamlike.records.model import StageRecord, merged
from beamlike.runtime.batch.envelope import Envelope
from beamlike.runtime.batch.messages import Kind, StageMessage
from beamlike.runtime.savepoint.resharding import take_apart
from beamlike.spark.checkpoint.commands import ControlCommand, EndSources, PlayStep
from beamlike.spark.query.control import apply_command
from beamlike.spark.savepoint.loading import Loading
from beamlike.testing.shards import ShardedRun, frames_of
from windowing.time import MAX_TIME, MIN_TIME


@attrs.define
class Query(ShardedRun):
    """A sharded run that also reads its own input, and keeps the records of its stages."""

    latest: Mapping[str, StageRecord] = attrs.field(factory=dict)

    def batches(self, rows: int = 250_000) -> Iterator[Batch]:
        """Yields batches of the whole input as in the local runner, a chunk of every source each, and then the end."""
        steps = steps_of(self.plan)
        if steps is not None:
            orders = [*map(PlayStep, range(steps)), EndSources(tuple(self.plan.sources))]
            yield from map(self.ordered, orders)
            return
        chunks = {name: source.source.chunks(rows) for name, source in self.plan.sources.items()}
        whole = [name for name, source in self.plan.sources.items() if source.whole]
        # Tables are read completely in the first batch, and end with it.
        first = {name: pl.concat(list(chunks.pop(name))) for name in whole}
        while chunks:
            taken = {name: next(source, None) for name, source in chunks.items()}
            chunks = {name: source for name, source in chunks.items() if taken[name] is not None}
            came = {**first, **{name: taken[name] for name in chunks}}
            over = self.end(first) if first else []
            yield self.run([*self.ingested(came), *over]) if chunks or first else self.batch(None)
            first = {}

    def ordered(self, order: ControlCommand) -> Batch:
        """Runs one batch with a control command for the sources."""
        return self.run(apply_command(order, self.plan.sources.values(), self.topology, 2))

    def batch(self, chunks: Mapping[str, pl.DataFrame | pl.LazyFrame] | None) -> Batch:
        """Runs one batch of these chunks; None ends all sources."""
        return self.run(self.end() if chunks is None else self.ingested(chunks))

    def run(self, envelopes: Iterable[Envelope], now: int | None = None) -> Batch:
        """Sends envelopes through all levels; `now` is the processing time on all shards of the first level."""
        after = self.through(envelopes, now)
        batch = Batch(self.plan, after[-1], after, self.latest)
        self.latest = batch.stages()
        return batch

    def fork(self, seed: int) -> Query:
        """Returns a copy of the query and its state; its envelopes arrive in another order."""
        return attrs.evolve(self, stores=copy.deepcopy(self.stores), seed=seed)


def reshard(query: Query, plan: Plan, shards: int) -> Query:
    """Returns the query on another number of shards and with this plan, between two batches."""
    now = Query(plan, shards, seed=query.seed)
    sent: list[Envelope] = []
    for (_, label), store in query.stores.items():
        for name, stage in plan.stages.items():
            values = {key: value for (owner, key), value in store.values.items() if owner == name}
            if "inputs" in values:
                shard = query.topology.labels.index(label)
                sent += take_apart(stage, shard, values, query.topology, now.topology)
    loading = attrs.evolve(now)
    loading.stores = now.stores
    loading.levels = [Loading.of(plan, names, now.topology) for names in plan.levels]
    assert loading.run(sent).envelopes == []
    return now


@attrs.frozen
class Batch:
    """The final envelopes of a batch, the envelopes of each level, and the stage records of the batch before."""

    plan: Plan
    envelopes: list[Envelope]
    levels: list[list[Envelope]]
    before: Mapping[str, StageRecord]

    def frames(self, sink: str) -> list[pl.DataFrame]:
        """Returns the rows for a sink, in order."""
        return frames_of(self.envelopes, sink)

    def stages(self) -> dict[str, StageRecord]:
        """Returns the record of each stage, merged over its shards."""
        records = merged((name, told.stage) for name, told in self.notes())
        return {name: record.following(self.before.get(name), 0) for name, record in records.items()}

    def notes(self) -> list[tuple[str, StageMessage]]:
        """Returns the messages of the shards to the driver, with the names of their stages."""
        sent = [(one.origin, one.message()) for one in self.envelopes if one.kind == Kind.STAGE]
        return [(name, told) for name, told in sent if isinstance(told, StageMessage)]

    def sent(self, kind: Kind, level: int) -> list[Envelope]:
        """Returns the envelopes of this kind that left a level; the first level is 1."""
        return [envelope for envelope in self.levels[level - 1] if envelope.kind == kind]


__all__ = ["MAX_TIME", "MIN_TIME", "Batch", "Query", "reshard"]
