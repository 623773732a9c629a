"""What a source gives on its way into the pipeline: event time, dead letters, summary, stateless steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs
import polars as pl

from beamlike.event_time import count_dead_letters, read_event_time, split_dead_letters
from beamlike.plan import Plan, SourcePlan
from beamlike.routes import apply_routes, join
from beamlike.testing.stream import TestStream
from stages.announced import AnnouncedWatermark
from stages.splits import SourceSummary, announced, summarize
from windowing.columns import EVENT_TIME

DEAD_LETTERS: Final = "@dead-letters"
"""Where dead letters go that no collection of the user's takes."""


@attrs.frozen
class Ingested:
    """What became of a chunk: rows for each consumer, the summary for the watermark, and how many rows there were.

    `dead_letters` of them had no event time that could be read; these are among the rows for consumers.
    """

    frames: Mapping[str, pl.DataFrame]
    summary: SourceSummary
    elements: int = 0
    dead_letters: int = 0


def ingest(source: SourcePlan, chunk: pl.LazyFrame, now: int) -> Ingested:
    """Every row of the chunk, after the prelude, is an element or a dead letter; the strategy sees the elements.

    `now` is the processing time of the batch (us), which is the event time where that is assigned here.
    """
    for step in source.prelude:
        chunk = step.apply(chunk)
    rows, letters = _timed(source, chunk, now)
    parts = [apply_routes(rows, source.routes)]
    if len(letters):
        parts.append(apply_routes(letters, source.routes, output="dead_letters") or {DEAD_LETTERS: letters})
    return Ingested(join(parts), summarize(source.watermark, rows), len(rows), len(letters))


def _timed(source: SourcePlan, chunk: pl.LazyFrame, now: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Rows with their event time, of the columns that are needed, and dead letters."""
    if source.time is None:
        if source.watermark.assigns_event_time:
            chunk = chunk.with_columns(pl.lit(now, pl.Int64).alias(EVENT_TIME))
        return chunk.select(source.needed).collect(), pl.DataFrame()
    timed = read_event_time(chunk, source.time.column, source.time.unit)
    if any(step.python for step in source.interlude):
        # Such a step collects its input: without this, the rows before it would be computed once more.
        timed = timed.collect().lazy()
    good, dead = split_dead_letters(timed, source.name, source.time.column, source.time.unit)
    for step in source.interlude:
        good = step.apply(good)
    rows, unread = pl.collect_all([good.select(source.needed), count_dead_letters(timed)])
    # Only dead letters need every column of the source.
    return rows, dead.collect() if unread.item() else pl.DataFrame()


def ingest_step(source: SourcePlan, number: int) -> tuple[Ingested, int]:
    """A step of a test stream, and the processing time (us) of that stream after it."""
    assert isinstance(source.source, TestStream)
    step = source.source.step(number)
    if step.elements.height:
        return ingest(source, step.elements.lazy(), step.processing_time), step.processing_time
    told = isinstance(source.watermark, AnnouncedWatermark) and step.summary
    return Ingested({}, announced(step.summary) if told else {}), step.processing_time


def steps_of(plan: Plan) -> int | None:
    """How many steps the longest test stream of the plan has; None if its sources are others."""
    streams = [source.source for source in plan.sources.values() if isinstance(source.source, TestStream)]
    return max(len(stream.steps) for stream in streams) if streams else None
