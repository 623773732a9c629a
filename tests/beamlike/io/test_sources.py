"""Sources return every row once, in order of arrival and typed."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import re
import tempfile
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from beamlike.io import CSV, JSONLines, Parquet, Part, Rows, Source, SparkSource
from beamlike.io.base import Faulty
from beamlike.io.files.files import Files
from beamlike.io.files.jsonl import blocks
from beamlike.io.files.paths import list_files as listing
from beamlike.io.files.paths import path_text
from beamlike.io.sources import ReadBySpark, ReadInChunks
from beamlike.rows.dtypes import as_dtype, type_name

FORMATS = [Parquet, CSV, JSONLines]
SCHEMA = {"user": str, "n": int, "at": datetime, "day": date, "share": float, "ok": bool}
NOON = datetime(2026, 1, 1, 12, 0, 0, 5, tzinfo=UTC)


def rows(first: int, count: int) -> pl.DataFrame:
    return pl.DataFrame(
        [(f'u"{i},', i, NOON, NOON.date(), i / 7, i % 2 == 0) for i in range(first, first + count)],
        schema={name: as_dtype(dtype) for name, dtype in SCHEMA.items()},
        orient="row",
    )


def put(path: Path, content: pl.DataFrame | str | bytes, at: float = 1_000.0) -> Path:
    """Writes a file with an arrival time, in seconds since 1970."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, pl.DataFrame):
        content.write_parquet(path)
    else:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    os.utime(path, (at, at))
    return path


def write(sink: Files, frames: list[pl.DataFrame]) -> None:
    """Writes one part per frame, a second apart."""
    for batch, frame in enumerate(frames):
        sink.write(frame, Part("q", batch))
    for second, file in enumerate(sorted(Path(sink.path).iterdir())):
        os.utime(file, (second, second))


def collected(source: Source, size: int = 1_000) -> list[pl.DataFrame]:
    """Returns the chunks of a source without faults."""
    return [chunk.lazy().collect() for chunk in source.chunks(size)]  # type: ignore[union-attr]


def sorted_out(source: Source, size: int = 1_000) -> tuple[list[tuple[Any, ...]], list[tuple[str, str]]]:
    """Returns the rows, and (error, row) of the dead letters, without the folders of their files."""
    chunks = list(source.chunks(size))
    rows = [row for chunk in chunks if not isinstance(chunk, Faulty) for row in chunk.lazy().collect().rows()]
    letters = [row for chunk in chunks if isinstance(chunk, Faulty) for row in chunk.dead_letters.rows()]
    return rows, [(re.sub(r"file '.*/(.*?)':", r"\1:", error), row) for error, row in letters]


def whole(source: Source, size: int = 1_000) -> pl.DataFrame:
    return pl.concat(collected(source, size))


# Files


def list_files(path: str) -> list[str]:
    return [file.path for file in listing(path)]


def test_files_arrive_by_modification_time_then_path(tmp_path: Path) -> None:
    put(tmp_path / "part-10", "", at=5)
    put(tmp_path / "c", "", at=4)
    put(tmp_path / "part-2", "", at=5.0004)  # within the same millisecond
    assert [Path(file).name for file in Parquet(tmp_path).files()] == ["c", "part-2", "part-10"]


def test_in_order_of_path_files_go_folder_by_folder_and_numbers_are_numbers(tmp_path: Path) -> None:
    names = ["a/x", "a/2026-9.csv", "a/2026-10.csv", "a-1/x", "part-2", "part-10", "part-010"]
    for at, name in enumerate(reversed(names)):
        put(tmp_path / name, "", at=at)
    found = CSV(tmp_path, order="path").files()
    assert [os.path.relpath(file, tmp_path) for file in found] == [
        *("a/2026-9.csv", "a/2026-10.csv", "a/x", "a-1/x", "part-2", "part-010", "part-10")
    ]
    with pytest.raises(ValueError, match="CSV: order must be 'modified'"):
        CSV(tmp_path, order="name")  # type: ignore[arg-type]


