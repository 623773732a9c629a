"""Reads a source in process: chunk after chunk, or on from a position."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

from beamlike.io.given import frame
from beamlike.io.planned import PlannedReader, planned_chunks
from beamlike.io.sources import Chunk, Planned, Position, Reader, ReadInChunks, ReadInFiles, Resumable

CHUNK_ROWS: Final = 250_000
"""About how many rows are read at a time, where nobody says."""

InProcess: TypeAlias = ReadInChunks | Planned
"""A source that is read in process."""

Continued: TypeAlias = Resumable | Planned
"""A source that is read on from where an earlier run in process was."""


def chunks_of(source: InProcess, rows: int, *, apart: bool = False) -> Iterator[Chunk]:
    """Yields the input of each batch in process, about `rows` rows each.

    Rows from files carry their file names; with `apart`, the rows of each file stay separate.
    """
    if isinstance(source, ReadInFiles):
        return source.batches_apart(rows) if apart else source.batches(rows)
    return _chunks(source, rows) if isinstance(source, ReadInChunks) else planned_chunks(source, rows)


def _chunks(source: ReadInChunks, rows: int) -> Iterator[Chunk]:
    """Yields the chunks of a source. Raises `TypeError` for None, which callers take for the end."""
    for chunk in source.chunks(rows):
        yield frame(chunk, type(source).__name__) if chunk is None else chunk


def reader_of(source: Continued, position: Position, rows: int, *, apart: bool = False) -> Reader:
    """Returns the reader of a source from a position on; with `apart`, the rows of each file stay separate."""
    if isinstance(source, ReadInFiles):
        return source.resume(position, rows, apart=apart)
    return (
        source.resume(position, rows)
        if isinstance(source, Resumable)
        else PlannedReader(source, position, rows)
    )
