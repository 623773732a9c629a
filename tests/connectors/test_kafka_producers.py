"""Producers, which are kept from batch to batch until something is wrong with them."""

from __future__ import annotations

from typing import Any

import confluent_kafka
import polars as pl
import pytest

import beamlike as bl
from beamlike.io import Part
from beamlike.io.kafka import sender
from beamlike.io.kafka.sender import Sender
from beamlike.io.kafka.sink import _PRODUCERS
from tests.connectors.kafka import Cluster
from tests.connectors.test_kafka_sink import ROWS, rows_of

pytestmark = pytest.mark.connectors


def test_a_producer_is_kept_until_another_process_takes_its_name(kafka: Cluster) -> None:
    topic = kafka.topic()
    sink = bl.KafkaSink(kafka.servers, topic)

    def kept() -> Sender:
        [found] = [one for (of, *_), one in sender._SENDERS._clients.items() if of == topic]
        return found

    for batch in (0, 1):
        sink.write(ROWS, Part("run", batch))
        assert kept().noted == batch + 1
    first = kept()
    sink.write(ROWS, Part("run", 2))
    assert kept() is first
    # A task on another machine does this.
    other = Sender.open({"bootstrap.servers": kafka.servers}, topic, f"beamlike/run/{topic}//0")
    other.send(3, lambda producer: producer.produce(topic, b'{"points": 9}'))
    for batch in (3, 4):
        sink.write(ROWS, Part("run", batch))
    assert kept() is not first
    assert [row["points"] for row in rows_of(kafka, topic)] == [1, 2, 3, 1, 2, 3, 1, 2, 3, 9, 1, 2, 3]
    other.close()


def test_a_producer_whose_connection_broke_is_not_used_again(kafka: Cluster) -> None:
    topic = kafka.topic()
    sink = bl.KafkaSink(kafka.servers, topic)
    sink.write(ROWS, Part("run", 0))
    [first] = [one for (of, *_), one in sender._SENDERS._clients.items() if of == topic]
    assert first.is_sound
    first._complaints.append("a broker was away")
    sink.write(ROWS, Part("run", 1))
    [second] = [one for (of, *_), one in sender._SENDERS._clients.items() if of == topic]
    assert second is not first
    assert len(rows_of(kafka, topic)) == 2 * len(ROWS)


def test_a_producer_without_transactions_is_kept_until_it_fails(kafka: Cluster) -> None:
    topic = kafka.topic()
    sink = bl.KafkaSink(kafka.servers, topic, transactions=False, options={"client.id": topic})

    def kept() -> list[Any]:
        return [one for use, one in _PRODUCERS._clients.items() if topic in str(use)]

    sink.write(ROWS, Part("run", 0))
    [first] = kept()
    sink.write(ROWS, Part("run", 1))
    assert kept() == [first]
    with pytest.raises(confluent_kafka.KafkaException, match="too large"):
        sink.write(pl.DataFrame({"user": ["x" * 3_000_000], "points": [1]}), Part("run", 2))
    assert kept() == []
    sink.write(ROWS, Part("run", 3))
    assert rows_of(kafka, topic) == 3 * ROWS.to_dicts()