def test_hidden_files_and_folders_are_passed_over(tmp_path: Path) -> None:
    for name in ("in/day=1/a", "in/_temporary/b", "in/.hidden/c", "in/_SUCCESS", "in/.a.crc", "in/d"):
        put(tmp_path / name, "")
    found = [str(tmp_path / "in/d"), str(tmp_path / "in/day=1/a")]
    assert CSV(tmp_path / "in").files() == found
    assert CSV(tmp_path / "i*").files() == found
    assert CSV(tmp_path / "in/*").files() == found
    assert CSV(f"{tmp_path}/**/d").files() == found[:1]
    assert CSV(tmp_path / "in/_SUCCESS").files() == [str(tmp_path / "in/_SUCCESS")]


@pytest.mark.parametrize("uri", ["file:///data/a b", "file:/data/a b", "file://localhost/data/a b"])
def test_a_file_uri_is_a_local_path(uri: str) -> None:
    assert path_text(uri) == "/data/a b"


def test_object_stores_are_listed_by_the_same_rules() -> None:
    from pyarrow import fs

    system, _ = fs.FileSystem.from_uri("mock:///plays")
    for name in ("bucket/in/b.csv", "bucket/in/_tmp/c.csv", "bucket/in/deep/a.csv", "bucket/out/d.csv"):
        system.create_dir(os.path.dirname(name))
        system.open_output_stream(name).close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "beamlike.io.files.paths.file_system",
            lambda path: (system, path.removeprefix("mock://").strip("/")),
        )
        assert list_files("mock://bucket/in") == ["mock://bucket/in/b.csv", "mock://bucket/in/deep/a.csv"]
        assert list_files("mock://bucket/*/?.csv") == ["mock://bucket/in/b.csv", "mock://bucket/out/d.csv"]
        assert list_files("mock://bucket/[!o]*") == ["mock://bucket/in/b.csv", "mock://bucket/in/deep/a.csv"]
        assert list_files("mock://bucket/in/b.csv") == ["mock://bucket/in/b.csv"]
        with pytest.raises(FileNotFoundError, match="mock://bucket/no"):
            list_files("mock://bucket/no")
        with pytest.raises(FileNotFoundError, match=r"nothing matches 'mock://bucket/in/\*.json'$"):
            list_files("mock://bucket/in/*.json")


@pytest.mark.parametrize("files", FORMATS)
@pytest.mark.parametrize("where", ["none", "empty", "none/*"])
def test_a_source_without_files_asks_for_its_schema(files: type[Files], where: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=rf"{where.replace('*', '.')}.*{files.__name__}.*schema="):
        files(tmp_path / where).schema()
    assert files(tmp_path / where, schema=SCHEMA).schema() == rows(0, 1).schema


@pytest.mark.parametrize("files", FORMATS)
@pytest.mark.parametrize(
    ("chosen", "what"),
    [
        ({"path": 5}, "a path is text"),
        ({"path": ""}, "must not be empty"),
        ({"schema": "user"}, "must be a dict"),
        ({"schema": {"user": "str"}}, "schema of column 'user': 'str' is text, not a type; did you mean str"),
        ({"schema": {"__user": str}}, "two underscores"),
        ({"max_files_per_trigger": 0}, "max_files_per_trigger must be a whole number of at least 1, not 0"),
        ({"max_files_per_trigger": "2"}, "must be a whole number of at least 1, not '2'"),
    ],
)
def test_a_file_source_is_checked_when_declared(
    files: type[Files], chosen: dict[str, Any], what: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=what):
        files(**{"path": "in", **chosen})


@pytest.mark.parametrize("files", FORMATS)
def test_what_is_written_is_read_back(files: type[Files], tmp_path: Path) -> None:
    write(files(tmp_path), [rows(0, 300), rows(300, 0), rows(300, 5)])
    assert len(list(tmp_path.iterdir())) == 2
    assert_frame_equal(whole(files(tmp_path, schema=SCHEMA)), rows(0, 305))
    if files is Parquet:
        assert_frame_equal(whole(files(tmp_path)), rows(0, 305))


@pytest.mark.parametrize("files", FORMATS)
@given(sizes=st.lists(st.integers(0, 40), min_size=1, max_size=6), size=st.integers(1, 60))
def test_chunks_are_the_input_in_order_in_pieces(files: type[Files], sizes: list[int], size: int) -> None:
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    with tempfile.TemporaryDirectory() as folder:
        write(files(folder), [rows(first, count) for first, count in zip(starts, sizes, strict=True)])
        chunks = collected(files(folder, schema=SCHEMA), size)
    assert all(0 < chunk.height <= size for chunk in chunks)
    assert_frame_equal(pl.concat([rows(0, 0), *chunks]), rows(0, sum(sizes)))


