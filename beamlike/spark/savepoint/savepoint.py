"""Savepoints of runs on Spark: a folder with the state of a run between two batches.

A run with other shards or another plan can begin from it. It has the state, as Spark's state reader returns it, and the
position of every source: the files that were read, or Spark's own log.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import attrs
import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from beamlike.errors import CheckpointError
from beamlike.io.complete import without_end
from beamlike.io.files.access import Access, access_to
from beamlike.io.files.paths import absolute, uri
from beamlike.io.sources import HasSparkOffsets, Planned, ReadInFiles
from beamlike.plan.manifest import VERSION, Store, needs_processing_time
from beamlike.plan.matching import fitted, require_told_apart
from beamlike.plan.model import Plan, SourcePlan, StagePlan
from beamlike.runtime.batch.envelope import Envelope, Topology, to_arrow
from beamlike.runtime.batch.kept_inputs import INPUTS
from beamlike.runtime.batch.messages import StateMessage
from beamlike.runtime.run.checkpoint import saved_manifest
from beamlike.runtime.run.side_tables import copy_tables
from beamlike.runtime.savepoint.resharding import take_apart
from beamlike.runtime.savepoint.savepoint import FACTS, Savepoint, load, no_run, not_empty, require_to_save
from beamlike.spark.checkpoint.arrow_files import ArrowFiles
from beamlike.spark.checkpoint.checkpoint import Checkpoint, require_available, require_readable_state
from beamlike.spark.checkpoint.s3 import follow, require_followed
from beamlike.spark.checkpoint.sound import PUT_BACK, make_ready
from beamlike.spark.checkpoint.sourcelog import NO_OFFSET, last_batch, offset_lines, taken
from beamlike.spark.checkpoint.storage import files_of
from beamlike.spark.failures import understood
from beamlike.spark.query.applied import applied
from beamlike.spark.query.file_operators import StateFolder, apply_file_operator
from beamlike.spark.query.labels import labels
from beamlike.spark.query.listing import Lists
from beamlike.spark.query.modules import modules_of
from beamlike.spark.query.operators import apply_operator, operators_of
from beamlike.spark.query.planner import PlanLog
from beamlike.spark.savepoint.loading import Loading
from beamlike.spark.session.connect import archive_for
from beamlike.spark.session.kinds import is_connect
from beamlike.spark.session.session import open_session, ship, use_state_store, worker_environment
from beamlike.spark.state.saving import save_from_files
from beamlike.spark.state.versions import StatePublisher
from beamlike.spark.versions import collected
from beamlike.system.path_names import file_name, is_remote


def save(
    checkpoint: str,
    savepoint: str,
    *,
    session: SparkSession | None = None,
    master: str | None = None,
    config: Mapping[str, str] | None = None,
) -> Savepoint:
    """Saves the stopped run of a checkpoint in a new folder. Users call `bl.savepoint.save`."""
    path, target, config = absolute(checkpoint), absolute(savepoint), config or {}
    opened = None
    # Without Spark's store, files on this machine are all that is needed.
    if _store_of(path) != Store.FILES or is_remote(target):
        opened = open_session(session, master=master, shards=None, name="beamlike savepoint", config=config)
    source, files = Checkpoint(cast(SparkSession, opened), path), files_of(opened)
    if files.names(target):
        raise not_empty(target, "save")
    if source.manifest() is None:
        raise no_run(source.path)
    lock = source.lock("beamlike savepoint")
    try:
        with understood(source):
            return _save(opened, source, target, config)
    finally:
        lock.release()


def _store_of(path: str) -> str | None:
    """Returns the store of the state of a checkpoint on this machine; None if there is none."""
    manifest = saved_manifest(path)
    return None if manifest is None else manifest["store"]


def _save(
    session: SparkSession | None, source: Checkpoint, target: str, config: Mapping[str, str]
) -> Savepoint:
    files = source.files
    manifest = source.manifest()
    assert manifest is not None
    require_readable_state(manifest, source.path)
    make_ready(source, manifest)
    batch = last_batch(source, "commits")
    require_to_save(manifest, batch, last_batch(source, "offsets"), source.path)
    offsets = _offsets(source, manifest, batch)
    # The batch is None, because a restored run has other batch numbers, and never replays this one.
    saved = Savepoint(target, manifest, batch, offsets, attrs.evolve(source.tally(), batch=None))
    _write_state(session, source, saved, config)
    number = 0
    for name, lines in offsets.items():
        if "files listed by" in manifest["sources"][name]:
            read = Lists(source, name).taken(batch)
            files.write(saved.files_of(name), json.dumps(read))
            number += 1
            continue
        # Older manifests have this fact.
        if {"batches planned by", "parts planned by"} & manifest["sources"][name].keys():
            last = PlanLog(source, name).last(batch)
            saved.positions[name] = {} if last is None else last.position
            number += 1
            continue
        for line in range(len(lines)):
            files.copy(source.of_spark("sources", str(number)), saved.source(name, line))
            number += 1
    copy_tables(manifest.get("tables", {}), source, saved, files)
    files.sync(target)
    # A savepoint has the same content wherever the state was.
    plain = {**manifest, "store": Store.SPARK, "version": min(manifest["version"], VERSION)}
    saved = attrs.evolve(saved.listing(files), manifest=plain)
    files.write(saved.at(FACTS), saved.to_json())
    return saved


def _write_state(
    session: SparkSession | None, source: Checkpoint, saved: Savepoint, config: Mapping[str, str]
) -> None:
    """Writes the state after the batch of the savepoint, a file for each shard of each operator."""
    if saved.manifest["store"] == Store.FILES:
        require_followed(session, source.path)
        save_from_files(source.state, saved, source.files)
        return
    assert session is not None
    use_state_store(session, config)
    for operator in range(saved.manifest["operators"]):
        rows = session.read.format("statestore").options(
            operatorId=operator, batchId=saved.batch, stateVarName="state", flattenCollectionTypes=True
        )
        state = rows.load(uri(source.path)).selectExpr(
            "partition_id AS shard", "user_map_key.key AS key", "user_map_value.value AS value"
        )
        # One file per shard, because Spark reads a partition of the state in one task.
        state.write.parquet(uri(saved.at("state", str(operator))))


def state_after(
    checkpoint: str,
    batch: int,
    folder: str,
    *,
    session: SparkSession | None = None,
    master: str | None = None,
    config: Mapping[str, str] | None = None,
) -> Savepoint:
    """Writes the state after an earlier batch into a new folder on this machine, as a savepoint has it.

    Raises `CheckpointError` if Spark no longer has that state.
    """
    source = Checkpoint(cast(SparkSession, None), checkpoint)
    manifest = source.manifest()
    assert manifest is not None
    require_readable_state(manifest, checkpoint)
    opened = None
    if manifest["store"] == Store.SPARK:
        opened = open_session(
            session, master=master, shards=None, name="beamlike replay", config=config or {}
        )
    saved = Savepoint(folder, manifest, batch, {}, source.tally())
    lock = source.lock("a replay")
    try:
        with understood(source):
            _write_state(opened, source, saved, config or {})
    finally:
        lock.release()
    return saved


def _offsets(source: Checkpoint, manifest: Mapping[str, Any], batch: int) -> dict[str, list[str]]:
    """Returns the offsets of each source after the batch. Most sources have one line; a `SparkSource` may join several
    streams.
    """
    # After a version and facts of the batch, there is a line per stream, in the order of the sources. Control
    # is last.
    lines = _log(source, batch)[2:-1]
    names = sorted(manifest["sources"])
    several = [name for name in names if manifest["sources"][name]["kind"] == "SparkSource"]
    more = len(lines) - len(names)
    if more and len(several) != 1:
        raise CheckpointError(
            f"{' and '.join(map(repr, several))} read {more + len(several)} streams of Spark, and there is no telling "
            "which of them reads which: a savepoint can have one source of several streams"
        )
    counts = {name: 1 + (more if name in several else 0) for name in names}
    found = iter(lines)
    return {name: [next(found) for _ in range(counts[name])] for name in names}


def _log(checkpoint: Checkpoint, batch: int) -> list[str]:
    """Returns the lines of Spark's offset log for a batch."""
    lines = offset_lines(checkpoint, batch)
    if not lines:
        raise CheckpointError(f"Spark's log in {checkpoint.path} has no offsets of batch {batch}")
    return lines


