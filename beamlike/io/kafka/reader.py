"""A log that a run reads on from where it is: what is new there, and any range of it again."""

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
    """What is asked of the source."""

    @property
    def max_offsets_per_trigger(self) -> int | None: ...

    def log(self) -> Log: ...

    def first(self, log: Log) -> Offsets: ...

    def last(self, log: Log) -> Offsets: ...

    def decode(self, frame: pl.DataFrame) -> Pieces: ...


@attrs.define(kw_only=True)
class LogReader:
    """Reads a log on from offsets, a batch of `rows` messages after the other, up to its `end`.

    If it `ends`, that is where the log ends when it is opened; else what has come counts when all was read. What is not
    yet `noted` of where it begins is taken even if nothing has come: "latest" is somewhere else tomorrow.
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
        """Opens the log. Partitions that are not in a position have come since, and are read from their beginning.

        With `goes_on` another run will begin where this one ends. Raises `DataLoss` where the log ends before that.
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
        """What comes next, shared out among the partitions; the same until it is read."""
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
        """Up to where there is something now: what has come by itself, and now and then what the broker says."""
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
        """Those messages, as rows and dead letters. Raises `DataLoss` where they are gone."""
        span = taken.input or {"begin": {}, "end": {}}
        rows = self.source.decode(self.log.read(span["begin"], span["end"]))
        self.at, self._next, self.noted = {**self.at, **taken.position}, None, True
        return rows

    def close(self) -> None:
        """Ends the connection."""
        self.log.close()


def _reached(log: Log, at: Offsets, end: Offsets) -> Offsets:
    """Where to read on. An `end` before that may be that of the log, or one that somebody asked for."""
    return at if all(offset <= end.get(name, -1) for name, offset in at.items()) else log.within(at)
