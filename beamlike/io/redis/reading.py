"""A Redis stream as one run reads it, with its connection and what the run has learned about messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final, Protocol

import attrs
import polars as pl

from beamlike.io.announcing import AnnouncingSource
from beamlike.io.base import Pieces
from beamlike.io.redis import messages
from beamlike.io.redis.backlog import Backlog
from beamlike.io.redis.client import AT_ONCE, ConsumerGroup, Entry, time_of_id
from beamlike.io.sources import PlannedBatch, Position
from beamlike.system.retries import again

CONSUMER: Final = "consumer"
NEWEST: Final = "newest"


class StreamDeclaration(Protocol):
    """The parts of the declaration that a run uses."""

    @property
    def after(self) -> str: ...

    @property
    def time_column(self) -> str | None: ...

    @property
    def out_of_orderness(self) -> int: ...

    @property
    def claim_after(self) -> int | None: ...

    @property
    def max_messages_per_trigger(self) -> int | None: ...

    def schema(self) -> pl.Schema: ...

    def new_consumer(self) -> str: ...

    def times(self, entries: Sequence[Entry]) -> pl.Series: ...

    def rows_of(self, entries: Sequence[Entry]) -> Pieces: ...


@attrs.define(eq=False)
class Reading(AnnouncingSource):
    """The consumer of one run: it reads messages, and acknowledges the messages of committed batches.

    `_uncommitted` has the batch that was planned last, with its messages, until it is committed.
    """

    source: StreamDeclaration
    queue: ConsumerGroup
    _backlog: Backlog = attrs.field(factory=Backlog, init=False)
    _uncommitted: tuple[Any, list[Entry]] | None = attrs.field(default=None, init=False)

    def schema(self) -> pl.Schema:
        return self.source.schema()

    def plan(self, position: Position, rows: int) -> PlannedBatch | None:
        """Receives the next messages as this run's consumer, and plans them as a batch.

        Without messages, the batch only announces a watermark; None if that is unknown. A new run first plans an empty
        batch, which records the name of its consumer.
        """
        # As a whole: messages whose delivery was lost with the answer are then the first of the batch.
        return again(f"stream {self.queue.stream!r}", partial(self._plan, position, rows))

    def _plan(self, position: Position, rows: int) -> PlannedBatch | None:
        if CONSUMER not in position:
            self.queue.make(self.source.after)
            return PlannedBatch(None, {CONSUMER: self.source.new_consumer()}, more=True)
        # The time is read before the messages. So all messages that are added from now on have later ids.
        consumer, now = position[CONSUMER], self.queue.now()
        self._backlog.newest = self._backlog.newest or position.get(NEWEST)
        most = self.source.max_messages_per_trigger or rows
        again, runs, entries = self._take(consumer, most)
        watermark = self._complete_to(consumer, entries, now)
        self._uncommitted = None
        if not entries:
            return None if watermark is None else PlannedBatch(None, {}, watermark=watermark)
        planned = {CONSUMER: consumer, "again": again, "runs": runs}
        self._uncommitted = planned, entries
        return PlannedBatch(planned, {NEWEST: self._backlog.newest}, len(entries) >= most, watermark)

    def _take(self, consumer: str, most: int) -> tuple[list[str], list[Any], list[Entry]]:
        """Returns the ids of old messages, ranges of new messages, and all these messages themselves.

        Old messages were delivered to this consumer but never processed, or are taken over from other consumers.
        """
        names, silent = self.queue.pending(consumer, most), self.source.claim_after
        if silent is not None and len(names) < most:
            names += self.queue.claim(consumer, silent // 1000, most - len(names))
        entries = self.queue.existing([*dict.fromkeys(names)])
        again, runs = [name for name, _ in entries], list[Any]()
        while len(entries) < most:
            asked = min(most - len(entries), AT_ONCE)
            if got := self.queue.next_entries(consumer, asked):
                runs.append([got[0][0], got[-1][0], len(got)])
                entries += got
            if len(got) < asked:
                break
        return again, runs, entries

    def _complete_to(self, consumer: str, entries: Sequence[Entry], now: int) -> int | None:
        """Returns the oldest event time that will still be unacknowledged after these messages are acknowledged."""
        column = self.source.time_column
        if column is None:
            return None
        if column == messages.TIME:
            return 1000 * min([now, *self._oldest_ids(consumer)])
        self._backlog.update(self.source.times(entries))
        oldest = self._backlog.oldest(self.queue, consumer, self.source.times)
        if self._backlog.newest is None:
            return oldest
        newest = self._backlog.newest - self.source.out_of_orderness
        return newest if oldest is None else min(oldest, newest)

    def _oldest_ids(self, consumer: str) -> Iterator[int]:
        """Yields the times of the next undelivered message, and of the oldest unacknowledged message of each other
        consumer.
        """
        for name, _ in self.queue.after(self.queue.delivered() or "0", 1):
            yield time_of_id(name)
        for other in self.queue.others(consumer):
            yield from map(time_of_id, self.queue.pending(other, 1))

    def read(self, batch: PlannedBatch) -> Pieces:
        if self._uncommitted is not None and self._uncommitted[0] == batch.input:
            return self.source.rows_of(self._uncommitted[1])
        return self.source.rows_of(self.queue.planned(batch.input["again"], batch.input["runs"]))

    def committed(self, batch: PlannedBatch) -> None:
        """Acknowledges the messages of a batch."""
        again(f"stream {self.queue.stream!r}", partial(self._acknowledge, batch.input))
        self._uncommitted = None

    def _acknowledge(self, mine: Any) -> None:
        self.queue.acknowledge(mine["again"])
        for first, last, _ in mine["runs"]:
            while names := self.queue.pending(mine[CONSUMER], AT_ONCE, first, last):
                self.queue.acknowledge(names)

    def close(self) -> None:
        self.queue.close()