@pytest.mark.parametrize("files", FORMATS)
def test_with_max_files_per_trigger_a_chunk_is_that_many_files(files: type[Files], tmp_path: Path) -> None:
    write(files(tmp_path), [rows(0, 3), rows(3, 1), rows(4, 2)])
    source = files(tmp_path, schema=SCHEMA, max_files_per_trigger=2)
    assert [chunk["n"].to_list() for chunk in collected(source, 1)] == [[0, 1, 2, 3], [4, 5]]


@pytest.mark.parametrize("files", FORMATS)
def test_only_what_is_needed_is_read_of_a_file(files: type[Files], tmp_path: Path) -> None:
    write(files(tmp_path), [rows(0, 50)])
    source = files(tmp_path, schema=SCHEMA)
    (file,) = source.files()
    (piece,) = source.pieces(file, 100)
    lf = piece.lazy().filter(pl.col("n") >= 40).select("n", "at").head(5)
    assert_frame_equal(lf.collect(), rows(40, 5).select("n", "at"))
    assert_frame_equal(piece.lazy().head(3).select("user").collect(), rows(0, 3).select("user"))
    pieces = [piece.lazy().collect().height for piece in source.pieces(file, 30)]
    assert pieces == ([25, 25] if files is Parquet else [30, 20])


@pytest.mark.parametrize("files", FORMATS)
def test_the_columns_travel_with_the_declaration(files: type[Files], tmp_path: Path) -> None:
    write(files(tmp_path), [rows(0, 3)])
    source = files(tmp_path).looked_up()
    schema = source.schema()
    for file in tmp_path.iterdir():
        file.unlink()
    shipped = pickle.loads(pickle.dumps(source))
    assert shipped == source
    assert hash(shipped) == hash(source)
    assert shipped.schema() == schema


def test_the_rows_of_a_parquet_file_that_lacks_a_column_are_letters(tmp_path: Path) -> None:
    put(tmp_path / "f", pl.DataFrame({"user": ["u", "v"]}))
    why = "f: there is no column 'usr'; the columns are user; did you mean 'user'?"
    expected = [(why, '{"user":"u"}'), (why, '{"user":"v"}')]
    assert sorted_out(Parquet(tmp_path, schema={"usr": str})) == ([], expected)


def test_parquet_types_are_made_those_declared_or_letters(tmp_path: Path) -> None:
    put(tmp_path / "f", pl.DataFrame({"n": pl.Series([1_000], dtype=pl.Int32), "at": [datetime(2026, 1, 1)]}))
    assert whole(Parquet(tmp_path, schema={"at": datetime, "n": float})).rows() == [
        (datetime(2026, 1, 1, tzinfo=UTC), 1_000.0)
    ]
    row = '{"n":1000,"at":"2026-01-01T00:00:00.000000Z"}'
    wrong = "f: column 'at' is Datetime(us), which cannot be read as List(Int64)"
    assert sorted_out(Parquet(tmp_path, schema={"at": pl.List(pl.Int64)})) == ([], [(wrong, row)])
    unfit = "f: column 'n' is 1000, expected Int8"
    assert sorted_out(Parquet(tmp_path, schema={"n": pl.Int8})) == ([], [(unfit, row)])


def test_csv_goes_by_name_and_what_is_not_of_the_type_is_a_letter(tmp_path: Path) -> None:
    put(tmp_path / "1.csv", "n,extra,user\n1,x,a\nfoo,x,\n3\n4,x,d,too,many\n", at=1)
    put(tmp_path / "2.csv", b"user\n\xff\n", at=2)
    put(tmp_path / "3.csv", "", at=3)
    put(tmp_path / "4.csv", "user,n\n", at=4)
    put(tmp_path / "5.csv.gz", gzip.compress(b'user,n\r\n"a\n""b""",7\r\n'), at=5)
    found, letters = sorted_out(CSV(tmp_path, schema={"user": str, "n": int}))
    assert found == [("a", 1), (None, 3), ('a\n"b"', 7)]
    assert letters == [
        ("1.csv: more fields than the 3 of the header", "4,x,d,too,many"),
        ("1.csv: column 'n' is 'foo', expected Int64", '{"user":null,"n":"foo"}'),
        ("2.csv: not UTF-8: it has the byte 0xff; is it latin-1 (encoding='latin-1')?", "\\xff"),
    ]


