"""Pipeline options: they lead to Spark, and experiments reach Beam's worker."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

beam = pytest.importorskip("apache_beam")

from apache_beam.io import kafka as beams_kafka  # noqa: E402
from apache_beam.options.pipeline_options import PipelineOptions  # noqa: E402
from apache_beam.options.value_provider import RuntimeValueProvider  # noqa: E402

import beamlike as bl  # noqa: E402
from beamlike.beam import BeamlikeRunner  # noqa: E402
from beamlike.beam.options import Chosen  # noqa: E402
from tests.beamlike.beam.pipelines import see, seen  # noqa: E402

ON_SPARK: dict[str, tuple[list[str], dict[str, Any]]] = {
    "alone": (["--beamlike_spark"], {"master": None, "checkpoint": None, "shards": None}),
    "a master": (["--beamlike_spark=local[2]"], {"master": "local[2]"}),
    "a master after a space": (["--beamlike_spark", "local[2]"], {"master": "local[2]"}),
    "shards": (["--beamlike_spark", "--beamlike_shards=3"], {"shards": 3, "master": None}),
    "an interval": (
        ["--beamlike_spark", "--beamlike_trigger=10 seconds"],
        {"trigger": "10 seconds", "drain": False},
    ),
    "what is available": (
        ["--beamlike_spark", "--beamlike_trigger=available_now"],
        {"trigger": "available_now"},
    ),
    "a checkpoint": (
        ["--beamlike_spark", "--beamlike_checkpoint=folder"],
        {"checkpoint": "folder", "drain": True},
    ),
    "a stream with a checkpoint": (
        ["--beamlike_spark", "--beamlike_checkpoint=folder", "--streaming"],
        {"checkpoint": "folder", "drain": False},
    ),
    "all": (
        [
            "--beamlike_spark=local",
            "--beamlike_checkpoint=c",
            "--beamlike_shards=1",
            "--beamlike_trigger=1 s",
        ],
        {"master": "local", "checkpoint": "c", "shards": 1, "trigger": "1 s", "drain": False},
    ),
}
IN_YAML: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "true": ({"beamlike_spark": True, "beamlike_shards": 2}, {"master": None, "shards": 2}),
    "a master": ({"beamlike_spark": "local[1]", "beamlike_trigger": "1 s"}, {"trigger": "1 s"}),
}


@pytest.mark.parametrize("case", ON_SPARK)
def test_options_of_a_program_lead_to_spark(case: str) -> None:
    pytest.importorskip("pyspark")
    flags, expected = ON_SPARK[case]
    spark: Any = Chosen(None, None, None).with_options(PipelineOptions(flags)).spark
    assert type(spark) is bl.SparkRunner
    assert {name: getattr(spark, name) for name in expected} == expected


@pytest.mark.parametrize("case", IN_YAML)
def test_options_of_a_file_lead_to_spark(case: str) -> None:
    pytest.importorskip("pyspark")
    given, expected = IN_YAML[case]
    spark: Any = Chosen(None, None, None).with_options(PipelineOptions([], **given)).spark
    assert {name: getattr(spark, name) for name in expected} == expected


@pytest.mark.parametrize("flags", [[], ["--beamlike_checkpoint=folder"], ["--beamlike_records=run.jsonl"]])
def test_other_options_do_not_lead_to_spark(flags: list[str]) -> None:
    assert Chosen(None, None, None).with_options(PipelineOptions(flags)).spark is None
    assert Chosen(None, None, None).with_options(PipelineOptions(flags, beamlike_spark=False)).spark is None


@pytest.mark.parametrize(
    ("flags", "named", "message"),
    [
        (["--beamlike_shards=2"], {}, "--beamlike_shards needs --beamlike_spark"),
        (["--beamlike_trigger=1 s"], {}, "--beamlike_trigger needs --beamlike_spark"),
        (
            ["--beamlike_spark"],
            {"spark": bl.LocalRunner()},
            "--beamlike_spark is for a runner without spark=",
        ),
        (["--beamlike_shards=2"], {"spark": bl.LocalRunner()}, "--beamlike_shards is for a runner without"),
        (["--beamlike_checkpoint=c"], {"spark": bl.LocalRunner()}, "checkpoint= is for runs without spark="),
        (["--beamlike_records=r"], {"spark": bl.LocalRunner()}, "records= is for runs without spark="),
    ],
)
def test_an_option_without_effect_is_refused(flags: list[str], named: dict[str, Any], message: str) -> None:
    p = beam.Pipeline(runner=BeamlikeRunner(**named), options=PipelineOptions(flags))
    p | beam.Create([1])
    with pytest.raises(ValueError, match=message):
        p.run()


PROGRAM = """
import sys
import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

