"""Orders of the driver, which come as input does: the end of sources, and the steps of test streams. No Spark here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs

from beamlike.ingest import ingest_step
from beamlike.plan import SourcePlan
from beamlike.records import SourceRecord
from beamlike.spark.envelope import RECORDS, Envelope, Kind, Topology, note
from beamlike.testing.stream import TestStream
from stages.sources import Summary
from windowing.time import MAX_TIME

Order = Mapping[str, Any]
"""`{"end": ["mobile"]}` ends sources; `{"step": 3}` plays that step of every test stream."""


def obey(order: Order, sources: Iterable[SourcePlan], topology: Topology, now: int) -> Iterator[Envelope]:
    """What the sources send on an order. `now` is the processing time (us) where they have none of their own."""
    for source in sources:
        if "step" in order:
            yield from _play(source, topology, order["step"])
        elif source.name in order["end"]:
            stream = source.source
            time = stream.processing_time if isinstance(stream, TestStream) else now
            yield from tell(source, topology, {}, SourceRecord(MAX_TIME), time, ended=True)


def _play(source: SourcePlan, topology: Topology, number: int) -> Iterator[Envelope]:
    ingested, now = ingest_step(source, number)
    for consumer, frame in ingested.frames.items():
        yield from topology.data(consumer, frame, source.name)
    watermark = source.watermark.watermark(ingested.summary, now)
    record = SourceRecord(watermark, ingested.elements, ingested.dead_letters)
    yield from tell(source, topology, ingested.summary, record, now)


def tell(
    source: SourcePlan,
    topology: Topology,
    summary: Summary,
    record: SourceRecord,
    now: int,
    *,
    ended: bool = False,
) -> Iterator[Envelope]:
    """The summary for every shard of every stage that reads the source, and the record for the driver."""
    facts: dict[str, object] = {"summary": summary, "ended": ended, "now": now}
    for consumer in sorted({route.consumer for route in source.routes if route.consumer in topology.keys}):
        yield from topology.broadcast(consumer, source.name, Kind.SUMMARY, facts)
    facts = {"source": attrs.asdict(record), "now": now}
    yield note(topology.label_of(source.name), RECORDS, source.name, Kind.RECORD, facts)
