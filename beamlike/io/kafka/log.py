"""Topics as a log: where it begins and ends now, and any range of it, read by this process."""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import attrs
import polars as pl

from beamlike.errors import DataLoss, SourceError, nearest
from beamlike.io.kafka.client import COMMON, confluent_kafka
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
from beamlike.io.kafka.offsets import EARLIEST, LATEST, Offsets, Position, split_name, split_of

_LOG = logging.getLogger("beamlike")

_AT_ONCE: Final = 10_000  # messages
_AHEAD: Final = 100_000  # messages of a partition that are held while others are behind
_PATIENCE: Final = 60.0  # seconds without a message or an answer
_NO_GROUP: Final = "beamlike"  # a name that the client asks for; no group is joined, and no offset kept there


@attrs.define
class Log:
    """The partitions of some topics, with a connection of their own until `close`."""

    servers: str
    topics: tuple[str, ...]
    headers: bool
    skips: bool
    _consumer: Any
    _admin: Any
    _complaints: deque[Any]
    # Up to where each partition has been asked for, and given by the consumer; and what it gave beyond.
    _next: dict[str, int] = attrs.field(factory=dict, init=False)
    _at: dict[str, int] = attrs.field(factory=dict, init=False)
    _beyond: dict[str, list[Any]] = attrs.field(factory=dict, init=False)

    @classmethod
    def open(
        cls, servers: str, topics: tuple[str, ...], options: Mapping[str, str], *, headers: bool, skips: bool
    ) -> Log:
        """`skips`: what retention has removed is passed over and told in the log; else it is an error."""
        client = confluent_kafka()
        complaints = deque[Any](maxlen=1)
        common = {
            "bootstrap.servers": servers,
            "log_level": 0,
            "error_cb": complaints.append,
            **options,
        }
        consumer = client.Consumer(
            {
                "group.id": _NO_GROUP,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                **COMMON,
                **common,
            }
        )
        return cls(servers, topics, headers, skips, consumer, client.admin.AdminClient(common), complaints)

    def close(self) -> None:
        """Ends the connection."""
        self._consumer.close()

    def partitions(self) -> list[str]:
        """Those that there are now, in order. Raises `SourceError` for a topic that is not there."""
        with self._failing("be asked for its topics"):
            known = self._admin.list_topics(timeout=_PATIENCE).topics
        for topic in self.topics:
            if topic not in known or known[topic].error is not None:
                raise SourceError(f"there is no topic {topic!r} at {self.servers}{nearest(topic, known)}")
        return [
            split_name(topic, partition)
            for topic in self.topics
            for partition in sorted(known[topic].partitions)
        ]

    def offsets(self, position: Position, otherwise: str) -> Offsets:
        """Where this is now, by partition; `otherwise` EARLIEST or LATEST, in partitions of which it says nothing."""
        if position in (EARLIEST, LATEST):
            otherwise = str(position)
        spec = confluent_kafka().admin.OffsetSpec
        listed = self._listed(self.partitions(), spec.earliest() if otherwise == EARLIEST else spec.latest())
        return {**listed, **self.found(position)}

    def found(self, position: Position) -> Offsets:
        """By partition, where this is known to be, whatever comes: for a time, the first message that is not older."""
        names = self.partitions()
        if isinstance(position, str):
            return {}
        if isinstance(position, Mapping):
            named = {split_name(*split): at for split, at in position.items()}
            if unknown := [name for name in named if name not in names]:
                topic, partition = split_of(unknown[0])
                raise SourceError(f"topic {topic!r} at {self.servers} has no partition {partition}")
            return named
        at = self._listed(names, confluent_kafka().admin.OffsetSpec.for_timestamp(position))
        return {name: offset for name, offset in at.items() if offset >= 0}

    def _listed(self, names: Iterable[str], spec: Any) -> dict[str, int]:
        client = confluent_kafka()
        asked = {client.TopicPartition(*split_of(name)): spec for name in names}
        committed = client.IsolationLevel.READ_COMMITTED
        with self._failing("be asked for its offsets"):
            found = self._admin.list_offsets(asked, isolation_level=committed, request_timeout=_PATIENCE)
            return {
                split_name(of.topic, of.partition): future.result().offset for of, future in found.items()
            }

    def read(self, begin: Offsets, end: Offsets) -> pl.DataFrame:
        """The messages from `begin` to before `end`, as columns of `raw_schema`, in order of partition and offset.

        Raises `DataLoss` where retention has removed some of them, unless it `skips` those.
        """
        spans = {name: (begin[name], to) for name, to in end.items() if to > begin[name]}
        if not all(self._has(name, *span) for name, span in spans.items()):
            spans = self._kept(spans)
        self._go_to({name: first for name, (first, _) in spans.items()})
        messages = [message for name, (_, to) in spans.items() for message in self._held_before(name, to)]
        quiet = time.monotonic()
        while any(self._at[name] < to for name, (_, to) in spans.items()):
            if polled := self._poll():
                quiet = time.monotonic()
                messages += self._sorted_out(polled, spans)
            elif time.monotonic() - quiet > _PATIENCE:
                raise SourceError(f"Kafka at {self.servers} has sent nothing for {_PATIENCE:.0f}s")
        self._next.update({name: to for name, (_, to) in spans.items()})
        return _columns(messages, headers=self.headers)

    def come(self, begin: Offsets, rows: int) -> Offsets:
        """By partition, up to where messages from `begin` on are in this process already; `rows` of them are enough.

        The client fetches ahead, so this asks nobody. What is gone from the broker has not come: `read` tells of it.
        """
        try:
            self._go_to(begin)
            with self._failing("be read"):
                while sum(map(len, self._beyond.values())) < rows:
                    if not (polled := self._consumer.consume(_AT_ONCE, timeout=0)):
                        break
                    self._sorted_out(polled, {})
        except DataLoss:
            self._next.clear()
            return {}
        return {name: held[-1].offset() + 1 for name, held in self._beyond.items()}

    def _has(self, name: str, begin: int, end: int) -> bool:
        """Whether the messages of the span are in this process."""
        return self._next.get(name) == begin and self._at.get(name, begin) >= end

    def _kept(self, spans: dict[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
        """The spans without what retention has removed by now."""
        first = self._listed(spans, confluent_kafka().admin.OffsetSpec.earliest()) if spans else {}
        lost = {name: first[name] for name, (begin, _) in spans.items() if first[name] > begin}
        for name, at in lost.items():
            (topic, partition), wanted = split_of(name), spans[name][0]
            told = (
                f"topic {topic!r}, partition {partition}: the messages from offset {wanted} to before {at} are "
                "gone, as the topic no longer retains them"
            )
            if not self.skips:
                raise DataLoss(f"{told}; on_data_loss='skip' goes on without them")
            _LOG.warning("%s; they are skipped", told)
            spans[name] = (at, max(at, spans[name][1]))
        return spans

    def _go_to(self, begin: Offsets) -> None:
        """Has the consumer read on from there; what it was given beyond the last span counts."""
        if all(self._next.get(name) == at for name, at in begin.items()):
            return
        partition = confluent_kafka().TopicPartition
        self._consumer.assign([partition(*split_of(name), at) for name, at in begin.items()])
        self._next, self._at = dict(begin), dict(begin)
        self._beyond.clear()

    def _held_before(self, name: str, to: int) -> list[Any]:
        """What the consumer gave too early of a partition, up to there."""
        held = self._beyond.pop(name, [])
        count = bisect_left(held, to, key=lambda message: message.offset())
        if count < len(held):
            self._beyond[name] = held[count:]
        if len(held) > _AHEAD:
            self._consumer.resume([confluent_kafka().TopicPartition(*split_of(name))])
        return held[:count]

    def _poll(self) -> list[Any]:
        with self._failing("be read"):
            first = self._consumer.poll(1.0)
            # To ask for many at once waits until there are as many.
            more: list[Any] = [] if first is None else self._consumer.consume(_AT_ONCE, timeout=0)
        return [] if first is None else [first, *more]

    def _sorted_out(self, polled: Iterable[Any], spans: Mapping[str, tuple[int, int]]) -> list[Any]:
        """Those that are within their spans; others are held."""
        found = []
        ends = {name: to for name, (_, to) in spans.items()}
        for message in polled:
            if message.error() is not None:
                self._heed(message)
                continue
            name, at = f"{message.topic()}-{message.partition()}", message.offset()
            self._at[name] = at + 1
            if at < ends.get(name, -1):
                found.append(message)
            else:
                self._hold(name, message)
        return found

    def _hold(self, name: str, message: Any) -> None:
        held = self._beyond.setdefault(name, [])
        held.append(message)
        if len(held) == _AHEAD + 1:  # until others have caught up
            self._consumer.pause([confluent_kafka().TopicPartition(*split_of(name))])

    def _heed(self, message: Any) -> None:
        """What is no message: the end of a partition, or an error, of which those that may pass are waited for."""
        client, error = confluent_kafka(), message.error()
        if error.code() == client.KafkaError._PARTITION_EOF:
            name = split_name(message.topic(), message.partition())
            self._at[name] = max(self._at.get(name, 0), message.offset())
        elif error.code() in (client.KafkaError._AUTO_OFFSET_RESET, client.KafkaError.OFFSET_OUT_OF_RANGE):
            where = f"topic {message.topic()!r}, partition {message.partition()}"
            raise DataLoss(f"{where}: messages went while they were to be read: {error.str()}")
        elif error.code() not in (client.KafkaError._TRANSPORT, client.KafkaError._ALL_BROKERS_DOWN):
            raise SourceError(f"Kafka at {self.servers} cannot be read: {error.str()}")

    @contextmanager
    def _failing(self, what: str) -> Iterator[None]:
        """What the client raises meanwhile is a `SourceError`."""
        try:
            yield
        except confluent_kafka().KafkaException as error:
            self._admin.poll(0)  # or else it does not complain
            why = dict.fromkeys(one.str() for one in (error.args[0], *self._complaints))
            raise SourceError(f"Kafka at {self.servers} cannot {what}: {'; '.join(why)}") from None


def _columns(messages: list[Any], *, headers: bool) -> pl.DataFrame:
    """Messages as columns, those of a partition together."""
    times = [message.timestamp() for message in messages]
    columns: dict[str, list[Any]] = {
        TOPIC: [message.topic() for message in messages],
        PARTITION: [message.partition() for message in messages],
        OFFSET: [message.offset() for message in messages],
        TIMESTAMP: [time for _, time in times],
        TIMESTAMP_TYPE: [kind - 1 for kind, _ in times],  # 0 is for none
        KEY: [message.key() for message in messages],
        VALUE: [message.value() for message in messages],
    }
    if headers:
        columns[HEADERS] = [_headers(message.headers()) for message in messages]
    schema = raw_schema(headers=headers)
    frame = pl.DataFrame(columns, schema={**schema, TIMESTAMP: pl.Int64()})
    moment = pl.when(pl.col(TIMESTAMP_TYPE) >= 0).then(pl.col(TIMESTAMP) * 1000).cast(schema[TIMESTAMP])
    return frame.with_columns(moment.alias(TIMESTAMP)).sort(TOPIC, PARTITION, OFFSET)


def _headers(headers: list[tuple[str, bytes | None]] | None) -> list[dict[str, Any]] | None:
    return None if headers is None else [{"key": key, "value": value} for key, value in headers]
