"""Applies control commands, which arrive like input: they end sources and play steps of test streams. No
pyspark here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from beamlike.io.sources import ReadInSteps
from beamlike.plan.model import SourcePlan
from beamlike.runtime.batch.envelope import RECORDS, Envelope, Topology, message_envelope
from beamlike.runtime.batch.ingested import Ingested
from beamlike.runtime.batch.messages import SourceMessage, SummaryMessage
from beamlike.runtime.batch.reading import ingest_step
from beamlike.runtime.run.source_turns import columns_left_out
from beamlike.spark.checkpoint.commands import ControlCommand, PlayStep


def apply_command(
    command: ControlCommand, sources: Iterable[SourcePlan], topology: Topology, now: int
) -> Iterator[Envelope]:
    """Yields the envelopes that sources send after a command. `now` is the time (us) of sources without their
    own clock.
    """
    for source in sources:
        if isinstance(command, PlayStep):
            yield from _play(source, topology, command.step)
        elif source.name in command.end:
            stream = source.source
            time = stream.processing_time if isinstance(stream, ReadInSteps) else now
            yield from messages(source, topology, Ingested({}, {}), time, ended=True)


def _play(source: SourcePlan, topology: Topology, number: int) -> Iterator[Envelope]:
    ingested, now = ingest_step(source, number)
    for consumer, frame in ingested.frames.items():
        yield from topology.data(consumer, frame, f"{source.name}:0")
    yield from messages(source, topology, ingested, now)


def messages(
    source: SourcePlan, topology: Topology, ingested: Ingested, now: int, *, ended: bool = False
) -> Iterator[Envelope]:
    """Yields the summary for all shards of all stages that read or observe the source, and counts for the driver."""
    summary = SummaryMessage(ingested.summary, ended, now)
    readers = {route.consumer for route in source.routes} & {*topology.stages}
    for consumer in sorted(readers.union(source.observers)):
        yield from topology.broadcast(consumer, source.name, summary)
    message = SourceMessage.of(ingested, now, ended=ended, left_out=columns_left_out(source.source))
    yield message_envelope(topology.label_of(source.name), RECORDS, source.name, message)
