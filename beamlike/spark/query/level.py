"""The stages of a level on one shard: envelopes in and out, and state in a store. No pyspark here."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Self

import attrs
import polars as pl

from beamlike.errors import RunError
from beamlike.plan.model import Plan, StagePlan
from beamlike.plan.route import addressed
from beamlike.records.seen_keys import write_seen
from beamlike.runtime.batch.envelope import RECORDS, Envelope, Topology, message_envelope
from beamlike.runtime.batch.kept_inputs import keep_inputs, load_inputs
from beamlike.runtime.batch.messages import Kind, ReportMessage, StageMessage, SummaryMessage
from beamlike.runtime.batch.origins import sender, shard_name
from beamlike.runtime.batch.stage_task import StageTask, StageTurn
from stages.progress.inputs import Arrived
from stages.progress.reports import Report
from stages.progress.splits import SourceSummary, merge
from stages.state.store import StateStore
from stages.strategies.base import WatermarkStrategy
from windowing.time import MIN_TIME


@attrs.frozen(eq=False)
class ShardInbox:
    """The input of a stage on one shard in a batch: rows by input, each with its sender, and messages from upstream."""

    frames: Mapping[str, list[tuple[str, pl.DataFrame]]]
    arrived: Arrived

    @classmethod
    def read(
        cls, envelopes: Iterable[Envelope], strategies: Mapping[str, WatermarkStrategy], now: int | None
    ) -> ShardInbox:
        """Reads envelopes in a fixed order, so that a replayed batch gives the same bytes.

        `now` is the processing time (us), if Spark provides one. Raises `RunError` for an unexpected kind of message.
        """
        frames: dict[str, list[tuple[str, pl.DataFrame]]] = {}
        summaries: dict[str, SourceSummary] = {}
        reports, ended, times = dict[str, Report](), set[str](), dict[str, int]()
        latest = MIN_TIME if now is None else now
        # Most shards of a stage report the same watermark: their messages are decoded once.
        decoded = dict[tuple[str, bytes], ReportMessage | SummaryMessage]()
        for envelope in sorted(envelopes, key=lambda envelope: (envelope.origin, envelope.sequence)):
            if envelope.kind == Kind.DATA:
                _, role = addressed(envelope.target)
                frames.setdefault(role, []).append((sender(envelope.origin), envelope.frame()))
                continue
            origin, place = envelope.origin, (envelope.kind, envelope.payload)
            if (message := decoded.get(place)) is None:
                message = decoded[place] = _message_for_stage(envelope)
            latest = max(latest, message.now)
            if isinstance(message, ReportMessage):
                reports[origin] = message.report
                continue
            # Summaries of a source's tasks are merged, because a strategy observes a batch as a whole.
            summaries[origin] = merge(strategies[origin], summaries.get(origin, {}), message.summary)
            times[origin] = max(times.get(origin, MIN_TIME), message.now)
            if message.ended:
                ended.add(origin)
        return cls(frames, Arrived(summaries, frozenset(ended), reports, latest, times=times))


def _message_for_stage(envelope: Envelope) -> ReportMessage | SummaryMessage:
    """Returns the message in an envelope for a stage. Raises `RunError` for a kind that stages do not read."""
    if envelope.kind in (Kind.REPORT, Kind.SUMMARY):
        message = envelope.message()
        if isinstance(message, ReportMessage | SummaryMessage):
            return message
    raise RunError(
        f"{envelope.origin!r} sent {envelope.target!r} a message of kind {str(envelope.kind)!r}, but a stage reads "
        f"only {Kind.REPORT.value!r} and {Kind.SUMMARY.value!r}: driver and executors must have the same version of "
        "beamlike"
    )


@attrs.frozen
class Level:
    """The stages of one level on all shards, with the routes of their output."""

    stages: tuple[StagePlan, ...]
    strategies: Mapping[str, WatermarkStrategy]
    topology: Topology
    started: int = attrs.field(default=MIN_TIME, kw_only=True)
    drains: bool = attrs.field(default=False, kw_only=True)
    complete: frozenset[str] = attrs.field(default=frozenset(), kw_only=True)
    keys: str | None = attrs.field(default=None, kw_only=True)

    @classmethod
    def of(
        cls,
        plan: Plan,
        names: Iterable[str],
        topology: Topology,
        started: int = MIN_TIME,
        *,
        drains: bool = False,
        keys: str | None = None,
    ) -> Self:
        """Creates the level with the stages of these names.

        `started` is the start of the run (us): earlier silence of a source does not count towards idleness. `drains`:
        the run may end before its input does. `keys` is the folder for the keys that stages receive, if they are
        recorded.
        """
        strategies = {name: source.watermark for name, source in plan.sources.items()}
        stages = tuple(plan.stages[name] for name in names)
        return cls(
            stages,
            strategies,
            topology,
            started=started,
            drains=drains,
            complete=plan.complete,
            keys=keys,
        )

    def stages_on(self, label: int) -> list[StagePlan]:
        """Returns the stages that have a shard with this label."""
        shard = self.topology.labels.index(label)
        return [stage for stage in self.stages if shard in self.topology.shards(stage.name)]

    def run(
        self, label: int, envelopes: Iterable[Envelope], store: StateStore, now: int | None = None
    ) -> Iterator[Envelope]:
        """Runs a batch on the shard with this label: runs steps of its stages, and passes on envelopes for other
        levels.

        Without `now`, only stages that received something run a step. With it, all stages on this shard do, at this
        processing time.
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
        sources = {name: self.strategies[name] for name in plan.hears if name in self.strategies}
        origins = {name: self.topology.origins(name) for name in plan.inputs if name not in sources}
        task = StageTask(
            plan,
            sources,
            origins,
            shard=shard,
            shards=len(self.topology.labels),
            started=self.started,
            drains=self.drains,
            complete=self.complete,
        )
        inbox = ShardInbox.read(arrived, sources, now)
        inputs = task.receive(load_inputs(plan.name, store), inbox.arrived)
        keep_inputs(plan.name, store, inputs)
        turn = task.step(inputs, inbox.frames, store)
        if turn.keys is not None:
            write_seen(self.keys, turn.keys)
        yield from self._send(plan, shard_name(plan.name, shard), turn)
        record, read = turn.record(self._finished(inputs.now)), task.source_records(inputs)
        message = StageMessage(record, read, turn.dead_letters, inputs.now)
        yield message_envelope(self.topology.labels[shard], RECORDS, plan.name, message)

    def _send(self, plan: StagePlan, origin: str, turn: StageTurn) -> Iterator[Envelope]:
        """Yields envelopes with the rows for consumers, and with the shard's report for every shard of every stage
        downstream.
        """
        for output, routed in turn.routed.items():
            # Another name than the main output's, so that a consumer of several outputs reads panes first.
            way = origin if output == "main" else f"{origin}:{output}"
            for consumer, frame in routed.frames.items():
                yield from self.topology.data(consumer, frame, way)
        message = ReportMessage(turn.report, turn.inputs.now)
        for consumer in sorted({route.consumer for route in plan.routes} & self.topology.stages):
            yield from self.topology.broadcast(consumer, origin, message)

    def _finished(self, now: int) -> int:
        """Returns the processing time (us) at which a stage is done. The time of test streams does not move during a
        batch.
        """
        return now if self.started == MIN_TIME else max(now, time.time_ns() // 1000)
