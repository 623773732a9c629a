"""Beam's own reads and writes of files, and YAML pipelines, on `BeamlikeRunner`."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

beam = pytest.importorskip("apache_beam")

import pyarrow as pa  # noqa: E402
import pyarrow.parquet  # noqa: E402
from apache_beam.io import fileio  # noqa: E402

from beamlike.beam import BeamlikeRunner  # noqa: E402
from beamlike.observe import History  # noqa: E402
from tests.beamlike.beam.pipelines import pairs, see, seen, streaming, timed  # noqa: E402


def batch() -> Any:
    """Returns a pipeline on the runner, without a stream."""
    return beam.Pipeline(runner=BeamlikeRunner())


def lines(folder: Path, pattern: str) -> list[str]:
    """Returns the sorted lines of all files of a folder that match a pattern."""
    return sorted(line for path in folder.glob(pattern) for line in path.read_text().splitlines())


def test_text_is_read_in_splits_and_written_in_shards(tmp_path: Path) -> None:
    words = [f"word {n}" for n in range(5_000)]
    (tmp_path / "in-1.txt").write_text("\n".join(words[:4_000]))
    (tmp_path / "in-2.txt").write_text("\n".join(words[4_000:]))
    with batch() as p:
        read = p | beam.io.ReadFromText(str(tmp_path / "in-*.txt"))
        read | beam.Map(str.upper) | beam.io.WriteToText(str(tmp_path / "out"), num_shards=3)
    assert len([*tmp_path.glob("out*")]) == 3
    assert lines(tmp_path, "out*") == sorted(map(str.upper, words))


def test_all_files_of_a_collection_are_read(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(f"{name}1\n{name}2\n")
    seen.clear()
    with batch() as p:
        names = p | beam.Create([str(tmp_path / "a"), str(tmp_path / "b")])
        names | beam.io.ReadAllFromText() | beam.Map(see)
    assert sorted(seen) == ["a1", "a2", "b1", "b2"]


def test_parquet_is_read_and_written(tmp_path: Path) -> None:
    rows = [{"user": f"u{n % 7}", "points": n} for n in range(1_000)]
    pa.parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "in.parquet", row_group_size=100)
    schema = pa.schema([("user", pa.string()), ("points", pa.int64())])
    with batch() as p:
        read = p | beam.io.ReadFromParquet(str(tmp_path / "in.parquet"))
        sums = read | beam.Map(lambda row: (row["user"], row["points"])) | beam.CombinePerKey(sum)
        named = sums | "named" >> beam.Map(lambda row: {"user": row[0], "points": row[1]})
        named | beam.io.WriteToParquet(str(tmp_path / "out"), schema, file_name_suffix=".parquet")
    written = [row for path in tmp_path.glob("out*") for row in pa.parquet.read_table(path).to_pylist()]
    expected = {f"u{k}": sum(row["points"] for row in rows if row["user"] == f"u{k}") for k in range(7)}  # type: ignore[misc]
    assert {row["user"]: row["points"] for row in written} == expected


def test_files_are_matched_and_read_whole(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt", "c.csv"):
        (tmp_path / name).write_text(name)
    seen.clear()
    with batch() as p:
        found = p | fileio.MatchFiles(str(tmp_path / "*.txt")) | fileio.ReadMatches()
        found | beam.Map(lambda file: file.read_utf8()) | beam.Map(see)
    assert sorted(seen) == ["a.txt", "b.txt"]


def test_each_window_of_a_stream_is_written_to_files_of_its_own(tmp_path: Path) -> None:
    stream = pairs().add_elements([timed(3, "red", 1), timed(4, "blue", 2)]).advance_watermark_to(12)
    stream = stream.add_elements([timed(13, "red", 3)]).advance_watermark_to_infinity()
    with streaming() as p:
        tens = p | stream | beam.WindowInto(beam.window.FixedWindows(10))
        text = tens | beam.Map(lambda row: f"{row[0]} {row[1]}")
        naming = fileio.default_file_naming("out", ".txt")
        text | fileio.WriteToFiles(str(tmp_path), file_naming=naming, shards=1)
    first, second = sorted(tmp_path.glob("out*"))
    assert sorted(first.read_text().split("\n")[:-1]) == ["blue 2", "red 1"]
    assert second.read_text() == "red 3\n"
    assert "1970-01-01T00:00:00" in first.name


YAML = """
pipeline:
  type: chain
  transforms:
    - type: ReadFromCsv
      config: {{path: "{folder}/in.csv"}}
    - type: Filter
      config: {{language: python, keep: "points > 1"}}
    - type: Combine
      config:
        group_by: user
        combine: {{points: sum}}
    - type: WriteToJson
      config: {{path: "{folder}/out", num_shards: 1}}
"""


def test_a_yaml_pipeline_runs_from_the_command_line(tmp_path: Path) -> None:
    pytest.importorskip("jsonschema")
    from apache_beam.yaml import main

    with (tmp_path / "in.csv").open("w") as file:
        csv.writer(file).writerows([["user", "points"], ["ann", 1], ["ann", 2], ["bob", 5], ["ann", 7]])
    pipeline, records = f"--yaml_pipeline={YAML.format(folder=tmp_path)}", tmp_path / "run.jsonl"
    runner = "--runner=beamlike.beam.BeamlikeRunner"
    main.run([pipeline, runner, f"--beamlike_records={records}"])
    assert any("Combine" in name for name in History.open(records).plan.stages)
    assert lines(tmp_path, "out*") == ['{"user":"ann","points":9}', '{"user":"bob","points":5}']
