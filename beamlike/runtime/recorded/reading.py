"""Reads again what a batch of an earlier run took from its sources, with the readers of the sources."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import Any, cast

from beamlike.errors import DataLoss, InputGone, naming_source
from beamlike.io import Parquet
from beamlike.io.base import FromFile, Pieces
from beamlike.io.files.changes import Stamp
from beamlike.io.files.chunking import together
from beamlike.io.files.paths import list_files
from beamlike.io.files.reader import FileSource
from beamlike.io.in_process import CHUNK_ROWS, Continued, reader_of
from beamlike.io.planned import read_planned
from beamlike.io.sources import Chunk as ReadChunk
from beamlike.io.sources import HasSpans, Planned, Position, Reader, ReadInFiles
from beamlike.plan.model import Plan, SourcePlan
from beamlike.runtime.batch.ingested import AllChunks, Chunk
from beamlike.runtime.recorded.batches import RecordedBatch
from beamlike.runtime.recorded.taken import (
    BatchTaken,
    FilesTaken,
    NotLogged,
    SpanTaken,
    StepTaken,
    Taken,
    TakenFile,
)
from stages.strategies.validators import SourceFile


def read_again(plan: Plan, batch: RecordedBatch, held: ExitStack) -> dict[str, Chunk]:
    """Reads what a batch took from each source of the plan. A source without input in the batch has no entry.

    Lazy rows can be collected until `held` is closed, which closes the readers.

    Raises `InputGone` if a source no longer has the input, or cannot be read again.
    """
    chunks = dict[str, Chunk]()
    for name, source in plan.sources.items():
        if (taken := batch.taken.get(name)) is not None:
            try:
                with naming_source(name), _gone(batch.number, name):
                    chunks[name] = chunk_again(source, taken, held)
            except (LookupError, FileNotFoundError) as error:
                raise InputGone(batch.number, name, error.args[0] if error.args else repr(error)) from error
    return chunks


@contextmanager
def _gone(batch: int, source: str) -> Iterator[None]:
    """Turns the loss of messages into `InputGone`. What a run could do about it does not help a replay."""
    try:
        yield
    except DataLoss as loss:
        raise InputGone(batch, source, str(loss).partition("; on_data_loss=")[0]) from loss


def chunk_again(source: SourcePlan, taken: Taken, held: ExitStack) -> Chunk:
    """Reads the input that a batch took from one source.

    Raises `LookupError` or `FileNotFoundError` if the source no longer has it, or cannot be read again.
    """
    match taken:
        case FilesTaken():
            return _files(source, taken)
        case BatchTaken():
            return _batch(source, taken, held)
        case SpanTaken(begin, end):
            return _span(source, begin, end, held)
        case StepTaken():
            raise AssertionError("steps of test streams are read from their declaration")
        case NotLogged(why):
            raise LookupError(why)


def _files(source: SourcePlan, taken: FilesTaken) -> Pieces:
    apart = isinstance(source.watermark.per_split, SourceFile)
    if apart and taken.known is None:
        raise LookupError("the files that were known by then are not in the log any more")
    pieces = [piece for file in taken.files for piece in _pieces(source, file)]
    return Pieces(pieces, taken.known or ()) if apart else together(pieces)


def _pieces(source: SourcePlan, taken: TakenFile) -> list[FromFile]:
    _require_unchanged(taken)
    end = None if taken.count is None else taken.first + taken.count
    reader: Any = source.source
    if not isinstance(reader, ReadInFiles):
        # Rows in memory and readings of refreshed sources are files of the checkpoint.
        reader = Parquet(taken.file, schema=source.raw)
    found = cast(FileSource, reader).ending_pieces([taken.file], taken.rows)
    pieces = [piece for piece, _ in islice(found, taken.first, end)]
    if len(pieces) < (taken.count or 1):
        raise LookupError(f"the file {taken.file!r} was changed: it has fewer rows than the batch read")
    return pieces


def _require_unchanged(taken: TakenFile) -> None:
    found = next((file for file in _listed(taken.file)), None)
    if found is None:
        raise FileNotFoundError(f"the file {taken.file!r} is gone")
    if taken.stamp is not None and found != taken.stamp:
        before, now = taken.stamp.text, found.text
        raise LookupError(f"the file {taken.file!r} was changed: the run read {before}, and it has {now} now")


def _listed(file: str) -> Iterator[Stamp]:
    try:
        if os.path.isfile(file):
            status = os.stat(file)
            yield Stamp(status.st_mtime_ns // 1_000_000, status.st_size)
        else:
            yield from map(Stamp.of, list_files(file))
    except FileNotFoundError:
        return


def _batch(source: SourcePlan, taken: BatchTaken, held: ExitStack) -> Chunk:
    inputs = taken.inputs(whole=source.whole)
    if not inputs:  # the batch has only the end of the source
        return AllChunks([])
    if isinstance(source.source, Planned):
        # With the declaration of the source, as tasks of Spark do.
        chunks: list[ReadChunk] = [read_planned(source.source, one, CHUNK_ROWS) for one in inputs]
    elif isinstance(source.source, Continued):
        reader = _open(source.source, {} if source.whole else taken.before, held)
        chunks = [reader.read(one) for one in inputs]
    else:
        kind = type(source.source).__name__
        raise LookupError(f"{kind} cannot be read again, since it has no resume(position, rows)")
    return AllChunks(chunks) if source.whole else chunks[0]


def _span(source: SourcePlan, begin: str, end: str, held: ExitStack) -> Chunk:
    if not isinstance(source.source, HasSpans):
        kind = type(source.source).__name__
        raise LookupError(f"Spark read {kind}, which cannot be read in process: it has no span(begin, end)")
    first, last = (source.source.position_of([offset]) for offset in (begin, end))
    return _open(source.source, first, held).read(source.source.span(first, last))


def _open(source: Continued, position: Position, held: ExitStack) -> Reader:
    reader = reader_of(source, position, CHUNK_ROWS)
    held.callback(reader.close)
    return reader
