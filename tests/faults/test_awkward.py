"""Any state of checkpoint and sinks that a killed run may leave: the next run resumes, or says why it cannot."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import attrs
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import beamlike as bl
from beamlike.plan.manifest import MANIFEST
from beamlike.system.seals import sealed, unsealed
from tests.faults.job import plan_and_runner
from tests.faults.trials import Trial
from tests.faults.wires import Wire

pytestmark = pytest.mark.spark


def go_on(trial: Trial, spark: SparkSession) -> None:
    plan, runner = plan_and_runner(trial.folder, session=spark)
    plan.run(runner)


@pytest.fixture(scope="module")
def cut(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Trial:
    """A run that ended when the sinks had its second batch and Spark had not recorded that."""
    trial = Trial.of(tmp_path_factory.mktemp("awkward") / "job", files=4, seed=3)
    trial.wires.lay([Wire("noted", 1, "exception")])
    with pytest.raises((bl.RunError, StreamingQueryException)):
        go_on(trial, spark)
    return trial


@pytest.mark.slow
@pytest.mark.parametrize("left", [pytest.param("nothing", marks=pytest.mark.long), "half"])
def test_a_checkpoint_without_a_whole_manifest_is_refused(
    left: str, cut: Trial, spark: SparkSession, tmp_path: Path
) -> None:
    trial = attrs.evolve(cut, folder=Path(shutil.copytree(cut.folder, tmp_path / "job")))
    manifest = trial.folder / "checkpoint" / "beamlike" / "manifest.json"
    text = manifest.read_text()
    manifest.with_name(".manifest.json.crc").unlink(missing_ok=True)
    manifest.unlink()
    if left == "half":
        manifest.write_text(text[: len(text) // 2])
    with pytest.raises(bl.CheckpointError, match="manifest"):
        go_on(trial, spark)
    # It was not treated as a new run: nothing is lost, or written again under another name.
    assert trial.outcome().differences(cut.outcome()) == []


@pytest.mark.slow
def test_half_files_that_a_killed_run_left_do_no_harm(cut: Trial, spark: SparkSession) -> None:
    leave_halves(cut.folder / "checkpoint", cut.folder / "out")
    go_on(cut, spark)
    assert cut.differences() == []


def leave_halves(checkpoint: Path, out: Path) -> None:
    """Writes all leftovers of a process that was killed in its second batch, at once."""
    ours = checkpoint / "beamlike"
    # Killed while it was drained: that is noted, and its order to do so is half a file.
    manifest = json.dumps(
        sealed({**unsealed((ours / "manifest.json").read_text(), MANIFEST), "draining": True}, MANIFEST)
    )
    (ours / "manifest.json").write_text(manifest)
    (ours / ".manifest.json.crc").unlink(missing_ok=True)
    for file in (ours / ".manifest.json.tmp", ours / "control" / ".end.json.tmp"):
        file.write_text(manifest[: len(manifest) // 2])
    with (ours / "records.jsonl").open("a") as records:
        records.write('{"batch":1,"processing_time":17')
    for folder in ("offsets", "commits", "sources/0"):
        (checkpoint / folder / ".2.0a6b4d02-9f0d-4a42-a3a9-3d8f7b6f7c11.tmp").write_text("v1\n{")
    for name in ("sessions", "totals", "late"):
        for part in sorted((out / name).glob("part-*-000001-*")):
            (out / name / f".{part.name}.0a6b4d029f0d4a42.tmp").write_bytes(part.read_bytes()[:50])
            part.unlink()
