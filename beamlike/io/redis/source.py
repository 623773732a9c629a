"""A Redis stream as a queue. It is read through a consumer group, and acknowledged when a batch is committed."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import Any, Final, Self
from urllib.parse import urlsplit

import attrs
import polars as pl

from beamlike.io.announcing import AnnouncingSource
from beamlike.io.base import Announced, Pieces
from beamlike.io.kafka.codecs import Codec
from beamlike.io.redis import messages
from beamlike.io.redis.client import ConsumerGroup, Entry, connect, is_address, kept_connection, shown
from beamlike.io.redis.reading import Reading
from beamlike.io.sources import PlannedBatch, Position
from beamlike.rows.event_time import read_event_time
from beamlike.system.datasets import Dataset, server_dataset
from beamlike.system.fields import as_options, whole_number
from windowing.columns import EVENT_TIME
from windowing.time import Duration, format_duration, microseconds

_EARLIEST: Final = "earliest"
_LATEST: Final = "latest"
_STARTS: Final = {_EARLIEST: "0", _LATEST: "$"}
Connect = Callable[[str, tuple[tuple[str, Any], ...]], Any]
"""Returns a client for an address and options."""

_SCHEMES: Final = ("redis://", "rediss://", "unix://")


def _is_name(owner: object, attribute: attrs.Attribute[str], value: object) -> None:
    if not isinstance(value, str) or not value:
        raise TypeError(f"Redis: {attribute.name} must be a name, not {value!r}")


def _fields(given: Any) -> tuple[tuple[str, Codec], ...]:
    if isinstance(given, tuple) and given and all(isinstance(one, tuple) for one in given):
        return given  # `attrs.evolve` passes a value that is converted already
    if not isinstance(given, Mapping) or not given or not all(isinstance(name, str) for name in given):
        raise TypeError(
            f"Redis: fields must be a dict of what is read of a message, such as {{'user': str}}, not {given!r}"
        )
    return tuple((name, messages.codec_of(name, of)) for name, of in given.items())


def _length(given: Duration) -> int:
    found = microseconds(given)
    if found < 0:
        raise ValueError(f"Redis: a duration must not be negative: {given!r}")
    return found


def _length_if_any(given: Duration | None) -> int | None:
    return None if given is None else _length(given)


@attrs.frozen
class Redis(AnnouncingSource):
    """The messages of a Redis stream, as rows. A consumer group processes them.

    Columns: those of `fields`; `redis_id`; and `redis_time`, the time in the id, when the message was added. A message
    with an invalid field is a dead letter.

    The watermark is the event time of the oldest message that is not acknowledged. The event time is the column given
    as `timestamp=` of `p.read`. With "redis_time" no row is late, and the watermark follows the server's clock while
    there are no messages.

    Messages are acknowledged when their batch is committed, so a run needs a checkpoint. A run without one reads
    messages that were not delivered to the group yet, and consumes nothing. Each run is a consumer of its own. Needs
    redis-py, from the extra `redis`.

    Args:
        url: The address of the server, such as "redis://localhost:6379/0".
        stream: The name of the stream.
        group: The name of the consumer group. It is created if it does not exist.
        fields: The fields to read, each with a type (`str`, `bytes`, `int`, `datetime`, ...) or with a format such as
            `bl.json({...})` that has columns of its own. A field that a message lacks is null.
        start: Where a new group begins: "earliest", "latest", or a datetime, compared with the times in ids.
        out_of_orderness: A duration: later messages may be older than the newest event time by this much. Not used if
            the event time is "redis_time".
        claim_after: A duration after which messages that other consumers have not acknowledged are taken over. By
            default they are not taken over.
        max_messages_per_trigger: The greatest number of messages in a batch.
        options: Options of redis-py's client.

    Raises:
        TypeError: An argument has a wrong type.
        ValueError: An argument is invalid.

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
    claim_after: int | None = attrs.field(default=None, kw_only=True, converter=_length_if_any)
    max_messages_per_trigger: int | None = attrs.field(
        default=None,
        kw_only=True,
        validator=whole_number(1),
    )
    # Options may contain passwords, so only their names are shown.
    options: Mapping[str, Any] = attrs.field(
        factory=dict, kw_only=True, converter=as_options, repr=lambda given: f"[{', '.join(given)}]"
    )
    _time: tuple[str, str | None] | None = attrs.field(default=None, kw_only=True, repr=False)

    @url.validator
    def _is_an_address(self, attribute: attrs.Attribute[str], value: object) -> None:
        # No part of a malformed URL is shown, because any part may be the password.
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

    def datasets(self) -> list[Dataset]:
        address = urlsplit(shown(self.url))
        where = address.netloc or f"localhost{address.path}"
        return [server_dataset("redis", where, 6379, self.stream)]

    def schema(self) -> pl.Schema:
        """Returns the columns of the fields, and the columns that Redis adds."""
        return messages.row_schema(dict(self.fields))

    def reading_event_time(self, column: str, unit: str | None) -> Self:
        return attrs.evolve(self, time=(column, unit))

    def opened(self, position: Position) -> Reading:
        """Opens the stream for one run, with its own connection."""
        return Reading(self, self._group(connect))

    def _group(self, connected: Connect) -> ConsumerGroup:
        options = tuple(sorted(self.options.items()))
        return ConsumerGroup(self.url, self.stream, self.group, connected(self.url, options))

    @property
    def after(self) -> str:
        """The id after which a new group begins."""
        if isinstance(self.start, datetime):
            moment = self.start if self.start.tzinfo is not None else self.start.replace(tzinfo=UTC)
            return f"{max(0, int(moment.timestamp() * 1000) - 1)}-{2**64 - 1}"
        return _STARTS[self.start]

    @property
    def time_column(self) -> str | None:
        """The column with the event time; None if the pipeline reads none."""
        return None if self._time is None else self._time[0]

    def new_consumer(self) -> str:
        """Returns a name for the consumer of a new run."""
        return f"beamlike-{uuid.uuid4().hex[:12]}"

    def times(self, entries: Sequence[Entry]) -> pl.Series:
        """Returns the event times (us) of messages; null if a message has none."""
        assert self._time is not None
        column, unit = self._time
        values = messages.times_of(entries, dict(self.fields), column)
        return read_event_time(values.lazy(), column, unit).collect()[EVENT_TIME]

    def rows_of(self, entries: Sequence[Entry]) -> Pieces:
        """Converts messages to rows and dead letters."""
        return messages.rows_of(entries, dict(self.fields))

    def chunks(self, rows: int) -> Iterator[Announced]:
        """Reads messages not yet delivered to the group, without consuming them."""
        with closing(self._group(connect)) as queue:
            most, last = self.max_messages_per_trigger or rows, queue.delivered() or self.after
            if last == _STARTS[_LATEST]:
                return
            end = f"{queue.now()}-{2**64 - 1}"
            while entries := queue.after(last, most, end):
                yield Announced(self.rows_of(entries), None)
                last = entries[-1][0]

    # Methods of the declaration itself, which Spark tasks call, store nothing.

    def plan(self, position: Position, rows: int) -> PlannedBatch | None:
        with closing(self.opened(position)) as reading:
            return reading.plan(position, rows)

    def read(self, batch: PlannedBatch) -> Pieces:
        return Reading(self, self._group(kept_connection)).read(batch)

    def committed(self, batch: PlannedBatch) -> None:
        with closing(self.opened({})) as reading:
            reading.committed(batch)
