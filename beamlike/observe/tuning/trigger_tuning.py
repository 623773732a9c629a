"""Predicts what other triggers of a stage would emit, as text and as a table."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

import attrs

from beamlike.errors import UnknownStage, ViewError, WrongType, listed
from beamlike.observe.tuning.panes import StagePanes
from beamlike.observe.tuning.stages import Range
from beamlike.observe.tuning.triggers import StagePlay, TriggerPrediction
from beamlike.observe.words import aligned
from beamlike.records.history import History
from beamlike.system.html import bullets, html_text, page, table
from beamlike.system.printable import printable
from windowing.panes import EARLY, LATE, ON_TIME, Accumulation, AccumulationName
from windowing.triggers.base import Trigger
from windowing.windowing import Windowing

_HEADS = ("trigger", "windows", "panes", "per window", "early", "on time", "late", "rows", "corrections")


@attrs.frozen(eq=False)
class TriggerTuning:
    """The predictions for triggers of a stage. Its text is a report; a notebook shows tables.

    Attributes:
        stage: The name of the stage.
        predictions: The predictions, first for the trigger of the run.
        keys: The keys of the stage. If there are any, the counts are bounds.
        notes: The reasons for which the counts are estimates, as sentences.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d")).aggregate(n=bl.count()).named("days")
        >>> days.write("out", bl.Memory())
        <Collection 'days': n Int64>
        >>> run = p.run(bl.LocalRunner(records="plays.jsonl"))
        >>> print(bl.observe.tune_triggers("plays.jsonl"))
        stage days, first with the trigger of the run:
        ...
    """

    stage: str
    predictions: Sequence[TriggerPrediction]
    keys: Sequence[str]
    notes: Sequence[str]

    def __str__(self) -> str:
        lines = [
            line for title, rows in self._tables() for line in (title, *aligned([_HEADS, *rows], left=1))
        ]
        return "\n".join([*lines, *self._sentences()])

    def _repr_html_(self) -> str:
        parts = [f"<p>{html_text(title)}</p>{table(_HEADS, rows)}" for title, rows in self._tables()]
        return page(f"stage {self.stage}", *parts, *bullets(self._sentences()))

    def _tables(self) -> Iterator[tuple[str, list[list[str]]]]:
        """Yields a title and rows for the stage and each later stage of its chain."""
        names = dict.fromkeys(name for one in self.predictions for name in one.stages)
        for name in names:
            rows = [_row(one, name) for one in self.predictions if name in one.stages]
            yield f"stage {printable(name)}, first with the trigger of the run:", rows

    def _sentences(self) -> Iterator[str]:
        if self.notes:
            yield from (f"Note: {note}." for note in self.notes)
        elif self.keys:
            yield (
                f"The counts are bounds, since records have no keys and the stage has {listed(self.keys)}; "
                "`beamlike diff` counts exactly, from a copy of the pipeline with another trigger."
            )
        else:
            yield "All counts are exact."


def _row(one: TriggerPrediction, name: str) -> list[str]:
    found = one.stages[name]
    windowing, known = one.windowings[name], found.exact or found.timings
    trigger = f"{windowing.trigger}, {windowing.accumulation.value}"
    return [
        trigger,
        _count(found.windows),
        _count(found.panes),
        _per_window(found),
        *(f"{found.timings.get(timing, 0):,}" if known else "" for timing in (EARLY, ON_TIME, LATE)),
        _count(found.rows),
        _count(found.corrections),
    ]


def _per_window(found: StagePanes) -> str:
    """Formats the mean number of panes of a window, if it is known."""
    known = found.exact and found.windows.least
    return f"{found.panes.least / found.windows.least:.2f}" if known else ""


def _count(found: Range) -> str:
    return f"{found.most:,}" if found.exact else f"{found.least:,}-{found.most:,}"


def tune_triggers(
    run: str | os.PathLike[str] | History,
    *,
    stage: str | None = None,
    triggers: Iterable[Trigger] = (),
    accumulation: Accumulation | AccumulationName | None = None,
) -> TriggerTuning:
    """Predicts the panes, rows and corrections that a stage would emit with other triggers.

    The recorded batches are played with their numbers of elements. A prediction for a stage without keys equals a run
    with that trigger and the same batches, unless a note says that it is an estimate. Stages without keys that read
    only this stage are predicted with it. For a stage with keys, the counts are bounds.

    Args:
        run: A file of records, a folder with one, a checkpoint, or a `History`.
        stage: The stage; by default the only one that reads sources in windows.
        triggers: The triggers to predict, after the trigger of the run.
        accumulation: The accumulation for these triggers; by default that of the run.

    Raises:
        UnknownStage: If the run has no such stage.
        ViewError: If the records do not suffice to predict the stage.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d")).aggregate(n=bl.count()).named("days")
        >>> days.write("out", bl.Memory())
        <Collection 'days': n Int64>
        >>> run = p.run(bl.LocalRunner(records="plays.jsonl"))
        >>> every = bl.AfterWatermark(early=bl.AfterCount(1))
        >>> found = bl.observe.tune_triggers("plays.jsonl", stage="days", triggers=[every])
        >>> [one.stages["days"].panes.most for one in found.predictions]
        [1, 4]
    """
    history = run if isinstance(run, History) else History.open(run)
    if not history.batches:
        raise ViewError("the run has no records of batches yet, so there is nothing to predict from")
    play = StagePlay.of(history, _stage(history, stage))
    asked = [_windowing(play.name, play.windowing, trigger, accumulation) for trigger in triggers]
    if not asked and accumulation is not None:
        asked = [_windowing(play.name, play.windowing, play.windowing.trigger, accumulation)]
    found = [play.predict(windowing) for windowing in (play.windowing, *asked)]
    return TriggerTuning(play.name, found, play.described.keys, play.notes)


def _stage(history: History, name: str | None) -> str:
    if name is not None:
        return history.require_stage(name)
    found = [
        name
        for name, stage in history.plan.stages.items()
        if stage.windowed and {*(stage.main or stage.inputs)} <= {*history.plan.sources}
    ]
    if len(found) != 1:
        raise UnknownStage(
            f"several stages read sources in windows: {listed(found)}; name one of them"
            if found
            else "no stage of the run reads sources in windows, so no trigger can be predicted"
        )
    return found[0]


def _windowing(
    stage: str, run: Windowing, trigger: Trigger, accumulation: Accumulation | AccumulationName | None
) -> Windowing:
    """Returns the windowing of the run with another trigger. Raises `ViewError` if it may lose data."""
    if not isinstance(trigger, Trigger):
        raise WrongType(f"triggers=[...] has triggers such as bl.AfterWatermark(), not {trigger!r}")
    changed = run.accumulation if accumulation is None else accumulation
    try:
        return attrs.evolve(run, trigger=trigger, accumulation=changed, allow_data_loss=False)
    except ValueError as error:
        raise ViewError(f"stage {stage!r}: {error}") from None