@pytest.mark.parametrize(
    ("dtype", "value", "shown"),
    [
        (pl.List(pl.Int64), '"no list"', ' is "no list"'),
        (pl.List(pl.Int64), "true", " is true"),
        (pl.List(pl.Int64), '{"a": 1}', ' is {"a": 1}'),
        (pl.List(pl.List(pl.Int64)), "[1]", " is [1]"),
        (pl.List(pl.Int64), '[1, "x"]', ": cannot parse 'x' (string) as i64"),
        (pl.Struct({"a": pl.Int64}), "[1]", " is [1]"),
        (pl.Struct({"a": pl.Int64}), '{"a": [1]}', ' is {"a": [1]}'),
        (pl.Array(pl.Int64, 2), '"é"', ' is "é"'),
        (pl.List(pl.String), f'"{"x" * 99}"', f' is "{"x" * 79}...'),
    ],
)
def test_a_letter_has_the_value_of_a_nested_column(
    dtype: pl.DataType, value: str, shown: str, tmp_path: Path
) -> None:
    put(tmp_path / "a", f'{{"d": null}}\n{{"d": {value}}}\n')
    found, [(why, _)] = sorted_out(JSONLines(tmp_path, schema={"d": dtype}))
    assert found == [(None,)]
    assert why == f"a: column 'd'{shown}, expected {type_name(dtype)}"


def test_what_of_json_lines_does_not_fit_is_a_letter(tmp_path: Path) -> None:
    first = '{"n": 1, "at": "2026-01-01", "tags": [1]}'
    lines = [first, '{"n": "foo", "at": 5}', "", '{"x": 1}', "[1]", "5", '{"tags": [1, "x"]}']
    put(tmp_path / "a", "\ufeff" + "\n".join(lines) + "\n")
    put(tmp_path / "b.gz", gzip.compress(b'{"n": 2.0}'))
    found, letters = sorted_out(JSONLines(tmp_path, schema={"n": int, "at": datetime, "tags": list[int]}))
    assert found == [(1, datetime(2026, 1, 1, tzinfo=UTC), [1]), (None, None, None)]
    (*others, (nested, line), unfit, number) = letters
    assert others == [("a: not a JSON object", "[1]"), ("a: not a JSON object", "5")]
    assert line == '{"tags": [1, "x"]}'
    assert nested.startswith("a: column 'tags': ")
    assert nested.endswith(", expected List(Int64)")
    wrong = "a: column 'n' is \"foo\", expected Int64; column 'at' is 5, expected Datetime(us, UTC)"
    assert unfit == (wrong, '{"n": "foo", "at": 5}')
    assert number == ("b.gz: column 'n' is 2.0, expected Int64", '{"n": 2.0}')


@pytest.mark.parametrize("line", ['{"n": 1}', "[]"])  # read at once, and sorted out line by line
def test_what_json_writes_as_no_text_is_a_letter_where_text_is_declared(line: str, tmp_path: Path) -> None:
    texts = ["plain", "true", "[1]", '{"a": 1}', "", "null"]
    wrong = ["true", "false", "[]", '["a"]', "[[{}]]", "{}", '{"a": [1]}']
    values = [*map(json.dumps, texts), "5", "-1.5", "null", *wrong]
    lines = [f'{{"t": {value}, "u": "[1]"}}' for value in values]
    put(tmp_path / "f", "\n".join([*lines, line, ""]))
    found, letters = sorted_out(JSONLines(tmp_path, schema={"t": str, "u": str}))
    assert found == [(t, "[1]") for t in [*texts, "5", "-1.5", None]] + [(None, None)] * (line != "[]")
    whys = [f"f: column 't' is {value}, expected String" for value in wrong]
    expected = list(zip(whys, lines[-len(wrong) :], strict=True))
    assert letters == [("f: not a JSON object", "[]")] * (line == "[]") + expected


