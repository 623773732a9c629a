"""Combines pieces of files into batches with about a given number of rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import cast

import polars as pl

from beamlike.io.base import AnyFrame, Faulty, FromFile, Pieces
from beamlike.io.files.faults import joined


def limited(pieces: Iterable[tuple[FromFile, int]], rows: int | None) -> Iterator[list[FromFile]]:
    """Yields groups of pieces. A group has as many pieces as fit into `rows` rows, and at least one."""
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


def together(parts: Sequence[FromFile]) -> Pieces:
    """Joins pieces to a batch with at most two pieces: one of dead letters, one of rows."""
    bad = [(part.rows, part.file) for part in parts if isinstance(part.rows, Faulty)]
    good = [(part.rows, part.file) for part in parts if not isinstance(part.rows, Faulty)]
    pieces = list[FromFile]()
    if (faulty := joined(rows for rows, _ in bad)) is not None:
        pieces.append(FromFile(faulty, bad[0][1], bad[-1][1]))
    if good:
        pieces.append(FromFile(_concatenated([rows for rows, _ in good]), good[0][1], good[-1][1]))
    return Pieces(pieces)


def _concatenated(frames: Sequence[AnyFrame]) -> AnyFrame:
    """Concatenates frames, in order. Neighbours in memory become one frame first, because polars plans a query of many
    frames in quadratic time.
    """
    groups = groupby(frames, key=lambda frame: isinstance(frame, pl.DataFrame))
    found = list[AnyFrame]()
    for in_memory, group in groups:
        found += [pl.concat(cast(Iterable[pl.DataFrame], group), rechunk=True)] if in_memory else group
    return found[0] if len(found) == 1 else pl.concat(frame.lazy() for frame in found)
