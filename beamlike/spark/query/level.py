"""One level of a plan on one shard: envelopes in, envelopes out, state in a store. Knows nothing of Spark."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping

import attrs
import polars as pl

from beamlike.plan.model import Plan, StagePlan
from beamlike.plan.route import addressed
from beamlike.runtime.envelope import RECORDS, Envelope, Topology, note
from beamlike.runtime.kept_inputs import keep_inputs, load_inputs
from beamlike.runtime.messages import Kind, ReportMessage, StageMessage, SummaryMessage
from beamlike.runtime.origins import sender, shard_name
from beamlike.runtime.stage_task import StageTask, StageTurn
from stages.progress.inputs import Arrived
from stages.progress.reports import Report
from stages.progress.splits import SourceSummary, merge
from stages.state.store import StateStore
from stages.strategies.base import WatermarkStrategy
from windowing.time import MIN_TIME


@attrs.frozen
class Mail:
    """What one shard of a stage has got in a batch: rows, by input and who sent them, and what upstream has said."""

    frames: Mapping[str, list[tuple[str, pl.DataFrame]]]
    arrived: Arrived

    @classmethod
    def read(
        cls, envelopes: Iterable[Envelope], strategies: Mapping[str, WatermarkStrategy], now: int | None
    ) -> Mail:
        """In a fixed order, so that a replayed batch gives the same bytes. `now`: where Spark tells the time."""
        frames: dict[str, list[tuple[str, pl.DataFrame]]] = {}
        summaries: dict[str, SourceSummary] = {}
        reports, ended, times = dict[str, Report](), set[str](), dict[str, int]()
        latest = MIN_TIME if now is None else now
        for envelope in sorted(envelopes, key=lambda envelope: (envelope.origin, envelope.sequence)):
            if envelope.kind == Kind.DATA:
                _, role = addressed(envelope.target)
                frames.setdefault(role, []).append((sender(envelope.origin), envelope.frame()))
                continue
            origin, told = envelope.origin, envelope.message()
            assert isinstance(told, ReportMessage | SummaryMessage)
            latest = max(latest, told.now)
            if isinstance(told, ReportMessage):
                reports[origin] = told.report
                continue
            # Of all tasks of a source together: a strategy takes a batch as one.
            summaries[origin] = merge(strategies[origin], summaries.get(origin, {}), told.summary)
            times[origin] = max(times.get(origin, MIN_TIME), told.now)
            if told.ended:
                ended.add(origin)
        return cls(frames, Arrived(summaries, frozenset(ended), reports, latest, times=times))


@attrs.frozen
class Level:
    """All stages of one level, and how their panes go on."""

    stages: tuple[StagePlan, ...]
    strategies: Mapping[str, WatermarkStrategy]
    topology: Topology
    started: int = MIN_TIME
    drains: bool = False

    @classmethod
    def of(
        cls,
        plan: Plan,
        names: Iterable[str],
        topology: Topology,
        started: int = MIN_TIME,
        *,
        drains: bool = False,
    ) -> Level:
        """`started`: when the run began (us); the time before is not held against silent sources.

        The run `drains` if its end may come before that of its input.
        """
        strategies = {name: source.watermark for name, source in plan.sources.items()}
        return cls(tuple(plan.stages[name] for name in names), strategies, topology, started, drains)

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
            consumer, _ = addressed(envelope.target)
            if consumer in mine:
                mine[consumer].append(envelope)
            else:
                yield envelope
        for stage in self.stages_on(label):
            if mine[stage.name] or now is not None:
                yield from self._step(stage, shard, mine[stage.name], store, now)

    def _step(
        self, plan: StagePlan, shard: int, arrived: list[Envelope], store: StateStore, now: int | None
    ) -> Iterator[Envelope]:
        sources = {name: self.strategies[name] for name in plan.inputs if name in self.strategies}
        origins = {name: self.topology.origins(name) for name in plan.inputs if name not in sources}
        shards = len(self.topology.labels)
        task = StageTask(plan, sources, origins, shard, shards, self.started, self.drains)
        mail = Mail.read(arrived, sources, now)
        inputs = task.receive(load_inputs(plan.name, store), mail.arrived)
        keep_inputs(plan.name, store, inputs)
        turn = task.step(inputs, mail.frames, store)
        yield from self._send(plan, shard_name(plan.name, shard), turn)
        record, read = turn.record(self._finished(inputs.now)), task.source_records(inputs)
        told = StageMessage(record, read, turn.letters, inputs.now)
        yield note(self.topology.labels[shard], RECORDS, plan.name, told)

    def _send(self, plan: StagePlan, origin: str, turn: StageTurn) -> Iterator[Envelope]:
        """Rows on their ways, and where the shard stands, to every shard of every stage downstream."""
        for output, routed in turn.routed.items():
            # After the panes, for a consumer that takes several.
            way = origin if output == "main" else f"{origin}:{output}"
            for consumer, frame in routed.frames.items():
                yield from self.topology.data(consumer, frame, way)
        told = ReportMessage(turn.report, turn.inputs.now)
        for consumer in sorted({route.consumer for route in plan.routes} & self.topology.stages):
            yield from self.topology.broadcast(consumer, origin, told)

    def _finished(self, now: int) -> int:
        """The processing time (us) at which a stage is done; where no run has begun, time is simulated and stands."""
        return now if self.started == MIN_TIME else max(now, time.time_ns() // 1000)
