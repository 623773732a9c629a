"""Sources of the engine in Beam pipelines that run in process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

beam = pytest.importorskip("apache_beam")

from apache_beam.testing.test_stream import TestStream  # noqa: E402

import beamlike as bl  # noqa: E402
from beamlike.beam import BeamlikeRunner, Read  # noqa: E402
from beamlike.errors import CheckpointError  # noqa: E402
from beamlike.observe import History  # noqa: E402
from tests.beamlike.beam.pipelines import see, seen  # noqa: E402
from tests.beamlike.beam.planned import readings  # noqa: E402


def test_a_source_of_the_engine_is_read_in_process(tmp_path: Path) -> None:
    assert readings.run_with(tmp_path, BeamlikeRunner()) == readings.expected()


def test_a_killed_run_continues_at_the_position_of_its_source(tmp_path: Path) -> None:
    for value in (11, 51):
        readings.trap(tmp_path, value)
    job = [sys.executable, "-m", "tests.beamlike.beam.planned.readings", str(tmp_path), "own"]
    codes = [subprocess.run(job, stderr=subprocess.DEVNULL).returncode for _ in range(4)]
    assert codes == [-9, -9, 0, 0]
    assert readings.written(tmp_path) == readings.expected()
    # A batch that was stored is not read again.
    values = [int(line) for line in tmp_path.joinpath("processed").read_text().splitlines()]
    assert all(values.count(10 * number) <= 2 for number in range(readings.EVENTS))


def numbers(pipeline: Any, rows: list[dict[str, Any]], **options: Any) -> Any:
    return pipeline | "numbers" >> Read(bl.Rows(rows), **options) | beam.Map(see)


def test_rows_have_their_event_times_and_their_watermark_is_in_the_records(tmp_path: Path) -> None:
    seen.clear()
    records = tmp_path / "records.jsonl"
    with beam.Pipeline(runner=BeamlikeRunner(records=records)) as pipeline:
        source = bl.Rows([{"at": 3, "n": 1}, {"at": 8, "n": 2}])
        options: dict[str, Any] = {"timestamp": "at", "timestamp_unit": "s"}
        rows = pipeline | "rows" >> Read(source, watermark=bl.BoundedOutOfOrderness("2s"), **options)
        stamped = rows | beam.Map(lambda row, at=beam.DoFn.TimestampParam: (row["n"], int(at)))
        stamped | "see" >> beam.Map(see)
    assert seen == [(1, 3), (2, 8)]
    batches = History.open(records).batches
    assert batches[0].sources["rows"].watermark == 6_000_000
    assert batches[-1].sources["rows"].over


def test_a_row_that_cannot_be_used_fails_the_run(tmp_path: Path) -> None:
    lines = tmp_path / "rows.jsonl"
    lines.write_text('{"n": 1}\n{"n": "many"}\n')
    pipeline = beam.Pipeline(runner=BeamlikeRunner())
    pipeline | "numbers" >> Read(bl.JSONLines(lines, schema={"n": int})) | beam.Map(see)
    with pytest.raises(RuntimeError, match=r"Read 'numbers': a row cannot be used: .*many"):
        pipeline.run()


def test_another_source_is_refused_by_name(tmp_path: Path) -> None:
    with beam.Pipeline(runner=BeamlikeRunner(checkpoint=tmp_path)) as pipeline:
        numbers(pipeline, [{"n": 1}])
    pipeline = beam.Pipeline(runner=BeamlikeRunner(checkpoint=tmp_path))
    numbers(pipeline, [{"m": 1}])
    with pytest.raises(
        CheckpointError, match=r"the source 'numbers' was Rows, with n Int64, and is .* m Int64"
    ):
        pipeline.run()


def test_a_source_that_only_spark_reads_is_refused_by_name() -> None:
    pipeline = beam.Pipeline(runner=BeamlikeRunner())
    source = bl.SparkSource(lambda spark: spark.readStream.format("rate").load(), {"value": int})
    pipeline | "numbers" >> Read(source)
    with pytest.raises(NotImplementedError, match=r"'numbers' reads a SparkSource"):
        pipeline.run()


@pytest.mark.parametrize("spark", [None, bl.LocalRunner(quiet=True)])
def test_a_source_of_the_engine_has_no_place_beside_a_test_stream(spark: Any) -> None:
    pipeline = beam.Pipeline(runner=BeamlikeRunner(spark=spark))
    pipeline | "numbers" >> Read(bl.Rows([{"n": 1}]))
    pipeline | "stream" >> TestStream().add_elements([1])
    with pytest.raises(NotImplementedError, match="cannot run 'numbers': the pipeline has a TestStream"):
        pipeline.run()
