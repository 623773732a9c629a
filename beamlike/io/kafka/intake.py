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
from beamlike.io.sources import Taken

ASK_EVERY: Final = 1.0
"""Seconds after which the broker is asked again for partitions, and for messages that do not come by themselves."""


class Reader(Protocol):
    """What is asked of the source."""

    @property
    def max_offsets_per_trigger(self) -> int | None: ...

    def log(self) -> Log: ...

    def first(self, log: Log) -> Offsets: ...

    def last(self, log: Log) -> Offsets: ...

    def decode(self, frame: pl.DataFrame) -> Pieces: ...


@attrs.define
class LogIntake:
    """Reads a log on from offsets, a batch of `rows` messages after the other, up to its `end`.

    If it `ends`, that is where the log ends when it is opened; else what has come counts when all was read.
    """

    source: Reader
    log: Log
    at: Offsets
    end: Offsets
    rows: int
    ends: bool
    _next: Taken | None = attrs.field(default=None, init=False)
    _asked: float = attrs.field(default=-inf, init=False)

    @classmethod
    def of(cls, source: Reader, position: Offsets, rows: int, *, ends: bool) -> Self:
        """Opens the log. Partitions that are not in a position have come since, and are read from their beginning."""
        log = source.log()
        try:
            at = position or source.first(log)
            return cls(source, log, at, source.last(log), source.max_offsets_per_trigger or rows, ends)
        except BaseException:
            log.close()
            raise

    def new(self) -> Taken | None:
        """What comes next, shared out among the partitions; the same until it is read."""
        if self._next is None:
            to = self._ahead()
            if to == self.at and not self.ends:
                self.end = self._found()
                to = self._ahead()
            if to == self.at:
                return None
            begin = {name: self.at.get(name, 0) for name, at in to.items() if at != self.at.get(name, 0)}
            span = {"begin": begin, "end": {name: to[name] for name in begin}}
            self._next = Taken(span, to, any(at < self.end.get(name, 0) for name, at in to.items()))
        return self._next

    def _found(self) -> Offsets:
        """Up to where there is something now: what has come by itself, and now and then what the broker says."""
        if time.monotonic() >= self._asked + ASK_EVERY:
            self._asked = time.monotonic()
            return self.source.last(self.log)
        return {**self.end, **self.log.come({**dict.fromkeys(self.end, 0), **self.at}, self.rows)}

    def _ahead(self) -> Offsets:
        at = {**dict.fromkeys(self.end, 0), **self.at}
        return in_turn(at, self.end, self.rows)

    def read(self, taken: Taken) -> Pieces:
        """Those messages, as rows and dead letters. Raises `DataLoss` where they are gone."""
        rows = self.source.decode(self.log.read(taken.input["begin"], taken.input["end"]))
        self.at, self._next = {**self.at, **taken.position}, None
        return rows

    def close(self) -> None:
        """Ends the connection."""
        self.log.close()
