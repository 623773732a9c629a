"""Connections to a Redis server, and requests about a stream and a consumer group."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from types import ModuleType
from typing import Any, Final
from urllib.parse import urlsplit

import attrs

from beamlike.errors import DataLoss, PlanError, SourceError, missing_package
from beamlike.system.retries import again

AT_ONCE: Final = 10_000
"""The greatest number of messages in a request. While the server answers one, it serves no other client."""

_LOG = logging.getLogger("beamlike")

Entry = tuple[str, Mapping[bytes, bytes]]
"""A message: its id and its fields."""

Run = tuple[str, str, int]
"""Consecutive messages of a stream: the first id, the last id, and their number."""


def redis() -> ModuleType:
    """Imports the client library. Raises `MissingPackage`, which names the package to install."""
    try:
        import redis
        import redis.backoff
        import redis.retry
    except ModuleNotFoundError as error:
        raise missing_package("bl.Redis needs redis-py", "redis", error) from None
    return redis


def shown(url: str) -> str:
    """Returns the address without user, password and options."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()


def is_address(url: str) -> bool:
    """True for a well-formed address, from which `shown` can remove all secrets."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    behind = f"{parts.path}{parts.query}{parts.fragment}"
    return parts.netloc.count("@") <= 1 and (parts.scheme == "unix" or "@" not in behind)


def connect(url: str, options: tuple[tuple[str, Any], ...]) -> Any:
    """Returns a client with its own connections. Raises `PlanError` for options that the client library refuses."""
    # The client would repeat a lost delivery by itself, whose messages would be read behind later ones.
    once = redis().retry.Retry(redis().backoff.NoBackoff(), 0)
    client = redis().Redis.from_url(url, **{"retry": once, **dict(options)})
    pool = client.connection_pool
    try:
        pool.connection_class(**pool.connection_kwargs)  # this does not connect yet
    except TypeError as error:
        raise PlanError(f"Redis: options= are not those of redis-py's client: {error}") from None
    return client


@lru_cache(maxsize=16)
def kept_connection(url: str, options: tuple[tuple[str, Any], ...]) -> Any:
    """Returns a client that all tasks of this process share. It is never closed."""
    return connect(url, options)


def time_of_id(name: str) -> int:
    """Returns the time in an id, in milliseconds since 1970: the message was added then."""
    return int(name.partition("-")[0])


@attrs.frozen(eq=False)
class ConsumerGroup:
    """A consumer group of a stream. Errors of the server are raised as `SourceError`."""

    url: str
    stream: str
    name: str
    _server: Any

    @contextmanager
    def _errors(self) -> Iterator[Any]:
        try:
            yield self._server
        except redis().exceptions.RedisError as error:
            hint = ""
            if "NOGROUP" in str(error):
                hint = "; the group was removed: begin again with another checkpoint, or restore it"
            raise SourceError(
                f"stream {self.stream!r}, group {self.name!r} of Redis at {shown(self.url)}: {error}{hint}"
            ) from None

    def close(self) -> None:
        """Closes the connections of the client."""
        self._server.close()

    def make(self, after: str) -> None:
        """Creates the group if it does not exist. It begins after this id."""
        with self._errors() as server:
            try:
                server.xgroup_create(self.stream, self.name, after, mkstream=True)
            except redis().exceptions.ResponseError as error:
                if "BUSYGROUP" not in str(error):
                    raise

    def now(self) -> int:
        """Returns the server's time in milliseconds. Ids of later messages are not before it."""
        with self._errors() as server:
            seconds, micros = server.time()
        return int(seconds * 1000 + micros // 1000)

    def delivered(self) -> str | None:
        """Returns the id of the last message that any consumer received; None if the group does not exist."""
        with self._errors() as server:
            groups = server.xinfo_groups(self.stream) if server.exists(self.stream) else []
        found = [one["last-delivered-id"] for one in groups if one["name"].decode() == self.name]
        return found[0].decode() if found else None

    def next_entries(self, consumer: str, most: int) -> list[Entry]:
        """Delivers new messages to this consumer. They are consecutive in the stream."""
        with self._errors() as server:
            got = server.xreadgroup(self.name, consumer, {self.stream: ">"}, count=most)
        found = got.values() if isinstance(got, dict) else [entries for _, entries in got or []]
        return [_entry(one) for entries in found for one in _flat(entries)]

    def pending(self, consumer: str, most: int, first: str = "-", last: str = "+") -> list[str]:
        """Returns ids of messages that this consumer received and has not acknowledged, oldest first."""
        with self._errors() as server:
            found = server.xpending_range(self.stream, self.name, first, last, most, consumername=consumer)
        return [one["message_id"].decode() for one in found]

    def others(self, consumer: str) -> list[str]:
        """Returns the other consumers that have messages to acknowledge."""
        with self._errors() as server:
            summary = server.xpending(self.stream, self.name)
        names = [one["name"].decode() for one in summary["consumers"]]
        return [name for name in names if name != consumer]

    def claim(self, consumer: str, silent: int, most: int) -> list[str]:
        """Takes over messages that other consumers received at least `silent` ms ago and have not acknowledged."""
        with self._errors() as server:
            found = server.xautoclaim(self.stream, self.name, consumer, silent, count=most, justid=True)
        return [one.decode() for one in found]

    def entries(self, names: Sequence[str]) -> list[Entry]:
        """Returns the messages with these ids that still exist."""
        found: list[Entry] = []
        for first in range(0, len(names), AT_ONCE):
            found += again(self._what, partial(self._ranges, names[first : first + AT_ONCE]))
        return found

    def _ranges(self, names: Sequence[str]) -> list[Entry]:
        with self._errors() as server:
            asked = server.pipeline(transaction=False)
            for name in names:
                asked.xrange(self.stream, name, name)
            return [_entry(one) for got in asked.execute() for one in got]

    @property
    def _what(self) -> str:
        return f"stream {self.stream!r}"

    def existing(self, names: Sequence[str]) -> list[Entry]:
        """Returns the messages with these ids. Logs and acknowledges those that no longer exist."""
        found = self.entries(names)
        if gone := [*{*names} - {name for name, _ in found}]:
            _LOG.warning(
                "%d messages of stream %r, the first with id %s, were removed before they were read",
                len(gone),
                self.stream,
                min(gone, key=time_of_id),
            )
            self.acknowledge(gone)
        return found

    def run(self, run: Run) -> list[Entry]:
        """Returns consecutive messages. Raises `DataLoss` if some no longer exist."""
        first, last, count = run
        found: list[Entry] = []
        while len(found) < count and (
            got := self.after(first, count - len(found), last, inclusive=not found)
        ):
            found += got
            first = got[-1][0]
        # The messages were consecutive, so fewer of them mean that the stream was trimmed.
        self.require(count, len(found), f"from {run[0]} to {last}")
        return found

    def planned(self, again: Sequence[str], runs: Iterable[Run]) -> list[Entry]:
        """Returns the messages of a planned batch. Raises `DataLoss` if some no longer exist."""
        entries = self.entries(again)
        self.require(len(again), len(entries), "that were given before")
        return entries + [entry for first, last, count in runs for entry in self.run((first, last, count))]

    def require(self, count: int, found: int, which: str) -> None:
        """Raises `DataLoss` if only `found` of `count` messages exist. `which` describes them."""
        if found < count:
            raise DataLoss(
                f"stream {self.stream!r}: of the {count} messages {which}, {count - found} are gone; a stream must "
                "keep messages until they are acknowledged"
            )

    def after(self, name: str, most: int, last: str = "+", *, inclusive: bool = False) -> list[Entry]:
        """Returns at most `most` messages after this id."""
        begin = name if inclusive else f"({name}"
        with self._errors() as server:
            got = again(self._what, lambda: server.xrange(self.stream, begin, last, count=min(most, AT_ONCE)))
        return [_entry(one) for one in got]

    def acknowledge(self, names: Iterable[str]) -> None:
        """Acknowledges the messages with these ids."""
        ids = [*names]
        for first in range(0, len(ids), AT_ONCE):
            with self._errors() as server:
                again(self._what, partial(server.xack, self.stream, self.name, *ids[first : first + AT_ONCE]))


def _flat(entries: Any) -> list[Any]:
    """Returns the messages of a stream. Newer versions of the protocol wrap them in one more list."""
    return entries[0] if entries and isinstance(entries[0], list) else entries


def _entry(one: Any) -> Entry:
    name, fields = one
    return name.decode(), fields or {}
