"""What a source gives on its way into the pipeline: event time, dead letters, summary, stateless steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial, reduce
from itertools import chain, islice
from typing import TypeAlias, cast

import attrs
import polars as pl

from beamlike.errors import MissingFiles, PlanError, StepError, naming_source
from beamlike.io.base import Announced, Faulty, FromFile, Pieces, Unreadable
from beamlike.io.given import fitting
from beamlike.io.in_process import InProcess, chunks_of
from beamlike.io.sources import ReadInFiles, ReadInSteps
from beamlike.plan.model import Plan, SourcePlan
from beamlike.plan.route import follow, join
from beamlike.rows.dead_letters import EXPRESSION_ERRORS, DeadLetterCounts, dead_letters, error_text
from beamlike.rows.event_time import Future, count_rows, read_event_time, split_dead_letters
from beamlike.steps.base import Step
from beamlike.steps.step_runner import StepRunner
from beamlike.steps.timestamps import WithTimestamps
from beamlike.system.in_hand import at
from stages.progress.splits import SourceSummary, announced, known, merge, read_to_end, summarize
from stages.strategies.announced import AnnouncedWatermark, announcement
from stages.strategies.validators import SourceFile
from windowing.columns import EVENT_TIME


@attrs.frozen(eq=False)
class Whole:
    """All chunks of a source, as one."""

    chunks: Sequence[Chunk]


Chunk: TypeAlias = pl.LazyFrame | Faulty | FromFile | Pieces | Whole | Announced
"""What a source yields: rows, or what its reader could not make rows of; perhaps with the files that it is from."""

Newest: TypeAlias = Mapping[str, tuple[int, int]]
"""By file: how many elements it has, and the newest event time (us) among them."""


@attrs.frozen
class Ingested:
    """What became of a chunk: rows by address, the summary for the watermark, and how many rows there were.

    Of the rows `read`, `elements` are those that the watermark saw, and `lost` the dead letters that never became
    elements, as the reader, the event time or a step before the watermark could not use them. `letters` are those
    of the steps after it. All of them are among the rows for consumers.
    """

    frames: Mapping[str, pl.DataFrame]
    summary: SourceSummary
    read: int = 0
    elements: int = 0
    lost: DeadLetterCounts = attrs.field(factory=DeadLetterCounts)
    letters: DeadLetterCounts = attrs.field(factory=DeadLetterCounts)
    newest: Newest = attrs.field(factory=dict)

    @property
    def dead_letters(self) -> int:
        """How many rows never became elements."""
        return self.lost.total

    def told_with(self, other: Ingested, source: SourcePlan) -> Ingested:
        """What is to be told of both, the other one later; without the rows."""
        return Ingested(
            {},
            merge(source.watermark, self.summary, other.summary),
            self.read + other.read,
            self.elements + other.elements,
            self.lost.plus(other.lost),
            self.letters.plus(other.letters),
            newest_of([self.newest, other.newest]),
        )


def newest_of(parts: Iterable[Newest]) -> Newest:
    """Of all: a file may have come in parts."""
    found: dict[str, tuple[int, int]] = {}
    for part in parts:
        for file, (elements, newest) in part.items():
            count, latest = found.get(file, (0, newest))
            found[file] = (count + elements, max(latest, newest))
    return found


def ingest(source: SourcePlan, chunk: Chunk, now: int) -> Ingested:
    """Every row of the chunk, after the prelude, is an element or a dead letter; the strategy sees the elements.

    `now` is the processing time of the batch (us), which is the event time where that is assigned here, and by
    which it is too far in the future. Raises `StepError` where a dead letter fails the run.
    """
    if isinstance(chunk, Pieces | Whole):
        begun = Ingested({}, known(chunk.known) if isinstance(chunk, Pieces) else {})
        pieces: Sequence[Chunk] = chunk.pieces if isinstance(chunk, Pieces) else chunk.chunks
        return reduce(partial(_together, source), [ingest(source, piece, now) for piece in pieces], begun)
    if isinstance(chunk, Announced):
        return _announced(source, ingest(source, chunk.rows, now), chunk.watermark)
    if not isinstance(chunk, FromFile):
        return _ingest(source, chunk, now, None)
    got = _ingest(source, chunk.rows, now, chunk)
    if not chunk.over:
        return got
    return attrs.evolve(got, summary=merge(source.watermark, got.summary, read_to_end(chunk.file)))


def _announced(source: SourcePlan, got: Ingested, watermark: int | None) -> Ingested:
    """With what the source says of its watermark, where that is asked for."""
    if watermark is None or not isinstance(source.watermark, AnnouncedWatermark):
        return got
    told = announced(announcement(watermark))
    return attrs.evolve(got, summary=merge(source.watermark, got.summary, told))


def _ingest(source: SourcePlan, rows: pl.LazyFrame | Faulty, now: int, files: FromFile | None) -> Ingested:
    if isinstance(rows, Faulty):
        return _unread(source, rows)
    with at("source", source.name), naming_source(source.name):
        if not isinstance(source.source, ReadInFiles):  # whose columns its reader sees to
            rows = fitting(rows, f"source {source.name!r}", source.raw)
        return _ingest_whole(source, rows, now, files)


def _ingest_whole(source: SourcePlan, rows: pl.LazyFrame, now: int, files: FromFile | None) -> Ingested:
    lost = Ingested({}, {})
    with ExitStack() as damaged:
        while True:
            try:
                got = _ingest_rows(source, rows, now, files)
            except Unreadable as error:
                # The rest of the chunk is whole, or the next attempt tells.
                damaged.enter_context(error.left_out())
                lost = _together(source, lost, _unread(source, error.faulty))
            else:
                return _together(source, lost, got) if lost.read else got


def _together(source: SourcePlan, one: Ingested, other: Ingested) -> Ingested:
    return attrs.evolve(one.told_with(other, source), frames=join([one.frames, other.frames]))


def _ingest_rows(source: SourcePlan, chunk: pl.LazyFrame, now: int, files: FromFile | None) -> Ingested:
    """All at once; where polars fails, once more and step by step."""
    try:
        return _attempt(source, chunk, now, StepRunner(source.on_error), files)
    except pl.exceptions.PolarsError:
        pass  # Of the reader, or of an expression? By itself the chunk tells.
    try:
        rows = chunk.collect()
    except pl.exceptions.PolarsError as error:
        why = f"a piece of the input cannot be read and is lost: {error_text(error)}"
        return _unread(source, Faulty(pl.DataFrame({"error": [why], "row": ["{}"]})))
    return _attempt(source, rows.lazy(), now, StepRunner(source.on_error, row_by_row=True), files)


def _attempt(
    source: SourcePlan, chunk: pl.LazyFrame, now: int, before: StepRunner, files: FromFile | None
) -> Ingested:
    """`before` takes the dead letters of what comes before the watermark."""
    rows, read = _timed(source, chunk, now, before)
    after = StepRunner(source.on_error, before.row_by_row)
    parts = [follow(rows, source.routes, after)]
    parts += [
        follow(letters, source.routes, after, output="dead_letters") for letters in before.set_aside_rows
    ]
    summary = _summary(source, rows, files.file if files else "")
    newest = {}
    if files is not None and source.timed and len(rows):
        newest[files.files] = (len(rows), cast(int, rows[EVENT_TIME].max()))
    lost = before.dead_letters.of_source(source.name)
    return Ingested(join(parts), summary, read, len(rows), lost, after.dead_letters, newest)


def _unread(source: SourcePlan, faulty: Faulty) -> Ingested:
    """Dead letters of the reader."""
    before, after = StepRunner(source.on_error), StepRunner(source.on_error)
    letters = faulty.dead_letters.select(pl.lit(source.name).alias("step"), "error", "row")
    before.set_aside(letters)
    frames = follow(letters, source.routes, after, output="dead_letters")
    return Ingested(frames, {}, len(letters), 0, before.dead_letters, after.dead_letters)


def _timed(source: SourcePlan, chunk: pl.LazyFrame, now: int, runner: StepRunner) -> tuple[pl.DataFrame, int]:
    """Rows with their event time, of the columns that are needed, and how many rows were read."""
    # Before the steps: they may leave rows out.
    read = chunk.select(pl.len()).collect().item() if source.prelude else None
    chunk = _through(source.prelude, chunk, runner)
    if read:
        runner.mark_reached(source.prelude)
    # A dead letter shows the whole row.
    columns = (*source.system, *source.schema) if runner.row_by_row else source.needed
    if source.time is None:
        if source.watermark.assigns_event_time:
            chunk = chunk.with_columns(pl.lit(now, pl.Int64).alias(EVENT_TIME))
        rows = chunk.select(columns).collect()
        read = len(rows) if read is None else read
        _note_used(source, runner, rows, len(rows), read > 0)
        return rows, read
    future = None if source.max_future is None else Future(now, source.max_future)
    timed = read_event_time(chunk, source.time.column, source.time.unit, future)
    if any(step.python for step in source.interlude):
        # Such a step collects its input: without this, the rows before it would be computed once more.
        timed = timed.collect().lazy()
    split = partial(split_dead_letters, timed, source.name, source.time.column, source.time.unit, future)
    if source.interlude:
        rest = _through(source.interlude, split()[0], runner).select(columns)
        rows, counts = pl.collect_all([rest, count_rows(timed)])
        total, lost = counts.row(0)
    else:
        rows = timed.select(columns).collect()
        total, lost = len(rows), rows[EVENT_TIME].null_count()
        rows = rows.drop_nulls(EVENT_TIME) if lost else rows
    if lost:  # Only these need every column of the source.
        runner.set_aside(split()[1].collect())
    came, read = len(rows), total if read is None else read
    if total > lost:
        runner.mark_reached(source.interlude)
    if future is not None and any(isinstance(step, WithTimestamps) for step in source.interlude):
        rows = _not_moved_too_far(source, rows, future, runner)
    _note_used(source, runner, rows, total, not came and (total > lost if total else read > 0))
    return rows, read


def _note_used(
    source: SourcePlan, runner: StepRunner, rows: pl.DataFrame, timed: int, left_out: bool
) -> None:
    """What has used some row: `timed` have come through the prelude, `rows` are what is left.

    The source itself, too, if all the rows that it could use are `left_out` by steps or dead letters of these.
    """
    if timed:
        runner.mark_used(source.prelude)
    if len(rows):
        runner.mark_used(source.interlude)
    if len(rows) or left_out:
        runner.used.add(source.name)


def _through(steps: Iterable[Step], frame: pl.LazyFrame, runner: StepRunner) -> pl.LazyFrame:
    for step in steps:
        frame, _ = runner.apply(step, frame)
    return frame


def _not_moved_too_far(
    source: SourcePlan, rows: pl.DataFrame, future: Future, runner: StepRunner
) -> pl.DataFrame:
    """The rows but for those that a step has moved too far into the future, which become dead letters."""
    why = rows.select(future.why("event time is", pl.col(EVENT_TIME))).to_series()
    if why.null_count() < len(rows):
        far = why.is_not_null()
        runner.set_aside(dead_letters(source.name, rows.filter(far), why.drop_nulls().to_list()))
        rows = rows.filter(~far)
    return rows


def _summary(source: SourcePlan, rows: pl.DataFrame, file: str) -> SourceSummary:
    try:
        return summarize(source.watermark, rows, file)
    except EXPRESSION_ERRORS as error:
        kind = type(source.watermark).__name__
        raise StepError(source.name, f"its watermark, {kind}, fails: {error_text(error)}") from error


def read_in_process(source: SourcePlan, rows: int) -> Iterator[Chunk]:
    """What batches in process take of a source, about `rows` rows each.

    Raises `PlanError` where it cannot be read in process, and `MissingFiles`; both before anything is taken.
    """
    if not isinstance(source.source, InProcess):
        raise PlanError("only Spark can read it: run with runner=bl.SparkRunner(...)", step=source.name)
    apart = isinstance(source.watermark.per_split, SourceFile)
    chunks: Iterator[Chunk] = chunks_of(source.source, rows, apart=apart)
    try:
        with naming_source(source.name):
            first = [Whole(list(chunks))] if source.whole else list(islice(chunks, 1))
    except FileNotFoundError as error:
        raise MissingFiles(str(error), step=source.name) from None
    return chain(first, chunks)


def require_files(plan: Plan, *, globs: bool) -> None:
    """Raises `MissingFiles` for a path that does not exist, and with `globs` for one that nothing matches."""
    for name, source in plan.sources.items():
        try:
            if isinstance(source.source, ReadInFiles):
                with naming_source(name):
                    source.source.require_there(globs=globs)
        except FileNotFoundError as error:
            raise MissingFiles(str(error), step=name) from None


def ingest_step(source: SourcePlan, number: int) -> tuple[Ingested, int]:
    """A step of a test stream, and the processing time (us) of that stream after it."""
    assert isinstance(source.source, ReadInSteps)
    step = source.source.step(number)
    if step.elements.height:
        return ingest(source, step.elements.lazy(), step.processing_time), step.processing_time
    told = isinstance(source.watermark, AnnouncedWatermark) and step.summary
    return Ingested({}, announced(step.summary) if told else {}), step.processing_time
