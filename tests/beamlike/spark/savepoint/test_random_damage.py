"""Random damage of a savepoint or checkpoint of a run on Spark: the panes are right, or a CheckpointError names it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import beamlike as bl
from tests.support.damages import Damaged, pipeline, tried, write
from tests.support.examples import times


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "beamlike")


@pytest.fixture(scope="module")
def halfway(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `kept`: a run on Spark that has read three files and has two more to read, and its savepoint."""
    folder = tmp_path_factory.mktemp("halfway")
    for number in range(3):
        write(folder / "run", number)
    go_on(spark, folder / "run")
    kept = (folder / "run").rename(folder / "kept")
    bl.savepoint.save(kept / "checkpoint", kept / "savepoint", session=spark)
    for number in (3, 4):
        write(kept, number)
    return folder


def go_on(spark: SparkSession, folder: Path, *, drain: bool = False) -> None:
    pipeline(folder).run(bl.SparkRunner(str(folder / "checkpoint"), session=spark, shards=2, drain=drain))


@pytest.mark.spark
def test_no_damage_of_a_savepoint_is_unseen_or_without_a_name(halfway: Path) -> None:
    def restored(folder: Path) -> None:
        plan = pipeline(folder).plan()
        bl.savepoint.restore(folder / "savepoint", folder / "restored", plan, runner="local")
        pipeline(folder).run(bl.LocalRunner(checkpoint=folder / "restored", drain=True))

    count = times(1 / 3)
    # Sums that Hadoop keeps in files of their own are not looked at.
    assert tried(Damaged(halfway, restored, "savepoint"), count, count)["named"] > count / 2


@pytest.mark.slow
@pytest.mark.spark
def test_no_damage_of_a_checkpoint_is_unseen_or_without_a_name(spark: SparkSession, halfway: Path) -> None:
    came = tried(
        Damaged(halfway, lambda folder: go_on(spark, folder, drain=True), "checkpoint"), 1, times(1 / 4)
    )
    assert came["named"] > 0
