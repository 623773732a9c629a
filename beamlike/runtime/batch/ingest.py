"""Ingests chunks of a source: reads event times, collects dead letters, summarizes rows for the watermark, applies
steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import cast

import polars as pl

from beamlike.errors import StepError, naming_source
from beamlike.io.base import Announced, AnyFrame, Faulty, FromFile, Pieces, Unreadable
from beamlike.io.given import fitting
from beamlike.plan.model import SourcePlan
from beamlike.plan.route import follow, join
from beamlike.rows.dead_letters import EXPRESSION_ERRORS, error_text
from beamlike.runtime.batch.elements import read_elements
from beamlike.runtime.batch.ingested import AllChunks, Chunk, Ingested, merged
from beamlike.steps.step_runner import StepRunner
from beamlike.system.activity import activity
from beamlike.system.retries import again, may_pass
from stages.progress.arrivals import arrivals
from stages.progress.splits import SourceSummary, announced, known, read_to_end, summarize
from stages.strategies.announced import AnnouncedWatermark, announcement
from windowing.columns import EVENT_TIME


def ingest(source: SourcePlan, chunk: Chunk, now: int) -> Ingested:
    """Turns each row of the chunk into an element or a dead letter, and applies the steps after the watermark.

    `now` is the processing time of the batch (us): the event time of rows if the source assigns event times on arrival,
    and the time from which the limit of event times in the future counts. Raises `StepError` if a dead letter fails the
    run.
    """
    return merged(source, [*_ingest_parts(source, chunk, now)])


def _ingest_parts(source: SourcePlan, chunk: Chunk, now: int) -> Iterator[Ingested]:
    """Yields the results of the parts of a chunk, down to the rows of one file, in order."""
    match chunk:
        case AllChunks():
            for one in chunk.chunks:
                yield from _ingest_parts(source, one, now)
            if not chunk.chunks:
                yield Ingested({}, {})
        case Pieces():
            unread = known(chunk.known)
            if unread or not chunk.pieces:
                yield Ingested({}, unread, arrivals=unread)
            for piece in chunk.pieces:
                yield from _ingest_parts(source, piece, now)
        case Announced():
            yield from _ingest_parts(source, chunk.rows, now)
            if chunk.watermark is not None and isinstance(source.watermark, AnnouncedWatermark):
                yield Ingested({}, announced(announcement(chunk.watermark)))
        case FromFile():
            yield _ingest_rows(source, chunk.rows, now, chunk)
            if chunk.over:
                over = read_to_end(chunk.file)
                yield Ingested({}, over, arrivals=over)
        case _:
            yield _ingest_rows(source, chunk, now, None)


def _ingest_rows(source: SourcePlan, rows: AnyFrame | Faulty, now: int, file: FromFile | None) -> Ingested:
    """Ingests rows. Pieces of them that cannot be read become dead letters."""
    if isinstance(rows, Faulty):
        return _unread(source, rows)
    with activity("source", source.name), naming_source(source.name):
        # Rows that are read lazily can be collected again.
        return again(f"source {source.name!r}", partial(_ingest_pieces, source, rows, now, file))


def _ingest_pieces(source: SourcePlan, rows: AnyFrame, now: int, file: FromFile | None) -> Ingested:
    parts: list[Ingested] = []
    with ExitStack() as damaged:
        if not source.reads_files:  # a reader of files checks the columns itself
            rows = fitting(rows, f"source {source.name!r}", source.raw)
        while True:
            try:
                parts.append(_ingest_readable(source, rows, now, file))
            except Unreadable as error:
                # Each attempt leaves out one more damaged piece, until the rest can be read.
                damaged.enter_context(error.left_out())
                parts.append(_unread(source, error.faulty))
            else:
                return merged(source, parts)


def _ingest_readable(source: SourcePlan, rows: AnyFrame, now: int, file: FromFile | None) -> Ingested:
    """Ingests rows in one query. If polars fails, collects the rows and applies the steps one by one."""
    try:
        return _attempt(source, rows, now, StepRunner(source.on_error), file)
    except pl.exceptions.PolarsError as error:
        if may_pass(error):
            raise
        # Reader or expression? Collecting the rows without any step decides which has failed.
    try:
        read = rows.lazy().collect()
    except pl.exceptions.PolarsError as error:
        if may_pass(error):
            raise
        why = f"a piece of the input cannot be read and is lost: {error_text(error)}"
        return _unread(source, Faulty(pl.DataFrame({"error": [why], "row": ["{}"]})))
    return _attempt(source, read, now, StepRunner(source.on_error, row_by_row=True), file)


def _attempt(
    source: SourcePlan, chunk: AnyFrame, now: int, before: StepRunner, file: FromFile | None
) -> Ingested:
    """Ingests rows. `before` applies the steps before the watermark, and collects their dead letters."""
    rows, read = read_elements(source, chunk, now, before)
    after = StepRunner(source.on_error, before.row_by_row)
    parts = [follow(rows, source.routes, after)]
    parts += [
        follow(letters, source.routes, after, output="dead_letters") for letters in before.set_aside_rows
    ]
    newest = {}
    if file is not None and source.timed and len(rows):
        newest[file.files] = (len(rows), cast(int, rows[EVENT_TIME].max()))
    name = file.file if file else ""
    summary = _summary(source, rows, name)
    return Ingested(
        join(parts),
        summary,
        read=read,
        elements=len(rows),
        lost=before.dead_letters.of_source(source.name),
        dead_letters=after.dead_letters,
        newest=newest,
        arrivals=arrivals(source.watermark, rows, name, summary) if source.timed else {},
    )


def _unread(source: SourcePlan, faulty: Faulty) -> Ingested:
    """Returns the dead letters of a reader as the result of a chunk without rows."""
    before, after = StepRunner(source.on_error), StepRunner(source.on_error)
    letters = faulty.dead_letters.select(pl.lit(source.name).alias("step"), "error", "row")
    before.set_aside(letters)
    frames = follow(letters, source.routes, after, output="dead_letters")
    return Ingested(frames, {}, read=len(letters), lost=before.dead_letters, dead_letters=after.dead_letters)


def _summary(source: SourcePlan, rows: pl.DataFrame, file: str) -> SourceSummary:
    try:
        return summarize(source.watermark, rows, file, observed=bool(source.observers))
    except EXPRESSION_ERRORS as error:
        kind = type(source.watermark).__name__
        raise StepError(source.name, f"its watermark, {kind}, fails: {error_text(error)}") from error
    except Exception as error:
        error.add_note(f"in the watermark, {type(source.watermark).__name__}, of source {source.name!r}")
        raise
