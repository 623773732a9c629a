"""Sends the events of Nexmark to Kafka, in order of arrival: a topic for each kind, a JSON object for each event."""

from __future__ import annotations

import io
from typing import Any, Final

import polars as pl

from beamlike.io.kafka.client import confluent_kafka
from benchmarks.nexmark.generate import Arrivals

KEYS: Final = {"persons": "id", "auctions": "id", "bids": "auction"}
"""The column that determines the partition of an event, so that bids for an auction stay in order of arrival."""


def send(servers: str, arrivals: Arrivals, prefix: str = "") -> None:
    """Sends all events to the topics `<prefix>persons`, `<prefix>auctions` and `<prefix>bids`.

    Raises `RuntimeError` if the brokers accept no events for a minute before all are sent.
    """
    settings = {"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 50}
    producer = confluent_kafka().Producer(settings)
    for file in range(arrivals.files):
        for kind, frame in arrivals.frames(file):
            _send(producer, prefix + kind, frame, KEYS[kind])
    left = producer.flush(60)
    if left:
        raise RuntimeError(f"the brokers at {servers} have not taken {left:,} events")


def _send(producer: Any, topic: str, frame: pl.DataFrame, key: str) -> None:
    buffer = io.BytesIO()
    frame.write_ndjson(buffer)
    for name, value in zip(frame[key].cast(str), buffer.getvalue().splitlines(), strict=True):
        while True:
            try:
                producer.produce(topic, value, name)
            except BufferError:  # full: it is emptied as brokers take what is in it
                producer.poll(1)
            else:
                break
