"""The state of everything upstream of a stage, or of one of its shards, from which the stage's clocks are derived."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import attrs

from stages.progress.reports import Report, least, of_shards
from stages.progress.splits import BlockedOn, SourceState, SourceSummary
from stages.strategies.base import WatermarkStrategy
from windowing.clocks import Times
from windowing.time import MIN_TIME


@attrs.frozen
class Arrived:
    """The changes upstream of a stage in one batch: summaries, reports and ended sources.

    Attributes:
        summaries: The summary of the rows of each source.
        ended: The sources that have ended.
        reports: The report of each stage or shard upstream, by its name.
        now: The processing time of the batch (us).
        waiting: The sources that were paused in this batch. Their silence does not make them idle.
        times: The processing time (us) of sources that have a clock of their own.
    """

    summaries: Mapping[str, SourceSummary] = attrs.field(factory=dict)
    ended: frozenset[str] = frozenset()
    reports: Mapping[str, Report] = attrs.field(factory=dict)
    now: int = MIN_TIME
    waiting: frozenset[str] = frozenset()
    times: Mapping[str, int] = attrs.field(factory=dict)


@attrs.frozen
class Inputs:
    """The state of everything upstream that a stage, or one of its shards, knows from summaries and reports.

    Attributes:
        sources: The state of each source that the stage reads.
        reports: The latest report of each stage or shard upstream, by its name.
        now: The processing time (us).
        times: The processing time (us) of each source.
        percentiles: The percentile watermarks (us) of each stage upstream.
    """

    sources: Mapping[str, SourceState] = attrs.field(factory=dict)
    reports: Mapping[str, Report] = attrs.field(factory=dict)
    now: int = MIN_TIME
    times: Mapping[str, int] = attrs.field(factory=dict)
    # Stored inputs of an earlier version lack this. Their shards report percentile watermarks, capped at holds.
    percentiles: Mapping[str, Mapping[int, int]] = attrs.field(factory=dict)

    def receive(
        self,
        arrived: Arrived,
        strategies: Mapping[str, WatermarkStrategy],
        started: int = MIN_TIME,
        stages: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> Inputs:
        """Returns the inputs after a batch.

        Args:
            arrived: The news of the batch.
            strategies: The strategies of the sources that the stage reads.
            started: The processing time at which the run began (us). Silence before it does not make a source idle.
            stages: The stages upstream, each with the names under which its shards report.
        """
        now = max(self.now, arrived.now)
        times = {
            name: max(self.times.get(name, MIN_TIME), arrived.times.get(name, now)) for name in strategies
        }
        sources = {}
        for name, strategy in strategies.items():
            # Of a source that is new in a run that goes on, earlier rows may have been late.
            state = self.sources.get(name) or SourceState(late=self.now > MIN_TIME)
            if self.now < started or name in arrived.waiting:
                state = state.resumed(times[name])
            state = state.advance(strategy, arrived.summaries.get(name, {}), times[name])
            sources[name] = state.ended() if name in arrived.ended else state
        reports = {
            origin: self._latest(origin).followed_by(report) for origin, report in arrived.reports.items()
        }
        return Inputs(sources, {**self.reports, **reports}, now, times, self.percentiles)._settled(stages)

    def _settled(self, stages: Mapping[str, Sequence[str]]) -> Inputs:
        """Computes the percentile watermarks of these stages from the latest reports of all their shards."""
        percentiles = {
            name: of_shards(map(self._latest, origins), self.percentiles.get(name, {})).percentiles
            for name, origins in stages.items()
        }
        return attrs.evolve(self, percentiles={name: known for name, known in percentiles.items() if known})

    def _latest(self, origin: str) -> Report:
        """Returns the latest report of a stage or shard; before its first one, a watermark at the beginning of time."""
        return self.reports.get(origin, Report())

    def report(self, name: str, origins: Iterable[str]) -> Report:
        """Returns the report of a source or stage. `origins` are the names under which the shards of a stage report."""
        if name in self.sources:
            state = self.sources[name]
            return Report(state.watermark, state.percentiles, state.idle)
        shards = least(map(self._latest, origins))
        return Report(shards.watermark, self.percentiles.get(name, shards.percentiles), shards.idle)

    def blocked_on(self, name: str, strategy: WatermarkStrategy) -> BlockedOn | None:
        """Returns the split that the watermark of the source `name` waits for; None if it waits for none."""
        return self.sources[name].blocked_on(strategy, self.times[name])

    def clock_times(self, upstream: Iterable[Report], sides: Mapping[str, int]) -> Times:
        """Returns the times of a stage's clocks, from the reports of its inputs and the clocks (us) of its side
        inputs.
        """
        slowest = least(upstream)
        return Times.of(slowest.watermark, self.now, slowest.percentiles, sides)
