"""Plays transcripts: on the stage itself, on the local runner, on Spark; all that is compared comes from a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final, Literal

import attrs
import narwhals as nw
import polars as pl

from beamlike.api.pipeline import Pipeline, Runner
from beamlike.expressions import aggregates, functions
from beamlike.io.base import Part
from beamlike.io.test_stream.stream import TestStream
from beamlike.local.runner import LocalRunner
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
"""System column -> the attribute of a pane that it is."""

_AGGREGATES: Final[dict[str, Callable[[], Aggregate]]] = {
    "collect": lambda: aggregates.collect("value"),
    "count": aggregates.count,
    "max": lambda: aggregates.max("value"),
    "mean": lambda: aggregates.mean("value"),
    "min": lambda: aggregates.min("value"),
    "sum": lambda: aggregates.sum("value"),
}


@attrs.frozen
class Outcome:
    """What a step gave: its panes, the grouping's watermarks after it, the elements that it dropped."""

    panes: tuple[Pane, ...]
    watermarks: Mapping[str, int]
    dropped: Mapping[str, int]


@attrs.frozen
class Result:
    """How a transcript went on a runner; `message` says what was expected and what came, or why it cannot be."""

    name: str
    status: Literal["ok", "failed", "unsupported"]
    message: str = ""

    def __str__(self) -> str:
        """A line."""
        return f"{self.status} {self.name}" + (f": {self.message}" if self.message else "")


Played = Sequence[Outcome] | Exception
"""The outcome of each step, or what a run of the transcript raised."""


def play(transcripts: Iterable[Transcript], runner: str = "stage") -> list[Result]:
    """The results, in order. `runner` is "stage", "local" or "spark"; all that can be run share one run there."""
    given = list(transcripts)
    runs = [item for item in given if item.error is None and item.refusal is None]
    together = [item for item in runs if runner not in item.unsupported]
    alone = [item for item in runs if runner in item.unsupported]
    played = dict(zip(map(id, together), _played(together, runner), strict=True))
    played |= {id(item): _played([item], runner)[0] for item in alone}
    return [_result(item, runner, played.get(id(item))) for item in given]


def _result(transcript: Transcript, runner: str, played: Played | None) -> Result:
    name, reason = transcript.name, transcript.unsupported.get(runner)
    wrong = refused(transcript) if played is None else compare(transcript, played)
    if reason is not None and wrong is not None:
        return Result(name, "unsupported", reason)
    if reason is not None:
        wrong = f"it is declared unsupported on {runner} ({reason}), but it passes now"
    return Result(name, "ok") if wrong is None else Result(name, "failed", wrong)


def _played(transcripts: Sequence[Transcript], runner: str) -> list[Played]:
    """What each gave. Where a run of several fails, its halves are run, until it is clear which it was."""
    if runner == "stage":
        return [_caught(partial(on_stage, item)) for item in transcripts]
    if not transcripts:
        return []
    together = _caught(lambda: in_pipeline(transcripts, _runner(runner)))
    if not isinstance(together, Exception):
        return list(together)
    if len(transcripts) == 1:
        return [together]
    middle = len(transcripts) // 2
    return _played(transcripts[:middle], runner) + _played(transcripts[middle:], runner)


def _caught(run: Callable[[], Any]) -> Any:
    try:
        return run()
    except Exception as error:  # Whatever it is, the other transcripts are played.
        return error


def _runner(name: str) -> Runner:
    if name == "local":
        return LocalRunner()
    from beamlike.spark.runner import SparkRunner  # who plays transcripts in process needs no Spark

    return SparkRunner(shards=1)


def on_stage(transcript: Transcript) -> list[Outcome]:
    """Step by step on the stage, with state in this process. What the others refuse is refused here, too."""
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
        panes = _panes(done.panes.rename(_COLUMNS))
        outcomes.append(Outcome(panes, attrs.asdict(done.watermarks), done.dropped))
    return outcomes


def _value_type(transcript: Transcript) -> pl.DataType:
    return pl.Int64() if transcript.whole else pl.Float64()


def _panes(frame: pl.DataFrame) -> tuple[Pane, ...]:
    """Rows as panes: bounds as `window`, a list of values as `values`, in order."""
    panes = []
    for row in frame.iter_rows(named=True):
        value = row["value"]
        content = {"values": sorted(value)} if isinstance(value, list) else {"value": value}
        rest = {name: row[name] for name in _COLUMNS.values() if name not in ("start", "end")}
        panes.append({"key": row["key"], "window": (row["start"], row["end"]), **content, **rest})
    return tuple(panes)


