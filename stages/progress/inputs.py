"""The inputs of a stage, or of one shard of it: the state of everything upstream, from which its clocks follow."""

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
    """The input of a batch: summaries and ends of sources, reports by origin, its processing time (us).

    Sources that are `waiting` were paused: their silence does not make them idle. `times` contains the processing time
    of sources that have a clock of their own.
    """

    summaries: Mapping[str, SourceSummary] = attrs.field(factory=dict)
    ended: frozenset[str] = frozenset()
    reports: Mapping[str, Report] = attrs.field(factory=dict)
    now: int = MIN_TIME
    waiting: frozenset[str] = frozenset()
    times: Mapping[str, int] = attrs.field(factory=dict)


@attrs.frozen
class Inputs:
    """The state of each source that is read, the latest report of each origin upstream, and the processing time.

    `times` contains the processing time (us) of each source, `percentiles` the percentile watermarks of each stage
    upstream.
    """

    sources: Mapping[str, SourceState] = attrs.field(factory=dict)
    reports: Mapping[str, Report] = attrs.field(factory=dict)
    now: int = MIN_TIME
    times: Mapping[str, int] = attrs.field(factory=dict)
    # Facts of before there was this have one report for each shard, capped at its least hold.
    percentiles: Mapping[str, Mapping[int, int]] = attrs.field(factory=dict)

    def receive(
        self,
        arrived: Arrived,
        strategies: Mapping[str, WatermarkStrategy],
        started: int = MIN_TIME,
        stages: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> Inputs:
        """The inputs after a batch.

        Args:
            strategies: The strategies of the sources that the stage reads.
            started: The time at which the run began (us): silence before it does not make a source idle.
            stages: The stages that it reads, with the names under which their shards report.
        """
        now = max(self.now, arrived.now)
        times = {
            name: max(self.times.get(name, MIN_TIME), arrived.times.get(name, now)) for name in strategies
        }
        sources = {}
        for name, strategy in strategies.items():
            state = self.sources.get(name, SourceState())
            if self.now < started or name in arrived.waiting:
                state = state.resumed(times[name])
            state = state.advance(strategy, arrived.summaries.get(name, {}), times[name])
            sources[name] = state.ended() if name in arrived.ended else state
        reports = {
            origin: self._latest(origin).followed_by(report) for origin, report in arrived.reports.items()
        }
        return Inputs(sources, {**self.reports, **reports}, now, times, self.percentiles)._settled(stages)

    def _settled(self, stages: Mapping[str, Sequence[str]]) -> Inputs:
        """The inputs with the percentile watermarks of these stages, computed from the reports of all their shards."""
        percentiles = {
            name: of_shards(map(self._latest, origins), self.percentiles.get(name, {})).percentiles
            for name, origins in stages.items()
        }
        return attrs.evolve(self, percentiles={name: known for name, known in percentiles.items() if known})

    def _latest(self, origin: str) -> Report:
        """The latest report; one that has not reported yet holds at the beginning of time."""
        return self.reports.get(origin, Report())

    def report(self, name: str, origins: Iterable[str]) -> Report:
        """The watermarks of this source or stage; `origins` are the names under which a stage's shards report."""
        if name in self.sources:
            state = self.sources[name]
            return Report(state.watermark, state.percentiles, state.idle)
        shards = least(map(self._latest, origins))
        return Report(shards.watermark, self.percentiles.get(name, shards.percentiles), shards.idle)

    def blocked_on(self, name: str, strategy: WatermarkStrategy) -> BlockedOn | None:
        """The split that a source's watermark waits for."""
        return self.sources[name].blocked_on(strategy, self.times[name])

    def clock_times(self, upstream: Iterable[Report], sides: Mapping[str, int]) -> Times:
        """The times that the clocks of a stage reach which reads these; `sides` are those of its side inputs."""
        slowest = least(upstream)
        return Times.of(slowest.watermark, self.now, slowest.percentiles, sides)