def restore(
    savepoint: str,
    checkpoint: str,
    plan: Plan,
    *,
    shards: int | None = None,
    session: SparkSession | None = None,
    master: str | None = None,
    config: Mapping[str, str] | None = None,
    state: str | None = None,
) -> list[str]:
    """Creates a new checkpoint from a savepoint, for a run of the plan. Users call `bl.savepoint.restore`."""
    require_told_apart(plan)
    store = None if state is None else Store(state)
    require_available(store)
    opened = open_session(session, master=master, shards=shards, name=plan.name, config=config or {})
    ship(opened, modules_of(plan))
    saved = load(absolute(savepoint), files_of(opened))
    opened.conf.set("spark.sql.shuffle.partitions", str(shards or saved.manifest["shards"]))
    fit = fitted(plan, saved.manifest, shards or saved.manifest["shards"])
    saved.require_fitting(fit)
    plan, described = fit.plan, fit.described
    for path in (absolute(savepoint), absolute(checkpoint)):
        follow(opened, path)
    target = Checkpoint(opened, absolute(checkpoint), store=store)
    if target.new_store == Store.FILES:
        require_followed(opened, target.path)
    if target.files.names(target.path):
        raise not_empty(target.path, "restore")
    lock = target.lock("beamlike restore")
    try:
        manifest = {**target.new_manifest(described), "after": saved.after, "restored": True}
        target.save({**manifest, "restoring": True})
        if manifest["store"] == Store.SPARK:
            use_state_store(opened, config or {})
        _fill(opened, saved, target, plan, manifest)
        put_back = _go_on_from(saved, target, plan)
        copy_tables(plan.tables, saved, target, target.files)
        target.keep_tally(saved.tally)
        target.files.sync(target.path)
        # The first run starts its sinks under a new id, so it replaces nothing of the saved run.
        target.save({**manifest, "whole": True, PUT_BACK: put_back})
    finally:
        lock.release()
    return [*saved.left_out(described)]


