"""How a run in process reads a source: chunk after chunk, or on from a position."""

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
    """What batches in process take of a source, about `rows` rows each; of files with their names, or `apart`."""
    if isinstance(source, ReadInFiles):
        return source.batches_apart(rows) if apart else source.batches(rows)
    return _chunks(source, rows) if isinstance(source, ReadInChunks) else planned_chunks(source, rows)


def _chunks(source: ReadInChunks, rows: int) -> Iterator[Chunk]:
    """What it gives. Raises `TypeError` for None, which would be taken for the end."""
    for chunk in source.chunks(rows):
        yield frame(chunk, type(source).__name__) if chunk is None else chunk


def reader_of(source: Continued, position: Position, rows: int, *, apart: bool = False) -> Reader:
    """Reads a source on from a position; of files with their names, or `apart`."""
    if isinstance(source, ReadInFiles):
        return source.resume(position, rows, apart=apart)
    return (
        source.resume(position, rows)
        if isinstance(source, Resumable)
        else PlannedReader(source, position, rows)
    )
