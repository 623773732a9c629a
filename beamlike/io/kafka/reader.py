"""Reads a Kafka log from given offsets on: new messages, or a range of messages again."""

from __future__ import annotations

import time
from concurrent.futures import Future
from functools import partial
from math import inf
from typing import Final, Protocol, Self

import attrs
import polars as pl

from beamlike.io.base import Pieces
from beamlike.io.kafka.log import Log
from beamlike.io.kafka.offsets import Offsets, in_turn
from beamlike.io.sources import PlannedBatch
from beamlike.system.threads import start_daemon

ASK_EVERY: Final = 1.0
"""Seconds between requests for the partitions and their ends. They are needed if the client itself receives nothing."""


class LogSource(Protocol):
    """The methods of a source that its reader needs."""

    @property
    def max_offsets_per_trigger(self) -> int | None: ...

    def log(self) -> Log: ...

    def first(self, log: Log) -> Offsets: ...

    def last(self, log: Log) -> Offsets: ...

    def is_final(self, log: Log) -> bool: ...

    def decode(self, frame: pl.DataFrame) -> Pieces: ...


@attrs.frozen
class _Answer:
    """The end of a log, and the new offsets of partitions whose messages are lost."""

    end: Offsets
    lost: Offsets


@attrs.define(kw_only=True)
class LogReader:
    """A reader of a log from given offsets on, in batches of `rows` messages, up to `end`.

    If the source `ends`, `end` is the end of the log when it was opened. Otherwise `end` moves on when it is reached.
    It is `final` if no message that arrives later can be before it.
    `noted` is False until a batch has stored the offsets at which the run begins. So the first batch is planned even
    without messages: otherwise "latest" would mean other offsets after a restart.
    """

    source: LogSource
    log: Log
    at: Offsets
    end: Offsets
    rows: int
    ends: bool
    noted: bool = True
    final: bool = False
    _next: PlannedBatch | None = attrs.field(default=None, init=False)
    _asked: float = attrs.field(default=-inf, init=False)
    _answer: Future[_Answer] | None = attrs.field(default=None, init=False)

    @classmethod
    def of(cls, source: LogSource, position: Offsets, rows: int, *, ends: bool, goes_on: bool = True) -> Self:
        """Opens the log. Partitions that are not in `position` are new, and are read from their beginning.

        `goes_on`: another run will continue where this one ends. Raises `DataLoss` if the log ends before the position.
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
                final=ends and source.is_final(log),
            )
        except BaseException:
            log.close()
            raise

    def new(self) -> PlannedBatch | None:
        """Returns the next batch, with a share of each partition. Until it is read, further calls return the
        same batch.
        """
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
        """Returns the current end: what the client has received and, every `ASK_EVERY` seconds, what the
        broker reports.

        Only the first call waits for the broker, so that a run that ends with its input knows its end. Later calls
        take the answer when it is there: received messages do not wait for it.
        """
        is_first = self._asked == -inf
        if self._answer is None and time.monotonic() >= self._asked + ASK_EVERY:
            self._asked = time.monotonic()
            self._answer = start_daemon(partial(self._ask, dict(self.at)))
        if self._answer is not None and (is_first or self._answer.done()):
            answer, self._answer = self._answer.result(), None
            self.at = {**self.at, **answer.lost}
            # Messages that were received after the question are not in the answer.
            self.end = {name: max(at, self.end.get(name, 0)) for name, at in answer.end.items()}
            self.end |= {name: answer.end.get(name, at) for name, at in answer.lost.items()}
            if is_first:
                return self.end
        return {**self.end, **self.log.received({**dict.fromkeys(self.end, 0), **self.at}, self.rows)}

    def _ask(self, at: Offsets) -> _Answer:
        """Asks the broker for the end of the log."""
        end = self.source.last(self.log)
        reached = _reached(self.log, at, end)
        return _Answer(end, {name: offset for name, offset in reached.items() if offset != at.get(name)})

    def _ahead(self) -> Offsets:
        at = {**dict.fromkeys(self.end, 0), **self.at}
        return in_turn(at, self.end, self.rows)

    def read(self, batch: PlannedBatch) -> Pieces:
        """Returns the messages of a batch as rows and dead letters. Raises `DataLoss` if they no longer exist."""
        span = batch.input or {"begin": {}, "end": {}}
        rows = self.source.decode(self.log.read(span["begin"], span["end"]))
        self.passed(batch)
        return rows

    def passed(self, batch: PlannedBatch) -> None:
        """Continues after a batch that was read from the log."""
        self.at, self._next, self.noted = {**self.at, **batch.position}, None, True

    def close(self) -> None:
        self.log.close()


def _reached(log: Log, at: Offsets, end: Offsets) -> Offsets:
    """Returns the offsets from which to continue.

    If the log ends before them, either it was replaced, or the user set an earlier `end`.
    """
    return at if all(offset <= end.get(name, -1) for name, offset in at.items()) else log.within(at)
