"""Kafka topics as logs: their first and last offsets, and any range of their messages, read by this process."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
import polars as pl

from beamlike.errors import DataLoss, SourceError, nearest
from beamlike.io.kafka.buffer import MessageBuffer
from beamlike.io.kafka.client import COMMON, confluent_kafka
from beamlike.io.kafka.contact import PATIENCE, Contact
from beamlike.io.kafka.offsets import EARLIEST, LATEST, Boundary, Offsets, split_name, split_of
from beamlike.system.garbage import without_collecting

_LOG = logging.getLogger("beamlike")

_AT_ONCE: Final = 10_000  # messages in one call
_AHEAD: Final = 100_000  # buffered messages of a partition, above which the partition is paused
_NO_GROUP: Final = "beamlike"  # the client requires a group, but none is joined and no offset is committed


class UnknownTopic(SourceError):
    """The error for a topic that does not exist."""


@attrs.define(kw_only=True)
class Log:
    """The partitions of some topics, read over a connection that is open until `close`."""

    servers: str
    topics: tuple[str, ...]
    headers: bool
    skips: bool
    _contact: Contact
    _consumer: Any
    # By partition: the next offset to return, the next offset to receive; the received messages; and paused
    # partitions.
    _next: dict[str, int] = attrs.field(factory=dict, init=False)
    _at: dict[str, int] = attrs.field(factory=dict, init=False)
    _buffer: MessageBuffer = attrs.field(init=False)
    _waiting: frozenset[str] = attrs.field(default=frozenset(), init=False)

    def __attrs_post_init__(self) -> None:
        self._buffer = MessageBuffer(self.headers)

    @classmethod
    def open(
        cls, servers: str, topics: tuple[str, ...], options: Mapping[str, str], *, headers: bool, skips: bool
    ) -> Log:
        """Opens a connection.

        `skips`: messages that retention has removed are logged and skipped. Otherwise they are an error.
        """
        contact = Contact.to(servers, options)
        consumer = contact.consumer(
            {
                "group.id": _NO_GROUP,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                # How long the client stops fetching when its queue is full. The default is a second, long
                # enough for the queue to run empty.
                "fetch.queue.backoff.ms": 10,
                **COMMON,
            }
        )
        return cls(
            servers=servers,
            topics=topics,
            headers=headers,
            skips=skips,
            contact=contact,
            consumer=consumer,
        )

    def close(self) -> None:
        """Closes the connection."""
        self._consumer.close()

    def partitions(self) -> list[str]:
        """Returns the existing partitions, in order. Raises `SourceError` for a topic that does not exist."""
        known = self._contact.topics()
        for topic in self.topics:
            if topic not in known or known[topic].error is not None:
                raise UnknownTopic(f"there is no topic {topic!r} at {self.servers}{nearest(topic, known)}")
        return [
            split_name(topic, partition)
            for topic in self.topics
            for partition in sorted(known[topic].partitions)
        ]

    def offsets(self, position: Boundary, otherwise: str) -> Offsets:
        """Returns, for each partition, the current offset of `position`.

        `otherwise` is EARLIEST or LATEST. It is used for partitions that `position` does not define.
        """
        if position in (EARLIEST, LATEST):
            otherwise = str(position)
        spec = confluent_kafka().admin.OffsetSpec
        listed = self._contact.listed(
            self.partitions(), spec.earliest() if otherwise == EARLIEST else spec.latest()
        )
        return {**listed, **self.found(position)}

    def found(self, position: Boundary) -> Offsets:
        """Returns the offsets that `position` defines independently of messages that arrive later.

        For a time, that is the offset of the first message at or after it.
        """
        names = self.partitions()
        if isinstance(position, str):
            return {}
        if isinstance(position, Mapping):
            named = {split_name(*split): at for split, at in position.items()}
            if unknown := [name for name in named if name not in names]:
                topic, partition = split_of(unknown[0])
                raise SourceError(f"topic {topic!r} at {self.servers} has no partition {partition}")
            return named
        at = self._contact.listed(names, confluent_kafka().admin.OffsetSpec.for_timestamp(position))
        return {name: offset for name, offset in at.items() if offset >= 0}

    def read(self, begin: Offsets, end: Offsets) -> pl.DataFrame:
        """Returns the messages from `begin` to before `end`, with the columns of `raw_schema`, by partition and offset.

        Raises `DataLoss` if retention has removed some of them, unless the log `skips` lost messages.
        """
        spans = {name: (begin[name], to) for name, to in end.items() if to > begin[name]}
        if not all(self._has(name, *span) for name, span in spans.items()):
            spans = self._kept(spans)
        self._go_to({name: first for name, (first, _) in spans.items()})
        ends = {name: to for name, (_, to) in spans.items()}
        self._throttle(ends)
        quiet = time.monotonic()
        while any(self._at[name] < to for name, to in ends.items()):
            with self._contact.failing("be read"):
                came = self._take_in(1.0)
            if came:
                quiet = time.monotonic()
                self._throttle(ends)
            elif time.monotonic() - quiet > PATIENCE:
                raise SourceError(f"Kafka at {self.servers} has sent nothing for {PATIENCE:.0f}s")
        self._next.update(ends)
        return self._buffer.take(ends)

    def received(self, begin: Offsets, rows: int) -> Offsets:
        """Returns, for each partition, the offset up to which messages after `begin` are already in this process.

        It stops at about `rows` messages. It sends no request, because the client fetches ahead. Messages that the
        broker has removed are not detected here; `read` reports them.
        """
        try:
            self._go_to(begin)
            with self._contact.failing("be read"):
                self._throttle({})
                # Messages that arrive during this loop are left for the next call. Otherwise the loop might
                # never end.
                while self._take_in(0.0) > _AT_ONCE and sum(self._buffer.counts().values()) < rows:
                    pass
        except DataLoss:
            self._next.clear()
            return {}
        return self._buffer.ends

    def _has(self, name: str, begin: int, end: int) -> bool:
        """True if all messages from `begin` to before `end` are in this process."""
        return self._next.get(name) == begin and self._at.get(name, begin) >= end

    def within(self, at: Offsets) -> Offsets:
        """Returns the offsets `at` if they are within the log. Raises `DataLoss` if a partition ends before its offset,
        for example in a recreated topic.

        If the log `skips` lost messages, such a partition starts at its beginning instead.
        """
        ends = self.offsets(LATEST, LATEST)
        beyond = [name for name, offset in at.items() if self._is_of(name) and offset > ends.get(name, 0)]
        for name in beyond:
            self._lose(name, _beyond(at[name], ends.get(name)), "reads what it has now from the beginning")
        first = self.offsets(EARLIEST, EARLIEST) if beyond else {}
        return {**at, **{name: first.get(name, 0) for name in beyond}}

    def _is_of(self, name: str) -> bool:
        return split_of(name)[0] in self.topics

    def _lose(self, name: str, what: str, remedy: str) -> None:
        """Raises `DataLoss` for lost messages of a partition, or logs the loss if the log `skips` lost messages. `what`
        describes the loss.
        """
        topic, partition = split_of(name)
        message = f"topic {topic!r}, partition {partition}: {what}; on_data_loss='skip' {remedy}"
        if not self.skips:
            raise DataLoss(message)
        _LOG.warning("%s", message)

    def _kept(self, spans: dict[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
        """Returns the ranges of offsets, shortened by the messages that retention has removed."""
        first = self._contact.listed(spans, confluent_kafka().admin.OffsetSpec.earliest()) if spans else {}
        lost = {name: first[name] for name, (begin, _) in spans.items() if first[name] > begin}
        for name, at in lost.items():
            wanted = spans[name][0]
            gone = f"the messages from offset {wanted} to before {at} are gone, as the topic no longer retains them"
            self._lose(name, gone, "continues without them")
            spans[name] = (at, max(at, spans[name][1]))
        return spans

    def _go_to(self, begin: Offsets) -> None:
        """Moves the consumer to `begin`, unless it is already there. A move discards the buffer."""
        if all(self._next.get(name) == at for name, at in begin.items()):
            return
        self._buffer.clear()
        self._throttle({})  # A paused partition would stay paused after it is assigned again.
        partition = confluent_kafka().TopicPartition
        self._consumer.assign([partition(*split_of(name), at) for name, at in begin.items()])
        self._next, self._at = dict(begin), dict(begin)

    def _take_in(self, patience: float) -> int:
        """Moves received messages, about `_AT_ONCE` at most, to the buffer. Returns their number.

        Waits up to `patience` seconds for the first message.
        """
        if (first := self._consumer.poll(patience)) is None:
            return 0
        with without_collecting():
            # One call for many messages would wait until it has all of them.
            polled = [first, *self._consumer.consume(_AT_ONCE, timeout=0)]
            self._hold(polled)
        return len(polled)

    def _hold(self, polled: Sequence[Any]) -> None:
        """Adds messages to the buffer. Handles errors and ends of partitions, which arrive among them."""
        errors = list(map(confluent_kafka().Message.error, polled))
        if any(errors):  # Usually there are no errors, and the messages need not be examined one by one.
            for message, error in zip(polled, errors, strict=True):
                if error is not None:
                    self._heed(message)
            polled = [message for message, error in zip(polled, errors, strict=True) if error is None]
        for name, at in self._buffer.put(polled).items():
            self._at[name] = max(self._at.get(name, 0), at)

    def _throttle(self, wanted: Offsets) -> None:
        """Pauses partitions with many buffered messages beyond those `wanted`. Resumes them when the buffer
        has shrunk.
        """
        far = frozenset(name for name, count in self._buffer.counts(wanted).items() if count > _AHEAD)
        partition = confluent_kafka().TopicPartition
        if new := far - self._waiting:
            self._consumer.pause([partition(*split_of(name)) for name in new])
        if over := self._waiting - far:
            self._consumer.resume([partition(*split_of(name)) for name in over])
        self._waiting = far

    def _heed(self, message: Any) -> None:
        """Handles the end of a partition or an error. Errors that may be temporary are ignored."""
        client, error = confluent_kafka(), message.error()
        if error.code() == client.KafkaError._PARTITION_EOF:
            name = split_name(message.topic(), message.partition())
            self._at[name] = max(self._at.get(name, 0), message.offset())
        elif error.code() in (client.KafkaError._AUTO_OFFSET_RESET, client.KafkaError.OFFSET_OUT_OF_RANGE):
            where = f"topic {message.topic()!r}, partition {message.partition()}"
            raise DataLoss(f"{where}: messages were removed while they were read: {error.str()}")
        elif error.code() not in (client.KafkaError._TRANSPORT, client.KafkaError._ALL_BROKERS_DOWN):
            raise SourceError(f"Kafka at {self.servers} cannot be read: {error.str()}")


def _beyond(at: int, end: int | None) -> str:
    """Returns the message for an offset after the end of a partition, or in a partition that does not exist."""
    there = "there is no such partition" if end is None else f"it ends at offset {end}"
    return f"the next message to read is at offset {at}, but {there}, as if the topic had been created again"
