"""Savepoints: the state of a run as files. A run of another plan, runner or number of shards can continue from them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from beamlike.errors import PlanError
from beamlike.io.files.paths import absolute, path_text
from beamlike.local import savepoint as in_process
from beamlike.plan.manifest import Runner, Store
from beamlike.plan.model import Plan, Planned, plan_of
from beamlike.runtime.run.checkpoint import OURS, saved_manifest
from beamlike.runtime.run.unfinished import FACTS
from beamlike.runtime.savepoint.savepoint import Savepoint, no_run, no_savepoint
from beamlike.system.arguments import answered
from beamlike.system.path_names import is_remote

__all__ = ["restore", "save"]


@answered
def save(
    checkpoint: str | os.PathLike[str],
    savepoint: str | os.PathLike[str],
    *,
    session: Any = None,
    master: str | None = None,
    config: Mapping[str, str] | None = None,
) -> Savepoint:
    """Saves the state of a stopped run in a new folder. The checkpoint is not changed.

    Args:
        checkpoint: The checkpoint. For a run on Spark, both folders must be on storage that Spark can reach.
        savepoint: The new folder.
        session: The Spark session; by default a new one on `master`.
        master: The Spark master of a new session.
        config: Settings for Spark, such as those that `SparkRunner(config=)` had for the storage of the checkpoint.

    Returns:
        The savepoint, with its path and its last batch.

    Raises:
        CheckpointError: The checkpoint has no run to save, or is incomplete.

    Example:
        >>> bl.savepoint.save("checkpoint", "savepoints/monday").batch  # doctest: +SKIP
        41
    """
    path = absolute(path_text(checkpoint))
    manifest = saved_manifest(path)
    if manifest is not None and manifest["runner"] == Runner.LOCAL:
        return in_process.save(path, path_text(savepoint))
    # Spark takes seconds to start, so it is started only for a folder that has one of these files. They may
    # be damaged.
    if not _has_any(path, OURS, "offsets"):
        raise no_run(path)
    from beamlike.spark.savepoint import savepoint as on_spark

    return on_spark.save(path, path_text(savepoint), session=session, master=master, config=config)


@answered
def restore(
    savepoint: str | os.PathLike[str],
    checkpoint: str | os.PathLike[str],
    plan: Plan | Planned,
    *,
    runner: str | None = None,
    shards: int | None = None,
    session: Any = None,
    master: str | None = None,
    config: Mapping[str, str] | None = None,
    state: str | None = None,
    trust: bool = False,
) -> list[str]:
    """Creates a new checkpoint from a savepoint. A run of the plan with it continues where the saved run stopped.

    The savepoint is not changed, and can be restored again.

    Args:
        savepoint: A folder that `save` wrote.
        checkpoint: The new folder.
        plan: A pipeline, or the plan of one.
        runner: The runner that continues: "local" or "spark"; it may differ from the runner before. The default is
            "local", as for `Pipeline.run`; or "spark" if an argument for Spark is given.
        shards: The number of shards on Spark; by default that of the savepoint.
        session: The Spark session; by default a new one on `master`.
        master: The Spark master of a new session.
        config: Settings for Spark, such as those that `SparkRunner(config=)` had for the storage of the checkpoint.
        state: Where the new run on Spark has its state, as in `SparkRunner(state=)`, with the same default.
        trust: True to load pickled objects: the accumulators of a `CombineFn`, and fields of `bl.Value(object)`. They
            run code that the writer of the savepoint chose.

    Returns:
        Names of the parts of the saved state that were left out because the plan no longer has them.

    Raises:
        CheckpointError: The plan does not fit the state, the checkpoint is not new, or the state has pickled objects
            and is not trusted.

    Example:
        >>> bl.savepoint.restore("savepoints/monday", "checkpoint-2", p, shards=16)  # doctest: +SKIP
        []
        >>> run = p.run(bl.SparkRunner(checkpoint="checkpoint-2"))  # doctest: +SKIP
    """
    plan = plan_of(plan, "restore")
    source, target = path_text(savepoint), path_text(checkpoint)
    given = {"shards": shards, "session": session, "master": master, "config": config, "state": state}
    of_spark = [name for name, value in given.items() if value is not None]
    runner = runner or (Runner.SPARK if of_spark else Runner.LOCAL)
    if runner == Runner.LOCAL:
        if of_spark:
            raise PlanError(f"restore: {', '.join(of_spark)}= is for runner='spark'")
        return in_process.restore(source, target, plan, trust=trust)
    if runner != Runner.SPARK:
        raise PlanError(f"restore: runner must be 'spark' or 'local', not {runner!r}")
    if state is not None and state not in {*Store}:
        raise PlanError(f"restore: state must be 'spark' or 'files', not {state!r}")
    if not _has_any(absolute(source), FACTS):
        raise no_savepoint(absolute(source))
    from beamlike.spark.savepoint import savepoint as on_spark

    return on_spark.restore(
        source,
        target,
        plan,
        trust=trust,
        shards=shards,
        session=session,
        master=master,
        config=config,
        state=state,
    )


def _has_any(folder: str, *names: str) -> bool:
    """True if the folder has one of these files, or if it is on remote storage, which only Spark can list."""
    return is_remote(folder) or any(os.path.lexists(os.path.join(folder, name)) for name in names)
