"""Reads a log on from its offsets: what is new there, and any range again."""

from __future__ import annotations

import time
from math import inf
from typing import Final, Protocol, Self

import attrs
import polars as pl

from beamlike.io.base import Pieces
from beamlike.io.kafka.log import Log
from beamlike.io.kafka.offsets import Offsets, in_turn
from beamlike.io.sources import PlannedBatch

ASK_EVERY: Final = 1.0
"""Seconds after which the broker is asked again for partitions, and for messages that do not come by themselves."""


class LogSource(Protocol):
    """The methods of a source that the reader of its log calls."""

    @property
    def max_offsets_per_trigger(self) -> int | None: ...

    def log(self) -> Log: ...

    def first(self, log: Log) -> Offsets: ...

    def last(self, log: Log) -> Offsets: ...

    def decode(self, frame: pl.DataFrame) -> Pieces: ...


@attrs.define(kw_only=True)
class LogReader:
    """Reads a log on from offsets, in batches of `rows` messages, up to its `end`.

    If it `ends`, the end is that of the log when it was opened; else the end moves when all was read. `noted` is False
    while the position at the beginning is in no batch yet: a batch is then planned even without messages, since
    "latest"
    changes from day to day.
    """

    source: LogSource
    log: Log
    at: Offsets
    end: Offsets
    rows: int
    ends: bool
    noted: bool = True
    _next: PlannedBatch | None = attrs.field(default=None, init=False)
    _asked: float = attrs.field(default=-inf, init=False)

    @classmethod
    def of(cls, source: LogSource, position: Offsets, rows: int, *, ends: bool, goes_on: bool = True) -> Self:
        """Opens the log. Partitions that are not in `position` are new, and are read from their beginning.

        `goes_on`: another run will begin where this one ends. Raises `DataLoss` if the log ends before the position.
        """
        log = source.log()
        try:
            at = position or source.first(log)
            end = source.last(log)
            most = source.max_offsets_per_trigger or rows
            return cls(
                source=source,
                log=log,
                at=_reached(log, at, end),
                end=end,
                rows=most,
                ends=ends,
                noted=bool(position) or not goes_on,
            )
        except BaseException:
            log.close()
            raise

    def new(self) -> PlannedBatch | None:
        """Returns the next batch, with a share of each partition; the same batch until it is read."""
        if self._next is None:
            to = self._ahead()
            if to == self.at and not self.ends:
                self.end = self._found()
                to = self._ahead()
            if to == self.at:
                if not self.noted:
                    self._next = PlannedBatch(None, self.at)
                return self._next
            begin = {name: self.at.get(name, 0) for name, at in to.items() if at != self.at.get(name, 0)}
            span = {"begin": begin, "end": {name: to[name] for name in begin}}
            self._next = PlannedBatch(span, to, any(at < self.end.get(name, 0) for name, at in to.items()))
        return self._next

    def _found(self) -> Offsets:
        """Returns the current end: what the client received, and every `ASK_EVERY` seconds what the broker reports."""
        if time.monotonic() >= self._asked + ASK_EVERY:
            self._asked = time.monotonic()
            end = self.source.last(self.log)
            self.at = _reached(self.log, self.at, end)
            return end
        return {**self.end, **self.log.come({**dict.fromkeys(self.end, 0), **self.at}, self.rows)}

    def _ahead(self) -> Offsets:
        at = {**dict.fromkeys(self.end, 0), **self.at}
        return in_turn(at, self.end, self.rows)

    def read(self, taken: PlannedBatch) -> Pieces:
        """Returns the messages as rows and dead letters. Raises `DataLoss` if they no longer exist."""
        span = taken.input or {"begin": {}, "end": {}}
        rows = self.source.decode(self.log.read(span["begin"], span["end"]))
        self.at, self._next, self.noted = {**self.at, **taken.position}, None, True
        return rows

    def close(self) -> None:
        self.log.close()


def _reached(log: Log, at: Offsets, end: Offsets) -> Offsets:
    """Returns the offsets to read on from.

    If `end` is before them, the log may have been replaced, or the user asked for this end.
    """
    return at if all(offset <= end.get(name, -1) for name, offset in at.items()) else log.within(at)
