"""Beam pipelines as plans: their results, metrics and checkpoints, in process and on Spark, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

beam = pytest.importorskip("apache_beam")

from apache_beam.testing.test_stream import TestStream  # noqa: E402
from apache_beam.transforms.timeutil import TimeDomain  # noqa: E402
from apache_beam.transforms.userstate import TimerSpec, on_timer  # noqa: E402

import beamlike as bl  # noqa: E402
from beamlike.beam import BeamlikeRunner, Read, plan  # noqa: E402
from tests.beamlike.beam.planned import readings  # noqa: E402
from tests.beamlike.beam.planned.readings import build, expected, run, stopping, trap  # noqa: E402
from tests.beamlike.beam.test_runner import blocks  # noqa: E402


def local(folder: Path, **named: Any) -> Any:
    """Returns a runner in process with a checkpoint in the folder."""
    return bl.LocalRunner(checkpoint=str(folder / "checkpoint"), drain=True, quiet=True, **named)


def until_the_end(folder: Path, runner: Any) -> int:
    """Runs the pipeline until it does not fail, and returns the number of failures."""
    for failures in range(10):
        try:
            run(folder, runner)
        except Exception as error:
            if "trapped" not in str(error):
                raise
        else:
            return failures
    raise AssertionError("it fails again and again")


@pytest.mark.parametrize("streamed", [False, True])
def test_a_plan_computes_what_the_pipeline_declares(tmp_path: Path, streamed: bool) -> None:
    assert run(tmp_path, bl.LocalRunner(quiet=True), streamed=streamed) == expected()


def test_a_plan_computes_what_the_runner_in_process_does(tmp_path: Path) -> None:
    tmp_path.joinpath("out").mkdir()
    with beam.Pipeline(runner=BeamlikeRunner()) as pipeline:
        build(pipeline, str(tmp_path), streamed=True)
    assert readings.written(tmp_path) == expected()


def test_a_run_that_fails_again_and_again_continues_from_its_checkpoint(tmp_path: Path) -> None:
    traps = [0, 11, 20, 41, 50]
    for value in traps:
        trap(tmp_path, value)
    assert until_the_end(tmp_path, local(tmp_path)) == len(traps)
    assert readings.written(tmp_path) == expected()


def test_a_process_that_is_killed_continues_from_its_checkpoint(tmp_path: Path) -> None:
    for value in (11, 40, 51):
        trap(tmp_path, value)
    job = [sys.executable, "-m", "tests.beamlike.beam.planned.readings", str(tmp_path)]
    codes = [subprocess.run(job, stderr=subprocess.DEVNULL).returncode for _ in range(4)]
    assert codes == [-9, -9, -9, 0]
    assert readings.written(tmp_path) == expected()


def test_a_savepoint_continues_in_another_checkpoint(tmp_path: Path) -> None:
    run(tmp_path, local(tmp_path, on_batch=stopping(4)))
    assert len(readings.written(tmp_path)) < len(expected())
    bl.savepoint.save(tmp_path / "checkpoint", tmp_path / "savepoint")
    restored = build(beam.Pipeline(), str(tmp_path))
    bl.savepoint.restore(
        tmp_path / "savepoint", tmp_path / "2" / "checkpoint", plan(restored), runner="local"
    )
    with beam.Pipeline(runner=BeamlikeRunner(spark=local(tmp_path / "2"))) as pipeline:
        build(pipeline, str(tmp_path))
    assert readings.written(tmp_path) == expected()


def test_the_metrics_of_bundles_are_in_the_result() -> None:
    counter = beam.metrics.Metrics.counter("test", "seen")

    def count(element: Any) -> Any:
        counter.inc()
        return element

    with beam.Pipeline(runner=BeamlikeRunner(spark=bl.LocalRunner(quiet=True))) as pipeline:
        pairs = pipeline | beam.Create([("a", 1), ("b", 2), ("a", 3)]) | beam.Map(count)
        pairs | beam.GroupByKey() | "again" >> beam.Map(count)
    counters = pipeline.result.metrics().query()["counters"]
    assert [(each.key.metric.name, each.result) for each in counters] == [("seen", 3), ("seen", 2)]


@pytest.mark.spark
def test_a_run_on_spark_fails_and_moves_into_a_process_and_back(spark: Any, tmp_path: Path) -> None:
    def on_spark(folder: Path, **named: Any) -> Any:
        return bl.SparkRunner(
            checkpoint=str(folder / "checkpoint"), drain=True, session=spark, shards=2, quiet=True, **named
        )

    def go_on(runner: Any) -> None:
        with beam.Pipeline(runner=BeamlikeRunner(spark=runner)) as pipeline:
            build(pipeline, str(tmp_path))

    trap(tmp_path, 11)
    assert until_the_end(tmp_path, on_spark(tmp_path, on_batch=stopping(2))) == 1
    bl.savepoint.save(tmp_path / "checkpoint", tmp_path / "savepoint", session=spark)
    again = plan(build(beam.Pipeline(), str(tmp_path)))
    bl.savepoint.restore(tmp_path / "savepoint", tmp_path / "2" / "checkpoint", again, runner="local")
    go_on(local(tmp_path / "2", on_batch=stopping(2)))
    bl.savepoint.save(tmp_path / "2" / "checkpoint", tmp_path / "2" / "savepoint")
    target = tmp_path / "3" / "checkpoint"
    bl.savepoint.restore(tmp_path / "2" / "savepoint", target, again, shards=2, session=spark)
    go_on(on_spark(tmp_path / "3"))
    assert readings.written(tmp_path) == expected()


def test_the_program_of_the_docs_for_spark_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tmp_path.joinpath("plays").mkdir()
    moments = [("ann", 5, "00:00:01"), ("ann", 2, "00:00:59"), ("bob", 3, "00:01:00")]
    lines = [f'{{"user": "{user}", "points": {n}, "at": "2026-01-31T{at}Z"}}' for user, n, at in moments]
    tmp_path.joinpath("plays", "1.jsonl").write_text("\n".join(lines))
    (program,) = blocks("python beam on Spark")
    exec(program.replace("SparkRunner", "LocalRunner"), {"__name__": "__main__"})
    assert sorted(capsys.readouterr().out.splitlines()) == ["('ann', 7)", "('bob', 3)"]


def test_files_of_beam_are_read_and_written(tmp_path: Path) -> None:
    tmp_path.joinpath("in.txt").write_text("red\nblue\nred\n")
    with beam.Pipeline(runner=BeamlikeRunner(spark=bl.LocalRunner(quiet=True))) as pipeline:
        lines = pipeline | beam.io.ReadFromText(str(tmp_path / "in.txt"))
        counts = lines | beam.combiners.Count.PerElement() | beam.MapTuple(lambda word, n: f"{word} {n}")
        counts | beam.io.WriteToText(str(tmp_path / "out"), num_shards=1)
    assert sorted(tmp_path.joinpath("out-00000-of-00001").read_text().split("\n")) == ["", "blue 1", "red 2"]


# What is refused.


class Endless(beam.RestrictionProvider):  # type: ignore[misc, name-defined, unused-ignore]
    """The restrictions of `Count`."""

    def initial_restriction(self, element: Any) -> Any:
        return beam.io.restriction_trackers.OffsetRange(0, element)

    def create_tracker(self, restriction: Any) -> Any:
        return beam.io.restriction_trackers.OffsetRestrictionTracker(restriction)

    def restriction_size(self, element: Any, restriction: Any) -> int:
        return 1


class Count(beam.DoFn):  # type: ignore[misc, name-defined, unused-ignore]
    """A splittable function without an end."""

    @beam.DoFn.unbounded_per_element()  # type: ignore[untyped-decorator, unused-ignore]
    def process(self, element: Any, tracker: Any = beam.DoFn.RestrictionParam(Endless())) -> Iterator[Any]:
        yield element


class Finalizing(beam.DoFn):  # type: ignore[misc, name-defined, unused-ignore]
    """A function that finalizes its bundles."""

    def process(self, element: Any, bundle: Any = beam.DoFn.BundleFinalizerParam) -> None:
        bundle.register(print)


class Alarm(beam.DoFn):  # type: ignore[misc, name-defined, unused-ignore]
    """A function with a timer by processing time."""

    CLOCK = TimerSpec("clock", TimeDomain.REAL_TIME)

    def process(self, element: Any, clock: Any = beam.DoFn.TimerParam(CLOCK)) -> None:
        clock.set(60)

    @on_timer(CLOCK)
    def fire(self) -> Iterator[Any]:
        yield "late"


class NeverRun:
    """A runner that must not be reached."""

    checkpoint, trigger = None, "available_now"

    def run(self, plan: Any) -> None:
        raise AssertionError("it ran")


def test_what_a_plan_cannot_do_is_refused_by_name() -> None:
    pipeline = beam.Pipeline(runner=BeamlikeRunner(spark=NeverRun()))
    pipeline | beam.Create([("a", 1)]) | "fn" >> beam.ParDo(Finalizing())
    with pytest.raises(NotImplementedError, match="cannot run 'fn': it finalizes bundles"):
        pipeline.run()


def test_a_function_without_an_end_has_no_place_beside_a_test_stream() -> None:
    pipeline = beam.Pipeline(runner=BeamlikeRunner(spark=NeverRun()))
    pipeline | "stream" >> TestStream().add_elements([1]) | "fn" >> beam.ParDo(Count())
    with pytest.raises(
        NotImplementedError, match="cannot run 'fn': it is a splittable DoFn that is unbounded"
    ):
        pipeline.run()


def test_a_timer_by_processing_time_fires_if_a_test_stream_sets_the_time(tmp_path: Path) -> None:
    stream = TestStream().add_elements([("a", 1)]).advance_processing_time(100)
    with beam.Pipeline(runner=BeamlikeRunner(spark=bl.LocalRunner(quiet=True))) as pipeline:
        fired = pipeline | stream.advance_watermark_to_infinity() | beam.ParDo(Alarm())
        fired | beam.Map(lambda element, file: Path(file).write_text(element), str(tmp_path / "fired"))
    assert tmp_path.joinpath("fired").read_text() == "late"


def test_the_options_of_a_source_are_checked_where_it_is_declared() -> None:
    with pytest.raises(bl.PlanError, match="'att'"):
        Read(bl.Rows([{"at": 1}]), timestamp="att", watermark=bl.BoundedOutOfOrderness("5s"))


def test_records_and_runners_are_checked() -> None:
    with pytest.raises(ValueError, match="records= is for runs without spark="):
        BeamlikeRunner(records="records.jsonl", spark=bl.LocalRunner())
    with pytest.raises(TypeError, match=r"spark= takes a bl\.SparkRunner, not 'local\[2\]'"):
        BeamlikeRunner(spark="local[2]")  # type: ignore[arg-type]
