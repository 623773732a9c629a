"""A buffer of received messages, as columns by partition. Messages are converted in bulk, not one by one."""

from __future__ import annotations

from collections.abc import Sequence
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


@attrs.define(eq=False)
class MessageBuffer:
    """Received messages of each partition, in the order of their offsets. `headers`: message headers are kept."""

    headers: bool
    _frames: dict[str, list[pl.DataFrame]] = attrs.field(factory=dict, init=False)

    def put(self, messages: Sequence[Any]) -> Offsets:
        """Adds messages. Returns, for each partition with messages, the offset after the last one."""
        come: dict[str, int] = {}
        for name, frame in _by_partition(messages, self._given).items():
            self._frames.setdefault(name, []).append(frame)
            come[name] = _end(frame)
        return come

    def take(self, ends: Offsets) -> pl.DataFrame:
        """Removes and returns the messages before these offsets, with the columns of `raw_schema`, by partition and
        offset.

        Only partitions in `ends` are affected.
        """
        parts = [part for name in sorted(ends, key=split_of) for part in self._take(name, ends[name])]
        kind = pl.col(TIMESTAMP_TYPE) - 1  # 0 means that there is no time
        moment = pl.when(kind >= 0).then(pl.col(TIMESTAMP) * 1000).cast(pl.Datetime("us", "UTC"))
        return pl.concat([pl.DataFrame(schema=self._given), *parts]).with_columns(moment, kind)

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

    @property
    def _given(self) -> pl.Schema:
        """The columns as the client returns them. Times are in milliseconds; their kind is a number, 0 for no time."""
        return pl.Schema({**raw_schema(headers=self.headers), TIMESTAMP: pl.Int64()})


def _end(frame: pl.DataFrame) -> int:
    return int(frame[OFFSET][-1]) + 1


def _before(frame: pl.DataFrame, offset: int) -> int:
    """Returns the number of messages in a frame that are before an offset."""
    if _end(frame) <= offset:
        return len(frame)
    return int(frame[OFFSET].search_sorted(offset)) if offset else 0


def _by_partition(messages: Sequence[Any], schema: pl.Schema) -> dict[str, pl.DataFrame]:
    if not messages:
        return {}
    of = confluent_kafka().Message
    frame = _columns(messages, schema)
    places = set(zip(map(of.topic, messages), map(of.partition, messages), strict=True))
    if len(places) == 1:
        return {split_name(*places.pop()): frame}
    parts = frame.partition_by(TOPIC, PARTITION, as_dict=True, maintain_order=True)
    return {split_name(topic, partition): part for (topic, partition), part in parts.items()}


def _columns(messages: Sequence[Any], schema: pl.Schema) -> pl.DataFrame:
    of = confluent_kafka().Message
    times = list(map(of.timestamp, messages))
    given: dict[str, Any] = {
        TOPIC: map(of.topic, messages),
        PARTITION: map(of.partition, messages),
        OFFSET: map(of.offset, messages),
        TIMESTAMP: map(itemgetter(1), times),
        TIMESTAMP_TYPE: map(itemgetter(0), times),
        KEY: map(of.key, messages),
        VALUE: map(of.value, messages),
    }
    if HEADERS in schema:
        given[HEADERS] = map(_headers, map(of.headers, messages))
    return pl.DataFrame([pl.Series(name, list(given[name]), dtype) for name, dtype in schema.items()])


def _headers(headers: list[tuple[str, bytes | None]] | None) -> list[dict[str, Any]] | None:
    return None if headers is None else [{"key": key, "value": value} for key, value in headers]
