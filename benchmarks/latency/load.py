"""Sends elements to a topic at a steady rate, and prints when the first one of each second was stored.

python -m benchmarks.latency.load SERVERS TOPIC RATE KEYS

Each line has the beginning of a second and the time at which the broker had its first element, in milliseconds.
"""

from __future__ import annotations

import random
import time

import click
from confluent_kafka import Producer

_TURN = 0.002  # seconds


@click.command()
@click.argument("servers")
@click.argument("topic")
@click.argument("rate", type=int)
@click.argument("keys", type=int)
def main(servers: str, topic: str, rate: int, keys: int) -> None:
    """Sends until it is killed."""
    # A broker that is busy for some seconds must not end this.
    room = {"queue.buffering.max.messages": 10_000_000}
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 2, "acks": "1", **room})
    chance, sent, second = random.Random(7), 0, 0
    begins = [f'{{"key":{chance.randrange(keys)},"at":' for _ in range(100_000)]

    def told(error: object, message: object) -> None:
        assert error is None, error
        _, arrived = message.timestamp()  # type: ignore[attr-defined]
        value = message.value()  # type: ignore[attr-defined]
        print(int(value.rpartition(b":")[2][:-1]) // 1000 * 1000, arrived, flush=True)

    began = time.monotonic()
    while True:
        due, now = int((time.monotonic() - began) * rate), time.time_ns() // 1_000_000
        for number in range(sent, due):
            first = now // 1000 > second
            value = f"{begins[number % 100_000]}{now}}}"
            producer.produce(topic, value, on_delivery=told if first else None)
            second = now // 1000
        sent = due
        producer.poll(0)
        time.sleep(_TURN)


if __name__ == "__main__":
    main()
