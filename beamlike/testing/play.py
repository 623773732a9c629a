"""Runs transcripts on a stage alone, on the local runner, or on Spark, and compares the outcome of each step.

All values that are compared are taken from a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import attrs
import narwhals as nw
import polars as pl

from beamlike.api.pipeline import Pipeline
from beamlike.expressions import aggregates, functions
from beamlike.io.test_stream.stream import TestStream
from beamlike.records.model import BatchRecord
from beamlike.testing.assertions import pairs_of
from beamlike.testing.player import Outcomes, Playback, Recorder, Result, error_line
from beamlike.testing.transcripts import Pane, Step, Transcript, pane_text, time_text
from stages.aggregates.base import Aggregate
from stages.grouping.grouping import Grouping
from stages.operator import MAIN
from stages.stage import Stage
from stages.state.store import DictStore
from windowing.clocks import Times
from windowing.columns import (
    EVENT_TIME,
    PANE_FIRST,
    PANE_INDEX,
    PANE_LAST,
    PANE_NONSPECULATIVE_INDEX,
    PANE_RETRACTED,
    PANE_TIMING,
    WINDOW_END,
    WINDOW_START,
)
from windowing.panes import Accumulation
from windowing.time import MAX_TIME, MIN_TIME, Microseconds
from windowing.windowing import Windowing

_COLUMNS: Final = {
    EVENT_TIME: "timestamp",
    WINDOW_START: "start",
    WINDOW_END: "end",
    PANE_TIMING: "timing",
    PANE_INDEX: "index",
    PANE_NONSPECULATIVE_INDEX: "nonspeculative_index",
    PANE_FIRST: "first",
    PANE_LAST: "last",
    PANE_RETRACTED: "retracted",
}
"""For each system column that is compared, the attribute of a pane that contains it."""

_AGGREGATES: Final[dict[str, Callable[[], Aggregate]]] = {
    "collect": lambda: aggregates.collect("value"),
    "count": aggregates.count,
    "max": lambda: aggregates.max("value"),
    "mean": lambda: aggregates.mean("value"),
    "min": lambda: aggregates.min("value"),
    "sum": lambda: aggregates.sum("value"),
}


@attrs.frozen
class StepOutcome:
    """The outcome of a step: its panes, the grouping's watermarks after it, and the counts of dropped elements."""

    panes: tuple[Pane, ...]
    watermarks: Mapping[str, int]
    dropped: Mapping[str, int]


def play(transcripts: Iterable[Transcript], runner: str = "stage") -> list[Result]:
    """Runs transcripts, and returns their results in order. `runner` is "stage", "local" or "spark".

    On "local" and "spark", all transcripts that the runner supports share one run.
    """
    given = list(transcripts)
    runs = [item for item in given if item.error is None and item.refusal is None]
    together = [item for item in runs if runner not in item.unsupported]
    alone = [item for item in runs if runner in item.unsupported]
    played = dict(zip(map(id, together), PLAYBACK.play(together, runner), strict=True))
    played |= {id(item): PLAYBACK.play([item], runner)[0] for item in alone}
    return [_result(item, runner, played.get(id(item))) for item in given]


def _result(transcript: Transcript, runner: str, played: Outcomes | None) -> Result:
    name, reason = transcript.name, transcript.unsupported.get(runner)
    wrong = refused(transcript) if played is None else compare(transcript, played)
    if reason is not None and wrong is not None:
        return Result(name, "unsupported", reason)
    if reason is not None:
        wrong = f"it is declared unsupported on {runner} ({reason}), but it passes now"
    return Result(name, "ok") if wrong is None else Result(name, "failed", wrong)


