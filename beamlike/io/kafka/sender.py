"""Transactional producers, which also record which batches are done. A process keeps them from batch to batch.

If a connection breaks, a request to commit may be delayed on it, while the client repeats the request on another
connection. If the delayed request then arrives during the next transaction of the same producer, the broker commits
that transaction: it distinguishes transactions only by the epoch of the producer. Clients with version 2 of the
protocol (KIP-890) change the epoch with each transaction, but librdkafka does not. It does not report the repeated
request either, but it logs that the connection broke. So a producer that has logged anything is not used again: a new
one has another epoch, and the broker refuses the delayed request.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Self

import attrs

from beamlike.io.kafka.client import confluent_kafka
from beamlike.io.kafka.kept import KeptClients
from beamlike.io.sinks import overtaken

PATIENCE: Final = 60.0  # seconds to wait for an answer
_PATIENCE_OF_KEPT: Final = (
    15.0  # seconds to wait with a cached producer, which may never recover from a failure of its broker
)
_STEP: Final = 5.0  # seconds of one call of the client, which is then repeated
_INFO: Final = 6  # a syslog level; it includes failed connections with pending requests, but not idle ones
# A broker answers before it has written the end of a transaction, and refuses the next transaction until
# then. By default the client retries after 100 ms, which would delay every small batch.
_SOON: Final = {"retry.backoff.ms": 5}

Produce = Callable[[Any], object]
"""A function that passes all messages of a part to a producer."""


@attrs.define(eq=False)
class Sender:
    """A producer with a transactional name.

    `noted` is the offset that the consumer group with this name has committed: all batches before it are done. Only
    this producer commits to the group. If another producer takes over the name, this one can no longer be used.
    """

    topic: str
    _ledger: Any
    _producer: Any
    noted: int
    _complaints: list[Any]

    @classmethod
    def open(cls, settings: Mapping[str, Any], topic: str, name: str) -> Self:
        """Opens a producer. Unfinished transactions of another producer with this name are aborted."""
        client = confluent_kafka()
        group = {"group.id": name, "enable.auto.commit": False, "isolation.level": "read_committed"}
        ledger = client.Consumer({**settings, **group})
        try:
            complaints = list[Any]()
            heard = {"error_cb": complaints.append, "log_level": _INFO, "logger": _listening(complaints)}
            producer = client.Producer({**_SOON, **settings, **heard, "transactional.id": name})
            # Without metadata, a producer finds its coordinator only at the second attempt, half a second
            # later.
            insist(lambda patience: producer.list_topics(timeout=patience), PATIENCE)
            insist(producer.init_transactions, PATIENCE)
            [found] = ledger.committed([client.TopicPartition(topic, 0)], timeout=PATIENCE)
            producer.poll(0)
            complaints.clear()  # no transaction has begun yet
            return cls(topic, ledger, producer, found.offset, complaints)
        except BaseException:
            ledger.close()
            raise

    def send(self, batch: int, produce: Produce, patience: float = PATIENCE) -> None:
        """Sends a part of this batch in a transaction, unless it was sent already.

        Raises `RuntimeError` if a later batch was sent.
        """
        client = confluent_kafka()
        done = client.TopicPartition(self.topic, 0, batch + 1)
        if self.noted > done.offset:
            raise overtaken(batch, self.noted - 1)
        if self.noted == done.offset:
            return
        self._producer.begin_transaction()
        try:
            produce(self._producer)
            group = self._ledger.consumer_group_metadata()
            note = partial(self._producer.send_offsets_to_transaction, [done], group)
            insist(note, patience)
            insist(self._producer.commit_transaction, patience)
        except client.KafkaException as error:
            if error.args[0].txn_requires_abort():
                self._producer.abort_transaction(PATIENCE)
            raise
        self.noted = done.offset

    @property
    def is_sound(self) -> bool:
        """True if no connection has failed. So no request of an earlier transaction can be delayed.

        After a failed connection, the next transaction may also wait for minutes.
        """
        self._producer.poll(0)  # this call runs the error callbacks
        return not self._complaints

    def close(self) -> None:
        """Closes the connections."""
        self._ledger.close()


def latest_batch(settings: Mapping[str, Any], topic: str, prefix: str) -> int | None:
    """Returns the last batch that consumer groups with this name prefix have committed; None if there is none."""
    admin = confluent_kafka().admin.AdminClient(dict(settings))
    partition = confluent_kafka().TopicPartition(topic, 0)
    offsets: list[int] = []
    for name in groups(admin, prefix):
        asked = confluent_kafka().ConsumerGroupTopicPartitions(name, [partition])
        [answer] = admin.list_consumer_group_offsets([asked], request_timeout=PATIENCE).values()
        offsets += [found.offset for found in answer.result().topic_partitions]
    return max((offset - 1 for offset in offsets if offset > 0), default=None)


def groups(admin: Any, prefix: str) -> list[str]:
    """Returns the names of the consumer groups with this prefix."""
    found = admin.list_consumer_groups(request_timeout=PATIENCE).result().valid
    return [group.group_id for group in found if group.group_id.startswith(prefix)]


def _listening(complaints: list[Any]) -> logging.Logger:
    """Returns a logger that adds its messages to `complaints`, and writes nothing."""
    logger = logging.Logger("beamlike.kafka", logging.INFO)

    def keep(record: logging.LogRecord) -> bool:
        complaints.append(record.getMessage())
        return False

    logger.addFilter(keep)
    return logger


_SENDERS: Final[KeptClients[Sender]] = KeptClients(Sender.close)


def send_once(settings: Mapping[str, Any], topic: str, name: str, batch: int, produce: Produce) -> None:
    """Sends a part of a batch exactly once, even if several processes try.

    A producer that this process kept from an earlier batch is used if it still owns its name; otherwise the broker
    refuses it. If the producer has already sent a later batch, this one is a replay or belongs to another run, and a
    new producer is needed.
    """
    place = (topic, name, *sorted(settings.items()))
    sender = _SENDERS.take(place)
    if sender is not None and (
        sender.noted > batch or not sender.is_sound or not _sent(sender, batch, produce)
    ):
        sender.close()
        sender = None
    if sender is None:
        sender = Sender.open(settings, topic, name)
        try:
            sender.send(batch, produce)
        except BaseException:
            sender.close()
            raise
    _SENDERS.keep(place, sender)


def _sent(sender: Sender, batch: int, produce: Produce) -> bool:
    try:
        sender.send(batch, produce, _PATIENCE_OF_KEPT)
    except confluent_kafka().KafkaException:
        return False  # a new producer reads whether the transaction was committed
    return True


def insist(call: Callable[[float], object], patience: float) -> None:
    """Calls `call` until it succeeds or, after `patience` seconds, its retriable error is raised.

    The argument of `call` is the timeout of one attempt in seconds. Other errors are raised at once.
    """
    client, end = confluent_kafka(), time.monotonic() + patience
    while True:
        try:
            call(min(_STEP, patience))
        except client.KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > end:
                raise
        else:
            return
