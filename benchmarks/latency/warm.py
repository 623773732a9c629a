"""Transactions before the latency is measured, so that the broker has compiled its code."""

from __future__ import annotations

from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.connectors.kafka import Cluster

_TRANSACTIONS: Final = 5_000
_ROWS: Final = 100


def warm(cluster: Cluster) -> None:
    """Commits transactions of rows and offsets, which takes about twenty seconds.

    The first transactions of a broker take several times as long as those after some thousands.
    A job with one transaction a second would meet only slow ones, whatever the engine.
    """
    topic = cluster.topic(name="warm")
    servers = {"bootstrap.servers": cluster.servers}
    group = Consumer({**servers, "group.id": topic, "enable.auto.commit": False})
    producer = Producer({**servers, "transactional.id": topic, "retry.backoff.ms": 5, "log_level": 0})
    try:
        producer.init_transactions(30)
        for done in range(1, _TRANSACTIONS + 1):
            producer.begin_transaction()
            for row in range(_ROWS):
                producer.produce(topic, b"x" * 80, f"{row}")
            producer.send_offsets_to_transaction(
                [TopicPartition(topic, 0, done)], group.consumer_group_metadata()
            )
            producer.commit_transaction(30)
    finally:
        group.close()
