"""Runs whose state is in files give what a run in process gives, also after savepoints and failures."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import beamlike as bl
from beamlike.spark.savepoint import savepoint as savepoints
from tests.beamlike.spark.savepoint.test_savepoint import FILES, HALF, panes, pipeline, run, write
from tests.support.spark_versions import needs_state_store

pytestmark = pytest.mark.spark


def undisturbed(folder: Path) -> list[tuple[Any, ...]]:
    """Returns the panes of a run in process that reads all files without a stop."""
    sink = bl.Memory()
    pipeline(folder, sink).run()
    return panes(sink)


@pytest.mark.parametrize("shards", [1, 2])
def test_panes_are_those_of_a_run_in_process(spark: SparkSession, tmp_path: Path, shards: int) -> None:
    before, after = bl.Memory(), bl.Memory()
    checkpoint = tmp_path / "checkpoint"
    write(tmp_path / "plays", 0, HALF)
    run(pipeline(tmp_path, before), checkpoint, session=spark, shards=shards, state="files")
    assert not (checkpoint / "state").exists()
    write(tmp_path / "plays", HALF, FILES)
    # It continues with the store that it has.
    run(pipeline(tmp_path, after), checkpoint, session=spark, drain=True)
    assert not (checkpoint / "state").exists()
    assert panes(before, after) == undisturbed(tmp_path)


@pytest.mark.parametrize(
    ("first", "then"),
    [
        pytest.param("spark", "files", marks=needs_state_store),
        pytest.param("files", "spark", marks=[needs_state_store, pytest.mark.slow, pytest.mark.long]),
        ("files", "files"),
    ],
)
def test_a_savepoint_goes_from_each_store_to_the_other_and_to_other_shards(
    spark: SparkSession, tmp_path: Path, first: str, then: str
) -> None:
    before, after = bl.Memory(), bl.Memory()
    write(tmp_path / "plays", 0, HALF)
    run(pipeline(tmp_path, before), tmp_path / "two", session=spark, shards=2, state=first)
    saved = str(tmp_path / "saved")
    assert savepoints.save(str(tmp_path / "two"), saved, session=spark).batch == HALF - 1
    write(tmp_path / "plays", HALF, FILES)
    plan = pipeline(tmp_path, after).plan()
    savepoints.restore(saved, str(tmp_path / "three"), plan, shards=3, session=spark, state=then)
    assert (tmp_path / "three" / "state").exists() == (then == "spark")
    run(pipeline(tmp_path, after), tmp_path / "three", session=spark, drain=True)
    assert panes(before, after) == undisturbed(tmp_path)


def test_a_savepoint_goes_to_a_run_in_process_and_back(spark: SparkSession, tmp_path: Path) -> None:
    sinks = [bl.Memory() for _ in range(3)]
    write(tmp_path / "plays", 0, HALF - 1)
    run(pipeline(tmp_path, sinks[0]), tmp_path / "one", session=spark, shards=1, state="files")
    bl.savepoint.save(tmp_path / "one", tmp_path / "saved", session=spark)
    write(tmp_path / "plays", HALF - 1, HALF)
    p = pipeline(tmp_path, sinks[1])
    bl.savepoint.restore(tmp_path / "saved", tmp_path / "local", p, runner="local")
    p.run(bl.LocalRunner(checkpoint=tmp_path / "local"))
    bl.savepoint.save(tmp_path / "local", tmp_path / "saved again")
    write(tmp_path / "plays", HALF, FILES)
    p = pipeline(tmp_path, sinks[2])
    bl.savepoint.restore(
        tmp_path / "saved again", tmp_path / "two", p, shards=2, session=spark, state="files"
    )
    run(p, tmp_path / "two", session=spark, drain=True)
    assert panes(*sinks) == undisturbed(tmp_path)


def test_an_earlier_state_is_there_and_a_replayed_batch_begins_with_the_one_before(
    spark: SparkSession, tmp_path: Path
) -> None:
    before, after = bl.Memory(), bl.Memory()
    checkpoint = tmp_path / "checkpoint"
    write(tmp_path / "plays", 0, HALF)
    run(pipeline(tmp_path, before), checkpoint, session=spark, shards=2, state="files")
    earlier = savepoints.state_after(str(checkpoint), 1, str(tmp_path / "earlier"))
    stored = sorted(path.parent.name for path in (Path(earlier.path) / "state").rglob("*.parquet"))
    assert stored == ["0", "0", "1"]  # the second operator has a stage without keys
    # As after a kill between the last version of the state and the commit of its batch.
    for name in (str(HALF - 1), f".{HALF - 1}.crc"):
        (checkpoint / "commits" / name).unlink()
    last = checkpoint / "beamlike" / "state" / "versions" / f"{HALF - 1:09d}.json"
    first_attempt = last.read_text()
    write(tmp_path / "plays", HALF, FILES)
    run(pipeline(tmp_path, after), checkpoint, session=spark, drain=True)
    assert last.read_text() != first_attempt
    whole = panes(before, after)
    # A sink in memory has the rows of the replayed batch twice.
    assert [row for place, row in enumerate(whole) if row not in whole[:place]] == undisturbed(tmp_path)


@needs_state_store
def test_another_store_than_that_of_the_checkpoint_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "plays", 0, 1)
    run(pipeline(tmp_path, bl.Memory()), tmp_path / "one", session=spark, shards=1, state="files")
    with pytest.raises(
        bl.CheckpointError, match="has its state in files, and the run asks for state='spark'"
    ):
        run(pipeline(tmp_path, bl.Memory()), tmp_path / "one", session=spark, state="spark")
    with pytest.raises(ValueError, match="'state' must be in"):
        bl.SparkRunner(state="disk")  # type: ignore[arg-type]


def test_a_version_or_a_file_that_is_gone_fails_the_run(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "plays", 0, 2)
    run(pipeline(tmp_path, bl.Memory()), tmp_path / "one", session=spark, shards=1, state="files")
    write(tmp_path / "plays", 2, HALF)
    shutil.copytree(tmp_path / "one", tmp_path / "other")
    for file in (tmp_path / "one" / "beamlike" / "state" / "data").iterdir():
        file.unlink()
    with pytest.raises(bl.CheckpointError, match=r"the state file .* is gone"):
        run(pipeline(tmp_path, bl.Memory()), tmp_path / "one", session=spark)
    (tmp_path / "other" / "beamlike" / "state" / "versions" / "000000001.json").unlink()
    with pytest.raises(bl.CheckpointError, match=r"the version .*000000001\.json of the state is gone"):
        run(pipeline(tmp_path, bl.Memory()), tmp_path / "other", session=spark)
