"""Savepoints of runs in process. They have the form of a savepoint of Spark with one shard: each runner can restore
both.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import attrs
import polars as pl

from beamlike.errors import CheckpointError
from beamlike.io.files.paths import absolute
from beamlike.io.files.reader import FileProgress
from beamlike.io.sources import HasSparkOffsets, ReadInFiles
from beamlike.plan.manifest import Runner, new_manifest
from beamlike.plan.matching import fitted, require_told_apart
from beamlike.plan.model import Plan, SourcePlan
from beamlike.runtime.batch.envelope import Topology
from beamlike.runtime.batch.kept_inputs import INPUTS, keep_inputs, load_inputs
from beamlike.runtime.batch.storage import stored
from beamlike.runtime.loop.checkpoint import LocalCheckpoint, LocalFiles
from beamlike.runtime.loop.feed import require_resumable
from beamlike.runtime.loop.journal import Journal
from beamlike.runtime.loop.logged_batch import LoggedBatch
from beamlike.runtime.run.side_tables import copy_tables
from beamlike.runtime.run.unfinished import FACTS, mark
from beamlike.runtime.savepoint.resharding import put_together, take_apart
from beamlike.runtime.savepoint.savepoint import Savepoint, load, no_run, not_empty, require_to_save
from beamlike.runtime.savepoint.trust import require_trusted
from beamlike.system.durable import make_folder, rename, sync_tree
from stages.facts import from_facts, to_facts
from stages.progress.inputs import Inputs
from stages.state.store import DictStore

_SHARD: Final = 0
_STATE: Final = pl.Schema({"shard": pl.Int32(), "key": pl.String(), "value": pl.Binary()})


def save(checkpoint: str, savepoint: str) -> Savepoint:
    """Saves the run of a checkpoint, which must not be running, in a new folder. Users call `bl.savepoint.save`."""
    source, target = LocalCheckpoint.of(checkpoint), absolute(savepoint)
    if os.path.isdir(target) and os.listdir(target):
        raise not_empty(target, "save")
    manifest = source.manifest()
    if manifest is None:
        raise no_run(source.path)
    with ExitStack() as held:
        held.enter_context(source.lock("beamlike savepoint"))
        journal = held.enter_context(source.journal_to_read())
        with stored("write", target):
            begun = mark(target, source.files)
            saved = _save(source, manifest, journal, target)
            source.files.remove(begun)
            return saved


def _save(source: LocalCheckpoint, manifest: dict[str, Any], journal: Journal, target: str) -> Savepoint:
    last = journal.last
    begun = -1 if last is None else last[0].number
    done = begun if last is not None and last[1] else begun - 1
    require_to_save(manifest, done, begun, source.path)
    saved = Savepoint(target, manifest, done, {}, attrs.evolve(journal.tally(), batch=None))
    make_folder(saved.at("files"))
    write_state(saved, {(stage, key): value for stage, key, value in journal.values()})
    for name, facts in manifest["sources"].items():
        position = journal.position(name)
        if "files listed by" in facts:
            places = {file: from_facts(FileProgress, place) for file, place in position.items()}
            ordered = sorted(places, key=lambda file: places[file].number)
            read = [file for file in ordered if places[file].pieces is None]
            Path(saved.files_of(name)).write_text(json.dumps(read), encoding="utf-8")
            saved.offsets[name] = []
            cut = {file: places[file] for file in ordered if file not in read}
            saved.cut[name] = {file: (place.pieces or 0, place.rows or 0) for file, place in cut.items()}
        else:
            saved.positions[name] = position
    copy_tables(manifest.get("tables", {}), source, saved, source.files)
    sync_tree(target)
    saved = saved.listing(source.files)
    facts_file = saved.at(FACTS)
    Path(f"{facts_file}.tmp").write_text(saved.to_json(), encoding="utf-8")
    rename(f"{facts_file}.tmp", facts_file)
    sync_tree(target)
    return saved


def write_state(saved: Savepoint, values: Mapping[tuple[str, str], bytes]) -> None:
    """Writes the values of stages by key, as the state of one shard."""
    make_folder(saved.at("state", "0"))
    rows = [(_SHARD, f"{stage}/{key}", value) for (stage, key), value in values.items()]
    pl.DataFrame(rows, schema=_STATE, orient="row").write_parquet(saved.at("state", "0", "part-0.parquet"))


def restore(savepoint: str, checkpoint: str, plan: Plan, *, trust: bool = False) -> list[str]:
    """Creates a new checkpoint from a savepoint, for a run of the plan. Users call `bl.savepoint.restore`."""
    target = LocalCheckpoint.of(checkpoint)
    require_resumable(plan)
    saved = load(absolute(savepoint), target.files)
    require_told_apart(plan)
    fit = fitted(plan, saved.manifest, 1, Runner.LOCAL)
    saved.require_fitting(fit)
    plan, described = fit.plan, fit.described
    require_trusted(plan, f"the savepoint {saved.path}", trust)
    if os.path.isdir(target.path) and os.listdir(target.path):
        raise not_empty(target.path, "restore")
    begun = mark(target.path, target.files)
    with ExitStack() as held:
        held.enter_context(target.lock("beamlike restore"))
        manifest = {**new_manifest(described), "after": saved.after, "restored": True}
        target.save({**manifest, "restoring": True})
        target.files.remove(begun)
        journal = target.journal(manifest)
        held.callback(journal.close)
        state = state_of(saved, plan, target.files)
        positions = {name: _position(name, source, saved) for name, source in plan.sources.items()}
        now = max((load_inputs(name, state).now for name in plan.producers), default=0)
        copy_tables(plan.tables, saved, target, target.files)
        journal.fill(LoggedBatch(0, now, now, {}), state, positions, saved.tally)
        # The first run starts its sinks under a new run id, so it replaces no output of the saved run.
        target.save(manifest)
    return [*saved.left_out(described)]


def state_of(saved: Savepoint, plan: Plan, files: LocalFiles) -> DictStore:
    """Returns the state of all shards of a savepoint, merged into that of one shard. The plan fits the savepoint."""
    store, now = DictStore(), Topology.of(plan, (_SHARD,))
    before = Topology(tuple(range(saved.manifest["shards"])), now.inputs)
    kept = [*_values(saved, plan, files)]
    for name, stage in plan.stages.items():
        shards = [(shard, values) for shard, of, values in kept if of == name and INPUTS in values]
        pieces = [
            piece for shard, values in shards for piece in take_apart(stage, shard, values, before, now)
        ]
        if pieces:
            put_together(stage, pieces, store)
    for name in plan.sources:
        own = next((values[INPUTS] for _, of, values in kept if of == name and INPUTS in values), None)
        if own is not None:
            store.put(name, INPUTS, own)
        elif (known := _seen_by_stages(name, plan, store)) is not None:
            keep_inputs(name, store, known)
    return store


def _values(saved: Savepoint, plan: Plan, files: LocalFiles) -> Iterator[tuple[int, str, dict[str, bytes]]]:
    """Yields the stored values of the savepoint, as (shard, source or stage, values by key)."""
    for file in saved.state_files():
        try:
            rows = pl.read_parquet(file, hive_partitioning=False).cast(_STATE)
        except (OSError, pl.exceptions.PolarsError) as error:
            raise saved.damaged(f"{file}: {error}") from error
        for (shard,), part in rows.partition_by("shard", as_dict=True).items():
            values = dict(part.select("key", "value").iter_rows())
            for name in plan.producers:
                prefix = f"{name}/"
                mine = {key.removeprefix(prefix): values[key] for key in values if key.startswith(prefix)}
                yield shard, name, mine


def _seen_by_stages(source: str, plan: Plan, store: DictStore) -> Inputs | None:
    """Returns the inputs of a source that was read on Spark, where a stage that reads the source stores them."""
    for name, stage in plan.stages.items():
        known = load_inputs(name, store)
        if source in stage.inputs and source in known.sources:
            times = {source: known.times.get(source, known.now)}
            return Inputs({source: known.sources[source]}, {}, known.now, times)
    return None


def _position(name: str, source: SourcePlan, saved: Savepoint) -> Mapping[str, Any]:
    """Returns the position from which the source continues; empty for a new source."""
    if name in saved.positions:
        return saved.positions[name]
    if name not in saved.offsets:
        return {}
    if isinstance(source.source, ReadInFiles):
        return {file: to_facts(place) for file, place in places(name, saved)}
    if isinstance(source.source, HasSparkOffsets):
        return source.source.position_of(saved.offsets[name])
    kind = type(source.source).__name__
    raise CheckpointError(
        f"source {name!r}: {kind} cannot convert the offsets of Spark to a position in process: it has no "
        "position_of(offsets)"
    )


def places(name: str, saved: Savepoint) -> Iterator[tuple[str, FileProgress]]:
    """Yields the files that a source has read, each with its progress, in the order in which they were found."""
    read = _read_files(name, saved)
    for number, file in enumerate(read):
        yield file, FileProgress(number)
    for number, (file, (pieces, rows)) in enumerate(saved.cut.get(name, {}).items(), start=len(read)):
        yield file, FileProgress(number, pieces, rows)


def _read_files(name: str, saved: Savepoint) -> list[str]:
    with stored("read", saved.files_of(name)):
        text = Path(saved.files_of(name)).read_bytes()
    try:
        found: list[str] = json.loads(text)
    except ValueError as error:
        raise saved.damaged(f"{saved.files_of(name)}: {error}") from None
    return found