def on_stage(transcript: Transcript) -> list[StepOutcome]:
    """Runs a transcript step by step on its stage alone. Refuses what the other runners would refuse."""
    _plan(transcript)
    schema = pl.Schema({"key": pl.String(), "value": _value_type(transcript)})
    aggregates = {"value": _AGGREGATES[transcript.aggregate]()}
    grouping = Grouping(("key",), Windowing(**transcript.choices), aggregates, schema)
    stage = Stage(transcript.name, grouping)
    store, times, outcomes = DictStore(), Times.of(MIN_TIME), []
    for step in transcript.steps:
        times = Times.of(
            times.watermark if step.watermark is None else step.watermark,
            times.processing_time if step.processing_time is None else step.processing_time,
        )
        rows = [(element.key, element.value, element.at) for element in step.elements]
        arrivals = pl.DataFrame(rows, {**schema, EVENT_TIME: pl.Int64()}, orient="row")
        arrivals = arrivals.select(*grouping.columns, EVENT_TIME)
        done = stage.step(store, {MAIN: arrivals}, times)
        panes = _panes(done.panes.rename(_COLUMNS).iter_rows(named=True))
        outcomes.append(StepOutcome(panes, attrs.asdict(done.watermarks), done.dropped))
    return outcomes


def _value_type(transcript: Transcript) -> pl.DataType:
    return pl.Int64() if transcript.whole else pl.Float64()


def _panes(rows: Iterable[Mapping[str, Any]]) -> tuple[Pane, ...]:
    """Converts rows to panes: bounds become `window`, and a list of values becomes `values`, sorted."""
    panes = []
    for row in rows:
        value = row["value"]
        content = {"values": sorted(value)} if isinstance(value, list) else {"value": value}
        rest = {name: row[name] for name in _COLUMNS.values() if name not in ("start", "end")}
        panes.append({"key": row["key"], "window": (row["start"], row["end"]), **content, **rest})
    return tuple(panes)


@attrs.frozen
class DeclaredTranscript:
    """A transcript that was added to a pipeline. Step n is in batch n."""

    transcript: Transcript
    stage: str
    recorder: Recorder

    def outcomes(self, records: Mapping[int, BatchRecord]) -> list[StepOutcome]:
        found = []
        for batch in range(len(self.transcript.steps)):
            stage = records[batch].stages[self.stage]
            watermarks = {"input": stage.input, "output": stage.output}
            found.append(StepOutcome(_panes(self.recorder.rows([batch])), watermarks, stage.dropped))
        return found


def declare(pipeline: Pipeline, transcript: Transcript, stage: str) -> DeclaredTranscript:
    """Adds a transcript to a pipeline: its elements as a source, the grouping named `stage`, and a sink."""
    recorder = Recorder()
    elements = pipeline.read(f"{stage} elements", stream(transcript), timestamp="at", timestamp_unit="us")
    panes = (
        elements.window_into(**transcript.choices)
        .group_by("key", name=stage)
        .aggregate(value=_AGGREGATES[transcript.aggregate]())
    )
    # As numbers, because no datetime can represent the bounds of the global window.
    times = {
        "timestamp": functions.event_time(),
        "start": functions.window_start(),
        "end": functions.window_end(),
    }
    facts = {
        "timing": functions.pane_timing(),
        "index": functions.pane_index(),
        "nonspeculative_index": functions.pane_nonspeculative_index(),
        "first": functions.pane_first(),
        "last": functions.pane_last(),
        # Only a retracting grouping has this column.
        "retracted": functions.pane_retracted() if _retracts(transcript) else functions.lit(False),
    }
    numbers = {name: time.cast(nw.Int64) for name, time in times.items()}
    panes.with_columns(**numbers, **facts).write(f"{stage} panes", recorder)
    return DeclaredTranscript(transcript, stage, recorder)


PLAYBACK: Final = Playback(declare, on_stage)


def _plan(transcript: Transcript) -> None:
    """Runs the checks that a runner makes before it runs the transcript."""
    pipeline = Pipeline("transcript")
    declare(pipeline, transcript, "grouping")
    pipeline.plan()


