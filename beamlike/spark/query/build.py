"""Builds a plan as one streaming query: sources as envelopes, then one operator per level."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial, reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from beamlike.io.base import WrittenBySpark
from beamlike.io.sources import ReadBySpark
from beamlike.plan.manifest import needs_processing_time
from beamlike.plan.model import Plan
from beamlike.plan.stepped import steps_of
from beamlike.runtime.batch.envelope import Topology
from beamlike.spark.query.ingest import control_envelopes, source_envelopes
from beamlike.spark.query.level import Level
from beamlike.spark.query.listing import Listing
from beamlike.spark.query.operators import apply_level
from beamlike.spark.query.parts import PartWriter, write_in_tasks
from beamlike.spark.query.planner import Planner
from beamlike.spark.query.task_activity import TaskTrackers


def envelopes(
    session: SparkSession,
    plan: Plan,
    topology: Topology,
    *,
    listings: Mapping[str, Listing | Planner],
    control: str,
    writer: PartWriter,
    started: int,
    trackers: TaskTrackers,
    drains: bool,
) -> DataFrame:
    """All sources as envelopes, through one operator per level; the result is for the driver.

    `drains`: the run may end before its input does.
    """
    sources = tuple(plan.sources.values())
    streams = [control_envelopes(session, control, sources, topology, trackers)]
    if steps_of(plan) is None:  # test streams are played by control alone
        streams = (
            source_envelopes(session, sources, topology, listings, trackers=trackers, writer=writer) + streams
        )
    stream = reduce(DataFrame.unionAll, streams)
    for number, names in enumerate(plan.levels, start=1):
        level = Level.of(plan, names, topology, started, drains=drains, keys=trackers.keys)
        last = number == len(plan.levels)
        # Reports carry the time on to later levels.
        ticks = number == 1 and needs_processing_time(plan)
        tracked = partial(trackers.task, number)
        stream = apply_level(stream, level, writer if last else None, ticks=ticks, tracked=tracked)
    return stream if plan.levels else write_in_tasks(stream, writer, topology.labels, trackers)


def reads_rows(plan: Plan) -> bool:
    """True if rows of the user pass through Spark's own operators, which a run in process does not have."""
    sources = any(isinstance(source.source, ReadBySpark) for source in plan.sources.values())
    return sources or any(isinstance(sink.sink, WrittenBySpark) for sink in plan.sinks.values())


def labels(session: SparkSession, shards: int) -> tuple[int, ...]:
    """For each of `shards` partitions, the least integer that Spark's hash puts there."""
    jvm: Any = session._jvm
    # The static method of that name is found or not, as the JVM happens to list the two.
    murmur = jvm.org.apache.spark.unsafe.hash.Murmur3_x86_32(42)
    found: dict[int, int] = {}
    candidate = 0
    while len(found) < shards:
        found.setdefault(murmur.hashInt(candidate) % shards, candidate)
        candidate += 1
    return tuple(found[partition] for partition in range(shards))


def python_reason(message: str) -> str | None:
    """The innermost Python traceback in the message of a query that failed; None if the failure was not Python's."""
    before_plan = message.partition("=== Streaming Query ===")[0].partition(" SQLSTATE:")[0]
    _, found, traceback = before_plan.rpartition("Traceback (most recent call last):\n")
    # Where Spark itself failed while our function of a batch waited for it, the traceback is py4j's.
    at_fault = found and "py4j.protocol.Py4JJavaError" not in traceback
    return f"the run failed in a Python function:\n{traceback.strip()}" if at_fault else None