def test_a_line_that_is_no_json_costs_only_itself(tmp_path: Path) -> None:
    put(tmp_path / "f", b'{"t": "x", "n": 1}\n{"t": "y", "n"\n\xff\n\n{"t": "z", "n": 4}\n{"t": "cut o')
    source = JSONLines(tmp_path)
    assert source.schema() == {"t": pl.String, "n": pl.Int64}
    broken, cut = '{"t": "y", "n"', '{"t": "cut o'
    no_text = ("f: not UTF-8: it has the byte 0xff, and JSON is UTF-8; is it latin-1?", "\\xff")
    for each in (source, source.for_event_time("t")):
        expected = [("f: not a JSON object", broken), no_text, ("f: not a JSON object", cut)]
        assert sorted_out(each) == ([("x", 1), ("z", 4)], expected)


@pytest.mark.parametrize("files", [CSV, JSONLines])
def test_the_event_time_of_text_stays_text_unless_declared(files: type[Files], tmp_path: Path) -> None:
    write(files(tmp_path), [pl.DataFrame({"t": [1, 2], "n": [1, 2]})])
    assert files(tmp_path).schema() == {"t": pl.Int64, "n": pl.Int64}
    assert files(tmp_path).for_event_time("t").schema() == {"t": pl.String, "n": pl.Int64}
    assert whole(files(tmp_path).for_event_time("t"))["t"].to_list() == ["1", "2"]
    assert files(tmp_path, schema={"t": int}).for_event_time("t").schema() == {"t": pl.Int64}
    assert files(tmp_path, max_files_per_trigger=3).for_event_time("t").max_files_per_trigger == 3


@pytest.mark.parametrize("files", [CSV, JSONLines])
def test_a_type_that_text_cannot_hold_is_refused(files: type[Files], tmp_path: Path) -> None:
    write(files(tmp_path), [pl.DataFrame({"d": ["PT1S"]})])
    with pytest.raises(TypeError, match="cannot be read as Duration"):
        collected(files(tmp_path, schema={"d": pl.Duration("us")}))


@given(st.lists(st.binary(max_size=9).filter(lambda line: b"\n" not in line)), st.integers(1, 20))
def test_blocks_cut_only_at_line_ends_and_lose_nothing(lines: list[bytes], size: int) -> None:
    text = b"{}\n" + b"\n".join(lines)
    with tempfile.TemporaryDirectory() as folder:
        cut = list(blocks(str(put(Path(folder) / "f", text)), size))
    assert b"".join(cut) == text
    assert all(block.endswith(b"\n") for block in cut[:-1])


# Rows


def test_rows_come_from_dicts_and_frames_of_every_kind() -> None:
    frame = pl.DataFrame({"user": ["a", "b", None], "n": [1, 2, 3]})
    for given_rows in (frame.to_dicts(), frame, frame.to_pandas(), frame.to_arrow(), tuple(frame.to_dicts())):
        assert_frame_equal(whole(Rows(given_rows)), frame)
        typed = frame.select(pl.col("n").cast(pl.Float64))
        assert_frame_equal(whole(Rows(given_rows, schema={"n": float})), typed)
    assert [chunk.height for chunk in collected(Rows(frame), 2)] == [2, 1]
    assert [chunk.height for chunk in collected(Rows(frame, rows_per_batch=1), 2)] == [1, 1, 1]


def test_rows_that_say_no_columns_or_do_not_fit_are_refused() -> None:
    assert Rows([], schema={"n": int}).schema() == {"n": pl.Int64}
    for wrong in ([], [1], "abc", 5, None, {"n": [1]}, pl.Series([1])):
        with pytest.raises(TypeError, match="Rows accepts dicts"):
            Rows(wrong)  # type: ignore[arg-type]
    for unfit in (
        [{"n": "x"}],
        [{"n": 1.5}],
        [{"n": 2**200}],
        pl.DataFrame({"n": ["x"]}),
        pd.DataFrame({"m": [1]}),
    ):
        with pytest.raises(TypeError, match="Rows accepts dicts"):
            Rows(unfit, schema={"n": int})


# Spark, without Spark


def test_a_spark_source_is_a_declaration_that_only_spark_can_read() -> None:
    source = SparkSource(lambda spark: spark.table("plays"), schema={"user": str})
    assert isinstance(source, Source)
    assert source.schema() == {"user": pl.String}
    assert isinstance(source, ReadBySpark)
    assert not isinstance(source, ReadInChunks)
    with pytest.raises(TypeError):
        SparkSource("plays")  # type: ignore[arg-type]
