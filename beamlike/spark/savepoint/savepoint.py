"""Savepoints of runs on Spark: a folder with the state of a run between two batches.

A run with other shards or another plan can begin from it. It has the state, as Spark's state reader returns it, and the
position of every source: the files that were read, or Spark's own log.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

import attrs
from pyspark.sql import SparkSession

from beamlike.errors import CheckpointError
from beamlike.io.complete import without_end
from beamlike.io.files.paths import absolute, uri
from beamlike.io.sources import HasSparkOffsets, Planned, ReadInFiles
from beamlike.plan.manifest import VERSION, Store
from beamlike.plan.matching import fitted, require_told_apart
from beamlike.plan.model import Plan, SourcePlan
from beamlike.runtime.run.checkpoint import saved_manifest
from beamlike.runtime.run.side_tables import copy_tables
from beamlike.runtime.run.unfinished import FACTS, mark
from beamlike.runtime.savepoint.savepoint import Savepoint, load, no_run, not_empty, require_to_save
from beamlike.runtime.savepoint.trust import require_trusted
from beamlike.spark.checkpoint.checkpoint import Checkpoint, require_available, require_readable_state
from beamlike.spark.checkpoint.s3 import follow, require_followed
from beamlike.spark.checkpoint.sound import PUT_BACK, make_ready
from beamlike.spark.checkpoint.sourcelog import NO_OFFSET, last_batch, offset_lines, taken
from beamlike.spark.checkpoint.storage import files_of
from beamlike.spark.failures import understood
from beamlike.spark.query.listing import Lists
from beamlike.spark.query.modules import modules_of
from beamlike.spark.query.planner import PlanLog
from beamlike.spark.savepoint.filling import fill
from beamlike.spark.session.session import open_session, ship, use_state_store
from beamlike.spark.state.saving import save_from_files
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
            begun = mark(target, files)
            saved = _save(opened, source, target, config)
            files.remove(begun)
            return saved
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
        if "batches planned by" in manifest["sources"][name]:
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
    trust: bool = False,
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
    require_trusted(plan, f"the savepoint {saved.path}", trust)
    for path in (absolute(savepoint), absolute(checkpoint)):
        follow(opened, path)
    target = Checkpoint(opened, absolute(checkpoint), store=store)
    if target.new_store == Store.FILES:
        require_followed(opened, target.path)
    if target.files.names(target.path):
        raise not_empty(target.path, "restore")
    begun = mark(target.path, target.files)
    lock = target.lock("beamlike restore")
    try:
        manifest = {**target.new_manifest(described), "after": saved.after, "restored": True}
        target.save({**manifest, "restoring": True})
        target.files.remove(begun)
        if manifest["store"] == Store.SPARK:
            use_state_store(opened, config or {})
        fill(opened, saved, target, plan, manifest)
        put_back = _go_on_from(saved, target, plan)
        copy_tables(plan.tables, saved, target, target.files)
        target.keep_tally(saved.tally)
        target.files.sync(target.path)
        # The first run starts its sinks under a new id, so it replaces nothing of the saved run.
        target.save({**manifest, "whole": True, PUT_BACK: put_back})
    finally:
        lock.release()
    return [*saved.left_out(described)]


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