@attrs.define
class _Recorder:
    """A sink that keeps the panes of each batch."""

    frames: dict[int, list[pl.DataFrame]] = attrs.field(factory=dict)

    distributed: ClassVar[bool] = False

    def start(self, run: str) -> None:
        """A run begins with nothing."""
        self.frames.clear()

    def write(self, frame: pl.DataFrame, part: Part) -> None:
        """Keeps a part."""
        self.frames.setdefault(part.batch, []).append(frame)

    def panes(self, batch: int) -> tuple[Pane, ...]:
        """Those of a batch."""
        return tuple(pane for frame in self.frames.get(batch, []) for pane in _panes(frame))


def in_pipeline(transcripts: Sequence[Transcript], runner: Runner) -> list[list[Outcome]]:
    """All in one run: each transcript is a source, a grouping and a sink of its own; batch i is step i of all."""
    pipeline = Pipeline("transcripts")
    recorders = [declare(pipeline, item, str(number)) for number, item in enumerate(transcripts)]
    run = pipeline.run(runner)
    batches = {record.batch: record.stages for record in run.batches}
    outcomes = []
    for number, transcript in enumerate(transcripts):
        stages = [batches[batch][str(number)] for batch in range(len(transcript.steps))]
        outcomes.append(
            [
                Outcome(
                    recorders[number].panes(batch),
                    {"input": stage.input, "output": stage.output},
                    stage.dropped,
                )
                for batch, stage in enumerate(stages)
            ]
        )
    return outcomes


def declare(pipeline: Pipeline, transcript: Transcript, stage: str) -> _Recorder:
    """The transcript's part of a pipeline: its elements, the grouping `stage`, and the sink that it gives."""
    recorder = _Recorder()
    elements = pipeline.read(f"{stage} elements", stream(transcript), timestamp="at", timestamp_unit="us")
    panes = (
        elements.window_into(**transcript.choices)
        .group_by("key", name=stage)
        .aggregate(value=_AGGREGATES[transcript.aggregate]())
    )
    # Numbers, as a datetime cannot show the bounds of the global window.
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
        # Only of a grouping that takes panes back can it be asked.
        "retracted": functions.pane_retracted() if _retracts(transcript) else functions.lit(False),
    }
    numbers = {name: time.cast(nw.Int64) for name, time in times.items()}
    panes.with_columns(**numbers, **facts).write(f"{stage} panes", recorder)
    return recorder


def _plan(transcript: Transcript) -> None:
    """The checks that a runner makes before it runs the transcript."""
    pipeline = Pipeline("transcript")
    declare(pipeline, transcript, "grouping")
    pipeline.plan()


def _retracts(transcript: Transcript) -> bool:
    return bool(transcript.choices.get("accumulation") == Accumulation.RETRACTING.value)


def stream(transcript: Transcript) -> TestStream:
    """The steps as a source. It has an end, be it after the last step, where nothing is compared any more."""
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
    """What is wrong with a transcript of an error: nothing, if its pipeline is refused with that message."""
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
        return f"expected to be refused with {expected!r}, came {message!r}"
    return None


def compare(transcript: Transcript, played: Played) -> str | None:
    """The first step that gave something else than it should: its name, what was expected, what came."""
    if isinstance(played, Exception):
        return f"the run failed: {type(played).__name__}: {' '.join(str(played).split())}"
    for step, outcome in zip(transcript.steps, played, strict=True):
        wrong = [*_wrong_panes(step, outcome, transcript.unit), *_wrong_facts(step, outcome, transcript.unit)]
        if wrong:
            return f"{step.name}: {'; '.join(wrong)}"
    return None


def _wrong_panes(step: Step, outcome: Outcome, unit: int) -> list[str]:
    """Expected panes that did not come, beside those that came and were not expected."""
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
    return [f"expected {expected}, came {came}"]


def matching(expected: Sequence[Pane], came: Sequence[Pane]) -> dict[int, int]:
    """Which expected pane is which that came, for as many as possible: augmenting paths, one for each.

    An expected pane fits one that has the attributes which it names, so it may fit several.
    """
    owner: dict[int, int] = {}

    def place(number: int, tried: set[int]) -> bool:
        for other, pane in enumerate(came):
            if other in tried or any(pane[name] != value for name, value in expected[number].items()):
                continue
            tried.add(other)
            if other not in owner or place(owner[other], tried):
                owner[other] = number
                return True
        return False

    for number in range(len(expected)):
        place(number, set())
    return {number: other for other, number in owner.items()}


def _wrong_facts(step: Step, outcome: Outcome, unit: int) -> list[str]:
    """Watermarks and counts of dropped elements, those that the step names."""
    wrong = [
        f"expected the {name} watermark {time_text(time, unit)}, came {time_text(outcome.watermarks[name], unit)}"
        for name, time in step.watermarks.items()
        if outcome.watermarks[name] != time
    ]
    return wrong + [
        f"expected {count} dropped as {reason}, came {outcome.dropped.get(reason, 0)}"
        for reason, count in step.dropped.items()
        if outcome.dropped.get(reason, 0) != count
    ]
