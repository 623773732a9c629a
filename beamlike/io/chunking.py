"""Pieces of files put together to chunks of about as many rows as a batch is to have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import polars as pl

from beamlike.io.base import Faulty, FromFile
from beamlike.io.faults import joined


def chunks(pieces: Iterable[tuple[FromFile, int]], rows: int) -> Iterator[FromFile]:
    """The pieces, neighbours joined while they stay within `rows` rows."""
    for held in limited(pieces, rows):
        yield from parted(held)


def limited(pieces: Iterable[tuple[FromFile, int]], rows: int | None) -> Iterator[list[FromFile]]:
    """The pieces, as many together as stay within `rows` rows."""
    held: list[FromFile] = []
    count = 0
    for piece, height in pieces:
        if held and rows is not None and count + height > rows:
            yield held
            held, count = [], 0
        held.append(piece)
        count += height
    if held:
        yield held


def parted(parts: Sequence[FromFile]) -> Iterator[FromFile]:
    """The pieces as at most two: what is faulty, and the rows."""
    bad = [(part.rows, part.file) for part in parts if isinstance(part.rows, Faulty)]
    if (faulty := joined(rows for rows, _ in bad)) is not None:
        yield FromFile(faulty, bad[0][1], bad[-1][1])
    good = [(part.rows, part.file) for part in parts if not isinstance(part.rows, Faulty)]
    if good:
        frames = [rows for rows, _ in good]
        rows = frames[0] if len(frames) == 1 else pl.concat(frames)
        yield FromFile(rows, good[0][1], good[-1][1])
