"""The plan of a replay: that of the run, with its lookup tables, and with sinks in memory instead of its own."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any, ClassVar

import attrs
import polars as pl

from beamlike.errors import CheckpointError
from beamlike.io.base import Part
from beamlike.io.sources import ReadFromMemory
from beamlike.plan.differences import refusal
from beamlike.plan.manifest import Runner
from beamlike.plan.matching import Fit, fitted
from beamlike.plan.model import Plan
from beamlike.plan.stepped import steps_of
from beamlike.plan.tables import with_tables
from beamlike.rows.dead_letters import UNCLAIMED
from beamlike.runtime.batch.batch_sinks import BatchSinks
from beamlike.runtime.loop.checkpoint import LocalCheckpoint, LocalFiles
from beamlike.runtime.recorded.batches import RecordedRun
from beamlike.runtime.run.digests import digest_of_rows, digest_of_streams, other_rows, other_streams
from beamlike.runtime.run.readings import with_readings_as_files
from beamlike.runtime.run.side_tables import at_hand, kept_tables
from beamlike.system.path_names import is_remote
from beamlike.system.threads import ALONE, Threads


@attrs.define(eq=False)
class Scratch:
    """A sink in memory with the rows of each batch."""

    frames: dict[int, pl.DataFrame] = attrs.field(factory=dict)

    distributed: ClassVar[bool] = False

    def write(self, frame: pl.DataFrame, part: Part) -> None:
        self.frames[part.batch] = frame


class NoSinks(BatchSinks):
    """Sinks that receive nothing."""

    def __init__(self) -> None:
        pass

    def may_change(self, arrived: Container[str]) -> bool:
        return False

    def write(
        self, batch: int, arrived: Mapping[str, Sequence[pl.DataFrame]], threads: Threads = ALONE
    ) -> dict[str, int]:
        return {name: sum(map(len, frames)) for name, frames in arrived.items()}


def scratch_sinks(plan: Plan, run: str) -> BatchSinks:
    """Returns a sink in memory for each sink of the plan, and for dead letters that no collection receives."""
    return BatchSinks(plan, {**{name: Scratch() for name in plan.sinks}, UNCLAIMED: Scratch()}, run)


def plan_of_run(run: RecordedRun, plan: Plan) -> Plan:
    """Returns the plan with the names of the run and with its lookup tables.

    Raises `CheckpointError` if the plan does not fit the run, with each difference, or if it has other rows in memory.
    """
    now = run.batches[run.last].now
    plan = fitted_to(run.manifest, f"the checkpoint {run.path}", plan, run.path, now)
    _require_same_input(run, plan)
    return with_tables(plan, at_hand(tables_of(run, plan)))


def fitted_to(manifest: Mapping[str, Any], what: str, plan: Plan, path: str, now: int) -> Plan:
    """Returns the plan with the names of the run that has this manifest. `what` names it in errors.

    Raises `CheckpointError` if the plan does not fit the run, with each difference.
    """
    fit = fit_of(manifest, plan, path, now)
    if fit.differences:
        raise CheckpointError(refusal(fit.differences, what, {}))
    return fit.plan


def fit_of(manifest: Mapping[str, Any], plan: Plan, path: str, now: int) -> Fit:
    """Compares a plan with the run at `path` that has this manifest. The plan of the result reads readings as files."""
    runner = Runner(manifest["runner"])
    # In process, readings are files before the plan is compared with the run.
    given = _with_readings(plan, path, now) if runner == Runner.LOCAL else plan
    fit = fitted(given, manifest, manifest["shards"], runner)
    return attrs.evolve(fit, plan=_with_readings(fit.plan, path, now))


def _with_readings(plan: Plan, path: str, now: int) -> Plan:
    if is_remote(path):
        return plan  # a refreshed source cannot have a checkpoint there
    return with_readings_as_files(plan, LocalCheckpoint(path).at("readings"), lambda: now)


def tables_of(run: RecordedRun, plan: Plan) -> Mapping[str, pl.DataFrame]:
    """Returns the rows of the lookup tables, which are in the checkpoint."""
    if not plan.tables:
        return {}
    folder: Any = LocalCheckpoint(run.path)
    files: Any = LocalFiles()
    if is_remote(run.path):
        from beamlike.spark.recorded import checkpoint_at

        folder = checkpoint_at(run.path)
        files = folder.files
    now = run.batches[run.first].now
    return kept_tables(plan, now, folder, files, {**run.manifest, "begun": True})


def _require_same_input(run: RecordedRun, plan: Plan) -> None:
    """Raises `CheckpointError` if rows in memory or test streams differ from those of a run in process.

    A checkpoint of Spark has the rows themselves.
    """
    if is_remote(run.path):
        return
    before: dict[str, str] = LocalCheckpoint(run.path).kept("digests.json") or {}
    if steps_of(plan) is not None:
        if before.get("@streams", digest := digest_of_streams(plan)) != digest:
            raise other_streams(run.path)
        return
    for name, source in plan.sources.items():
        if isinstance(source.source, ReadFromMemory):
            digest = digest_of_rows(source.source)
            if before.get(name, digest) != digest:
                raise other_rows(name, run.path)
