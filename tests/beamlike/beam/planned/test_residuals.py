"""Splittable functions in plans: the rest of their input waits in state, in process and on Spark."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from signal import SIGKILL
from typing import Any

import attrs
import pytest

beam = pytest.importorskip("apache_beam")

from apache_beam.transforms.periodicsequence import PeriodicImpulse  # noqa: E402
from apache_beam.transforms.timeutil import TimeDomain  # noqa: E402
from apache_beam.transforms.userstate import TimerSpec, on_timer  # noqa: E402
from apache_beam.utils.timestamp import Duration, Timestamp  # noqa: E402

import beamlike as bl  # noqa: E402
from beamlike.beam import BeamlikeRunner, plan, splits  # noqa: E402
from beamlike.beam.nodes import Residual  # noqa: E402
from beamlike.beam.planned import residuals  # noqa: E402
from beamlike.beam.planned.job import Worker  # noqa: E402
from tests.beamlike.beam.killed import Counting  # noqa: E402
from tests.beamlike.beam.pipelines import see, seen  # noqa: E402
from tests.beamlike.beam.planned.counting import NUMBERS, build, claimed, expected, run  # noqa: E402
from tests.beamlike.beam.planned.readings import written  # noqa: E402


def planned(folder: Path, **named: Any) -> Any:
    """Returns a runner that executes a plan in process, with a checkpoint in the folder."""
    return BeamlikeRunner(spark=bl.LocalRunner(checkpoint=str(folder / "checkpoint"), quiet=True, **named))


@pytest.mark.parametrize("how", ["in process", "plan", "plan with a checkpoint"])
def test_a_splittable_function_that_waits_has_all_of_its_output(how: str, tmp_path: Path) -> None:
    runners = {
        "in process": BeamlikeRunner(),
        "plan": BeamlikeRunner(spark=bl.LocalRunner(quiet=True)),
        "plan with a checkpoint": planned(tmp_path, drain=True),
    }
    assert run(tmp_path, runners[how]) == expected()
    assert claimed(tmp_path) == [*range(NUMBERS)]


def test_a_residual_holds_the_watermark_at_that_of_its_restriction(tmp_path: Path) -> None:
    batches = list[Any]()
    run(tmp_path, BeamlikeRunner(spark=bl.LocalRunner(quiet=True, on_batch=batches.append)))
    held = [batch.stages["count"] for batch in batches if batch.stages["count"].window is not None]
    reached = [*dict.fromkeys(stage.output for stage in held)]
    assert reached == [1_000_000 * number for number in range(1, NUMBERS)]
    assert {stage.holder.partition(",")[0] for stage in held} == {
        "the rest of the input of a splittable DoFn"
    }
    assert all(stage.window.due > stage.finished - 60_000_000 for stage in held)


@pytest.mark.parametrize("how", ["plan", "own"])
def test_a_killed_run_continues_a_residual_that_waits(how: str, tmp_path: Path) -> None:
    traps = [1, 4]
    for number in traps:
        tmp_path.joinpath("traps").mkdir(exist_ok=True)
        tmp_path.joinpath("traps", f"number {number}").touch()
    job = [sys.executable, "-m", "tests.beamlike.beam.planned.counting", str(tmp_path), how]
    codes = [subprocess.run(job, stderr=subprocess.DEVNULL).returncode for _ in range(len(traps) + 1)]
    assert codes == [*(-SIGKILL for _ in traps), 0]
    assert written(tmp_path) == expected()
    # Only a number whose batch was not finished is claimed again.
    assert claimed(tmp_path) == sorted([*range(NUMBERS), *traps])


def test_a_run_that_can_be_continued_leaves_a_residual_to_the_next_one(tmp_path: Path) -> None:
    found: list[int] = []
    while len(found) < 3:  # a run that begins before the residual is due leaves it, too
        run(tmp_path, planned(tmp_path))
        before, found = found, claimed(tmp_path)
        assert found in (before, [*range(len(before) + 1)])
    assert run(tmp_path, planned(tmp_path, drain=True)) == expected()


@pytest.mark.spark
def test_a_savepoint_with_a_residual_continues_on_spark_and_in_process_again(
    spark: Any, tmp_path: Path
) -> None:
    run(tmp_path, planned(tmp_path))
    assert claimed(tmp_path) == [0]
    bl.savepoint.save(tmp_path / "checkpoint", tmp_path / "savepoint")
    again = plan(build(beam.Pipeline(), tmp_path))
    on_spark = tmp_path / "2" / "checkpoint"
    bl.savepoint.restore(tmp_path / "savepoint", on_spark, again, shards=2, session=spark)
    runner = bl.SparkRunner(checkpoint=str(on_spark), session=spark, quiet=True)
    run(tmp_path, BeamlikeRunner(spark=runner))
    assert 1 < len(claimed(tmp_path)) < NUMBERS
    bl.savepoint.save(on_spark, tmp_path / "2" / "savepoint", session=spark)
    target = tmp_path / "3" / "checkpoint"
    bl.savepoint.restore(tmp_path / "2" / "savepoint", target, again, shards=2, session=spark)
    drained = bl.SparkRunner(checkpoint=str(target), session=spark, quiet=True, drain=True)
    assert run(tmp_path, BeamlikeRunner(spark=drained)) == expected()
    assert claimed(tmp_path) == [*range(NUMBERS)]


class WithSide(beam.DoFn):  # type: ignore[misc, name-defined, unused-ignore]
    """Emits the numbers below an element with the content of a side, one a bundle, and waits after each of them."""

    def process(
        self, element: int, side: list[str], tracker: Any = beam.DoFn.RestrictionParam(Counting())
    ) -> Iterator[Any]:
        number = tracker.current_restriction().start
        if tracker.try_claim(number):
            yield number, side
            tracker.defer_remainder(Duration(0.2))


def with_a_side(runner: Any) -> list[Any]:
    """Runs a splittable function that reads a side of which the windows are over. Returns its output so far."""
    stamp, tens = beam.window.TimestampedValue, beam.window.FixedWindows(10)
    with beam.Pipeline(runner=runner) as pipeline:
        names = pipeline | "names" >> beam.Create([stamp("red", 1), stamp("blue", 11)])
        names = names | "tens of names" >> beam.WindowInto(tens)
        numbers = pipeline | beam.Create([stamp(3, 2), stamp(2, 12)]) | beam.WindowInto(tens)
        numbers | beam.ParDo(WithSide(), beam.pvalue.AsList(names)) | beam.Map(see)
    return sorted(seen)


@pytest.mark.parametrize("how", ["in process", "plan", "plan in several runs"])
def test_a_residual_reads_the_side_of_its_window_which_is_over(how: str, tmp_path: Path) -> None:
    seen.clear()
    runner = BeamlikeRunner(spark=None if how == "in process" else bl.LocalRunner(quiet=True))
    if how == "plan in several runs":
        for _ in range(3):  # most of these runs have a batch in which no residual is due
            with_a_side(planned(tmp_path))
        runner = planned(tmp_path, drain=True)
    blue, red = [(number, ["blue"]) for number in range(2)], [(number, ["red"]) for number in range(3)]
    assert with_a_side(runner) == sorted(blue + red)


# Mutants: the tests above find them.


def test_a_plan_that_forgets_the_sides_of_residuals_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(residuals, "_held", lambda clock, waiting, arrived: clock)
    seen.clear()
    assert len(with_a_side(BeamlikeRunner(spark=bl.LocalRunner(quiet=True)))) < 5


@pytest.mark.parametrize("mutant", ["no holds", "forgotten"])
def test_a_plan_that_mistreats_residuals_has_other_output(
    mutant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    advance = Worker.advance

    def mistreated(self: Any, *arguments: Any) -> Any:
        written, left = advance(self, *arguments)
        latest = max((each.hold for each in left), default=0)
        kept: list[Residual] = [attrs.evolve(each, hold=latest + 10_000_000) for each in left]
        return written, kept if mutant == "no holds" else []

    monkeypatch.setattr(Worker, "advance", mistreated)
    assert run(tmp_path, BeamlikeRunner(spark=bl.LocalRunner(quiet=True))) != expected()


# Sources that wait for processing time.


@pytest.mark.parametrize("how", ["in process", "plan"])
def test_a_periodic_impulse_runs(how: str) -> None:
    seen.clear()
    runner = BeamlikeRunner(spark=None if how == "in process" else bl.LocalRunner(quiet=True))
    now = time.time()
    with beam.Pipeline(runner=runner) as pipeline:
        ticks = pipeline | PeriodicImpulse(now, now + 0.05, 0.01)
        ticks | beam.Map(lambda at: round((float(at) - now) * 100)) | beam.Map(see)
    assert seen == [*range(5)]


class Alarm(beam.DoFn):  # type: ignore[misc, name-defined, unused-ignore]
    """Emits a value when a timer by processing time fires, twice."""

    CLOCK = TimerSpec("clock", TimeDomain.REAL_TIME)

    def process(self, element: Any, clock: Any = beam.DoFn.TimerParam(CLOCK)) -> None:
        clock.set(Timestamp.now() + Duration(0.05))

    @on_timer(CLOCK)
    def fire(self, key: Any = beam.DoFn.KeyParam) -> Iterator[Any]:
        yield key


def test_a_plan_without_a_checkpoint_waits_for_timers_by_processing_time() -> None:
    seen.clear()
    with beam.Pipeline(runner=BeamlikeRunner(spark=bl.LocalRunner(quiet=True))) as pipeline:
        fired = pipeline | beam.Create([("a", 1), ("b", 2)]) | beam.ParDo(Alarm())
        fired | beam.combiners.Count.PerElement() | beam.Map(see)
    assert sorted(seen) == [("a", 1), ("b", 1)]


# Bundles that take long.


class UntilSeen(beam.DoFn):  # type: ignore[misc, name-defined, unused-ignore]
    """Emits the numbers below an element. After each it waits until the first has been seen, for 20 seconds at most."""

    def process(self, element: int, tracker: Any = beam.DoFn.RestrictionParam(Counting())) -> Iterator[int]:
        number = tracker.current_restriction().start
        while tracker.try_claim(number):
            yield number
            ends = time.monotonic() + 20
            while not seen and tracker.current_restriction().stop > number + 1 and time.monotonic() < ends:
                time.sleep(0.001)
            number += 1


@pytest.mark.parametrize("how", ["in process", "plan"])
def test_the_runner_splits_a_bundle_that_takes_long(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splits, "LONGEST", 0.02)
    seen.clear()
    before = time.monotonic()
    runner = BeamlikeRunner(spark=None if how == "in process" else bl.LocalRunner(quiet=True))
    with beam.Pipeline(runner=runner) as pipeline:
        numbers = pipeline | beam.Create([4, 2]) | beam.ParDo(UntilSeen())
        numbers | beam.Reshuffle() | beam.Map(see)
    assert sorted(seen) == [0, 0, 1, 1, 2, 3]
    assert time.monotonic() - before < 15
