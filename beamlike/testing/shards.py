"""A run on several shards in this process: the envelopes and levels of a run on Spark, without Spark."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import attrs
import polars as pl

from beamlike.plan.model import Plan
from beamlike.runtime.batch.envelope import Envelope, Topology
from beamlike.runtime.batch.ingest import ingest
from beamlike.runtime.batch.messages import SummaryMessage
from beamlike.runtime.run.side_tables import with_tables_read
from beamlike.spark.query.level import Level
from stages.state.store import DictStore

Stores = dict[tuple[int, int], DictStore]
"""The state of each shard, by the number of its level and its label."""


@attrs.define
class ShardedRun:
    """A plan on several shards. As after a shuffle, the envelopes of a level arrive in any order, which `seed` chooses.

    `tasks` is the number of tasks that read the rows of a source in a batch.
    """

    plan: Plan
    shards: int
    tasks: int = 1
    seed: int = 0
    stores: Stores = attrs.field(factory=lambda: defaultdict(DictStore))
    topology: Topology = attrs.field(init=False)
    levels: list[Level] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.plan = with_tables_read(self.plan, 0)
        labels = tuple(range(7, 7 + 3 * self.shards, 3))  # any distinct integers
        self.topology = Topology.of(self.plan, labels)
        self.levels = [Level.of(self.plan, names, self.topology) for names in self.plan.levels]

    def ingested(self, chunks: Mapping[str, pl.DataFrame | pl.LazyFrame], now: int = 1) -> list[Envelope]:
        """Returns the envelopes of the tasks that read these rows of each source, at a processing time (us)."""
        sent: list[Envelope] = []
        for name, chunk in chunks.items():
            rows = chunk.lazy().collect()
            size = max(1, -(-len(rows) // self.tasks))
            for task, piece in enumerate(rows.iter_slices(size)):
                got = ingest(self.plan.sources[name], piece, now)
                for consumer, frame in got.frames.items():
                    lifted = self.topology.lift(consumer, frame)
                    sent += self.topology.data(consumer, lifted, f"{name}:{task:03d}")
                sent += self.summaries(name, SummaryMessage(got.summary, ended=False, now=now))
        return sent

    def end(self, sources: Iterable[str] | None = None, now: int = 2) -> list[Envelope]:
        """Returns the envelopes of the end of these sources, or of all."""
        end, over = SummaryMessage({}, ended=True, now=now), self.plan.sources if sources is None else sources
        return [envelope for name in over for envelope in self.summaries(name, end)]

    def summaries(self, source: str, summary: SummaryMessage) -> Iterator[Envelope]:
        """Yields a summary of a source's task for each shard that reads the source."""
        plan = self.plan.sources[source]
        readers = {route.consumer for route in plan.routes} & set(self.plan.stages)
        for consumer in readers.union(plan.observers):
            yield from self.topology.broadcast(consumer, source, summary)

    def through(self, envelopes: Iterable[Envelope], now: int | None = None) -> list[list[Envelope]]:
        """Runs a batch, and returns the envelopes after each level. With `now` (us), that time passes on the first."""
        after = list[list[Envelope]]()
        for number in range(len(self.levels)):
            envelopes = self.level(number, envelopes, now if number == 0 else None)
            after.append(list(envelopes))
        return after or [list(envelopes)]

    def level(self, number: int, envelopes: Iterable[Envelope], now: int | None = None) -> list[Envelope]:
        """Runs a level with these envelopes, shard by shard, and returns the envelopes that leave it."""
        arrived = [envelope.sealed() for envelope in envelopes]
        random.Random(self.seed).shuffle(arrived)
        shards: dict[int, list[Envelope]] = defaultdict(list)
        for envelope in arrived:
            shards[envelope.shard].append(envelope)
        return [
            sent
            for label in (sorted(shards) if now is None else self.topology.labels)
            for sent in self.levels[number].run(label, shards[label], self.stores[number, label], now)
        ]


def frames_of(envelopes: Iterable[Envelope], sink: str) -> list[pl.DataFrame]:
    """Returns the rows for a sink, in order."""
    mine = [envelope for envelope in envelopes if envelope.target == sink]
    return [envelope.frame() for envelope in sorted(mine, key=lambda sent: (sent.origin, sent.sequence))]