def _retracts(transcript: Transcript) -> bool:
    return bool(transcript.choices.get("accumulation") == Accumulation.RETRACTING.value)


def stream(transcript: Transcript) -> TestStream:
    """Returns the steps as a test stream. It ends after the last step, if no step ends it."""
    made = TestStream({"key": pl.String(), "value": _value_type(transcript), "at": pl.Int64()})
    for step in transcript.steps:
        made = _with_step(made, step)
    return made.advance_watermark_to_infinity() if transcript.steps and not made.bounded else made


def _with_step(made: TestStream, step: Step) -> TestStream:
    if step.watermark == MAX_TIME:
        return made.advance_watermark_to_infinity()
    if step.watermark is not None:
        return made.advance_watermark_to(Microseconds(step.watermark))
    if step.processing_time is not None:
        return made.advance_processing_time(Microseconds(step.processing_time - made.processing_time))
    return made.add_elements([attrs.asdict(element) for element in step.elements])


def refused(transcript: Transcript) -> str | None:
    """Returns the fault of a transcript that expects an error; None if its pipeline is refused with the expected
    message.
    """
    expected = transcript.error or ""
    message = transcript.refusal
    if message is None:
        try:
            _plan(transcript)
        except (TypeError, ValueError) as error:
            message = str(error)
    if message is None:
        return f"expected to be refused with {expected!r}, but it was not refused"
    if expected not in message:
        return f"expected to be refused with {expected!r}, got {message!r}"
    return None


def compare(transcript: Transcript, played: Outcomes) -> str | None:
    """Describes the first step with a wrong outcome, with expected and actual values; None if all steps are right."""
    if isinstance(played, Exception):
        return f"the run failed: {error_line(played)}"
    for step, outcome in zip(transcript.steps, played, strict=True):
        wrong = [*_wrong_panes(step, outcome, transcript.unit), *_wrong_facts(step, outcome, transcript.unit)]
        if wrong:
            return f"{step.name}: {'; '.join(wrong)}"
    return None


def _wrong_panes(step: Step, outcome: StepOutcome, unit: int) -> list[str]:
    """Describes the missing and the unexpected panes of a step."""
    pairs = matching(step.panes, outcome.panes)
    missing = [pane for number, pane in enumerate(step.panes) if number not in pairs]
    left = [pane for number, pane in enumerate(outcome.panes) if number not in pairs.values()]
    if not missing and not left:
        return []
    named = {name for pane in missing for name in pane}
    brief = {"key", "window", "values", "value", "timing", "index"} if not missing else {"window", *named}
    shown = [{name: item for name, item in pane.items() if name in brief} for pane in left]
    expected = ", ".join(pane_text(pane, unit) for pane in missing) or "no more panes"
    came = ", ".join(pane_text(pane, unit) for pane in shown) or ("no other pane" if pairs else "no pane")
    return [f"expected {expected}, got {came}"]


def matching(expected: Sequence[Pane], actual: Sequence[Pane]) -> dict[int, int]:
    """Returns pairs of indexes of expected and actual panes that match, as many pairs as possible.

    An expected pane matches every actual pane that has its attributes.
    """
    return pairs_of(
        [
            [n for n, pane in enumerate(actual) if all(pane[name] == value for name, value in wanted.items())]
            for wanted in expected
        ]
    )


def _wrong_facts(step: Step, outcome: StepOutcome, unit: int) -> list[str]:
    """Describes the watermarks and counts of dropped elements that differ from those in the step."""
    wrong = [
        f"expected the {name} watermark {time_text(time, unit)}, got {time_text(outcome.watermarks[name], unit)}"
        for name, time in step.watermarks.items()
        if outcome.watermarks[name] != time
    ]
    return wrong + [
        f"expected {count} dropped as {reason}, got {outcome.dropped.get(reason, 0)}"
        for reason, count in step.dropped.items()
        if outcome.dropped.get(reason, 0) != count
    ]
