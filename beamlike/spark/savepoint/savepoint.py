"""Savepoints: a run between two batches, in a folder, from which another run begins: of other shards or another plan.

A savepoint has the state as Spark's state reader gives it, and where every source was: the files that were read, or
what Spark's own log has.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

import attrs
import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from beamlike.errors import CheckpointError
from beamlike.io.files.paths import absolute, uri
from beamlike.io.sources import ReadInFiles
from beamlike.plan.manifest import (
    Remedy,
    checked,
    describe,
    differences,
    needs_processing_time,
    new_manifest,
    refusal,
)
from beamlike.plan.model import Plan, StagePlan
from beamlike.runtime.dead_letter_limit import Counted
from beamlike.runtime.envelope import DDL, Topology, to_arrow
from beamlike.runtime.kept_inputs import INPUTS
from beamlike.runtime.resharding import take_apart
from beamlike.spark.checkpoint.checkpoint import Checkpoint
from beamlike.spark.checkpoint.hadoop import HadoopFiles
from beamlike.spark.checkpoint.sound import make_ready
from beamlike.spark.checkpoint.sourcelog import NO_OFFSET, last_batch, offset_lines, taken
from beamlike.spark.query.build import labels
from beamlike.spark.query.listing import Lists
from beamlike.spark.query.modules import modules_of
from beamlike.spark.query.operators import apply_level
from beamlike.spark.savepoint.loading import Loading
from beamlike.spark.session.session import open_session, ship, worker_environment
from beamlike.system.path_names import file_name
from stages.facts import from_facts, to_facts

_FACTS: Final = "savepoint.json"
_BESIDE: Final = {"Rows": "rows in memory", "TestStream": "test streams"}


@attrs.frozen
class Savepoint:
    """What was saved: the run's manifest, its last batch, by source the lines of Spark's offset log, its tally."""

    path: str
    manifest: dict[str, Any]
    batch: int
    offsets: dict[str, list[str]]
    tally: Counted

    def at(self, *names: str) -> str:
        """A path in it."""
        return "/".join([self.path.rstrip("/"), *names])

    def files_of(self, name: str) -> str:
        """The file that lists what was read of a source of files."""
        return self.at("files", f"{file_name(name, blanks=True)}.json")

    def source(self, name: str, stream: int) -> str:
        """The folder with what Spark keeps of one stream of a source."""
        return self.at("sources", file_name(name, blanks=True), str(stream))


def save(
    checkpoint: str, savepoint: str, *, session: SparkSession | None = None, master: str | None = None
) -> Savepoint:
    """Saves the run of a checkpoint, which must not be running, in a new folder. The checkpoint stays as it is.

    `checkpoint` and `savepoint` are folders that Spark reaches. It works in `session`, or in one that is made on
    `master`. Gives the `Savepoint`, with its path and its last batch. Raises `CheckpointError` where there is nothing
    to save, or it is not whole.

    Example:
        >>> bl.savepoint.save("checkpoint", "savepoints/monday").batch  # doctest: +SKIP
        41
    """
    opened = _open(session, master, None, "beamlike savepoint")
    source, files = Checkpoint(opened, absolute(checkpoint)), HadoopFiles(opened)
    target = absolute(savepoint)
    if files.names(target):
        raise CheckpointError(f"{target} is not empty; save into a new folder")
    if source.manifest() is None:
        raise CheckpointError(f"there is no run to save in {source.path}: it has no beamlike/manifest.json")
    lock = source.lock("beamlike savepoint")
    try:
        return _save(opened, source, target)
    finally:
        lock.release()


def _save(session: SparkSession, source: Checkpoint, target: str) -> Savepoint:
    files = source.files
    manifest = source.manifest()
    assert manifest is not None
    make_ready(source, manifest)
    batch = _last_batch(source, manifest)
    offsets = _offsets(source, manifest, batch)
    # None of its batches is run again: those of a restored run have other numbers.
    saved = Savepoint(target, manifest, batch, offsets, attrs.evolve(source.tally(), batch=None))
    for operator in range(manifest["levels"]):
        rows = session.read.format("statestore").options(
            operatorId=operator, batchId=batch, stateVarName="state", flattenCollectionTypes=True
        )
        state = rows.load(uri(source.path)).selectExpr(
            "partition_id AS shard", "user_map_key.key AS key", "user_map_value.value AS value"
        )
        # A file per shard, as Spark reads a partition of the state in one task.
        state.write.parquet(uri(saved.at("state", str(operator))))
    number = 0
    for name, lines in offsets.items():
        if "files listed by" in manifest["sources"][name]:
            read = Lists(source, name).taken(batch)
            files.write(saved.files_of(name), json.dumps(read))
            number += 1
            continue
        for line in range(len(lines)):
            files.copy(source.of_spark("sources", str(number)), saved.source(name, line))
            number += 1
    facts = {name: fact for name, fact in to_facts(saved).items() if name != "path"}
    files.sync(target)
    # Last: without it, there is no savepoint.
    files.write(saved.at(_FACTS), json.dumps(facts, indent=1, sort_keys=True))
    return saved


def _last_batch(source: Checkpoint, manifest: Mapping[str, Any]) -> int:
    """The last batch that was done; `CheckpointError` if another was begun after it, or the run is over."""
    where = f"the run of the checkpoint {source.path}"
    for name, facts in manifest["sources"].items():
        if what := _BESIDE.get(facts["kind"]):
            raise CheckpointError(
                f"source {name!r}: {what} are kept in the checkpoint; there is no savepoint of them"
            )
    if manifest["restoring"]:
        raise CheckpointError(f"{where} was not restored to its end; restore its savepoint again")
    if manifest["draining"]:
        raise CheckpointError(
            f"{where} was drained: its windows are closed, and no state is left to go on with"
        )
    done, begun = last_batch(source, "commits"), last_batch(source, "offsets")
    if done < 0:
        raise CheckpointError(f"{where} has not finished a batch; there is nothing to save")
    if begun > done and not manifest["whole"]:
        raise CheckpointError(
            f"{where} ended within batch {begun}, of which sinks may have a part; run it once more with the plan that "
            "it has, to its end or until it is stopped by SIGTERM or Ctrl-C, and then take the savepoint"
        )
    return done


def _offsets(source: Checkpoint, manifest: Mapping[str, Any], batch: int) -> dict[str, list[str]]:
    """Where each source was after the batch. Most have one line; a Spark source may be a union of several streams."""
    # A version, facts of the batch, then a line per stream: in the order of the sources, control last.
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
    """The lines of Spark's offset log for a batch."""
    lines = offset_lines(checkpoint, batch)
    if not lines:
        raise CheckpointError(f"Spark's log in {checkpoint.path} has no offsets of batch {batch}")
    return lines


