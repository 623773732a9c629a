"""Input with a different form than its reader expects: new columns, JSON arrays, texts that stand for null."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import beamlike as bl
from beamlike.io.files.jsonl import BLOCK
from beamlike.records.history import History
from tests.beamlike.io.test_sources import sorted_out

FORMATS = [bl.CSV, bl.JSONLines, bl.Parquet]


def put(kind: Any, file: Path, **columns: list[Any]) -> None:
    kind(file.parent)._save(pl.DataFrame(columns), str(file))


def read(source: Any) -> pl.DataFrame:
    return bl.Pipeline("p").read("in", source).collect(input_rows=None)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_column_of_a_later_file_is_told_once(
    kind: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(kind, tmp_path / "1", a=[1])
    put(kind, tmp_path / "2", a=[2], late=[3])
    put(kind, tmp_path / "3", a=[2], late=[3], later=[4])
    assert read(kind(tmp_path, order="path")).columns[0] == "a"
    lines = [record.message for record in caplog.records if "without schema=" in record.message]
    assert len(lines) == 2
    assert f"file '{tmp_path}/2' has the column 'late', which" in lines[0]
    assert f"file '{tmp_path}/3' has the column 'later', which" in lines[1]
    caplog.clear()
    read(kind(tmp_path, order="path"))
    assert len(caplog.records) == 2
    caplog.clear()
    read(kind(tmp_path, order="path", schema={"a": int}))
    assert not caplog.records


def check_recorded(kind: Any, folder: Path, runner: Any) -> None:
    """Checks that the records have the left-out columns, batch by batch."""
    put(kind, folder / "in" / "1", a=[1])
    put(kind, folder / "in" / "2", a=[2], late=[3])
    put(kind, folder / "in" / "3", a=[2], late=[3], later=[4])
    p = bl.Pipeline("p")
    p.read("in", kind(folder / "in", order="path", max_files_per_trigger=1)).write("out", bl.Memory())
    done = p.run(runner)
    left_out = [dict(batch.sources["in"].left_out) for batch in done.batches]
    second, third = f"{folder}/in/2", f"{folder}/in/3"
    assert [columns for columns in left_out if columns][-1] == {"late": third, "later": third}
    assert {"late": second} in left_out or kind is not bl.Parquet
    assert "source `in` leaves out column 'late' (and 1 more), which file " in repr(done)
    batches = History.open(folder / "checkpoint").batches
    assert [dict(batch.sources["in"].left_out) for batch in batches] == left_out
    declared = bl.Pipeline("declared")
    declared.read("in", kind(folder / "in", schema={"a": int})).write("out", bl.Memory())
    assert not any(batch.sources["in"].left_out for batch in declared.run().batches)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_declared_source_leaves_out_nothing_beside_one_that_is_not(kind: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    put(kind, tmp_path / "in" / "1", a=[1])
    put(kind, tmp_path / "in" / "2", a=[2], late=[3])
    p = bl.Pipeline("p")
    both = {"a": int, "late": int}
    p.read("declared", kind(tmp_path / "in", order="path", schema=both)).write("out", bl.Memory())
    p.read("inferred", kind(tmp_path / "in", order="path")).write("other", bl.Memory())
    run = p.run()
    assert {name for batch in run.batches for name, one in batch.sources.items() if one.left_out} == {
        "inferred"
    }
    assert "source `inferred` leaves out column 'late'" in repr(run)


@pytest.mark.parametrize("kind", FORMATS)
def test_columns_that_are_left_out_are_in_the_records(kind: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    check_recorded(kind, tmp_path, bl.LocalRunner(checkpoint=tmp_path / "checkpoint"))


@pytest.mark.spark
def test_columns_that_are_left_out_are_in_the_records_of_a_run_on_spark(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    runner = bl.SparkRunner(str(tmp_path / "checkpoint"), session=spark, shards=1)
    check_recorded(bl.CSV, tmp_path, runner)


def test_a_column_after_the_first_megabytes_is_told_and_nested_names_are_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    line = json.dumps({"a": {"b": 1}, "t": "x" * 10_000})
    late = json.dumps({"a": {"b": 1}, "t": '"z": 1', "late": 1})
    (tmp_path / "f").write_text(f"{line}\n" * (BLOCK // len(line) + 2) + f"{late}\n")
    read(bl.JSONLines(tmp_path))
    assert [record.message.partition(" has the ")[2].partition(",")[0] for record in caplog.records] == [
        "column 'late'"
    ]


MIXED = '{"x":1,"payload":[1]}\n{"x":2,"payload":{"c":1}}\nno JSON\n'
"""A column without a single type, which polars refuses to infer."""


def test_a_column_of_mixed_types_that_nobody_reads_stops_no_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "f").write_text(MIXED)
    rows, letters = sorted_out(bl.JSONLines(tmp_path, schema={"x": int, "pay_load": str}))
    assert rows == [(1, None), (2, None)]
    assert len(letters) == 1
    assert "no column 'pay_load', so it is null there; did you mean 'payload'?" in caplog.text


def test_a_column_of_mixed_types_in_a_later_file_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "1").write_text('{"x": 0}\n')
    (tmp_path / "2").write_text(MIXED)
    rows, letters = sorted_out(bl.JSONLines(tmp_path, order="path"))
    assert rows == [(0,), (1,), (2,)]
    assert len(letters) == 1
    assert "has the column 'payload', which" in caplog.text


ARRAYS = [
    '[{"a": 1}, {"a": 2}]',
    '[\n{"a": 1},\n{"a": 2}\n]',
    '[{"a": 1},\n{"a": 2}]\n',
    '[\n  {\n    "a": 1\n  }\n]',
]


@pytest.mark.parametrize("text", ARRAYS)
def test_a_json_array_says_that_it_is_one(text: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_text(text)
    _, letters = sorted_out(bl.JSONLines(tmp_path, {"a": int}))
    assert "it is a JSON array, where an object per line is expected" in letters[0][0]


@pytest.mark.parametrize("text", [ARRAYS[0], ARRAYS[2], ARRAYS[3]])
def test_columns_cannot_be_read_from_a_json_array(text: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_text(text)
    with pytest.raises(
        bl.errors.MissingFiles, match="it is a JSON array, where an object per line is expected"
    ):
        bl.Pipeline("p").read("in", bl.JSONLines(tmp_path))


def test_a_line_that_is_no_part_of_an_array_is_not_called_one(tmp_path: Path) -> None:
    (tmp_path / "f").write_text('{"a": 1\n{"a": 1}\n"x",\n')
    _, letters = sorted_out(bl.JSONLines(tmp_path, {"a": int}))
    assert [error.endswith("not a JSON object") for error, _ in letters] == [True, True]


NULLS = 'a,b,c\n1,NA,x\nNA,2.5,-\n-,"NA",y\n,3,NA\n'


@pytest.mark.parametrize(
    ("given", "rows", "count"),
    [
        (["NA", "-"], [(1, None, "x"), (None, 2.5, None), (None, None, "y"), (None, 3.0, None)], 0),
        ("NA", [(1, None, "x"), (None, 2.5, "-"), (None, 3.0, None)], 1),
        ([], [(None, 3.0, "NA")], 3),
    ],
)
def test_texts_that_stand_for_null_are_null_in_all_columns(
    given: Any, rows: Any, count: int, tmp_path: Path
) -> None:
    (tmp_path / "f").write_text(NULLS)
    found, letters = sorted_out(bl.CSV(tmp_path, schema={"a": int, "b": float, "c": str}, null_values=given))
    assert found == rows
    assert len(letters) == count


def test_types_are_read_without_the_texts_that_stand_for_null(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a,b\n1,NA\nNA,2.5\n")
    assert bl.CSV(tmp_path, null_values="NA").schema() == {"a": pl.Int64, "b": pl.Float64}


def test_null_values_are_texts_of_a_source() -> None:
    with pytest.raises(TypeError, match="null_values must be text or a list of texts"):
        bl.CSV("in", null_values=[1])
    rows = bl.Pipeline("p").read("in", bl.Rows([{"a": 1}]))
    with pytest.raises(bl.PlanError, match="null_values= is for sources"):
        rows.write("out", bl.CSV("out", null_values="NA"))


def test_late_rows_of_a_file_in_no_order_are_told_as_such(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(bl.CSV, tmp_path / "f", at=[50, 40, 10, 20])
    p = bl.Pipeline("p")
    source = bl.CSV(tmp_path, schema={"at": int})
    rows = p.read("in", source, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    rows.window_into(bl.FixedWindows("5s")).aggregate(n=bl.count()).write("out", bl.Memory())
    p.run(bl.LocalRunner(chunk_rows=2))
    assert "earlier rows of that file have advanced the watermark to 1970-01-01T00:00:50Z" in caplog.text
    assert caplog.text.count("docs/watermarks.md#files-in-no-order") == 2
    assert "files that were read before" not in caplog.text


TYPOS = [
    ("point", "points", True),
    ("pionts", "points", True),
    ("Points", "points", True),
    ("pünkte", "punkte", True),
    ("user_id", "userId", True),
    ("a b", "a_b", True),
    ("total", "points", False),
    ("x", "points", False),
    ('quo"te', "quote", True),
    ("back\\slash", "backslash", True),
]


@pytest.mark.parametrize("kind", [bl.CSV, bl.JSONLines])
@pytest.mark.parametrize(("declared", "given", "alike"), TYPOS)
def test_a_declared_column_that_no_row_has_is_told_once_with_the_nearest_name(
    declared: str, given: str, alike: bool, kind: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "in").mkdir()
    for name in "123":
        put(kind, tmp_path / "in" / name, user=["ada"], **{given: [1]})
    p = bl.Pipeline("p")
    p.read("in", kind(tmp_path / "in", {"user": str, declared: int})).write("out", out := bl.Memory())
    run = p.run(bl.LocalRunner(quiet=True))
    assert out.frame()[declared].null_count() == 3
    lines = [record.getMessage() for record in caplog.records if repr(declared) in record.getMessage()]
    assert len(lines) == 1
    assert (f"did you mean {given!r}?" in lines[0]) is alike
    if kind is bl.JSONLines and alike:
        assert f"source `in` leaves out column {given!r}" in repr(run)


def test_an_optional_column_of_json_is_not_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    put(bl.JSONLines, tmp_path / "1", user=["ada"])
    put(bl.JSONLines, tmp_path / "2", user=["ada"], note=[None], more=[1])
    schema = {"user": str, "note": str}
    assert len(read(bl.JSONLines(tmp_path, schema))) == 2
    assert not caplog.records
