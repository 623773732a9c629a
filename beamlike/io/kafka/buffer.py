"""A buffer of received messages, as columns by partition. Messages are converted in bulk, not one by one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from operator import itemgetter
from types import MappingProxyType
from typing import Any

import attrs
import polars as pl

from beamlike.io.kafka.client import confluent_kafka
from beamlike.io.kafka.messages import (
    HEADERS,
    KEY,
    OFFSET,
    PARTITION,
    TIMESTAMP,
    TIMESTAMP_TYPE,
    TOPIC,
    VALUE,
    raw_schema,
)
from beamlike.io.kafka.offsets import Offsets, split_name, split_of
from stages.frames import concat_nonempty, repeated


@attrs.define(eq=False, slots=False)
class MessageBuffer:
    """Received messages of each partition, in the order of their offsets. `headers`: message headers are kept."""

    headers: bool
    _frames: dict[str, list[pl.DataFrame]] = attrs.field(factory=dict, init=False)

    def put(self, messages: Sequence[Any]) -> Offsets:
        """Adds messages. Returns, for each partition with messages, the offset after the last one."""
        come: dict[str, int] = {}
        for name, frame in _by_partition(messages, self._schema).items():
            self._frames.setdefault(name, []).append(frame)
            come[name] = _end(frame)
        return come

    def take(self, ends: Offsets) -> pl.DataFrame:
        """Removes and returns the messages before these offsets, with the columns of `raw_schema`, by partition and
        offset.

        Only partitions in `ends` are affected.
        """
        parts = [part for name in sorted(ends, key=split_of) for part in self._take(name, ends[name])]
        return concat_nonempty(*parts) if parts else pl.DataFrame(schema=self._schema)

    def _take(self, name: str, to: int) -> list[pl.DataFrame]:
        taken, left = list[pl.DataFrame](), list[pl.DataFrame]()
        for frame in self._frames.pop(name, []):
            count = _before(frame, to)
            taken += [frame[:count]] if count else []
            left += [frame[count:]] if count < len(frame) else []
        if left:
            self._frames[name] = left
        return taken

    def clear(self) -> None:
        """Removes all messages."""
        self._frames.clear()

    def counts(self, since: Offsets = MappingProxyType({})) -> dict[str, int]:
        """Returns the number of buffered messages of each partition, counted from these offsets on."""
        return {
            name: sum(len(frame) - _before(frame, since.get(name, 0)) for frame in frames)
            for name, frames in self._frames.items()
        }

    @property
    def ends(self) -> Offsets:
        """The offset after the last buffered message of each partition."""
        return {name: _end(frames[-1]) for name, frames in self._frames.items()}

    @cached_property
    def _schema(self) -> pl.Schema:
        return raw_schema(headers=self.headers)


def _end(frame: pl.DataFrame) -> int:
    return int(frame[OFFSET][-1]) + 1


def _before(frame: pl.DataFrame, offset: int) -> int:
    """Returns the number of messages in a frame that are before an offset."""
    if _end(frame) <= offset:
        return len(frame)
    return int(frame[OFFSET].search_sorted(offset)) if offset else 0


def _by_partition(messages: Sequence[Any], schema: pl.Schema) -> dict[str, pl.DataFrame]:
    of, parts = confluent_kafka().Message, dict[tuple[str, int], list[Any]]()
    places = zip(map(of.topic, messages), map(of.partition, messages), strict=True)
    for place, message in zip(places, messages, strict=True):
        parts.setdefault(place, []).append(message)
    return {split_name(*place): _columns(part, *place, schema) for place, part in parts.items()}


def _columns(messages: Sequence[Any], topic: str, partition: int, schema: pl.Schema) -> pl.DataFrame:
    """Returns messages of one partition as columns."""
    of = confluent_kafka().Message
    stamps = list(map(of.timestamp, messages))
    kinds, times = (list(map(itemgetter(place), stamps)) for place in (0, 1))
    given: dict[str, Any] = {
        OFFSET: map(of.offset, messages),
        KEY: map(of.key, messages),
        VALUE: map(of.value, messages),
    }
    if HEADERS in schema:
        given[HEADERS] = map(_headers, map(of.headers, messages))
    columns = {name: pl.Series(name, list(values), schema[name]) for name, values in given.items()}
    for name, value in ((TOPIC, topic), (PARTITION, partition)):
        columns[name] = repeated(pl.Series(name, [value], schema[name]), len(messages))
    # Times are in milliseconds; their kind is 0 for no time.
    moments = pl.Series(TIMESTAMP, times, pl.Int64) * 1000
    columns[TIMESTAMP_TYPE] = pl.Series(TIMESTAMP_TYPE, kinds, schema[TIMESTAMP_TYPE]) - 1
    if 0 in kinds:
        moments = moments.set(columns[TIMESTAMP_TYPE] < 0, None)
    columns[TIMESTAMP] = moments.cast(schema[TIMESTAMP])
    return pl.DataFrame([columns[name] for name in schema])


def _headers(headers: list[tuple[str, bytes | None]] | None) -> list[dict[str, Any]] | None:
    return None if headers is None else [{"key": key, "value": value} for key, value in headers]