def load(session: SparkSession, savepoint: str) -> Savepoint:
    """The savepoint in a folder. Raises `CheckpointError` if there is none."""
    path = absolute(savepoint)
    text = HadoopFiles(session).read(f"{path.rstrip('/')}/{_FACTS}")
    if text is None:
        raise CheckpointError(f"there is no savepoint in {path}: it has no {_FACTS}, which is written last")
    try:
        saved = from_facts(Savepoint, {**json.loads(text), "path": path})
    except (ValueError, TypeError, KeyError, AttributeError):
        raise CheckpointError(
            f"the savepoint {path} is damaged, its {_FACTS} is not what was written: restore another one, or a copy"
        ) from None
    checked(saved.manifest, f"the savepoint {path}")
    return saved


def restore(
    savepoint: str,
    checkpoint: str,
    plan: Plan,
    *,
    shards: int | None = None,
    session: SparkSession | None = None,
    master: str | None = None,
) -> list[str]:
    """Makes a new checkpoint, with which a run of the plan goes on where the saved one was; gives what was left out.

    `savepoint` is a folder that `save` made, and `checkpoint` one that is new. `shards`: by default those of the
    savepoint. It works in `session`, or in one that is made on `master`. The savepoint stays as it is, and can be
    restored again. Raises `CheckpointError` where the plan cannot go on with that state, or the checkpoint is not
    new.

    Example:
        >>> bl.savepoint.restore("savepoints/monday", "checkpoint-2", p.plan(), shards=16)  # doctest: +SKIP
        []
        >>> run = p.run(bl.SparkRunner(checkpoint="checkpoint-2"))  # doctest: +SKIP
    """
    opened = _open(session, master, shards, plan.name)
    ship(opened, modules_of(plan))
    saved = load(opened, savepoint)
    opened.conf.set("spark.sql.shuffle.partitions", str(shards or saved.manifest["shards"]))
    described = describe(plan, shards or saved.manifest["shards"])
    refused = [found for found in differences(saved.manifest, described) if found.remedy != Remedy.RESTORE]
    if refused:
        raise CheckpointError(refusal(refused, f"the savepoint {saved.path}", {}))
    target = Checkpoint(opened, absolute(checkpoint))
    if target.files.names(target.path):
        raise CheckpointError(f"{target.path} is not empty; restore into a new folder")
    lock = target.lock("beamlike restore")
    try:
        manifest = new_manifest(described)
        target.save({**manifest, "restoring": True})
        _fill(opened, saved, target, plan)
        _go_on_from(saved, target, plan)
        target.keep_tally(saved.tally)
        target.files.sync(target.path)
        # Its sinks are made ready by the first run, under a name of its own: nothing of the saved run is replaced.
        target.save({**manifest, "whole": True})
    finally:
        lock.release()
    return [
        f"{kind} {name!r} is gone: what the savepoint has of it is left out"
        for kind in ("source", "stage")
        for name in saved.manifest[f"{kind}s"]
        if name not in described[f"{kind}s"]
    ]


