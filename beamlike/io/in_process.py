"""Reads a source in process: chunk by chunk from its beginning, or from a position on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

from beamlike.io.given import frame
from beamlike.io.planned import PlannedReader, planned_chunks
from beamlike.io.sources import Chunk, Planned, Position, Reader, ReadInChunks, ReadInFiles, Resumable

CHUNK_ROWS: Final = 250_000
"""The default number of rows in a chunk."""

InProcess: TypeAlias = ReadInChunks | Planned
"""A source that can be read in process."""

Continued: TypeAlias = Resumable | Planned
"""A source that a run in process can continue from the position of an earlier run."""


def chunks_of(source: InProcess, rows: int, *, apart: bool = False) -> Iterator[Chunk]:
    """Yields the input of each batch of a run in process, with about `rows` rows each.

    Rows from files have their file names. With `apart`, rows of different files are not mixed.
    """
    if isinstance(source, ReadInFiles):
        return source.batches_apart(rows) if apart else source.batches(rows)
    return _chunks(source, rows) if isinstance(source, ReadInChunks) else planned_chunks(source, rows)


def _chunks(source: ReadInChunks, rows: int) -> Iterator[Chunk]:
    """Yields the chunks of a source. Raises `TypeError` if a chunk is None, which callers would take for the end."""
    for chunk in source.chunks(rows):
        yield frame(chunk, type(source).__name__) if chunk is None else chunk


def reader_of(source: Continued, position: Position, rows: int, *, apart: bool = False) -> Reader:
    """Returns a reader of the source from a position on. With `apart`, rows of different files are not mixed."""
    if isinstance(source, ReadInFiles):
        return source.resume(position, rows, apart=apart)
    return (
        source.resume(position, rows)
        if isinstance(source, Resumable)
        else PlannedReader(source, position, rows)
    )
