"""Builds the streaming query of a plan: sources send envelopes, and stateful operators process them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial, reduce
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from beamlike.io.base import WrittenBySpark
from beamlike.io.sources import ReadBySpark
from beamlike.plan.manifest import needs_processing_time
from beamlike.plan.model import Plan
from beamlike.plan.stepped import steps_of
from beamlike.runtime.batch.envelope import Topology
from beamlike.spark.query.file_operators import StateFolder, apply_file_operator
from beamlike.spark.query.ingest import control_envelopes, source_envelopes
from beamlike.spark.query.level import Level
from beamlike.spark.query.listing import Listing
from beamlike.spark.query.operators import apply_operator, operators_of
from beamlike.spark.query.parts import PartWriter, write_in_tasks
from beamlike.spark.query.planner import Planner
from beamlike.spark.query.task_activity import TaskTrackers

_CLIENTS: Final = ("py4j.protocol.Py4JJavaError", "pyspark.errors.exceptions.connect.")


def envelopes(
    session: SparkSession,
    plan: Plan,
    topology: Topology,
    *,
    small: bool,
    operators: int,
    rows: bool,
    folder: StateFolder | None,
    listings: Mapping[str, Listing | Planner],
    control: str,
    writer: PartWriter,
    started: int,
    trackers: TaskTrackers,
    drains: bool,
) -> DataFrame:
    """Returns the stream of envelopes for the driver, after the stateful operators, whose number is `operators`.

    `rows`: the last operator exchanges rows with Spark. `folder` has their state, if it is in files. `small`: so is the
    input of the run. `drains`: the run may end before its input does.
    """
    sources = tuple(plan.sources.values())
    streams = [control_envelopes(session, control, sources, topology, trackers)]
    if steps_of(plan) is None:  # the control stream plays test streams by itself
        streams = (
            source_envelopes(
                session, sources, topology, listings, trackers=trackers, writer=writer, small=small
            )
            + streams
        )
    stream = reduce(lambda one, other: one.unionAll(other), streams)
    for number, numbered in enumerate(operators_of(plan, operators)):
        first, last = numbered[0][0], numbered[-1][0] == len(plan.levels)
        levels = [
            Level.of(plan, names, topology, started, drains=drains, keys=trackers.keys)
            for _, names in numbered
        ]
        # Later levels receive the time with the reports of the first.
        ticks = first == 1 and needs_processing_time(plan)
        if folder is not None:
            stream = apply_file_operator(
                stream,
                levels,
                writer if last else None,
                folder=folder,
                number=number,
                ticks=ticks,
                small=small,
                trackers=trackers,
                level=first,
            )
            continue
        stream = apply_operator(
            stream,
            levels,
            writer if last else None,
            ticks=ticks,
            rows=rows and last,
            tracked=partial(trackers.task, first),
        )
    return stream if plan.levels else write_in_tasks(stream, writer, topology.labels, trackers)


def reads_rows(plan: Plan) -> bool:
    """True if the user's rows pass through Spark's own readers or writers, which a run in process does not have."""
    sources = any(isinstance(source.source, ReadBySpark) for source in plan.sources.values())
    return sources or any(isinstance(sink.sink, WrittenBySpark) for sink in plan.sinks.values())


def python_reason(message: str) -> str | None:
    """Returns the innermost Python traceback in the message of a failed query; None if Python did not fail."""
    before_plan = message.partition("=== Streaming Query ===")[0].partition(" SQLSTATE:")[0]
    _, found, traceback = before_plan.rpartition("Traceback (most recent call last):\n")
    # If Spark failed while our function waited for its answer, the traceback is only that of its client.
    at_fault = found and not any(client in traceback for client in _CLIENTS)
    return traceback.strip() if at_fault else None
