"""Plays a pipeline with test streams instead of its sources, up to the last step of the streams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs
import polars as pl

from beamlike.errors import PlanError, UnknownName, WrongType, listed, nearest
from beamlike.io.base import output_frame
from beamlike.io.test_stream.stream import TestStream
from beamlike.plan.model import Plan, Planned, plan_of
from beamlike.plan.stepped import steps_of
from beamlike.replaying.playing import Player
from beamlike.runtime.loop.batch_input import step_input
from beamlike.runtime.recorded.batches import RecordedBatch
from beamlike.runtime.run.side_tables import with_tables_read
from stages.state.store import DictStore

_RUN: Final[Mapping[str, Any]] = {"run": "streams", "draining": False, "drained": False}


def run_with(pipeline: Plan | Planned, streams: Mapping[str, TestStream]) -> dict[str, pl.DataFrame]:
    """Plays a pipeline in process with test streams in place of its sources, and returns the rows for each sink.

    Nothing is written to the sinks of the pipeline. The watermarks are those of the streams if they announce any, and
    otherwise those of the strategies of the pipeline. The input does not end after the last step, so windows that are
    open then emit nothing more.

    Args:
        pipeline: The pipeline, or its plan.
        streams: A stream for each source, by the name of the source.

    Returns:
        The rows of all batches by sink.

    Raises:
        UnknownName: `streams` names no source.
        PlanError: A source has no stream, or its stream has other columns.

    Example, with the `plays` of `bl.Collection`:
        >>> counts = plays.window_into(bl.FixedWindows("1m")).aggregate(n=bl.count())
        >>> counts.write("out", bl.Memory())
        <Collection 'plays.aggregate_2': n Int64>
        >>> stream = bl.TestStream({"user": str, "points": int, "at": str})
        >>> stream = stream.add_elements([{"user": "ada", "points": 3, "at": "2026-01-31T12:00:10Z"}])
        >>> stream = stream.advance_watermark_to("2026-01-31T12:01Z")
        >>> bl.testing.run_with(p, {"plays": stream})["out"]["n"].to_list()
        [1]
    """
    plan = with_tables_read(_with(plan_of(pipeline, "run_with"), streams), 0)
    steps = steps_of(plan) or 0
    player = Player.of(
        plan,
        _RUN,
        DictStore(),
        None,
        inputs=lambda batch: step_input(plan, batch.number, steps, lambda: batch.now),
    )
    found: dict[str, list[pl.DataFrame]] = {
        name: [output_frame(pl.DataFrame(schema=sink.schema))] for name, sink in plan.sinks.items()
    }
    for number in range(steps):
        player.play(RecordedBatch(number=number, now=0, taken={}))
        for name, frames in found.items():
            if (rows := player.written(name, number)) is not None:
                frames.append(rows)
    return {name: pl.concat(frames) for name, frames in found.items()}


def _with(plan: Plan, streams: Mapping[str, TestStream]) -> Plan:
    for name, stream in streams.items():
        if not isinstance(stream, TestStream):
            raise WrongType(f"run_with: streams[{name!r}] must be a bl.TestStream, not {stream!r}")
        if name not in plan.sources:
            known = f"the sources are {listed(plan.sources)}{nearest(name, plan.sources)}"
            raise UnknownName(f"run_with: streams={{...}} names {name!r}; {known}")
    sources = dict(plan.sources)
    for name, source in plan.sources.items():
        if name not in streams:
            raise PlanError("run_with: streams={...} has no stream for this source", step=name)
        stream = streams[name]
        if pl.Schema(stream.schema()) != source.raw:
            raise PlanError(
                f"run_with: the stream has the columns {dict(stream.schema())}, and the source {dict(source.raw)}",
                step=name,
            )
        watermark = stream.watermark if stream.announces else source.watermark
        # A test stream sets its own processing time, which may be unrelated to its event times.
        sources[name] = attrs.evolve(source, source=stream, watermark=watermark, max_future=None)
    return attrs.evolve(plan, sources=sources)
