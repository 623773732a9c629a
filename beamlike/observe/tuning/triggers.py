"""Predicts the panes of a stage with other triggers, and of the stages that read it, from the records of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, reduce
from itertools import pairwise

import attrs
import numpy as np
import polars as pl

from beamlike.errors import ViewError
from beamlike.observe.tuning.arrived import Rows, SourceArrivals
from beamlike.observe.tuning.panes import RETRACTED, PlayedStage, StagePanes, windowing_of
from beamlike.observe.tuning.stages import Range, is_whole
from beamlike.observe.words import length
from beamlike.records.emission import emission
from beamlike.records.graph import StageDescription
from beamlike.records.history import History
from beamlike.records.model import StageRecord
from beamlike.system.threads import in_one_thread
from windowing.clocks import Times, clock_percentile
from windowing.columns import EVENT_TIME
from windowing.panes import ALWAYS, ON_TIME
from windowing.time import MAX_TIME
from windowing.triggers.basic import AfterWatermark, Always, DefaultTrigger
from windowing.windowing import Windowing


@attrs.frozen
class TriggerPrediction:
    """The panes of a stage with a windowing, and of the later stages of its chain, each with its own windowing."""

    stages: Mapping[str, StagePanes]
    windowings: Mapping[str, Windowing]


@attrs.frozen(eq=False, slots=False)
class StagePlay:
    """A stage of a run that reads sources directly, ready to be played with other triggers.

    Attributes:
        name: The name of the stage.
        history: The records of the run.
        windowing: The windowing of the run.
        arrivals: The elements of each batch, with their event times.
        doubts: The reasons for which the elements are not exactly those of the stage, as sentences.
    """

    name: str
    history: History
    windowing: Windowing
    arrivals: Sequence[pl.DataFrame]
    doubts: Sequence[str]

    @classmethod
    def of(cls, history: History, name: str) -> StagePlay:
        """Reads the elements of a stage. Raises `ViewError` if the stage cannot be predicted from records."""
        described = history.plan.stages[name]
        windowing = windowing_of(name, described)
        if others := [one for one in _main(described) if one not in history.plan.sources]:
            raise ViewError(
                f"stage {name!r} reads the stage {others[0]!r}; name a stage that reads only sources, with which the "
                "stages after it are predicted"
            )
        if windowing.windows.merging and described.keys:
            raise ViewError(
                f"stage {name!r} has sessions by key, which depend on keys, and records have none; change the "
                "trigger in a copy of the pipeline, and compare both by `beamlike diff`"
            )
        found = [SourceArrivals.of(history, one) for one in _main(described)]
        rows = [one.rows() for one in found]
        if not sum(one.total for one in rows):
            raise ViewError(f"the records have no event times of the elements of stage {name!r}")
        doubts = [*_doubts(name, described, history, found)]
        return cls(name, history, windowing, _by_batch(rows, len(history.batches)), doubts)

    @property
    def described(self) -> StageDescription:
        """The stage, as the records describe it."""
        return self.history.plan.stages[self.name]

    @cached_property
    def later(self) -> list[str]:
        """The stages that read only this stage and each other, and that are predicted with it."""
        found = list[str]()
        for name, stage in self.history.plan.stages.items():
            read = {*_main(stage)}
            # Overlapping windows depend on whether the elements have windows already, which records do not say.
            apart = stage.global_window or stage.calendar is not None
            apart = apart or (stage.spacing is not None and stage.spacing.length == stage.spacing.period)
            whole = (
                read <= {self.name, *found} and read <= {*stage.plain} and not stage.keys and not stage.sides
            )
            if whole and apart and emission(stage.emission) is not None:
                found.append(name)
        return [] if self.described.keys else found

    @cached_property
    def notes(self) -> list[str]:
        """The reasons for which predictions are estimates, as sentences; empty if they are exact or bounds."""
        if self.described.keys:
            return []
        if self.doubts:
            return list(self.doubts)
        played = self._as_in_the_run
        batches = [batch for batch in self.history.batches if self.name in batch.stages]
        other = [
            name
            for name, one in played.items()
            if one.batches != [{**batch.stages[name].panes} for batch in batches]
        ]
        text = "the trigger of the run, played with counts, has other panes than the run: the counts are estimates"
        return [f"stage {name!r}: {text}" for name in other]

    def predict(self, windowing: Windowing) -> TriggerPrediction:
        """Plays the recorded batches with a windowing of the stage."""
        if any(clock_percentile(clock) for clock in windowing.trigger.clocks()):
            raise ViewError(
                f"{windowing.trigger}: records do not have the percentile watermarks that it needs"
            )
        played = self._as_in_the_run if windowing == self.windowing else self._played(windowing)
        counts = {name: one.counts for name, one in played.items()}
        if self.described.keys:
            counts[self.name] = self._bounds(counts[self.name], windowing)
        return TriggerPrediction(counts, {name: one.windowing for name, one in played.items()})

    @property
    def recorded(self) -> StageRecord:
        """The counts of the stage over all batches of the run."""
        records = [batch.stages[self.name] for batch in self.history.batches if self.name in batch.stages]
        return reduce(StageRecord.then, records)

    @cached_property
    def _as_in_the_run(self) -> dict[str, PlayedStage]:
        return self._played(self.windowing)

    def _played(self, windowing: Windowing) -> dict[str, PlayedStage]:
        played = {self.name: PlayedStage.of(self.name, windowing)}
        for name in [] if windowing.may_repeat() else self.later:
            inputs = [played[one].windowing for one in self._inputs(name)]
            changes = any(one.may_retract() for one in inputs)
            played[name] = PlayedStage.of(name, self._later(name, inputs[0]), changes=changes)
        in_one_thread(lambda: self._play(played))  # batches have few rows, for which threads mostly wait
        return played

    def _play(self, played: Mapping[str, PlayedStage]) -> None:
        for batch, arrivals in zip(self.history.batches, self.arrivals, strict=True):
            if (record := batch.stages.get(self.name)) is not None:
                self._step(played, arrivals, record.input, batch.processing_time)

    def _step(
        self, played: Mapping[str, PlayedStage], arrivals: pl.DataFrame, watermark: int, now: int
    ) -> None:
        panes = {self.name: played[self.name].step(arrivals, Times.of(watermark, now))}
        for name in [one for one in played if one != self.name]:
            inputs = self._inputs(name)
            rows = pl.concat(panes[one].select(played[name].columns) for one in inputs)
            panes[name] = played[name].step(rows, Times.of(min(played[one].output for one in inputs), now))

    def _inputs(self, name: str) -> tuple[str, ...]:
        return _main(self.history.plan.stages[name])

    def _later(self, name: str, before: Windowing) -> Windowing:
        """Returns the windowing of a later stage. What follows its input by default still follows."""
        own = windowing_of(name, self.history.plan.stages[name])
        (first, *_) = self._inputs(name)
        run = windowing_of(first, self.history.plan.stages[first])
        follows = own.trigger == run.trigger.continuation()
        return attrs.evolve(
            own,
            trigger=before.trigger.continuation() if follows else own.trigger,
            accumulation=before.accumulation if own.accumulation is run.accumulation else own.accumulation,
        )

    def _bounds(self, together: StagePanes, windowing: Windowing) -> StagePanes:
        """Returns bounds of the counts of a stage with keys, from those of its elements without keys.

        A pane has new elements, or is the one on-time or last pane of its window that may be empty. In the run, each
        on-time pane was that of another window.
        """
        run = self.recorded
        ended = run.input >= MAX_TIME
        # Another trigger may close windows sooner or later.
        accepted = (run.placed or 0) - run.dropped.get("late", 0) - run.dropped.get("no window", 0)
        emits = isinstance(windowing.trigger, AfterWatermark | Always | DefaultTrigger)
        least = run.panes.get(ON_TIME, 0) if emits or ended else 0
        least = max(least, together.windows.least if ended and not self.doubts else 0)
        empty = int(windowing.on_time == ALWAYS and not windowing.trigger.waits_for_end)
        empty += int(windowing.closing == ALWAYS)
        once = windowing.has_one_pane()
        panes = Range(least, accepted if once else accepted * (1 + empty))
        rows = Range(least, 2 * panes.most - least if windowing.may_retract() else panes.most)
        timings = dict[str, int]()
        if windowing == self.windowing:
            timings = {**run.panes}
            rows = _exactly(sum(timings.values()))
            panes = _exactly(rows.most - timings.pop(RETRACTED, 0))
        windows = Range(least, min(accepted, panes.most))
        return StagePanes(windows, panes, rows, Range(0, 0 if once else panes.most - least), timings)


def _main(stage: StageDescription) -> tuple[str, ...]:
    """Returns the inputs of a stage that are no side inputs."""
    return stage.main or stage.inputs


def _by_batch(rows: Sequence[Rows], batches: int) -> list[pl.DataFrame]:
    """Returns the elements of each batch."""
    numbers = np.concatenate([np.repeat(one.batches, one.counts) for one in rows])
    times = np.concatenate([np.repeat(one.first, one.counts) for one in rows])
    order = np.argsort(numbers, kind="stable")
    bounds = np.searchsorted(numbers[order], np.arange(batches + 1))
    frame = pl.DataFrame({EVENT_TIME: times[order]})
    return [frame[first:last] for first, last in pairwise(bounds.tolist())]


def _doubts(
    name: str, stage: StageDescription, history: History, sources: Sequence[SourceArrivals]
) -> Iterator[str]:
    if not {*_main(stage)} <= {*stage.plain} or not all(
        is_whole(name, batch, sources) for batch in history.batches
    ):
        yield "steps before it drop, add or change elements, or the records lack some: the counts are estimates"
    if resolution := max(one.rows().resolution for one in sources):
        yield f"event times are known to {length(resolution)} or better: the counts are estimates"
    if sources[0].merged or any(one.missing for one in sources):
        yield "some records have no event times: their elements are not counted"


def _exactly(count: int) -> Range:
    return Range(count, count)
