"""Cases of keyed state and timers: a script, rows, and clocks that move."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import accumulate, pairwise
from typing import Any

import attrs
import polars as pl

import beamlike as bl
from beamlike.io.sources import SourceStep
from beamlike.testing.player import Recorder
from stages.operator import MAIN
from stages.stage import Stage
from stages.state.store import DictStore
from stages.strategies.announced import announcement
from tests.cases.as_process import scripted
from tests.cases.case import Case, Outcome, us
from tests.cases.declared import DeclaredCase, Rows, recorded
from tests.cases.scripts import script_of
from tests.support.process_script import Script, Windows
from windowing.clocks import Times
from windowing.columns import EVENT_TIME
from windowing.time import MIN_TIME

SCHEMA = pl.Schema({"key": pl.String(), "v": pl.String(), "do": pl.String(), "at": pl.Int64()})


def declare(pipeline: bl.Pipeline, case: Case, name: str) -> DeclaredCase:
    """Adds the case to a pipeline, in which its stage has this name."""
    recorders = attach(pipeline, script_of(case), stream(case), name, ends=case.ends)
    ends = list(accumulate((len(moves(step)) for step in case.steps), initial=0))
    batches = [range(start, end) for start, end in pairwise(ends)]
    return DeclaredCase(
        name, batches, recorders, lambda rows, record: _outcome(rows, record.output, record.live)
    )


def attach(
    pipeline: bl.Pipeline, script: Script, source: bl.TestStream, name: str, *, ends: bool
) -> dict[str, Recorder]:
    """Declares a source, the process of a script, and sinks for its output, late rows and dead letters."""
    rows = pipeline.read(f"{name} rows", source, timestamp="at", timestamp_unit="us")
    rows = rows.window_into(window_fn(script.windows), allowed_lateness=timedelta(seconds=script.lateness))
    out = rows.group_by("key", name=name).process(
        scripted(script, ends), schema={"value": str}, order=script.order, keep_forever=True
    )
    return recorded(out, name, out)


def window_fn(windows: Windows) -> bl.WindowFn:
    """Returns windows with lengths in seconds."""
    if windows.size is None:
        return bl.GlobalWindows()
    size = timedelta(seconds=windows.size)
    if windows.period is None:
        return bl.FixedWindows(size)
    return bl.SlidingWindows(size, timedelta(seconds=windows.period))


def _outcome(rows: Rows, output: int, live: int) -> Outcome:
    return Outcome(
        [(row["value"], row["at"]) for row in rows["out"]],
        [json.loads(row["v"]) for row in rows["late"]],
        [row["error"] for row in rows["letters"]],
        output,
        live,
    )


# A step of a case is one bundle: its rows meet the clocks of the step before, and then the clocks move.


@attrs.frozen
class Move:
    """A batch: rows, or clocks that advance to these times (us)."""

    rows: tuple[Mapping[str, Any], ...] = ()
    watermark: int | None = None
    processing_time: int | None = None

    def clock(self, before: Times) -> Times:
        """Returns the clocks after the batch."""
        return Times.of(
            before.watermark if self.watermark is None else self.watermark,
            before.processing_time if self.processing_time is None else self.processing_time,
        )


def moves(step: Mapping[str, Any]) -> list[Move]:
    """Returns the batches of a step."""
    rows = tuple(row_of(item) for item in step.get("elements", ()))
    clocks = clocks_of(step)
    return ([Move(rows)] if rows or not clocks else []) + clocks


def clocks_of(step: Mapping[str, Any]) -> list[Move]:
    """Returns the batch in which clocks move, if any does."""
    clocks = {name: us(step[name]) for name in ("watermark", "processing_time") if name in step}
    return [Move(**clocks)] if clocks else []


def row_of(item: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a row of a case as the source emits it."""
    value = json.dumps(item.get("v"))
    return {"key": str(item.get("key", "k")), "v": value, "do": item.get("do"), "at": us(item["at"])}


def stream(case: Case) -> bl.TestStream:
    """Returns the steps as a source."""
    return stream_of((move for step in case.steps for move in moves(step)), SCHEMA)


def stream_of(moves: Iterable[Move], schema: pl.Schema) -> bl.TestStream:
    """Returns a source of these batches, which ends at the latest after the last one."""
    made = bl.TestStream(schema)
    for move in moves:
        made = attrs.evolve(made, steps=(*made.steps, _source_step(move, made.processing_time, schema)))
    return made if made.bounded else made.advance_watermark_to_infinity()


def _source_step(move: Move, before: int, schema: pl.Schema) -> SourceStep:
    """Returns a step that may move both clocks; a test stream moves only one in a step."""
    summary = {} if move.watermark is None else announcement(move.watermark)
    now = before if move.processing_time is None else move.processing_time
    return SourceStep(pl.DataFrame(move.rows, schema, orient="row"), summary, now)


def stage_of(script: Script, *, ends: bool = True) -> Stage:
    """Returns the stage that plays a script."""
    pipeline = bl.Pipeline("script")
    attach(pipeline, script, bl.TestStream(SCHEMA), "process", ends=ends)
    return pipeline.plan().stages["process"].stage


@attrs.frozen
class StageRun:
    """A stage with state in this process."""

    stage: Stage
    store: DictStore = attrs.field(factory=DictStore)

    def step(self, rows: Iterable[Mapping[str, Any]], clock: Times) -> Outcome:
        """Runs a step, and returns its outcome."""
        given = pl.DataFrame(list(rows), SCHEMA, orient="row")
        done = self.stage.step(self.store, {MAIN: given.with_columns(pl.col("at").alias(EVENT_TIME))}, clock)
        errors = [{"error": _told(error)} for refused in done.refused for error in refused.errors]
        out = done.panes.rename({EVENT_TIME: "at"}).to_dicts()
        gave = {"out": out, "late": done.late.to_dicts(), "letters": errors}
        return _outcome(gave, done.watermarks.output, done.live)


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def on_stage(case: Case) -> list[Outcome]:
    """Plays a case step by step on the stage."""
    run, clock, outcomes = StageRun(stage_of(script_of(case), ends=case.ends)), Times.of(MIN_TIME), []
    for step in case.steps:
        given = []
        for move in moves(step):
            clock = move.clock(clock)
            given.append(run.step(move.rows, clock))
        outcomes.append(_together(given))
    return outcomes


def _together(given: Sequence[Outcome]) -> Outcome:
    """Merges the outcomes of several batches; watermarks and counts are those of the last batch."""
    out, late, letters = (
        [one for outcome in given for one in getattr(outcome, what)] for what in ("out", "late", "letters")
    )
    return attrs.evolve(given[-1], out=out, late=late, letters=letters)