def _fill(
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
        names = saved.state_files(target.files)
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
            _publish(folder, stream)
            stream = lines
        query = stream.writeStream.foreachBatch(
            lambda rows, batch: rows.write.format("noop").mode("append").save()
        )
        query = query.option("checkpointLocation", uri(target.path)).trigger(availableNow=True)
        # If processing time must pass, there would always be a next batch.
        session.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
        query.start().awaitTermination()


def _publish(folder: StateFolder, stream: DataFrame) -> None:
    """Writes the state of batch 0, and publishes it."""
    sent = [Envelope(*row) for row in collected(stream)]
    messages = [one.message() for one in sent]
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


def _go_on_from(saved: Savepoint, target: Checkpoint, plan: Plan) -> list[str]:
    """Sets the offsets of batch 0 to those of the saved run, so that each remaining source continues there.

    Returns the files of the checkpoint with the positions of sources.
    """
    files = target.files
    version, facts = _log(target, 0)[:2]
    files.remove(target.of_spark("sources"))
    lines, put_back = list[str](), list[str]()
    for name, source in plan.sources.items():
        if isinstance(source.source, ReadInFiles):
            if name in saved.offsets:
                Lists(target, name).keep(_files_read(saved, target.session, name), saved.cut.get(name, {}))
                put_back.append(Lists(target, name).before)
            lines.append(NO_OFFSET)
            continue
        if isinstance(source.source, Planned):
            PlanLog(target, name).begin_from(saved.positions.get(name, {}))
            put_back.append(PlanLog(target, name).before)
            lines.append(NO_OFFSET)
            continue
        if name in saved.positions:
            lines += _offsets_of(name, source, saved)
            continue
        for part, line in enumerate(saved.offsets.get(name, [NO_OFFSET])):
            files.copy(saved.source(name, part), target.of_spark("sources", str(len(lines))))
            lines.append(line)
    # Control commands start again.
    files.write_for_spark(target.of_spark("offsets", "0"), "\n".join([version, facts, *lines, NO_OFFSET]))
    return put_back


def _offsets_of(name: str, source: SourcePlan, saved: Savepoint) -> Sequence[str]:
    """Returns the offset lines for a source that was read in process."""
    if not isinstance(source.source, HasSparkOffsets):
        kind = type(source.source).__name__
        raise CheckpointError(
            f"source {name!r}: {kind} does not say where Spark reads on from where it was in process: it has no "
            "offsets_of_spark(position)"
        )
    return source.source.offsets_of_spark(without_end(saved.positions[name]))


def _files_read(saved: Savepoint, session: SparkSession, name: str) -> list[str]:
    """Returns the files of a source that the saved run had read. For files that Spark listed, they are in
    Spark's log.
    """
    text = files_of(session).read(saved.files_of(name))
    if text is not None:
        try:
            return cast(list[str], json.loads(text))
        except ValueError as error:
            raise saved.damaged(f"{saved.files_of(name)}: {error}") from None
    (offset,) = saved.offsets[name]
    return list(taken(Checkpoint(session, saved.path), f"sources/{file_name(name, blanks=True)}/0", offset))
