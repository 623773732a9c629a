"""Reads sources that plan their batches."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, cast

import attrs
import polars as pl

from beamlike.io.base import Announced, AnyFrame, FromFile, Pieces
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
    """A reader of a source that plans its batches, from a position on. `_opened` is the source that this run uses."""

    source: Planned
    position: Position
    rows: int
    _opened: Planned = attrs.field(init=False)
    _next: PlannedBatch | None = attrs.field(default=None, init=False)
    _announced: int = attrs.field(default=MIN_TIME - 1, init=False)

    def __attrs_post_init__(self) -> None:
        self._opened = opened(self.source, self.position)

    def new(self) -> PlannedBatch | None:
        """Returns the next batch, with its watermark in microseconds. Until it is read, further calls return the same
        batch.
        """
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
                f"{kind}.plan must return a bl.PlannedBatch(input, position, ...) or None, not {given!r}"
            )
        _require_data(given, self.source)
        batch = given._replace(watermark=_microseconds(given.watermark, self.source))
        # A batch without input counts only if it moves the position or the watermark. Otherwise planning
        # might never end.
        moves = {**self.position, **batch.position} != self.position
        return batch if batch.input is not None or moves or _announced(batch) > self._announced else None

    def read(self, batch: PlannedBatch) -> Pieces | AnyFrame | Announced:
        self.go_on_from(batch)
        return read_planned(self._opened, batch, self.rows)

    @property
    def acknowledges(self) -> bool:
        """True if the source itself is notified of committed batches."""
        return isinstance(self._opened, AcceptsCommits)

    def committed(self, batch: PlannedBatch) -> None:
        self._announced = max(self._announced, _announced(batch))
        if batch.input is not None and isinstance(self._opened, AcceptsCommits):
            self._opened.committed(batch)

    def go_on_from(self, batch: PlannedBatch) -> None:
        """Sets the position to the one after this batch."""
        self.position, self._next = {**self.position, **batch.position}, None
        self._announced = max(self._announced, _announced(batch))

    def close(self) -> None:
        if isinstance(self._opened, Closeable):
            self._opened.close()


def opened(source: Planned, position: Position) -> Planned:
    """Opens the source for one run. Raises `TypeError` if its `opened` returns a source of another kind."""
    if not isinstance(source, Openable):
        return source
    found = source.opened(position)
    # The run uses the opened source instead of the declaration, and Spark tasks use the declaration. So both
    # must have the same methods.
    for kind in (ReadAsPlanned, ReadInParts, AcceptsCommits):
        if isinstance(found, kind) != isinstance(source, kind):
            raise TypeError(
                f"{type(source).__name__}.opened must return a source with the same methods (plan, read or read_part, "
                f"committed) for one run, not {found!r}"
            )
    return found


def _announced(batch: PlannedBatch) -> int:
    """Returns the watermark (us) that a batch announces.

    Without an announcement, it is a value below `MIN_TIME`.
    """
    return MIN_TIME - 1 if batch.watermark is None else cast(int, batch.watermark)


def planned_chunks(
    source: Planned, rows: int, position: Mapping[str, Any] | None = None
) -> Iterator[Pieces | AnyFrame | Announced]:
    """Yields batches from a position on, as long as more input is available. Nothing is committed."""
    reader = PlannedReader(source, position or {}, rows)
    try:
        while (batch := reader.new()) is not None:
            yield reader.read(batch)
            if not batch.more:
                return
    finally:
        reader.close()


def read_planned(source: Planned, batch: PlannedBatch, rows: int) -> Pieces | AnyFrame | Announced:
    """Reads a planned batch. Its parts are read in pieces of at most `rows` rows."""
    found = _rows_of(source, batch, rows)
    planned = found if isinstance(found, Pieces) else frame(found, type(source).__name__)
    return planned if batch.watermark is None else Announced(planned, cast(int, batch.watermark))


def _rows_of(source: Planned, batch: PlannedBatch, rows: int) -> PlannedRows:
    if batch.input is None:
        return pl.DataFrame(schema=source.schema())
    if isinstance(source, ReadInParts):
        return together([piece for part in batch.input for piece in pieces_of(source, part, rows)])
    assert isinstance(source, ReadAsPlanned)
    return source.read(batch)


def pieces_of(source: ReadInParts, part: Any, rows: int) -> Iterator[FromFile]:
    """Yields the rows of a part, in pieces of at most `rows` rows."""
    for piece in source.read_part(part, rows):
        kind = type(source).__name__
        yield piece if isinstance(piece, FromFile) else FromFile(frame(piece, kind), kind)


def _require_data(batch: PlannedBatch, source: object) -> None:
    """Raises `TypeError` for a batch that JSON cannot hold. It is called even if the run has no checkpoint to store it
    in.
    """
    method = f"{type(source).__name__}.plan"
    if not isinstance(batch.position, Mapping):
        raise TypeError(
            f"{method}: the position must be a dict of what changes, such as {{'next': 7}}, not {batch.position!r}"
        )
    try:
        json.dumps([batch.input, dict(batch.position)])
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
