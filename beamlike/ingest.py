"""What a source gives on its way into the pipeline: event time, dead letters, summary, stateless steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs
import polars as pl

from beamlike.event_time import count_dead_letters, read_event_time, split_dead_letters
from beamlike.plan import Plan, SourcePlan
from beamlike.routes import apply_routes
from beamlike.testing.stream import TestStream
from stages.sources import Summary
from windowing.columns import EVENT_TIME

DEAD_LETTERS: Final = "@dead-letters"
"""Where dead letters go that no collection of the user's takes."""


@attrs.frozen
class Ingested:
    """What became of a chunk: rows for each consumer, the summary for the watermark, and how many rows there were.

    `dead_letters` of them had no event time that could be read; these are among the rows for consumers.
    """

    frames: Mapping[str, pl.DataFrame]
    summary: Summary
    elements: int = 0
    dead_letters: int = 0


def ingest(source: SourcePlan, chunk: pl.LazyFrame) -> Ingested:
    """Every row of the chunk is either an element, seen by the watermark strategy, or a dead letter."""
    timed = read_event_time(chunk, source.timestamp, source.unit)
    good, dead = split_dead_letters(timed, source.name, source.timestamp, source.unit)
    rows, unread = pl.collect_all([good.select(source.needed), count_dead_letters(timed)])
    summary = source.watermark.observe(rows.select(EVENT_TIME))
    frames = apply_routes(rows, source.routes)
    lost = int(unread.item())
    if lost:
        # Only these need every column of the source.
        letters = dead.collect()
        frames |= apply_routes(letters, source.routes, output="dead_letters") or {DEAD_LETTERS: letters}
    return Ingested(frames, summary, len(rows), lost)


def ingest_step(source: SourcePlan, number: int) -> tuple[Ingested, int]:
    """A step of a test stream, and the processing time (us) of that stream after it."""
    assert isinstance(source.source, TestStream)
    step = source.source.step(number)
    if step.elements.is_empty():
        return Ingested({}, step.summary), step.processing_time
    return attrs.evolve(ingest(source, step.elements.lazy()), summary=step.summary), step.processing_time


def steps_of(plan: Plan) -> int | None:
    """How many steps the longest test stream of the plan has; None if its sources are others."""
    streams = [source.source for source in plan.sources.values() if isinstance(source.source, TestStream)]
    return max(len(stream.steps) for stream in streams) if streams else None
