"""Counts by key and second from a topic to another, in Bytewax, with its Kafka connector.

python bytewax_latency.py SERVERS INPUT OUTPUT CHECKPOINT

It has no recovery, whose snapshots are made at the end of an epoch, so that rows are visible when they are sent.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import bytewax.operators as op
import bytewax.operators.windowing as win
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource, KafkaSourceMessage
from bytewax.dataflow import Dataflow
from bytewax.testing import run_main
from confluent_kafka import OFFSET_END

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)


def _element(message: KafkaSourceMessage[Any, Any]) -> tuple[str, int]:
    found = json.loads(message.value)
    return str(found["key"]), found["at"]


def _pane(counted: tuple[str, tuple[int, int]]) -> KafkaSinkMessage[None, bytes]:
    key, (window, n) = counted
    value = {"window_end": (window + 1) * 1000, "key": int(key), "n": n}
    return KafkaSinkMessage(None, json.dumps(value).encode())


def main(servers: str, source: str, target: str, *_: str) -> None:
    flow = Dataflow("latency")
    config = {"fetch.wait.max.ms": "5"}
    read = KafkaSource([servers], [source], tail=True, starting_offset=OFFSET_END, add_config=config)
    elements = op.map("element", op.input("read", flow, read), _element)
    clock = win.EventClock(
        ts_getter=lambda at: _EPOCH + timedelta(milliseconds=at), wait_for_system_duration=timedelta(0)
    )
    windower = win.TumblingWindower(length=_SECOND, align_to=_EPOCH)
    counts = win.fold_window(
        "count", elements, clock, windower, lambda: 0, lambda n, _: n + 1, lambda a, b: a + b, ordered=False
    )
    op.output("write", op.map("pane", counts.down, _pane), KafkaSink([servers], target))
    run_main(flow)


if __name__ == "__main__":
    main(*sys.argv[1:])
