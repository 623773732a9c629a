"""Values at the edges of their types, as keys and as aggregated values, on both runners."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from datetime import date, time
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import beamlike as bl
from beamlike.records.model import BatchRecord
from tests.support.edges import (
    BOTTOMLESS,
    KEYS,
    LARGE,
    MANY,
    NUMBERS,
    VALUES,
    column,
    counted,
    declare,
    declare_enormous,
    declare_many,
    folded,
    numbered,
    plain,
    read,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True, scope="module")
def _in_a_folder_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("edges"))
        yield


@pytest.fixture(scope="module")
def sinks() -> Mapping[str, bl.Memory]:
    """The results of the local runner for every kind of column."""
    pipeline = bl.Pipeline("edges")
    declared = declare(pipeline)
    pipeline.run()
    return declared


@pytest.mark.parametrize("kind", KEYS)
def test_a_key_at_the_edges_of_its_type_is_counted_and_null_is_a_key(
    kind: str, sinks: Mapping[str, bl.Memory]
) -> None:
    assert counted(sinks[f"by {kind}"], kind) == Counter(plain(KEYS[kind]))
    assert sinks[f"by {kind}"].frame().schema[f"by {kind}"] == KEYS[kind].dtype


@pytest.mark.parametrize("kind", VALUES)
def test_a_value_at_the_edges_of_its_type_comes_out_as_it_went_in(
    kind: str, sinks: Mapping[str, bl.Memory]
) -> None:
    values, folds = plain(VALUES[kind]), folded(sinks["values"], kind)
    assert sinks["values"].frame().schema[f"{kind}, all"] == pl.List(VALUES[kind].dtype)
    assert [repr(folds["first"]), repr(folds["last"])] == [repr(values[0]), repr(values[-1])]
    assert sorted(map(repr, folds["all"])) == sorted(map(repr, values))
    assert folds["n"] == sum(value is not None for value in values)


@pytest.mark.parametrize("kind", NUMBERS)
def test_numbers_at_the_edges_add_up(kind: str, sinks: Mapping[str, bl.Memory]) -> None:
    values = [value for value in NUMBERS[kind].to_list() if value is not None]
    folds = folded(sinks["values"], kind)
    assert repr(folds["sum"]) == repr(sum(values)) or math.isclose(folds["sum"], sum(values))
    if values:
        mean = float(sum(values)) / len(values)
        assert repr(folds["mean"]) == repr(mean) or math.isclose(folds["mean"], mean)
    else:
        assert folds["mean"] is None


@pytest.mark.parametrize(
    ("kind", "least", "most"),
    [
        ("float", 0.0, 1.5),  # what is no number is left out while there is one
        ("infinite", -math.inf, math.inf),
        ("key category", "", "b"),  # by their text
        ("key enum", "b", "a"),  # as declared
        ("key text", "", "a\x1fb"),
        ("bytes", b"", b"\x00\xff"),
        ("nothing", None, None),
    ],
)
def test_the_least_and_the_most(kind: str, least: Any, most: Any, sinks: Mapping[str, bl.Memory]) -> None:
    folds = folded(sinks["values"], kind)
    assert (folds["least"], folds["most"]) == (least, most)


@pytest.mark.parametrize(
    "keys",
    [
        column([0.0, -0.0, math.nan], pl.Float64),
        column([0.0], pl.Float32),
        numbered([1], pl.Duration("us")),
        column([[1]], pl.List(pl.Int64)),
        column([{"a": 1}], pl.Struct({"a": pl.Int64})),
        column([], pl.Null),
    ],
    ids=lambda keys: str(keys.dtype),
)
def test_a_key_whose_equality_is_in_doubt_is_refused_when_the_pipeline_is_declared(keys: pl.Series) -> None:
    rows = read(bl.Pipeline("p"), pl.DataFrame({"k": keys})).window_into(bl.FixedWindows("1m"))
    with pytest.raises(bl.PlanError, match=r"step 'rows.aggregate': the key 'k' is .*; a key may be text"):
        rows.group_by("k")


def overflowing() -> dict[str, tuple[pl.Series, Any]]:
    """Returns columns whose sum their type cannot hold, and that sum."""
    most = 2**63 - 1
    return {
        "whole": (column([most, 1], pl.Int64), most + 1),
        "unsigned": (column([2**64 - 1, 1], pl.UInt64), 2**64),
        "long": (column([2**127 - 1, 1], pl.Int128), 2**127),
        "decimal": (column([Decimal("9" * 38)] * 3, pl.Decimal(38, 0)), 3 * int("9" * 38)),
        "length": (numbered([2**63 - 1, 1], pl.Duration("us")), 2**63),
        "below": (column([-(2**63), -1], pl.Int64), -(2**63) - 1),
    }


@pytest.mark.parametrize("kind", ["whole", "unsigned", "long", "decimal", "length", "below"])
def test_a_sum_that_its_type_cannot_hold_fails_the_run_and_names_step_column_and_sum(kind: str) -> None:
    values, total = overflowing()[kind]
    pipeline, sink = bl.Pipeline("p"), bl.Memory()
    windowed = read(pipeline, pl.DataFrame({"v": values})).window_into(bl.FixedWindows("1m"))
    windowed.aggregate(total=bl.sum("v")).named("totals").write("out", sink)
    told = rf"^step 'totals': sum\('v'\) is {total}, which .* cannot hold: .* cast the column to a float before\Z"
    with pytest.raises(bl.StepError, match=told):
        pipeline.run()
    assert sink.rows() == []


@pytest.fixture(scope="module")
def crowds() -> tuple[Mapping[str, bl.Memory], list[BatchRecord]]:
    """The results of the local runner for enormous texts and for a million keys, and its records."""
    pipeline = bl.Pipeline("crowds")
    sinks = {**declare_enormous(pipeline), **declare_many(pipeline)}
    return sinks, pipeline.run().batches


def check_crowds(sinks: Mapping[str, bl.Memory]) -> None:
    rows = sinks["enormous"].frame().sort(pl.col("k").str.len_bytes())
    assert rows["n"].to_list() == [2, 1]
    assert rows["k"].str.len_bytes().to_list() == [LARGE, LARGE + 1]
    assert rows.select("first", "last").rows() == [("y" * LARGE, "z" * LARGE), ("", "")]
    assert sinks["many by k"].frame().select("keys", "n", "total").rows() == [(MANY, MANY, 499_500_000)]
    assert sinks["many by one"].frame().select("keys", "n", "total").rows() == [(1, MANY, 499_500_000)]


@pytest.mark.slow
def test_enormous_texts_a_million_keys_in_a_batch_and_one_key_with_everything(
    crowds: tuple[Mapping[str, bl.Memory], list[BatchRecord]],
) -> None:
    check_crowds(crowds[0])


@pytest.mark.slow
def test_what_holds_a_watermark_is_told_by_the_beginning_of_its_key(
    crowds: tuple[Mapping[str, bl.Memory], list[BatchRecord]],
) -> None:
    assert "xxxx" in crowds[1][0].stages["by enormous"].holder
    assert max(len(record.to_json()) for record in crowds[1]) < 10_000


@pytest.mark.spark
def test_a_struct_without_fields_has_no_place_in_a_checkpoint(spark: SparkSession) -> None:
    pipeline, sink = bl.Pipeline("p"), bl.Memory()
    rows = pl.DataFrame({"v": column([[{}]], pl.List(BOTTOMLESS))})
    read(pipeline, rows).write("out", sink)
    pipeline.run()
    assert sink.frame()["v"].to_list() == [[{}], None, None, None]
    with pytest.raises(bl.PlanError, match=r"step 'rows': column 'v' .* no struct without fields"):
        pipeline.run(bl.SparkRunner(session=spark))


@pytest.mark.slow
@pytest.mark.spark
def test_spark_gives_the_same_for_all_of_them(
    spark: SparkSession, sinks: Mapping[str, bl.Memory], tmp_path: Path
) -> None:
    pipeline = bl.Pipeline("edges")
    declared = declare(pipeline)
    crowds = {**declare_enormous(pipeline), **declare_many(pipeline)}
    pipeline.run(bl.SparkRunner(session=spark, checkpoint=str(tmp_path / "checkpoint"), drain=True, shards=2))
    check_crowds(crowds)
    assert declared["values"].frame().schema == sinks["values"].frame().schema
    for kind in KEYS:
        assert counted(declared[f"by {kind}"], kind) == counted(sinks[f"by {kind}"], kind), kind
        assert declared[f"by {kind}"].frame().schema == sinks[f"by {kind}"].frame().schema
    for kind in VALUES:
        assert repr(folded(declared["values"], kind)) == repr(folded(sinks["values"], kind)), kind


BEYOND = {
    "day": numbered([2**31 - 1, 0, -(2**31)], pl.Date),
    "zoned": numbered([2**63 - 1, 0, -(2**63)], pl.Datetime("us", "Europe/Berlin")),
    "length": numbered([2**63 - 1, 0, -(2**63)], pl.Duration("ms")),
    "list": column([[2**62], [0, None], None], pl.List(pl.Int64)).cast(pl.List(pl.Datetime("us"))),
    "array": column([[2**62], [None], None], pl.Array(pl.Int64, 1)).cast(pl.Array(pl.Datetime("us"), 1)),
    "struct": column([{"a": 2**62}, {"a": 0}], pl.Struct({"a": pl.Int64})).cast(
        pl.Struct({"a": pl.Datetime("us")})
    ),
}


def test_the_first_and_the_last_day_of_all_are_given_to_functions_of_rows() -> None:
    days = pl.Series([date.min, date.max])
    ends = days.dt.combine(time(23, 59, 59, 999_999))
    rows = read(
        bl.Pipeline("p"), pl.DataFrame({"day": days, "end": ends, "utc": ends.dt.replace_time_zone("UTC")})
    )
    same = rows.map(lambda row: row).collect()
    assert same["day"].to_list() == days.to_list()
    assert same["end"].to_list() == ends.to_list()
    assert same["utc"].dt.replace_time_zone(None).to_list() == ends.to_list()


@pytest.mark.parametrize("kind", BEYOND)
def test_a_row_that_python_cannot_hold_is_a_dead_letter_of_a_function_of_rows(kind: str) -> None:
    values = BEYOND[kind]
    pipeline, sinks = bl.Pipeline("p"), [bl.Memory() for _ in range(4)]
    rows = read(pipeline, pl.DataFrame({"v": values}), rows_per_batch=4)
    mapped, several = rows.map(lambda row: row), rows.flat_map(lambda row: [row, row])
    for sink, one in zip(
        sinks, [mapped, several, mapped.dead_letters(), several.dead_letters()], strict=True
    ):
        one.write(f"{one.name} out", sink)
    pipeline.run()
    lost = len(sinks[2].rows())
    assert lost == (2 if kind in ("day", "zoned", "length") else 1)
    kept = [1, 3] if lost == 2 else [1, 2, 3]
    assert plain(sinks[0].frame()["v"]) == plain(values[kept])
    assert [len(sink.rows()) for sink in sinks] == [4 - lost, 2 * (4 - lost), lost, lost]
    assert "a time or a duration that Python cannot hold" in sinks[2].rows()[0]["error"]
