"""A stream of Redis as a queue: read through a consumer group, acknowledged when a batch is committed."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import Any, Final, Self

import attrs
import polars as pl

from beamlike.io.announcing import AnnouncingSource
from beamlike.io.base import Announced, Pieces
from beamlike.io.kafka.codecs import Codec
from beamlike.io.redis import messages
from beamlike.io.redis.client import Entry, Group, connect, is_address, kept_connection, shown
from beamlike.io.redis.reading import Reading
from beamlike.io.sources import PlannedBatch, Position
from beamlike.rows.event_time import read_event_time
from beamlike.system.fields import whole_number
from windowing.columns import EVENT_TIME
from windowing.time import format_duration, microseconds

_EARLIEST: Final = "earliest"
_LATEST: Final = "latest"
_STARTS: Final = {_EARLIEST: "0", _LATEST: "$"}
Connect = Callable[[str, tuple[tuple[str, Any], ...]], Any]
"""Makes a client of a server, at this address and with these options."""

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

    @url.validator
    def _is_an_address(self, attribute: attrs.Attribute[str], value: object) -> None:
        # No part of it may be shown: where it is malformed, any part may be the password.
        if not isinstance(value, str) or not value.startswith(_SCHEMES):
            scheme = value.partition("://")[0] if isinstance(value, str) and "://" in value else None
            given = f"{scheme}://..." if scheme else type(value).__name__
            raise ValueError(
                f"Redis: url must be such as 'redis://localhost:6379/0', also rediss:// or unix://, not {given}"
            )
        if not is_address(value):
            raise ValueError(
                "Redis: url is no address such as 'redis://:password@localhost:6379/0'; a user or password with any "
                "of :/?#@ in it is quoted by urllib.parse.quote(..., safe='')"
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

    def opened(self, position: Position) -> Reading:
        """Gives the stream as one run reads it, with a connection of its own."""
        return Reading(self, self._group(connect))

    def _group(self, connected: Connect) -> Group:
        options = tuple(sorted(self.options.items()))
        return Group(self.url, self.stream, self.group, connected(self.url, options))

    @property
    def after(self) -> str:
        """The id after which a new group begins."""
        if isinstance(self.start, datetime):
            moment = self.start if self.start.tzinfo is not None else self.start.replace(tzinfo=UTC)
            return f"{max(0, int(moment.timestamp() * 1000) - 1)}-{2**64 - 1}"
        return _STARTS[self.start]

    @property
    def time_column(self) -> str | None:
        """The column with the event time; None if the pipeline has named none."""
        return None if self._time is None else self._time[0]

    def new_consumer(self) -> str:
        """A name for the consumer of a run that begins."""
        return f"beamlike-{uuid.uuid4().hex[:12]}"

    def times(self, entries: Sequence[Entry]) -> pl.Series:
        """The event times (us) of messages, null where there is none."""
        assert self._time is not None
        column, unit = self._time
        values = messages.times_of(entries, dict(self.fields), column)
        return read_event_time(values.lazy(), column, unit).collect()[EVENT_TIME]

    def rows_of(self, entries: Sequence[Entry]) -> Pieces:
        """Messages as rows and dead letters."""
        return messages.rows_of(entries, dict(self.fields))

    def chunks(self, rows: int) -> Iterator[Announced]:
        """Reads the messages that are there now and that the group was not given, without consuming them."""
        with closing(self._group(connect)) as queue:
            most, last = self.max_messages_per_trigger or rows, queue.delivered() or self.after
            if last == _STARTS[_LATEST]:
                return
            end = f"{queue.now()}-{2**64 - 1}"
            while entries := queue.after(last, most, end):
                yield Announced(self.rows_of(entries), None)
                last = entries[-1][0]

    # Of a single call, as by a task of Spark, nothing is kept.

    def plan(self, position: Position, rows: int) -> PlannedBatch | None:
        with closing(self.opened(position)) as reading:
            return reading.plan(position, rows)

    def read(self, taken: PlannedBatch) -> Pieces:
        """The messages of a batch. Raises `DataLoss` where some are gone."""
        return Reading(self, self._group(kept_connection)).read(taken)

    def committed(self, taken: PlannedBatch) -> None:
        with closing(self.opened({})) as reading:
            reading.committed(taken)
