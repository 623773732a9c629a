"""The CPU time of one shard's step as a function of the number of shards and of splits: the constants of `scale`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

import attrs
import numpy as np
import polars as pl

import beamlike as bl
from beamlike.plan.model import Plan
from beamlike.runtime.batch.envelope import Envelope, Topology, message_envelope, to_arrow
from beamlike.runtime.batch.ingest import ingest
from beamlike.runtime.batch.messages import Kind, ReportMessage, SummaryMessage
from beamlike.runtime.batch.origins import shard_name
from beamlike.spark.query.level import Level
from stages.progress.splits import SourceSummary
from stages.state.store import DictStore

ROWS = 100
"""The rows of a step: few, so that messages are seen beside them."""
_SECOND = 1_000_000


def plan() -> Plan:
    """Returns a plan of two keyed stages: counts by user and minute, then by count."""
    rows = pl.DataFrame(schema={"user": pl.Int64, "at": pl.Int64, "split": pl.String})
    p = bl.Pipeline("scale")
    watermark = bl.BoundedOutOfOrderness("5s", per_split="split")
    plays = p.read("plays", bl.Rows(rows), timestamp="at", timestamp_unit="us", watermark=watermark)
    counts = plays.window_into(bl.FixedWindows("1m")).group_by("user").aggregate(n=bl.count())
    again = counts.window_into(bl.FixedWindows("1m")).group_by("n").aggregate(users=bl.count())
    again.write("out", bl.Memory())
    return p.plan()


@attrs.frozen
class Shards:
    """The two levels of the plan on so many shards, whose source has so many splits, read by so many tasks."""

    plan: Plan
    shards: int
    splits: int
    tasks: int

    @property
    def topology(self) -> Topology:
        return Topology.of(self.plan, tuple(range(self.shards)))

    def level(self, number: int) -> Level:
        """Returns a level."""
        return Level.of(self.plan, self.plan.levels[number], self.topology)

    def summaries(self, batch: int) -> list[SourceSummary]:
        """Returns the summary of each task of the source."""
        source, found = self.plan.sources["plays"], []
        for part in np.array_split(np.arange(self.splits), self.tasks):
            names = [f"topic-{split}" for split in part]
            at = np.full(len(part), batch * _SECOND)
            frame = pl.DataFrame(
                {"user": part, "at": at, "split": names}, schema_overrides={"user": pl.Int64}
            )
            found.append(ingest(source, frame.lazy(), 0).summary)
        return found

    def from_source(self, batch: int) -> list[Envelope]:
        """Returns the envelopes of all tasks for the first shard of the first level."""
        [name] = self.plan.levels[0]
        return [
            message_envelope(0, name, "plays", SummaryMessage(summary, ended=False, now=batch * _SECOND))
            for summary in self.summaries(batch)
        ]

    def from_shards(self, batch: int, report: Envelope) -> list[Envelope]:
        """Returns the report of each shard of the first level, for the first shard of the second."""
        [name] = self.plan.levels[0]
        message = report.message()
        assert isinstance(message, ReportMessage)
        moved = attrs.evolve(message, report=attrs.evolve(message.report, watermark=batch * _SECOND))
        return [
            message_envelope(0, report.target, shard_name(name, shard), moved) for shard in range(self.shards)
        ]


def cpu(make: Callable[[], Callable[[], object]], repeats: int) -> float:
    """Returns the least CPU seconds of so many runs of what `make` makes, which is not counted."""
    best = float("inf")
    for _ in range(repeats):
        run = make()
        began = time.process_time()
        run()
        best = min(best, time.process_time() - began)
    return best


def first_level(of: Shards, repeats: int) -> float:
    """Returns CPU seconds of a shard's step on the first level: it reads summaries, and reports to all shards."""
    level, store, batches = of.level(0), DictStore(), iter(range(10**6))
    _sent(level, of.from_source(next(batches)), store)
    return cpu(lambda: partial(_sent, level, of.from_source(next(batches)), store), repeats)


def second_level(of: Shards, repeats: int) -> float:
    """Returns CPU seconds of a shard's step on the second level: reads and keeps the reports of all shards."""
    first, level, store, batches = of.level(0), of.level(1), DictStore(), iter(range(10**6))
    sent = first.run(0, of.from_source(0), DictStore())
    report = next(envelope for envelope in sent if envelope.kind == Kind.REPORT)
    _sent(level, of.from_shards(next(batches), report), store)
    return cpu(lambda: partial(_sent, level, of.from_shards(next(batches), report), store), repeats)


def _sent(level: Level, envelopes: list[Envelope], store: DictStore) -> None:
    """Runs a step as an operator does: what it sends becomes rows of Arrow."""
    sent: Iterator[Envelope] = level.run(0, envelopes, store)
    to_arrow([envelope.sealed() for envelope in sent])
