"""A chunk of a source on its way into the pipeline: event time, dead letters, summary, stateless steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs
import polars as pl

from beamlike.event_time import count_dead_letters, read_event_time, split_dead_letters
from beamlike.plan import SourcePlan
from beamlike.routes import apply_routes
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
    elements: int
    dead_letters: int


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
