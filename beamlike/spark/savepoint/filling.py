"""Fills a new checkpoint with the state of a savepoint, in a query or a batch job of Spark."""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any

import polars as pl
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from beamlike.io.files.access import Access, access_to
from beamlike.io.files.paths import uri
from beamlike.plan.manifest import needs_processing_time
from beamlike.plan.model import Plan, StagePlan
from beamlike.runtime.batch.envelope import RECORDS, Envelope, Topology, message_envelope, to_arrow
from beamlike.runtime.batch.kept_inputs import INPUTS
from beamlike.runtime.batch.messages import Message, ReadMessage, StateMessage
from beamlike.runtime.savepoint.resharding import take_apart
from beamlike.runtime.savepoint.savepoint import Savepoint
from beamlike.spark.checkpoint.arrow_files import ArrowFiles
from beamlike.spark.checkpoint.checkpoint import Checkpoint
from beamlike.spark.failures import failure
from beamlike.spark.query.applied import applied
from beamlike.spark.query.file_operators import StateFolder, apply_file_operator
from beamlike.spark.query.labels import labels
from beamlike.spark.query.operators import apply_operator, operators_of
from beamlike.spark.query.received import require_all_read
from beamlike.spark.savepoint.loading import Loading
from beamlike.spark.session.connect import archive_for
from beamlike.spark.session.kinds import is_connect
from beamlike.spark.session.session import worker_environment
from beamlike.spark.state.versions import StatePublisher
from beamlike.spark.versions import collected


def fill(
    session: SparkSession, saved: Savepoint, target: Checkpoint, plan: Plan, manifest: Mapping[str, Any]
) -> None:
    """Runs batch 0 of the new run: a query with the operators of the plan, whose only input is the saved state.

    If the new run has its state in files, the query has no operators, and only begins Spark's logs. The files are then
    written by a batch job.
    """
    topology = Topology.of(plan, labels(int(session.conf.get("spark.sql.shuffle.partitions") or 0)))
    before = Topology(tuple(range(saved.manifest["shards"])), topology.inputs)
    parts = target.at("restore")
    target.files.make(parts)
    code = target.keep_code(archive_for(session)) if is_connect(session) else None
    with worker_environment(session, code):
        names = saved.state_files()
        target.files.write(f"{parts}/files.txt", "\n".join(names) + "\n")
        lines = session.readStream.format("text").load(uri(parts))
        folder = StateFolder.of(target, manifest)
        given = lines if folder is None else session.read.format("text").load(uri(parts))
        given, access = given.repartition(max(1, len(names))), access_to(saved.path)
        stream = _state(given, plan, before=before, now=topology, access=access)
        for number, numbered in enumerate(operators_of(plan, manifest["operators"])):
            first, last = numbered[0][0], numbered[-1][0] == len(plan.levels)
            levels = [Loading.of(plan, names, topology) for _, names in numbered]
            if folder is not None:
                stream = apply_file_operator(stream, levels, None, folder=folder, number=number, ticks=False)
                continue
            ticks = first == 1 and needs_processing_time(plan)
            stream = apply_operator(stream, levels, None, ticks=ticks, rows=last and manifest["rows"])
        if folder is not None:
            _publish(folder, stream, names)
            stream, names = lines, []
        # A server of Spark Connect has no code of ours, so the function that it calls must be pickled with its code.
        fill_batch = _noop() if is_connect(session) or not names else partial(_fill_batch, names=names)
        query = stream.writeStream.foreachBatch(fill_batch)
        query = query.option("checkpointLocation", uri(target.path)).trigger(availableNow=True)
        # If processing time must pass, there would always be a next batch.
        session.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
        try:
            query.start().awaitTermination()
        except PySparkException as error:
            raise failure(str(error), target, plan) or error from error


def _fill_batch(rows: DataFrame, batch: int, *, names: Collection[str]) -> None:
    """Runs the batch that fills Spark's state store with these files."""
    _require_all_read(rows, names)


def _noop() -> Callable[[DataFrame, int], None]:
    return lambda rows, batch: rows.write.format("noop").mode("append").save()


def _require_all_read(rows: DataFrame, names: Collection[str]) -> list[Message]:
    """Returns the messages of the tasks. Raises `CheckpointError` unless they have read all files of the savepoint."""
    messages = [
        envelope.message() for row in collected(rows) if (envelope := Envelope(*row)).target == RECORDS
    ]
    require_all_read(names, messages, "the savepoint was not restored")
    return messages


def _publish(folder: StateFolder, stream: DataFrame, names: Collection[str]) -> None:
    """Writes the state of batch 0, and publishes it."""
    messages = _require_all_read(stream, names)
    changes = [message for message in messages if isinstance(message, StateMessage)]
    StatePublisher(folder.path, kept=1, may_replay=False).publish(0, changes)


def _state(
    lines: DataFrame, plan: Plan, *, before: Topology, now: Topology, access: Access | None
) -> DataFrame:
    """Returns envelopes with the state. `lines` has the names of the state files, and each task reads one. `access` has
    the settings of their storage.
    """
    stages = plan.stages

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in batches:
            for name in filter(None, rows["value"].to_pylist()):
                place = name if access is None else io.BytesIO(ArrowFiles().read_bytes(name) or b"")
                yield to_arrow(
                    [message_envelope(now.labels[0], RECORDS, RECORDS, ReadMessage({name: (1, 1)}))]
                )
                yield from _envelopes(pl.read_parquet(place), stages, before, now)

    return applied(lines, run)


def _envelopes(
    state: pl.DataFrame, stages: Mapping[str, StagePlan], before: Topology, now: Topology
) -> Iterator[pa.RecordBatch]:
    """Yields envelopes with the state of these stages in a file, whose rows are `state`."""
    for (shard,), rows in state.partition_by("shard", as_dict=True).items():
        values = dict(rows.select("key", "value").iter_rows())
        for name, stage in stages.items():
            mine = {
                key.removeprefix(f"{name}/"): value
                for key, value in values.items()
                if key.startswith(f"{name}/")
            }
            if INPUTS in mine:
                yield to_arrow(list(take_apart(stage, shard, mine, before, now)))
