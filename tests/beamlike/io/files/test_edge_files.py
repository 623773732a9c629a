"""Files at the edges of their formats: every row is read or is a dead letter with its place and a reason."""

from __future__ import annotations

import gzip
import json
import os
import re
import tempfile
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import beamlike as bl
from beamlike.io.base import Faulty
from beamlike.io.files import csv as csvlines
from beamlike.io.files import jsonl as jsonlines
from beamlike.io.files.csv_dialect import Dialect
from beamlike.io.files.files import Files
from beamlike.io.files.json_columns import JsonColumns
from beamlike.io.files.parquet import _FEW_VALUES, _SMALL, _scan_or_read
from tests.beamlike.io.test_sources import put, sorted_out

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMATS = [bl.Parquet, bl.CSV, bl.JSONLines]
TEXT = [bl.CSV, bl.JSONLines]


def write(sink: Files, name: str, frame: pl.DataFrame, at: float = 1_000.0) -> Path:
    """Writes a file of the sink's format with an arrival time, in seconds since 1970."""
    file = Path(sink.path) / name
    sink._save(frame, str(file))
    os.utime(file, (at, at))
    return file


# Columns


@pytest.mark.parametrize("files", FORMATS)
def test_columns_go_by_name_in_any_order_and_others_are_passed_over(
    files: type[Files], tmp_path: Path
) -> None:
    frame = pl.DataFrame({"n": [1, 2], "user": ["a", None]})
    write(files(tmp_path), "1", frame, at=1)
    write(files(tmp_path), "2", frame.select("user", "n"), at=2)
    write(files(tmp_path), "3", frame.select("user", pl.lit("x").alias("extra"), "n"), at=3)
    source = files(tmp_path, schema={"n": int, "user": str})
    assert sorted_out(source) == ([(1, "a"), (2, None)] * 3, [])
    assert sorted_out(files(tmp_path))[0] == [(1, "a"), (2, None)] * 3


@pytest.mark.parametrize("files", FORMATS)
def test_a_missing_column_is_null_in_text_and_a_fault_in_parquet_which_names_its_columns(
    files: type[Files], tmp_path: Path
) -> None:
    write(files(tmp_path), "1", pl.DataFrame({"user": ["a", "b"]}))
    write(files(tmp_path), "2", pl.DataFrame({"user": ["c"], "n": [3]}))
    rows, letters = sorted_out(files(tmp_path, schema={"n": int, "user": str}))
    if files is bl.Parquet:
        why = "1: there is no column 'n'; the columns are user"
        assert (rows, letters) == ([(3, "c")], [(why, '{"user":"a"}'), (why, '{"user":"b"}')])
    else:
        assert (rows, letters) == ([(None, "a"), (None, "b"), (3, "c")], [])


@pytest.mark.parametrize("files", TEXT)
def test_every_type_of_number_is_read_and_its_limits_hold(files: type[Files], tmp_path: Path) -> None:
    for dtype in (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64):
        most = pl.select(dtype.max()).item()
        below = -1 if dtype.is_unsigned_integer() else pl.select(dtype.min()).item() - 1
        texts = ["0", str(most), str(most + 1), str(below), "1.5"]
        lines = ["n", *texts] if files is bl.CSV else [f'{{"n": {text}}}' for text in texts]
        put(tmp_path / "f", "\n".join(lines))
        rows, letters = sorted_out(files(tmp_path, schema={"n": dtype}))
        assert rows == [(0,), (most,)]
        assert [json.loads(row)["n"] for _, row in letters] in ([*texts[2:]], [most + 1, below, 1.5])
        assert all(f"column 'n' is {'' if files is bl.JSONLines else chr(39)}" in why for why, _ in letters)
        assert all(why.endswith(f"expected {dtype()}") for why, _ in letters)


# Files without rows, and damaged ones


@pytest.mark.parametrize("files", FORMATS)
def test_files_without_rows_are_no_fault(files: type[Files], tmp_path: Path) -> None:
    write(files(tmp_path), "1", pl.DataFrame(schema={"n": pl.Int64}))
    write(files(tmp_path), "2", pl.DataFrame({"n": [1]}))
    if files is not bl.Parquet:
        put(tmp_path / "3", "")
        put(tmp_path / "4", "\n\n")
        put(tmp_path / "5", "\ufeff")
    assert sorted_out(files(tmp_path, schema={"n": int})) == ([(1,)], [])


