"""Runs that are killed, at many places and moments, emit the same rows as an undisturbed run.

With `-m slow`, SIGKILL ends:

- the whole job, with its Java and its Python workers; it is started again. Some of its runs fail within one Java;
- some of its Python workers, in an ingest task, a level or half of a file. Spark repeats the task, except where a
  task has one attempt.

Most of the time goes to starting Java, so `make faults` kills the whole job more often, and executors of a cluster.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections import Counter
from pathlib import Path

import attrs
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import beamlike as bl
from tests.faults import moods, plays
from tests.faults.job import plan_and_runner
from tests.faults.local_trials import deaths, survive_in_process
from tests.faults.outcome import Outcome, expected, outcome
from tests.faults.pipeline import DATABASE, TABLES, pipeline
from tests.faults.trials import Trial, is_death, lives, survive
from tests.faults.wires import IN_WORKERS, ON_DRIVER, Place, Wire, Wires
from tests.support.spark_versions import FILES_FIRST, STORES


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("state", STORES)
def test_a_job_that_is_killed_again_and_again_loses_and_doubles_nothing(tmp_path: Path, state: str) -> None:
    planned = lives(seed=1534, deaths=6, workers=8)
    tripped = [wire for wires in survive(tmp_path / "job", planned, seed=1534, state=state) for wire in wires]
    victims = Counter(wire.victim for wire in tripped)
    assert victims["all"] + victims["later"] + victims["driver"] == len(planned)
    assert victims["worker"] + victims["exception"] >= 1  # chance how many are met in time


def test_so_many_deaths_are_planned_of_both_kinds() -> None:
    planned = lives(seed=7, deaths=200, workers=1)
    assert sum(life.deaths for life in planned) == 200
    assert {life.tries for life in planned} == {1, 16}
    wires = [wire for life in planned for wire in life.wires]
    died = {wire.victim for life in planned for wire in life.wires if is_death(wire, life.tries)}
    assert died == {"all", "driver", "later", "exception", "worker"}
    assert {wire.place for wire in wires} == {*IN_WORKERS, *ON_DRIVER}


@pytest.mark.long
@pytest.mark.slow
def test_a_run_in_process_that_is_killed_again_and_again_loses_and_doubles_nothing(tmp_path: Path) -> None:
    planned = deaths(seed=11, count=6)
    assert len(list(survive_in_process(tmp_path / "job", planned, seed=11))) == 6


def test_processes_are_killed_at_every_place() -> None:
    planned = deaths(seed=7, count=40)
    assert {death.wires[-1].place for death in planned} == {*IN_WORKERS, *ON_DRIVER}
    assert any(death.after is not None for death in planned)
    assert any(death.count > 1 for death in planned)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("state", FILES_FIRST)
def test_a_run_that_fails_and_is_started_again_in_the_same_java_loses_and_doubles_nothing(
    spark: SparkSession, tmp_path: Path, state: str
) -> None:
    trial = Trial.of(tmp_path / "job", files=3, seed=2)
    cuts: tuple[tuple[Place, int], ...] = (("part", 0), ("level 1", 1), ("transaction", 1), ("level 2", 2))
    for place, batch in cuts:
        trial.wires.lay([Wire(place, batch, "worker" if place in IN_WORKERS else "exception")])
        plan, runner = plan_and_runner(trial.folder, session=spark, state=state)
        with pytest.raises((bl.RunError, StreamingQueryException)):
            plan.run(runner)
        assert trial.wires.left() == []
    plan, runner = plan_and_runner(trial.folder, session=spark, state=state)
    plan.run(runner)
    assert trial.differences() == []


# The comparison finds differences


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    """The output of a run in this process, and its outcome without the counts of its records."""
    folder = tmp_path_factory.mktemp("undisturbed")
    data = plays.write(folder / "data", files=3, seed=5)
    files = {source: sorted(map(str, (data / source).iterdir())) for source in plays.SOURCES}
    whole = expected(folder, [{source: [files[source][number]] for source in files} for number in range(3)])
    return folder / "expected", attrs.evolve(whole, counts=Counter())


@pytest.fixture
def out(undisturbed: tuple[Path, Outcome], tmp_path: Path) -> Path:
    """A copy of the output of `undisturbed`, to be damaged."""
    return Path(shutil.copytree(undisturbed[0], tmp_path / "out"))


@pytest.mark.parametrize("sink", ["sessions", "totals", "late"])
def test_a_part_that_is_lost_or_doubled_is_found(
    sink: str, undisturbed: tuple[Path, Outcome], out: Path
) -> None:
    part = max((out / sink).iterdir(), key=lambda file: file.stat().st_size)
    copied = shutil.copy(part, part.with_stem("part-other"))
    (found,) = outcome(out, []).differences(undisturbed[1])
    assert f"too many in {sink}" in found
    part.unlink()
    copied.unlink()
    (found,) = outcome(out, []).differences(undisturbed[1])
    assert f"lost in {sink}" in found


@pytest.mark.parametrize(
    ("database", "table", "sink"),
    [(DATABASE, "totals", "database"), (TABLES, "latest", "latest"), (TABLES, "appended", "appended")],
)
def test_a_row_of_a_table_that_is_lost_is_found(
    database: str, table: str, sink: str, undisturbed: tuple[Path, Outcome], out: Path
) -> None:
    with contextlib.closing(sqlite3.connect(out / database)) as connection:
        connection.execute(f"DELETE FROM {table} WHERE rowid = (SELECT min(rowid) FROM {table})")
        connection.commit()
    (found,) = outcome(out, []).differences(undisturbed[1])
    assert found.startswith(f"1 rows lost in {sink}")


def test_rows_of_a_run_that_did_not_end_a_batch_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data, out = plays.write(tmp_path / "data", files=3, seed=5), tmp_path / "out"
    (tmp_path / "wires").mkdir()
    moods.next_mood(tmp_path)
    run = pipeline(data, out, Wires(str(tmp_path / "wires"))).run()
    letters = Path(run.dead_letters)
    found = list(moods.differences(out, letters, run.batches))
    assert found == []
    other = next((out / "good").rglob("part-*"))
    stale = out / "good" / "mood=1" / other.parent.name
    shutil.copytree(other.parent, stale)
    (found,) = moods.differences(out, letters, run.batches)
    assert "rows too many in good, 0 lost" in found
    shutil.rmtree(stale)
    shutil.rmtree(letters)
    (found,) = moods.differences(out, letters, run.batches)
    assert "0 rows too many in @dead-letters" in found
