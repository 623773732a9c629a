"""One level of a plan on one shard: envelopes in, envelopes out, state in a store. Knows nothing of Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

import attrs
import polars as pl

from beamlike.plan import Plan, StagePlan
from beamlike.records import stage_record
from beamlike.routes import apply_routes
from beamlike.spark.envelope import RECORDS, Envelope, Kind, Topology, note, shard_name
from stages.sources import SourceClock, WatermarkStrategy, least_percentiles
from stages.state import StateStore
from stages.watermarks import Clock, Reports
from windowing.time import MAX_TIME, MIN_TIME


@attrs.frozen
class Inputs:
    """What one shard of a stage knows of what is upstream, kept in state as plain facts."""

    sources: Mapping[str, SourceClock] = attrs.field(factory=dict)
    reports: Reports = attrs.field(factory=Reports)
    now: int = MIN_TIME

    @classmethod
    def load(cls, store: StateStore, stage: str) -> Inputs:
        value = store.get(stage, "inputs")
        if value is None:
            return cls()
        facts = json.loads(value)
        sources = {name: SourceClock(**clock) for name, clock in facts["sources"].items()}
        return cls(sources, Reports(facts["reports"]), facts["now"])

    def save(self, store: StateStore, stage: str) -> None:
        sources = {name: attrs.asdict(clock) for name, clock in self.sources.items()}
        facts = {"sources": sources, "reports": dict(self.reports.latest), "now": self.now}
        store.put(stage, "inputs", json.dumps(facts, sort_keys=True).encode())

    def receive(self, envelope: Envelope, strategies: Mapping[str, WatermarkStrategy]) -> Inputs:
        """After a summary of a source's task or a report of a shard upstream."""
        facts, origin = envelope.facts(), envelope.origin
        now = max(self.now, facts["now"])
        if envelope.kind == Kind.REPORT:
            return Inputs(self.sources, self.reports.receive(origin, facts["watermark"]), now)
        clock = self.sources.get(origin, SourceClock()).observe(strategies[origin], facts["summary"], now)
        if facts["ended"]:
            clock = attrs.evolve(clock, watermark=MAX_TIME)
        return Inputs({**self.sources, origin: clock}, self.reports.receive(origin, clock.watermark), now)

    def percentiles(self, strategies: Mapping[str, WatermarkStrategy]) -> dict[int, int]:
        """The percentile watermarks of these sources together; one that has sent nothing is at the beginning."""
        return least_percentiles(
            self.sources.get(name, SourceClock()).percentiles(strategy)
            for name, strategy in strategies.items()
        )


@attrs.frozen
class Level:
    """All stages of one level, and how their panes go on."""

    stages: tuple[StagePlan, ...]
    strategies: Mapping[str, WatermarkStrategy]
    topology: Topology

    @classmethod
    def of(cls, plan: Plan, names: Iterable[str], topology: Topology) -> Level:
        strategies = {name: source.watermark for name, source in plan.sources.items()}
        return cls(tuple(plan.stages[name] for name in names), strategies, topology)

    def stages_on(self, label: int) -> list[StagePlan]:
        """The stages that have a part on the shard with this label."""
        shard = self.topology.labels.index(label)
        return [stage for stage in self.stages if shard in self.topology.shards(stage.name)]

    def run(
        self, label: int, envelopes: Iterable[Envelope], store: StateStore, now: int | None = None
    ) -> Iterator[Envelope]:
        """One batch on the shard with this label: what is for other levels passes, the stages take their step.

        Without `now`, the stages that got something do; with it, all on this shard do, at that processing time.
        """
        shard = self.topology.labels.index(label)
        mine: dict[str, list[Envelope]] = {stage.name: [] for stage in self.stages}
        for envelope in envelopes:
            if envelope.target in mine:
                mine[envelope.target].append(envelope)
            else:
                yield envelope
        for stage in self.stages_on(label):
            if mine[stage.name] or now is not None:
                yield from self._step(stage, shard, mine[stage.name], store, now)

    def _step(
        self, plan: StagePlan, shard: int, arrived: list[Envelope], store: StateStore, now: int | None
    ) -> Iterator[Envelope]:
        # In a fixed order, so that a replayed batch gives the same bytes.
        arrived = sorted(arrived, key=lambda envelope: (envelope.origin, envelope.sequence))
        inputs = Inputs.load(store, plan.name)
        for envelope in arrived:
            if envelope.kind != Kind.DATA:
                inputs = inputs.receive(envelope, self.strategies)
        if now is not None:
            inputs = attrs.evolve(inputs, now=max(inputs.now, now))
        inputs.save(store, plan.name)
        upstream = {
            name: min(inputs.reports.of(self.topology.origins(name)), default=MAX_TIME)
            for name in plan.inputs
        }
        frames = [envelope.frame() for envelope in arrived if envelope.kind == Kind.DATA]
        sources = {name: self.strategies[name] for name in plan.inputs if name in self.strategies}
        clock = Clock(min(upstream.values()), inputs.now, inputs.percentiles(sources))
        step = plan.stage.step(store, _together(frames, plan), clock)
        origin = shard_name(plan.name, shard)
        for consumer, frame in apply_routes(step.panes, plan.routes).items():
            yield from self.topology.data(consumer, frame, origin)
        for consumer, frame in apply_routes(step.late, plan.routes, output="late").items():
            # After the panes, for a consumer that takes both.
            yield from self.topology.data(consumer, frame, f"{origin}:late")
        yield from self._report(plan, origin, step.watermarks.output, inputs.now)
        record = attrs.asdict(stage_record(step, upstream))
        yield note(
            self.topology.labels[shard], RECORDS, plan.name, Kind.RECORD, {"stage": record, "now": inputs.now}
        )

    def _report(self, plan: StagePlan, origin: str, watermark: int, now: int) -> Iterator[Envelope]:
        """The output watermark, to every shard of every stage downstream."""
        for consumer in sorted(
            {route.consumer for route in plan.routes if route.consumer in self.topology.keys}
        ):
            yield from self.topology.broadcast(
                consumer, origin, Kind.REPORT, {"watermark": watermark, "now": now}
            )


def _together(frames: list[pl.DataFrame], plan: StagePlan) -> pl.DataFrame:
    """Chunks in order as one frame."""
    return pl.concat(frames) if frames else plan.stage.grouping.no_arrivals()