def _fill(session: SparkSession, saved: Savepoint, target: Checkpoint, plan: Plan) -> None:
    """Batch 0 of the new run: a query with the operators of the plan, whose only input is the state."""
    topology = Topology.of(plan, labels(session, int(session.conf.get("spark.sql.shuffle.partitions") or 0)))
    before = Topology(tuple(range(saved.manifest["shards"])), topology.keys)
    parts = target.at("restore")
    target.files.make(parts)
    with worker_environment(session):
        stream = _state(session, saved, target, plan, before, topology)
        for number, names in enumerate(plan.levels, start=1):
            ticks = number == 1 and needs_processing_time(plan)
            stream = apply_level(stream, Loading.of(plan, names, topology), None, ticks=ticks)
        query = stream.writeStream.foreachBatch(
            lambda rows, batch: rows.write.format("noop").mode("append").save()
        )
        query = query.option("checkpointLocation", uri(target.path)).trigger(availableNow=True)
        # Where processing time passes, there would always be a next batch.
        session.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
        query.start().awaitTermination()


def _state(
    session: SparkSession,
    saved: Savepoint,
    target: Checkpoint,
    plan: Plan,
    before: Topology,
    now: Topology,
) -> DataFrame:
    """The state as a stream of one batch: for each level of the savepoint the names of its files, a task per file."""
    files, folder, stages = target.files, target.at("restore"), plan.stages
    names = [
        saved.at("state", level, name)
        for level in files.names(saved.at("state"))
        for name in files.names(saved.at("state", level))
    ]
    files.write(f"{folder}/files.txt", "\n".join(names) + "\n")

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in batches:
            for name in filter(None, rows["value"].to_pylist()):
                yield from _envelopes(name, stages, before, now)

    lines = session.readStream.format("text").load(uri(folder))
    return lines.repartition(max(1, len(names))).mapInArrow(run, DDL)


def _envelopes(
    file: str, stages: Mapping[str, StagePlan], before: Topology, now: Topology
) -> Iterator[pa.RecordBatch]:
    """What a file has of these stages, on its way."""
    state = pl.read_parquet(file)
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


def _go_on_from(saved: Savepoint, target: Checkpoint, plan: Plan) -> None:
    """Has batch 0 end where the saved run was: each source that is still there goes on from its own offsets."""
    files = target.files
    version, facts = _log(target, 0)[:2]
    files.remove(target.of_spark("sources"))
    lines: list[str] = []
    for name, source in plan.sources.items():
        if isinstance(source.source, ReadInFiles):
            if name in saved.offsets:
                Lists(target, name).keep(_files_read(saved, target.session, name))
            lines.append(NO_OFFSET)
            continue
        for part, line in enumerate(saved.offsets.get(name, [NO_OFFSET])):
            files.copy(saved.source(name, part), target.of_spark("sources", str(len(lines))))
            lines.append(line)
    # Control is new.
    files.write(target.of_spark("offsets", "0"), "\n".join([version, facts, *lines, NO_OFFSET]))


def _files_read(saved: Savepoint, session: SparkSession, name: str) -> list[str]:
    """The files of a source that the saved run had read; where Spark had listed them, its log says which."""
    text = HadoopFiles(session).read(saved.files_of(name))
    if text is not None:
        return cast(list[str], json.loads(text))
    (offset,) = saved.offsets[name]
    return list(taken(Checkpoint(session, saved.path), f"sources/{file_name(name, blanks=True)}/0", offset))


def _open(session: SparkSession | None, master: str | None, shards: int | None, name: str) -> SparkSession:
    return open_session(session, master=master, shards=shards, name=name, config={})
