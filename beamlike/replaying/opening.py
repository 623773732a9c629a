"""Opens the run of a checkpoint, in process or on Spark, to read again what its batches took."""

from __future__ import annotations

import os

from beamlike.errors import CheckpointError
from beamlike.io.files.paths import absolute, path_text
from beamlike.local import recorded as in_process
from beamlike.plan.manifest import Runner
from beamlike.runtime.loop.checkpoint import LocalCheckpoint
from beamlike.runtime.recorded.batches import RecordedRun
from beamlike.runtime.run.checkpoint import OURS, saved_manifest
from beamlike.system.path_names import is_remote


def open_run(checkpoint: str | os.PathLike[str]) -> RecordedRun:
    """Opens the run of a checkpoint, which must not be running. Its state, positions and output are not changed, and
    Spark is not started.

    Raises `CheckpointError` if there is no run, or it is in use, or has not begun a batch yet.
    """
    path = absolute(path_text(checkpoint))
    manifest = saved_manifest(path)
    if manifest is not None and manifest["runner"] == Runner.LOCAL:
        return in_process.recorded_run(LocalCheckpoint(path), manifest)
    if manifest is None and not is_remote(path):
        raise no_run(path)
    from beamlike.spark import recorded as on_spark

    return on_spark.open_run(path)


def no_run(path: str) -> CheckpointError:
    """Returns the error for a folder that is no checkpoint."""
    return CheckpointError(
        f"there is no run in {path}: it has no {OURS}/manifest.json; name the checkpoint= of a run"
    )
