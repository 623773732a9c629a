"""A stream of Redis as a queue: read through a consumer group, acknowledged when a batch is committed."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Self

import attrs
import polars as pl

from beamlike.io.announcing import AnnouncingSource
from beamlike.io.base import Announced, Pieces
from beamlike.io.kafka.codecs import Codec
from beamlike.io.redis import messages
from beamlike.io.redis.backlog import Backlog
from beamlike.io.redis.client import AT_ONCE, Entry, Group, shown, time_of_id
from beamlike.io.sources import Position, Taken
from beamlike.rows.event_time import read_event_time
from beamlike.system.fields import whole_number
from windowing.columns import EVENT_TIME
from windowing.time import format_duration, microseconds

CONSUMER: Final = "consumer"
NEWEST: Final = "newest"
_EARLIEST: Final = "earliest"
_LATEST: Final = "latest"
_STARTS: Final = {_EARLIEST: "0", _LATEST: "$"}
_SCHEMES: Final = ("redis://", "rediss://", "unix://")


def _is_name(owner: object, attribute: attrs.Attribute[str], value: object) -> None:
    if not isinstance(value, str) or not value:
        raise TypeError(f"Redis: {attribute.name} must be a name, not {value!r}")


def _fields(given: Any) -> tuple[tuple[str, Codec], ...]:
    if isinstance(given, tuple) and given and all(isinstance(one, tuple) for one in given):
        return given  # of a source of which another is made
    if not isinstance(given, Mapping) or not given or not all(isinstance(name, str) for name in given):
        raise TypeError(
            f"Redis: fields must be a dict of what is read of a message, such as {{'user': str}}, not {given!r}"
        )
    return tuple((name, messages.codec_of(name, of)) for name, of in given.items())


def _length(given: Any) -> int:
    found = microseconds(given)
    if found < 0:
        raise ValueError(f"Redis: a duration must not be negative: {given!r}")
    return found


@attrs.frozen
class Redis(AnnouncingSource):
    """The messages of a stream of Redis, a row each, that a consumer group is to process.

    `url` is such as "redis://localhost:6379/0". `fields` are those fields of a message that are read, with a type
    (`str`, `bytes`, `int`, `datetime`, ...) or a format such as `bl.json({...})`, which gives its columns; one that a
    message does not have is null, and a message with one that cannot be read is a dead letter. Other columns are
    `redis_id` and `redis_time`, the time in the id, at which the message was added.

    The watermark is the event time of the oldest message that is not acknowledged: by the column that is `timestamp=`
    of `p.read`. With "redis_time" it is perfect, and follows the clock of the server while nothing is left. With
    another column, messages that are still to be sent may be up to `out_of_orderness` older than the newest one.

    Messages are acknowledged when their batch is committed, so the run needs a checkpoint; one without looks at what
    the group was not given yet, and takes nothing. A run is a consumer of its own. `claim_after`: what other consumers
    were given so long ago and have not acknowledged is taken over, for consumers that do not come back.

    `start` is where a group begins that is not there yet: "earliest", "latest" or a datetime, the time in an id.
    `max_messages_per_trigger`: at most so many are a batch. `options` are those of redis-py's client. It needs
    redis-py, from the extra `redis`. Raises `TypeError` and `ValueError` for what cannot be.

    Example:
        >>> plays = bl.Redis("redis://localhost", "plays", group="scores", fields={"user": str, "at": int})
        >>> bl.Pipeline("p").read("plays", plays, timestamp="at", timestamp_unit="s").select("user", "redis_id")
        <Collection 'plays.select': user String, redis_id String>
    """

    url: str = attrs.field(repr=shown)
    stream: str = attrs.field(validator=_is_name)
    group: str = attrs.field(kw_only=True, validator=_is_name)
    fields: tuple[tuple[str, Codec], ...] = attrs.field(kw_only=True, converter=_fields)
    start: str | datetime = attrs.field(default=_EARLIEST, kw_only=True)
    out_of_orderness: int = attrs.field(default=0, kw_only=True, converter=_length, repr=format_duration)
    claim_after: int | None = attrs.field(
        default=None, kw_only=True, converter=attrs.converters.optional(_length)
    )
    max_messages_per_trigger: int | None = attrs.field(
        default=None,
        kw_only=True,
        validator=whole_number(1),
    )
    # Values may be passwords.
    options: Mapping[str, Any] = attrs.field(
        factory=dict, kw_only=True, converter=dict, repr=lambda given: f"[{', '.join(given)}]"
    )
    _time: tuple[str, str | None] | None = attrs.field(default=None, kw_only=True, repr=False)
    _backlog: Backlog = attrs.field(factory=Backlog, init=False, eq=False, repr=False)
    _held: list[tuple[Any, list[Entry]]] = attrs.field(factory=list, init=False, eq=False, repr=False)

    @url.validator
    def _is_an_address(self, attribute: attrs.Attribute[str], value: object) -> None:
        if not isinstance(value, str) or not value.startswith(_SCHEMES):
            raise ValueError(
                f"Redis: url must be such as 'redis://localhost:6379/0', also rediss:// or unix://, not {value!r}"
            )

    @start.validator
    def _is_a_beginning(self, attribute: attrs.Attribute[object], value: object) -> None:
        if value not in _STARTS and not isinstance(value, datetime):
            raise ValueError(f"Redis: start must be 'earliest', 'latest' or a datetime, not {value!r}")

    def __attrs_post_init__(self) -> None:
        self.schema()

    def schema(self) -> pl.Schema:
        """The columns of the fields, and those that Redis adds."""
        return messages.row_schema(dict(self.fields))

    def reading_event_time(self, column: str, unit: str | None) -> Self:
        """The source whose watermark goes by this column."""
        return attrs.evolve(self, time=(column, unit))

    @property
    def _queue(self) -> Group:
        return Group(self.url, self.stream, self.group, tuple(sorted(self.options.items())))

    @property
    def _after(self) -> str:
        if isinstance(self.start, datetime):
            moment = self.start if self.start.tzinfo is not None else self.start.replace(tzinfo=UTC)
            return f"{max(0, int(moment.timestamp() * 1000) - 1)}-{2**64 - 1}"
        return _STARTS[self.start]

    def chunks(self, rows: int) -> Iterator[Announced]:
        """What is there now that the group was not given; it stays there."""
        queue, most = self._queue, self.max_messages_per_trigger or rows
        last = queue.delivered() or self._after
        if last == _STARTS[_LATEST]:
            return
        end = f"{queue.now()}-{2**64 - 1}"
        while entries := queue.after(last, most, end):
            yield Announced(messages.rows_of(entries, dict(self.fields)), None)
            last = entries[-1][0]

    def plan(self, position: Position, rows: int) -> Taken | None:
        """Gives this run's consumer what is next; a run that begins first notes who that is."""
        queue = self._queue
        if CONSUMER not in position:
            queue.make(self._after)
            return Taken(None, {CONSUMER: f"beamlike-{uuid.uuid4().hex[:12]}"}, more=True)
        # Before anything else: what comes meanwhile has a later id.
        consumer, now = position[CONSUMER], queue.now()
        self._backlog.newest = self._backlog.newest or position.get(NEWEST)
        most = self.max_messages_per_trigger or rows
        again, runs, entries = self._take(queue, consumer, most)
        watermark = self._complete_to(queue, consumer, entries, now)
        self._held.clear()
        if not entries:
            return None if watermark is None else Taken(None, {}, watermark=watermark)
        taken = {CONSUMER: consumer, "again": again, "runs": runs}
        self._held.append((taken, entries))
        return Taken(taken, {NEWEST: self._backlog.newest}, len(entries) >= most, watermark)

    def _take(self, queue: Group, consumer: str, most: int) -> tuple[list[str], list[Any], list[Entry]]:
        """What it was given before and never began, what it takes over, and what nobody was given: with the ids."""
        names = queue.pending(consumer, most)
        if self.claim_after is not None and len(names) < most:
            names += queue.claim(consumer, self.claim_after // 1000, most - len(names))
        entries = queue.existing([*dict.fromkeys(names)])
        again, runs = [name for name, _ in entries], list[Any]()
        while len(entries) < most:
            asked = min(most - len(entries), AT_ONCE)
            if got := queue.next_entries(consumer, asked):
                runs.append([got[0][0], got[-1][0], len(got)])
                entries += got
            if len(got) < asked:
                break
        return again, runs, entries

    def _complete_to(self, queue: Group, consumer: str, entries: Sequence[Entry], now: int) -> int | None:
        """The event time of the oldest message that is not acknowledged when these are."""
        if self._time is None:
            return None
        if self._time[0] == messages.TIME:
            return 1000 * min([now, *self._oldest_ids(queue, consumer)])
        self._backlog.came(self._times(entries))
        oldest = self._backlog.oldest(queue, consumer, self._times)
        if self._backlog.newest is None:
            return oldest
        newest = self._backlog.newest - self.out_of_orderness
        return newest if oldest is None else min(oldest, newest)

    def _oldest_ids(self, queue: Group, consumer: str) -> Iterator[int]:
        """The times of the next message that nobody was given, and of the oldest that each other consumer has."""
        for name, _ in queue.after(queue.delivered() or "0", 1):
            yield time_of_id(name)
        for other in queue.others(consumer):
            yield from map(time_of_id, queue.pending(other, 1))

    def _times(self, entries: Sequence[Entry]) -> pl.Series:
        assert self._time is not None
        column, unit = self._time
        values = messages.times_of(entries, dict(self.fields), column)
        return read_event_time(values.lazy(), column, unit).collect()[EVENT_TIME]

    def read(self, taken: Taken) -> Pieces:
        """These messages, by their ids. Raises `DataLoss` where some are gone."""
        return messages.rows_of(self._entries(taken.input), dict(self.fields))

    def _entries(self, taken: Any) -> list[Entry]:
        if self._held and self._held[0][0] == taken:
            return self._held[0][1]
        queue = self._queue
        entries = queue.entries(taken["again"])
        queue.require(len(taken["again"]), len(entries), "that were given before")
        return entries + [
            entry for first, last, count in taken["runs"] for entry in queue.run((first, last, count))
        ]

    def committed(self, taken: Taken) -> None:
        """Acknowledges them."""
        queue, mine = self._queue, taken.input
        queue.acknowledge(mine["again"])
        for first, last, _ in mine["runs"]:
            while names := queue.pending(mine[CONSUMER], AT_ONCE, first, last):
                queue.acknowledge(names)
        self._held.clear()

    def close(self) -> None:
        """Ends the connections."""
        self._queue.close()
