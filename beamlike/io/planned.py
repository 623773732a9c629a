"""Reads sources that plan their batches."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, cast

import attrs
import polars as pl

from beamlike.io.base import Announced, FromFile, Pieces
from beamlike.io.files.chunking import together
from beamlike.io.given import frame
from beamlike.io.sources import (
    AcceptsCommits,
    Closeable,
    Openable,
    Planned,
    PlannedBatch,
    PlannedRows,
    Position,
    ReadAsPlanned,
    ReadInParts,
)
from windowing.time import MAX_TIME, MIN_TIME


@attrs.define
class PlannedReader:
    """Reads a source that plans its batches, from a position on. What the source learns is stored in `_opened`."""

    source: Planned
    position: Position
    rows: int
    _opened: Planned = attrs.field(init=False)
    _next: PlannedBatch | None = attrs.field(default=None, init=False)
    _announced: int = attrs.field(default=MIN_TIME - 1, init=False)

    def __attrs_post_init__(self) -> None:
        self._opened = opened(self.source, self.position)

    def new(self) -> PlannedBatch | None:
        """Returns the next batch with its watermark in microseconds; the same batch until it is read."""
        if self._next is None:
            self._next = self._planned()
        return self._next

    def _planned(self) -> PlannedBatch | None:
        given: Any = self._opened.plan(self.position, self.rows)
        if given is None:
            return None
        if not isinstance(given, PlannedBatch):
            kind = type(self.source).__name__
            raise TypeError(
                f"{kind}.plan must give a bl.PlannedBatch(input, position, ...) or None, not {given!r}"
            )
        _require_data(given, self.source)
        taken = given._replace(watermark=_microseconds(given.watermark, self.source))
        moves = {**self.position, **taken.position} != self.position
        return taken if taken.input is not None or moves or _announced(taken) > self._announced else None

    def read(self, taken: PlannedBatch) -> Pieces | pl.LazyFrame | Announced:
        self.go_on_from(taken)
        return read_planned(self._opened, taken, self.rows)

    def committed(self, taken: PlannedBatch) -> None:
        self._announced = max(self._announced, _announced(taken))
        if taken.input is not None and isinstance(self._opened, AcceptsCommits):
            self._opened.committed(taken)

    def go_on_from(self, taken: PlannedBatch) -> None:
        """Moves the position behind this batch."""
        self.position, self._next = {**self.position, **taken.position}, None
        self._announced = max(self._announced, _announced(taken))

    def close(self) -> None:
        if isinstance(self._opened, Closeable):
            self._opened.close()


def opened(source: Planned, position: Position) -> Planned:
    """Opens the source for one run. Raises `TypeError` if `opened` returns a source of another kind."""
    if not isinstance(source, Openable):
        return source
    found = source.opened(position)
    for kind in (ReadAsPlanned, ReadInParts, AcceptsCommits):
        if isinstance(found, kind) != isinstance(source, kind):
            raise TypeError(
                f"{type(source).__name__}.opened must give a source with the same methods (plan, read or read_part, "
                f"committed) for one run, not {found!r}"
            )
    return found


def _announced(taken: PlannedBatch) -> int:
    """Returns the time (us) up to which a batch announces its source as complete.

    Without an announcement, it is less than `MIN_TIME`.
    """
    return MIN_TIME - 1 if taken.watermark is None else cast(int, taken.watermark)


def planned_chunks(
    source: Planned, rows: int, position: Mapping[str, Any] | None = None
) -> Iterator[Pieces | pl.LazyFrame | Announced]:
    """Yields batch after batch from a position on, while there is more input. Nothing is committed."""
    reader = PlannedReader(source, position or {}, rows)
    try:
        while (taken := reader.new()) is not None:
            yield reader.read(taken)
            if not taken.more:
                return
    finally:
        reader.close()


def read_planned(source: Planned, taken: PlannedBatch, rows: int) -> Pieces | pl.LazyFrame | Announced:
    """Reads a planned batch, its parts in pieces of at most `rows` rows."""
    found = _rows_of(source, taken, rows)
    planned = found if isinstance(found, Pieces) else frame(found, type(source).__name__)
    return planned if taken.watermark is None else Announced(planned, cast(int, taken.watermark))


def _rows_of(source: Planned, taken: PlannedBatch, rows: int) -> PlannedRows:
    if taken.input is None:
        return pl.DataFrame(schema=source.schema())
    if isinstance(source, ReadInParts):
        return together([piece for part in taken.input for piece in pieces_of(source, part, rows)])
    assert isinstance(source, ReadAsPlanned)
    return source.read(taken)


def pieces_of(source: ReadInParts, part: Any, rows: int) -> Iterator[FromFile]:
    """Yields the rows of a part, in pieces of at most `rows` rows."""
    for piece in source.read_part(part, rows):
        kind = type(source).__name__
        yield piece if isinstance(piece, FromFile) else FromFile(frame(piece, kind), kind)


def _require_data(taken: PlannedBatch, source: object) -> None:
    """Raises `TypeError` for a batch that a checkpoint cannot store, also in a run without a checkpoint."""
    method = f"{type(source).__name__}.plan"
    if not isinstance(taken.position, Mapping):
        raise TypeError(
            f"{method}: the position must be a dict of what changes, such as {{'next': 7}}, not {taken.position!r}"
        )
    try:
        json.dumps([taken.input, dict(taken.position)])
    except (TypeError, ValueError) as error:
        raise TypeError(f"{method}: input and position must be data that JSON can hold: {error}") from None


def _microseconds(watermark: object, source: object) -> int | None:
    if watermark is None:
        return None
    if isinstance(watermark, datetime):
        moment = watermark if watermark.tzinfo is not None else watermark.replace(tzinfo=UTC)
        since = moment - datetime(1970, 1, 1, tzinfo=UTC)
        return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    if type(watermark) is not int:
        raise TypeError(
            f"{type(source).__name__}.plan: the watermark must be a datetime or microseconds since 1970, not "
            f"{watermark!r}"
        )
    return min(max(watermark, MIN_TIME), MAX_TIME)
