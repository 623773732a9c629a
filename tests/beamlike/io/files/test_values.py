"""Values of files in the declared types: none is changed silently, and one that does not fit is a dead letter."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import beamlike as bl
from beamlike.rows.dtypes import DTypeLike

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAR = datetime(9999, 12, 31)


def read(source: Any) -> tuple[list[Any], list[str]]:
    """Returns the values of the column `v`, and the errors of the dead letters."""
    good, bad = bl.Memory(), bl.Memory()
    rows = bl.Pipeline("p", max_dead_letters=10**6).read("in", source)
    rows.write("good", good)
    rows.dead_letters().write("bad", bad)
    rows.pipeline.run()
    return good.frame()["v"].to_list(), [str(letter["error"]) for letter in bad.rows()]


def of_parquet(values: pl.Series, dtype: DTypeLike, folder: Path) -> tuple[list[Any], list[str]]:
    """Writes values to a Parquet file, and returns them as read in a type."""
    values.alias("v").to_frame().write_parquet(folder / "a.parquet")
    return read(bl.Parquet(str(folder / "a.parquet"), {"v": dtype}))


def test_a_fraction_within_a_value_is_not_cut(tmp_path: Path) -> None:
    lists = pl.Series([[1.0, 2.0], [1.5], [], None, [None, 3.0]])
    good, bad = of_parquet(lists, list[int], tmp_path)
    assert good == [[1, 2], [], None, [None, 3]]
    assert [error.partition(": ")[2] for error in bad] == [
        "column 'v' is {\"v\":[1.5]}, expected List(Int64)"
    ]


@pytest.mark.parametrize(
    ("fits", "does_not", "found", "dtype"),
    [
        (2.0, 2.9, pl.Float64, pl.Int64),
        (200, 300, pl.Int64, pl.UInt8),
        (-1e30, 1e300, pl.Float64, pl.Float32),
        (Decimal("0.120"), Decimal("0.125"), pl.Decimal(12, 3), pl.Decimal(12, 2)),
        (Decimal("7.000"), Decimal("7.125"), pl.Decimal(12, 3), pl.Int64),
        (2**40, 2**62, pl.Int64, pl.Decimal(18, 2)),
        (datetime(2026, 1, 1), FAR, pl.Datetime("us"), pl.Datetime("ns")),
        (datetime(2026, 1, 1), FAR, pl.Datetime("ms"), pl.Datetime("ns")),
        (datetime(2026, 1, 1).date(), FAR.date(), pl.Date, pl.Datetime("ns")),
    ],
)
@pytest.mark.parametrize("depth", ["flat", "list", "struct", "structs in lists", "lists in structs"])
def test_each_value_that_does_not_fit_is_a_letter(
    fits: Any, does_not: Any, found: Any, dtype: Any, depth: str, tmp_path: Path
) -> None:
    def within(value: Any) -> Any:
        of = {
            "flat": value,
            "list": [value, None],
            "struct": {"x": value},
            "structs in lists": [{"x": value}],
        }
        return of.get(depth, {"x": [value]})

    def kind(inner: Any) -> Any:
        struct = pl.Struct({"x": inner})
        of = {"flat": inner, "list": pl.List(inner), "struct": struct, "structs in lists": pl.List(struct)}
        return of.get(depth, pl.Struct({"x": pl.List(inner)}))

    given = [fits, does_not, fits, does_not]
    values = pl.Series([*map(within, given), None], dtype=kind(found))
    good, bad = of_parquet(values, kind(dtype), tmp_path)
    expected = pl.Series([within(fits), within(fits), None], dtype=kind(found)).cast(kind(dtype))
    assert pl.Series(good, dtype=kind(dtype)).equals(expected, null_equal=True)
    assert len(bad) == 2


def test_fields_of_structs_go_by_name(tmp_path: Path) -> None:
    dtype = pl.Struct({"a": pl.Int64, "b": pl.String})
    inner = pl.Struct({"b": pl.String, "more": pl.Int64, "a": pl.Int64})
    good, bad = of_parquet(pl.Series([{"b": "x", "more": 1, "a": 7}], dtype=inner), dtype, tmp_path)
    assert (good, bad) == ([{"a": 7, "b": "x"}], [])
    good, bad = of_parquet(pl.Series([[{"b": "x", "a": 7}]]), pl.List(dtype), tmp_path)
    assert (good, bad) == ([[{"a": 7, "b": "x"}]], [])
    good, bad = of_parquet(pl.Series([{"b": "x"}]), dtype, tmp_path)
    assert (good, bad) == ([{"a": None, "b": "x"}], [])


def test_a_struct_of_other_fields_stands_for_none(tmp_path: Path) -> None:
    good, bad = of_parquet(pl.Series([{"b": 1}, {"b": 2}]), {"a": int}, tmp_path)
    assert good == []
    assert len(bad) == 2
    assert "cannot be read as" in bad[0]


def test_values_of_maps_are_checked(tmp_path: Path) -> None:
    table = pa.table({"v": pa.array([[("a", 1)], [("b", 300)]], pa.map_(pa.string(), pa.int64()))})
    pq.write_table(table, tmp_path / "a.parquet")
    dtype = pl.List(pl.Struct({"key": pl.String, "value": pl.UInt8}))
    good, bad = read(bl.Parquet(str(tmp_path / "a.parquet"), {"v": dtype}))
    assert good == [[{"key": "a", "value": 1}]]
    assert len(bad) == 1
    good, bad = read(bl.Parquet(str(tmp_path / "a.parquet"), {"v": pl.Map(pl.String, pl.UInt8)}))
    assert good == [{"a": 1}]
    assert len(bad) == 1


@pytest.mark.parametrize("nested", [False, True])
def test_times_of_the_96_bit_kind_beyond_nanoseconds(nested: bool, tmp_path: Path) -> None:
    kind = pa.list_(pa.timestamp("us")) if nested else pa.timestamp("us")
    times = [FAR, datetime(1000, 1, 1), datetime(2026, 1, 1)]
    table = pa.table({"v": pa.array([[time] for time in times] if nested else times, kind)})
    # As Spark writes them: without the schema of Arrow.
    pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True, store_schema=False)
    good, bad = read(bl.Parquet(str(tmp_path / "a.parquet")))
    assert good == ([[times[2]]] if nested else [times[2]])
    assert len(bad) == 2
    dtype = pl.List(pl.Datetime("us")) if nested else pl.Datetime("us")
    good, bad = read(bl.Parquet(str(tmp_path / "a.parquet"), {"v": dtype}))
    assert good == ([[time] for time in times] if nested else times)
    assert bad == []


def test_times_beside_integers_that_only_polars_writes(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {"v": [datetime(2026, 1, 1)], "wide": [2**100]}, {"v": pl.Datetime("ns"), "wide": pl.Int128}
    )
    frame.write_parquet(tmp_path / "a.parquet")
    assert read(bl.Parquet(str(tmp_path / "a.parquet"))) == ([datetime(2026, 1, 1)], [])


def test_a_second_file_in_other_units_costs_its_far_times_only(tmp_path: Path) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    pl.DataFrame({"v": [now]}, schema={"v": pl.Datetime("ns", "UTC")}).write_parquet(tmp_path / "1.parquet")
    far = pl.Series([now] * 1000).cast(pl.Datetime("us", "UTC")).scatter(500, FAR.replace(tzinfo=UTC))
    far.alias("v").to_frame().write_parquet(tmp_path / "2.parquet")
    good, bad = read(bl.Parquet(str(tmp_path), order="path"))
    assert (len(good), len(bad)) == (1000, 1)
    assert "9999-12-31" in bad[0]


def of_json(dtype: DTypeLike, *values: str, folder: Path) -> tuple[list[Any], list[str]]:
    """Writes values to JSON lines, literally, and returns them as read in a type."""
    (folder / "a.jsonl").write_text(
        "".join(f'{{"k": "x 1.10, \\" 2.0", "v": {value}}}\n' for value in values)
    )
    return read(bl.JSONLines(str(folder / "a.jsonl"), {"k": str, "v": dtype}))


NUMBERS = ["90071992547409.93", "1234567890123456.78", "0.1", "9007199254740993", "-0", "1.5E+2", "-25e-2"]


@pytest.mark.parametrize("quoted", [False, True])
def test_decimals_of_json_keep_their_digits(quoted: bool, tmp_path: Path) -> None:
    values = [f'"{number}"' if quoted else number for number in NUMBERS]
    good, bad = of_json(pl.Decimal(20, 2), *values, "null", folder=tmp_path)
    assert good == [*map(Decimal, NUMBERS), None]
    assert bad == []


def test_a_number_that_is_read_as_text_is_as_it_was_written(tmp_path: Path) -> None:
    numbers = [*NUMBERS, "1.10", "12345678901234567890123", "0.12345678901234567891", "7"]
    assert of_json(str, *numbers, '"3.0"', folder=tmp_path) == ([*numbers, "3.0"], [])


def test_numbers_beside_broken_lines_are_as_they_were_written(tmp_path: Path) -> None:
    lines = ['{"v": 1.10}', '{"v": 2.20, "', '{"v": true}', '{"v": "x 5.0 \\" 6.0"}', '{"v": 3.30}', ""]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    good, bad = read(bl.JSONLines(str(tmp_path / "a.jsonl"), {"v": str}))
    assert good == ["1.10", 'x 5.0 " 6.0', "3.30"]
    assert len(bad) == 2


@pytest.mark.parametrize("files", ["csv", "jsonl"])
def test_more_digits_than_the_scale_are_a_letter(files: str, tmp_path: Path) -> None:
    values = ["0.125", "1.10", "123456789.999", "1.1000", "12345678901.5", "1e-3", "1E1"]
    if files == "csv":
        (tmp_path / "a.csv").write_text("\n".join(["v,k", *(f"{value},x" for value in values), ""]))
        good, bad = read(bl.CSV(str(tmp_path / "a.csv"), {"v": pl.Decimal(12, 2), "k": str}))
    else:
        good, bad = of_json(pl.Decimal(12, 2), *values, folder=tmp_path)
    assert good == [Decimal("1.10"), Decimal("1.10"), Decimal(10)]
    assert [error.partition("column 'v' is ")[2].replace("'", "") for error in bad] == [
        f"{value}, expected Decimal(precision=12, scale=2)"
        for value in values
        if value not in ("1.10", "1.1000", "1E1")
    ]


@pytest.mark.parametrize("files", ["csv", "jsonl"])
def test_a_float_beyond_its_range_is_a_letter(files: str, tmp_path: Path) -> None:
    if files == "csv":
        (tmp_path / "a.csv").write_text("v,k\n1e300,x\n0.1,x\ninf,x\n")
        good, bad = read(bl.CSV(str(tmp_path / "a.csv"), {"v": pl.Float32, "k": str}))
        assert good[1:] == [float("inf")]
    else:
        good, bad = of_json(pl.Float32, "1e300", "0.1", folder=tmp_path)
    assert good[0] == pytest.approx(0.1)
    assert len(bad) == 1


def test_a_float_of_csv_beyond_64_bits_is_a_letter(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("v,k\n1e400,x\n-inf,x\n2.5,x\n")
    good, bad = read(bl.CSV(str(tmp_path / "a.csv"), {"v": float, "k": str}))
    assert good == [float("-inf"), 2.5]
    assert len(bad) == 1


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), [float("inf")], {"x": float("nan")}])
@pytest.mark.parametrize("files", [bl.JSONLines, bl.CSV])
def test_the_log_warns_of_floats_for_which_json_has_no_number(
    files: Any, value: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    is_json = files is bl.JSONLines or not isinstance(value, float)
    for name in ("out", "fine"):
        given = [{"v": value if name == "out" else pl.Series([value]).shift(1)[0]}] * 2
        rows = bl.Pipeline("p").read("in", bl.Rows(given, {"v": pl.Series([value]).dtype}))
        rows.write("out", files(str(tmp_path / name)))
        rows.pipeline.run()
    told = [message for message in caplog.messages if "NaN or infinite" in message]
    assert len(told) == is_json
    assert all(f"{tmp_path}/out" in message and "column 'v'" in message for message in told)


def test_numbers_within_json_values_keep_their_digits(tmp_path: Path) -> None:
    dtype = pl.List(pl.Struct({"d": pl.Decimal(20, 2), "n": pl.Int64, "t": pl.String, "b": pl.Boolean}))
    value = '[{"d": 90071992547409.93, "n": 9007199254740993, "t": 1.10, "b": true}, {"d": "0.10", "t": "x"}]'
    good, bad = of_json(
        dtype, value, "[]", "null", '[{"d": 0.125}]', '[{"n": "5"}]', '[{"n": 2.5}]', folder=tmp_path
    )
    first = {"d": Decimal("90071992547409.93"), "n": 9007199254740993, "t": "1.10", "b": True}
    assert good == [[first, {"d": Decimal("0.10"), "n": None, "t": "x", "b": None}], [], None]
    assert len(bad) == 3
    assert "0.125" in "".join(bad)


def test_texts_within_json_values_are_as_they_were_written(tmp_path: Path) -> None:
    assert of_json({"t": str}, '{"t": 1.10}', '{"t": "x"}', folder=tmp_path) == (
        [{"t": "1.10"}, {"t": "x"}],
        [],
    )
    assert of_json(list[str], '[1.10, "2.0", null]', folder=tmp_path) == ([["1.10", "2.0", None]], [])


def test_a_float_within_json_values_beyond_its_range_is_a_letter(tmp_path: Path) -> None:
    good, bad = of_json(pl.List(pl.Float32), "[1.5]", "[1e300]", folder=tmp_path)
    assert (good, len(bad)) == ([[1.5]], 1)


@pytest.mark.spark
def test_values_are_exact_or_letters_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Tasks on Spark use the same readers, so Spark's own parser does not matter."""
    (tmp_path / "a.jsonl").write_text('{"v": 90071992547409.93, "t": 1.10}\n{"v": 0.125, "t": "x"}\n')
    source = bl.JSONLines(str(tmp_path / "a.jsonl"), {"v": pl.Decimal(20, 2), "t": str})
    good, bad = bl.Memory(), bl.Memory()
    rows = bl.Pipeline("p").read("in", source)
    rows.write("good", good)
    rows.dead_letters().write("bad", bad)
    rows.pipeline.run(bl.SparkRunner(str(tmp_path / "checkpoint"), session=spark, shards=1, drain=True))
    assert good.frame().select("v", "t").rows() == [(Decimal("90071992547409.93"), "1.10")]
    assert [row["error"].partition(": ")[2] for row in bad.rows()] == [
        "column 'v' is 0.125, expected Decimal(precision=20, scale=2)"
    ]
