"""Chunks of sources as data and frames, so that a recording can store what a batch took."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import polars as pl

from beamlike.io.base import Announced, Faulty, FromFile, Pieces, Unreadable
from beamlike.replaying.typed import value_of_type
from beamlike.runtime.batch.ingested import AllChunks, Chunk

Keep: TypeAlias = Callable[[pl.DataFrame], str]
"""Stores a frame, and returns its name."""

Only: TypeAlias = Mapping[str, Any]
"""The rows to store: the value of each of these columns. Empty for all rows."""


def chunk_facts(chunk: Chunk, keep: Keep, only: Only) -> dict[str, Any]:
    """Converts a chunk to data. Its frames, with these rows only, are stored by `keep`."""
    match chunk:
        case Announced(rows, watermark):
            return {"announced": watermark, "rows": chunk_facts(rows, keep, only)}
        case AllChunks(chunks):
            return {"all": [chunk_facts(one, keep, only) for one in chunks]}
        case Pieces(pieces, known):
            return {"pieces": [chunk_facts(one, keep, only) for one in pieces], "known": [*known]}
        case FromFile(rows, file, last, over):
            return {"file": file, "last": last, "over": over, "rows": chunk_facts(rows, keep, only)}
        case Faulty(dead_letters):
            return {"faulty": keep(dead_letters.clear() if only else dead_letters)}
        case pl.DataFrame() | pl.LazyFrame():
            try:
                frame = chunk.lazy().collect()
            except Unreadable as error:
                return {"faulty": keep(error.faulty.dead_letters)}
            return {"frame": keep(rows_of_key(frame, only))}
    raise AssertionError(f"no chunk: {chunk!r}")


def rows_of_key(rows: pl.DataFrame, only: Only) -> pl.DataFrame:
    """Returns the rows that have these values, null included. Raises `UnknownKey` for a value of another type."""
    if not only:
        return rows
    typed = {name: value_of_type(value, rows.schema[name], repr(name)) for name, value in only.items()}
    return rows.filter(
        *(pl.col(name).eq_missing(pl.lit(value, rows.schema[name])) for name, value in typed.items())
    )


def chunk_of(facts: Mapping[str, Any], frame: Callable[[str], pl.DataFrame]) -> Any:
    """Converts data of `chunk_facts` to a chunk. `frame` returns a stored frame by its name."""
    match facts:
        case {"announced": watermark, "rows": rows}:
            return Announced(chunk_of(rows, frame), watermark)
        case {"all": chunks}:
            return AllChunks([chunk_of(one, frame) for one in chunks])
        case {"pieces": pieces, "known": known}:
            return Pieces([chunk_of(one, frame) for one in pieces], known)
        case {"file": file, "last": last, "over": over, "rows": rows}:
            return FromFile(chunk_of(rows, frame), file, last, over)
        case {"faulty": name}:
            return Faulty(frame(name))
        case {"frame": name}:
            return frame(name)
    raise ValueError(f"no chunk: {facts!r}")


def frame_bytes(frame: pl.DataFrame) -> bytes:
    """Returns a frame as the bytes of a file of Arrow."""
    buffer = io.BytesIO()
    frame.write_ipc(buffer, compression="zstd")
    return buffer.getvalue()


def frame_of(content: bytes) -> pl.DataFrame:
    """Returns the frame in the bytes of a file of Arrow."""
    return pl.read_ipc(io.BytesIO(content))
