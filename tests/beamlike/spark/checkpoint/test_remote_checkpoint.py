"""A checkpoint that is not on the local file system: its files are complete at any moment.

Hadoop's viewfs stands for the remote storage: it has a scheme and a host, and here leads to a local folder.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import beamlike as bl
from beamlike.errors import CheckpointError
from beamlike.records.history import History
from beamlike.spark.checkpoint.hadoop import HadoopFiles
from beamlike.spark.savepoint import savepoint as savepoints
from tests.support import kept

pytestmark = pytest.mark.spark


@pytest.fixture
def remote(spark: SparkSession, tmp_path: Path) -> str:
    """The folder, as a path with a scheme."""
    host = tmp_path.name.replace("_", "-")
    (tmp_path / "far").mkdir()
    link = f"fs.viewfs.mounttable.{host}.link./far"
    spark.sparkContext._jsc.hadoopConfiguration().set(link, f"file:{tmp_path}/far")
    return f"viewfs://{host}/far"


class Lost(Exception):
    """Raised when the machine is lost."""


class Machine:
    """A Hadoop file system on a machine that is lost after a number of changing calls."""

    def __init__(self, files: Any, left: list[int]) -> None:
        self.files, self.left = files, left

    def __getattr__(self, name: str) -> Any:
        if name in ("create", "rename", "delete", "mkdirs", "setTimes"):
            self.left[0] -= 1
            if self.left[0] < 0:
                raise Lost
        return getattr(self.files, name)


def replaced(files: HadoopFiles, name: str, text: str, calls: int) -> bool:
    """True if `calls` calls are enough to replace the text of a file."""
    left, find = [calls], HadoopFiles._find
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            HadoopFiles, "_find", lambda self, name: ((at := find(self, name))[0], Machine(at[1], left))
        )
        try:
            files.replace(name, text)
        except Lost:
            return False
    return True


def test_a_machine_that_is_lost_leaves_the_old_text_or_the_new(spark: SparkSession, remote: str) -> None:
    files, name = HadoopFiles(spark), f"{remote}/beamlike/manifest.json"
    assert files.latest(name) is None
    files.write(name, "0")  # as it was written once
    known, calls = "0", 0
    for version in range(1, 20):
        done = replaced(files, name, str(version), calls)
        found = files.latest(name)
        assert found in ((str(version),) if done else (known, str(version)))
        known = found
        calls = 0 if done else calls + 1
    files.replace(name, "last")
    assert (files.latest(name), len(files.names(f"{remote}/beamlike"))) == ("last", 1)


def test_without_the_classes_for_s3_it_is_said_how_to_get_them(spark: SparkSession) -> None:
    p = bl.Pipeline("p")
    p.read("rows", bl.Parquet("in", {"n": int})).write("out", bl.Memory())
    told = r"knows no s3://: add hadoop-aws .*'spark\.jars\.packages': 'org\.apache\.hadoop:hadoop-aws:"
    with pytest.raises(CheckpointError, match=told):
        p.run(bl.SparkRunner("s3://bucket/checkpoint", session=spark))


@pytest.mark.slow
def test_a_run_goes_on_from_there_and_is_saved_and_restored(
    spark: SparkSession, remote: str, tmp_path: Path
) -> None:
    plays = tmp_path / "plays"

    def run(checkpoint: str, **options: Any) -> list[tuple[Any, ...]]:
        sessions, games = bl.Memory(), bl.Memory()
        runner = bl.SparkRunner(f"{remote}/{checkpoint}", session=spark, **options)
        kept.pipeline(plays, sessions, games).run(runner)
        return kept.panes(sessions, games)

    kept.write(plays, 0, 1)
    run("checkpoint", shards=2)
    kept.write(plays, 1, kept.HALF)
    run("checkpoint")
    savepoints.save(f"{remote}/checkpoint", str(tmp_path / "saved"), session=spark)
    kept.write(plays, kept.HALF, kept.FILES)
    plan = kept.pipeline(plays, bl.Memory(), bl.Memory()).plan()
    savepoints.restore(str(tmp_path / "saved"), f"{remote}/restored", plan, shards=3, session=spark)
    # Not drained: viewfs starts a process to look at a file, and the hidden one of the end is gone by then.
    later = kept.expected(plays, kept.FILES)
    expected = [pane for pane in kept.expected(plays, kept.HALF) if pane not in later]
    assert run("checkpoint") == expected
    assert run("restored") == expected
    assert expected
    files = [path.name for path in (tmp_path / "far" / "checkpoint" / "beamlike").iterdir() if path.is_file()]
    assert sorted(name.partition(".")[0] for name in files if not name.startswith(".")) == [
        "manifest",
        "tally",
    ]


@pytest.mark.slow
def test_records_beside_an_older_copy_show_that_it_is_one(
    spark: SparkSession, remote: str, tmp_path: Path
) -> None:
    records, called, far = str(tmp_path / "run.jsonl"), list[int](), tmp_path / "far"

    def run(number: int | None = None, **options: Any) -> None:
        if number is not None:
            kept.write(tmp_path / "plays", number, number + 1)
        p = bl.Pipeline("plays")
        plays = p.read("plays", bl.JSONLines(tmp_path / "plays", {"at": int}))
        plays.write("out", bl.Callback(lambda rows, batch: called.append(batch)))
        p.run(bl.SparkRunner(f"{remote}/run", session=spark, shards=1, records=records, **options))

    run(0)
    shutil.copytree(far / "run", far / "copy")
    run(1)
    shutil.rmtree(far / "run")
    shutil.move(far / "copy", far / "run")
    with pytest.raises(
        CheckpointError, match=r"the file of records .*run\.jsonl has batch 1 of the run .*of batch 0"
    ):
        run()
    run(continue_as="second")
    assert called == [0, 1, 1]
    assert [record.batch for record in History.open(records).batches] == [0, 1]