with beam.Pipeline(options=PipelineOptions(sys.argv[1:])) as p:
    sums = p | beam.Create([("a", 1), ("b", 2), ("a", 3)]) | beam.CombinePerKey(sum)
    sums | beam.MapTuple(lambda *row: str(row)) | beam.io.WriteToText("out", shard_name_template="")
"""
FILE = """
options: {runner: beamlike.beam.BeamlikeRunner, beamlike_spark: "local[1]", beamlike_shards: 1}
pipeline:
  type: chain
  transforms:
    - {type: Create, config: {elements: [{name: a, n: 1}, {name: b, n: 2}, {name: a, n: 3}]}}
    - {type: Combine, config: {group_by: name, combine: {n: sum}}}
    - {type: MapToFields, config: {language: python, fields: {line: "str((name, n))"}}}
    - {type: WriteToText, config: {path: out}}
"""


@pytest.mark.spark
@pytest.mark.parametrize("how", ["program", "yaml"])
def test_a_program_and_a_file_run_on_spark_unedited(how: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "file.yaml").write_text(FILE)
    options = ["--runner=beamlike.beam.BeamlikeRunner", "--beamlike_spark=local[1]", "--beamlike_shards=1"]
    commands = {
        "program": ["program.py", *options, "--beamlike_checkpoint=checkpoint"],
        "yaml": ["-m", "apache_beam.yaml.main", "--yaml_pipeline_file=file.yaml"],
    }
    place = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run(
        [sys.executable, *commands[how]], cwd=tmp_path, env=place, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "SparkSession" in done.stderr + done.stdout or (tmp_path / "checkpoint").exists() or how == "yaml"
    lines = [line for part in tmp_path.glob("out*") for line in part.read_text().splitlines()]
    assert sorted(lines) == ["('a', 4)", "('b', 2)"]


def experiment(element: int) -> list[str]:
    return sorted(RuntimeValueProvider.experiments)


@pytest.mark.parametrize("planned", [False, True], ids=["in process", "as a plan"])
@pytest.mark.parametrize("given", [[], ["one"], ["one", "two"]])
def test_experiments_reach_the_worker(given: list[str], planned: bool) -> None:
    seen.clear()
    runner = BeamlikeRunner(spark=bl.LocalRunner(quiet=True)) if planned else BeamlikeRunner()
    with beam.Pipeline(
        runner=runner, options=PipelineOptions([f"--experiments={one}" for one in given])
    ) as p:
        p | beam.Create([1]) | beam.Map(experiment) | beam.Map(see)
    assert {*given} <= {*seen[0]}
    assert ("disable_global_windowed_args_caching" in seen[0]) == planned


@pytest.mark.parametrize("mode", ["multi_threading", "multi_processing"])
def test_a_plan_names_the_option_that_asks_for_an_environment(mode: str) -> None:
    runner = BeamlikeRunner(spark=bl.LocalRunner(quiet=True))
    p = beam.Pipeline(runner=runner, options=PipelineOptions([f"--direct_running_mode={mode}"]))
    p | beam.Create([1])
    with pytest.raises(NotImplementedError, match=f"leave out --direct_running_mode={mode}"):
        p.run()


@pytest.mark.parametrize("metadata", [False, True])
@pytest.mark.parametrize("service", [None, "localhost:1"])
def test_beams_transforms_for_kafka_name_those_of_this_package(metadata: bool, service: str | None) -> None:
    settings, p = {"bootstrap.servers": "localhost:9"}, beam.Pipeline(runner=BeamlikeRunner())
    read = beams_kafka.ReadFromKafka(settings, ["t"], with_metadata=metadata, expansion_service=service)
    with pytest.raises(
        NotImplementedError, match=r"beamlike\.beam\.kafka\.ReadFromKafka has arguments of the same"
    ):
        p | read
    write = beams_kafka.WriteToKafka(settings, "t", with_headers=metadata, expansion_service=service)
    with pytest.raises(
        NotImplementedError, match=r"beamlike\.beam\.kafka\.WriteToKafka has arguments of the same"
    ):
        p | "rows" >> beam.Create([(b"a", b"b")]) | write
