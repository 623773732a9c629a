"""Orders of the driver, which come as input does: the end of sources, and the steps of test streams. No Spark here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from beamlike.io.sources import ReadInSteps
from beamlike.plan.model import SourcePlan
from beamlike.runtime.ingest import Ingested, ingest_step
from beamlike.spark.query.envelope import RECORDS, Envelope, Kind, Topology, note

Order = Mapping[str, Any]
"""`{"end": ["mobile"]}` ends sources; `{"step": 3}` plays that step of every test stream."""


def obey(order: Order, sources: Iterable[SourcePlan], topology: Topology, now: int) -> Iterator[Envelope]:
    """What the sources send on an order. `now` is the processing time (us) where they have none of their own."""
    for source in sources:
        if "step" in order:
            yield from _play(source, topology, order["step"])
        elif source.name in order["end"]:
            stream = source.source
            time = stream.processing_time if isinstance(stream, ReadInSteps) else now
            yield from tell(source, topology, Ingested({}, {}), time, ended=True)


def _play(source: SourcePlan, topology: Topology, number: int) -> Iterator[Envelope]:
    ingested, now = ingest_step(source, number)
    for consumer, frame in ingested.frames.items():
        yield from topology.data(consumer, frame, f"{source.name}:0")
    yield from tell(source, topology, ingested, now)


def tell(
    source: SourcePlan, topology: Topology, ingested: Ingested, now: int, *, ended: bool = False
) -> Iterator[Envelope]:
    """The summary for every shard of every stage that reads the source, and with its counts for the driver."""
    facts: dict[str, object] = {"summary": ingested.summary, "ended": ended, "now": now}
    for consumer in sorted({route.consumer for route in source.routes if route.consumer in topology.keys}):
        yield from topology.broadcast(consumer, source.name, Kind.SUMMARY, facts)
    counts = ("read", "elements", "dead_letters")
    facts["source"] = {count: getattr(ingested, count) for count in counts}
    facts["newest"] = ingested.newest
    facts |= {"lost": ingested.lost.facts(), "letters": ingested.letters.facts()}
    yield note(topology.label_of(source.name), RECORDS, source.name, Kind.RECORD, facts)