def test_what_is_not_parquet_is_one_letter_and_the_other_files_are_read(tmp_path: Path) -> None:
    for name in "abc":
        write(bl.Parquet(tmp_path), name, pl.DataFrame({"n": [1, 2]}))
    put(tmp_path / "b", (tmp_path / "a").read_bytes()[:-9])
    put(tmp_path / "d", "")
    rows, letters = sorted_out(bl.Parquet(tmp_path))
    assert rows == [(1,), (2,)] * 2
    for (why, row), name in zip(letters, "bd", strict=True):
        assert why.startswith(f"{name}: not a Parquet file that can be read: ")
        assert row == json.dumps({"file": str(tmp_path / name)})


@pytest.mark.parametrize("files", TEXT)
def test_of_a_file_whose_packing_is_damaged_the_lines_before_are_read(
    files: type[Files], tmp_path: Path
) -> None:
    lines = [f"{n}" if files is bl.CSV else f'{{"n": {n}}}' for n in range(20_000)]
    packed = gzip.compress("\n".join(["n", *lines] if files is bl.CSV else lines).encode())
    put(tmp_path / "a.gz", packed[: len(packed) // 2])
    put(tmp_path / "b.gz", "no gzip")
    rows, letters = sorted_out(files(tmp_path, schema={"n": int}))
    assert len(rows) > 5_000
    assert rows[:-1] == [(n,) for n in range(len(rows) - 1)]  # the last one may be cut
    damaged = [why for why, _ in letters if "not a JSON object" not in why]
    assert [why.partition(" beyond byte ")[0] for why in damaged] == [
        "a.gz: it cannot be unpacked",
        "b.gz: it cannot be unpacked",
    ]


def test_a_file_that_is_gone_or_may_not_be_read_is_no_dead_letter(tmp_path: Path) -> None:
    for files in FORMATS:
        with pytest.raises(FileNotFoundError):
            list(files(tmp_path, schema={"n": int}).pieces(str(tmp_path / "gone"), 10))


# Values


def test_dictionaries_are_read_as_text_and_as_categories(tmp_path: Path) -> None:
    frame = pl.DataFrame({"c": ["a", "b", None, "a"]})
    write(bl.Parquet(tmp_path), "1", frame.cast(pl.Categorical), at=1)
    write(bl.Parquet(tmp_path), "2", frame.cast(pl.Enum(["a", "b"])), at=2)
    frame.to_pandas().astype("category").to_parquet(tmp_path / "3")
    values = [("a",), ("b",), (None,), ("a",)]
    assert sorted_out(bl.Parquet(tmp_path, schema={"c": str})) == (values * 3, [])
    assert sorted_out(bl.Parquet(tmp_path, schema={"c": pl.Categorical})) == (values * 3, [])
    rows, letters = sorted_out(bl.Parquet(tmp_path / "1", schema={"c": pl.Enum(["a"])}))
    assert rows == [("a",), (None,), ("a",)]
    assert letters == [("1: column 'c' is b, expected Enum(categories=['a'])", '{"c":"b"}')]


NESTED = {"tags": pl.List(pl.Int64), "place": pl.Struct({"x": pl.Float64, "at": pl.Datetime("us", "UTC")})}


@pytest.mark.parametrize("files", [bl.Parquet, bl.JSONLines])
def test_nested_columns_are_read_and_what_within_them_does_not_fit_is_a_letter(
    files: type[Files], tmp_path: Path
) -> None:
    place = {"x": 1.5, "at": datetime(1950, 1, 1, tzinfo=UTC)}
    frame = pl.DataFrame({"tags": [[1, 300], [], None], "place": [place, None, place]}, schema=NESTED)
    write(files(tmp_path), "f", frame)
    assert sorted_out(files(tmp_path, schema=NESTED)) == (frame.rows(), [])
    rows, letters = sorted_out(files(tmp_path, schema={"tags": pl.List(pl.Int8)}))
    assert rows == [([],), (None,)]
    (why, row), *others = letters
    assert not others
    assert why.startswith("f: column 'tags'")
    assert why.endswith("expected List(Int8)")
    assert json.loads(row)["tags"] == [1, 300]


@pytest.mark.parametrize("files", TEXT)
def test_types_that_a_format_has_no_text_for_are_refused_when_declared(files: type[Files]) -> None:
    for dtype in (pl.Duration("us"), pl.List(pl.Time), pl.Struct({"a": pl.Binary})):
        with pytest.raises(TypeError, match=r"column 'n': (text|JSON) cannot be read as"):
            files("not there", schema={"at": int, "n": dtype})


@pytest.mark.parametrize("files", FORMATS)
def test_decimals_keep_their_digits(files: type[Files], tmp_path: Path) -> None:
    values = [Decimal("0.10"), Decimal("-99999999999999999999999999.99"), None]
    write(files(tmp_path), "f", pl.DataFrame({"d": values}, schema={"d": pl.Decimal(28, 2)}))
    assert sorted_out(files(tmp_path, schema={"d": pl.Decimal(28, 2)})) == (
        [(value,) for value in values],
        [],
    )
    rows, letters = sorted_out(files(tmp_path, schema={"d": pl.Decimal(10, 2)}))
    assert rows == [(values[0],), (None,)]
    ((why, _),) = letters
    assert "column 'd' is" in why
    assert "-99999999999999999999999999.99" in why


@pytest.mark.parametrize("files", FORMATS)
@pytest.mark.parametrize("declared", [True, False])
def test_times_with_zones_and_before_1970_are_event_times(
    files: type[Files], declared: bool, tmp_path: Path
) -> None:
    berlin = timezone(timedelta(hours=1))
    times = [datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC), datetime(1901, 1, 1, 12, tzinfo=berlin)]
    frame = pl.DataFrame({"at": times}, schema={"at": pl.Datetime("ms", "Europe/Berlin")})
    if files is bl.Parquet:
        write(bl.Parquet(tmp_path), "f", frame)
    else:
        lines = [time.isoformat() for time in times]
        put(
            tmp_path / "f",
            "\n".join(["at", *lines] if files is bl.CSV else [f'{{"at": "{t}"}}' for t in lines]),
        )
    p, out = bl.Pipeline("p"), bl.Memory()
    source = files(tmp_path, schema={"at": datetime} if declared else None)
    read = p.read("rows", source, timestamp="at", watermark=bl.BoundedOutOfOrderness("36500d"))
    read.with_columns(us=bl.event_time()).select("us").write("out", out)
    p.run()
    assert sorted(out.frame()["event_time"].to_list()) == sorted(times)


@pytest.mark.parametrize("files", FORMATS)
def test_an_enormous_text_is_a_value_as_others(files: type[Files], tmp_path: Path) -> None:
    frame = pl.DataFrame({"n": [1, 2, 3], "text": ["a", 'x"\n' * 3_500_000, "b"]})
    write(files(tmp_path), "f", frame)
    chunks = list(files(tmp_path, schema={"n": int, "text": str}).chunks(10))
    assert not any(isinstance(chunk, Faulty) for chunk in chunks)
    assert_frame_equal(pl.concat([chunk.lazy().collect() for chunk in chunks]), frame)  # type: ignore[union-attr]


def test_a_letter_shows_only_the_beginning_of_an_enormous_value(tmp_path: Path) -> None:
    put(tmp_path / "f", "n\n" + "9" * 10_000_000 + "\n5\n")
    rows, ((why, _),) = sorted_out(bl.CSV(tmp_path, schema={"n": int}))
    assert rows == [(5,)]
    assert len(why) < 200


# A fault costs only its own row

_CELL = st.text(st.sampled_from('ab ",\n\u00e9'), max_size=6)


def csv_row(row: tuple[int, str]) -> str:
    number, text = row
    return f'{number},"{text.replace(chr(34), chr(34) * 2)}"\n'


CSV_FAULTS = {
    "1,a,b\n": ("more fields than the 2 of the header", "1,a,b"),
    'x,"a""b"\n': ("column 'n' is 'x', expected Int64", '{"n":"x","t":"a\\"b"}'),
    '7,"a"b\n': ("quotes that do not pair", '7,"a"b'),
}


DIALECTS = st.builds(
    Dialect, st.sampled_from([",", ";", "\t", "|", ":"]), st.sampled_from(['"', "'", "^"]), st.booleans()
)


@settings(max_examples=5 * settings().max_examples)
@given(
    st.lists(st.tuples(st.integers(-9, 9), _CELL) | st.sampled_from([*CSV_FAULTS, "\n", "\r\n"])),
    st.integers(8, 200),
    DIALECTS,
)
def test_good_records_of_a_csv_file_are_all_read(records: list[Any], size: int, dialect: Dialect) -> None:
    as_dialect = {ord(","): dialect.delimiter, ord('"'): dialect.quote}
    good = [(r[0], r[1].translate(as_dialect)) for r in records if not isinstance(r, str)]
    faults = [CSV_FAULTS[r] for r in records if isinstance(r, str) and r.strip()]
    text = "n,t\n" * dialect.header + "".join(r if isinstance(r, str) else csv_row(r) for r in records)
    rows, letters = parsed(text.translate(as_dialect).encode(), size, dialect)
    whose = "header" if dialect.header else "schema"
    bad = [
        (why.replace("header", whose), row if row.startswith("{") else row.translate(as_dialect))
        for why, row in faults
    ]
    assert rows == good
    shown = [
        (why, row.replace(f"a{dialect.quote}b", 'a\\"b')) if row.startswith("{") else (why, row)
        for why, row in letters
    ]
    assert sorted(shown) == sorted(bad)


def parsed(text: bytes, size: int, dialect: Dialect = Dialect()) -> tuple[list[Any], list[tuple[str, str]]]:  # noqa: B008
    """Returns rows and dead letters of a CSV file of an integer `n` and a text `t`, read in blocks of `size` bytes."""
    raw = pl.Schema({"n": pl.Int64(), "t": pl.String()})
    typed = [pl.col("n"), pl.col("t")]
    rows: list[Any] = []
    letters: list[tuple[str, str]] = []
    with tempfile.TemporaryDirectory() as folder:
        for frame, faulty in csvlines.frames(str(put(Path(folder) / "f", text)), raw, typed, dialect, size):
            rows += frame.rows()
            letters += [] if faulty is None else faulty.dead_letters.rows()
    return rows, [(re.sub(r"file '.*?': ", "", why), row) for why, row in letters]


@given(
    st.integers(0, 60),
    st.lists(st.tuples(st.integers(0, 60), st.sampled_from(['1,"open', '1,op"en'])), min_size=1, max_size=3),
    st.integers(8, 400),
)
def test_a_quote_that_is_never_closed_costs_one_line(
    count: int, stray: list[tuple[int, str]], size: int
) -> None:
    lines = [f'{n},"t,{n}"' if n % 3 else f"{n},t" for n in range(count)]
    for at, line in stray:
        lines.insert(at, line)
    rows, letters = parsed("\n".join(["n,t", *lines, ""]).encode(), size)
    assert [n for n, _ in rows] == [*range(count)]
    assert sorted(letters) == sorted(("quotes that do not pair", line) for _, line in stray)


LINES = ['{"n": 1}', '{"n": -2, "t": "x"}', '{"t": 5}', '{"n": null}', "{}"]
BAD_LINES = [
    '{"n": 1.5}',
    '{"n": "1"}',
    '{"n": NaN}',
    "[1]",
    "5",
    "null",
    "{",
    '{"n": 1}}',
    "\u00e9",
    '{"n": 1',
    '{"n": {}}',
]


@settings(max_examples=5 * settings().max_examples)
@given(st.lists(st.sampled_from([*LINES, *BAD_LINES, "", " "])), st.integers(1, 100))
def test_good_lines_of_a_json_file_are_all_read(lines: list[str], size: int) -> None:
    columns = JsonColumns.of({"n": pl.Int64(), "t": pl.String()})
    rows, letters = list[Any](), list[str]()
    with tempfile.TemporaryDirectory() as folder:
        for block in jsonlines.blocks(str(put(Path(folder) / "f", "\n".join(lines))), size):
            frame, faulty = jsonlines.parse("f", block, columns)
            rows += frame.rows()
            letters += [] if faulty is None else faulty.dead_letters["row"].to_list()
    objects = [json.loads(line) for line in lines if line in LINES]
    texts = [None if one.get("t") is None else str(one["t"]) for one in objects]
    assert rows == [(one.get("n"), text) for one, text in zip(objects, texts, strict=True)]
    assert sorted(letters) == sorted(line for line in lines if line in BAD_LINES)


@given(st.integers(0, 50), st.integers(1, 9), st.integers(1, 20), st.integers(1, 20))
def test_the_parts_of_a_parquet_file_are_the_file(height: int, parts: int, size: int, group: int) -> None:
    frame = pl.DataFrame({"n": range(height)}, schema={"n": pl.Int64})
    with tempfile.TemporaryDirectory() as folder:
        frame.write_parquet(f"{folder}/f", row_group_size=group)
        source = bl.Parquet(folder)
        pieces = [p for part in range(parts) for p in source.pieces(f"{folder}/f", size, part, parts)]
        lengths = [piece.lazy().collect().height for piece in pieces]  # type: ignore[union-attr]
        assert all(0 < length <= size for length in lengths)
        assert_frame_equal(pl.concat([frame.head(0), *(piece.lazy().collect() for piece in pieces)]), frame)  # type: ignore[union-attr]


@pytest.mark.parametrize("width", [1, 100])
def test_a_parquet_file_of_few_bytes_and_many_values_is_not_read_as_a_whole(
    width: int, tmp_path: Path
) -> None:
    most, file = _FEW_VALUES // width, str(tmp_path / "f")
    for height in (0, 1, most, most + 1, 3 * most):
        pl.select(pl.repeat(1, height).alias(f"n{number}") for number in range(width)).write_parquet(file)
        assert os.path.getsize(file) < _SMALL
        found = _scan_or_read(file)
        assert isinstance(found, pl.DataFrame) is (height <= most)
        assert found.lazy().select(pl.len()).collect().item() == height
        assert sum(len(rows) for rows in sorted_out(bl.Parquet(file), 500_000)[:1]) == height


def test_storage_that_only_pyarrow_knows_is_read_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyarrow import fs

    local = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    monkeypatch.setattr(
        "beamlike.io.files.paths._file_system", lambda path: (local, path.removeprefix("hdfs://host/"))
    )
    frame = pl.DataFrame({"n": [1, 2, 3]})
    for files in FORMATS:
        (tmp_path / files.__name__).mkdir()
        write(files(tmp_path / files.__name__), f"f.{files.extension}", frame)
        assert sorted_out(files(f"hdfs://host/{files.__name__}")) == ([(1,), (2,), (3,)], [])


# On Spark


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("files", FORMATS)
def test_spark_reads_parts_and_faults_as_the_local_runner_does(
    files: type[Files], spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("beamlike.spark.query.listing.PART_BYTES", 4_000)
    for number in range(4):
        frame = pl.DataFrame({"at": range(2_000), "n": range(number * 2_000, (number + 1) * 2_000)})
        write(files(tmp_path), f"{number}", frame, at=1_000 + number)
    torn = (tmp_path / "1").read_bytes()
    put(tmp_path / "1", torn[:-5] + b'"x\n', at=1_001)
    results = []
    for runner in (None, bl.SparkRunner(str(tmp_path / "_checkpoint"), session=spark, shards=2, drain=True)):
        p, out, lost = bl.Pipeline("parts"), bl.Memory(), bl.Memory()
        watermark = bl.MonotonousTimestamps()
        source = files(tmp_path, schema={"at": int, "n": int})
        read = p.read("rows", source, timestamp="at", timestamp_unit="us", watermark=watermark)
        read.window_into(bl.FixedWindows("1m")).aggregate(n=bl.collect("n")).write("out", out)
        read.dead_letters().write("lost", lost)
        p.run(runner)
        results.append((out.frame()["n"].explode().to_list(), sorted(lost.frame().rows())))
    assert results[0] == results[1]
    assert len(results[0][0]) in (6_000, 7_999)
    assert len(results[0][1]) == 1
