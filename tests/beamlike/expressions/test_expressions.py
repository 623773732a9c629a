"""Expressions: readers, wildcards that select only the user's columns, and conversion of narwhals expressions."""

from __future__ import annotations

import pickle
import re
from datetime import UTC, date, datetime

import narwhals as nw
import narwhals.selectors as ncs
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import beamlike as bl
from beamlike.expressions.tree import columns_read, expression_text, looks_at_other_rows, resolve
from beamlike.rows.dtypes import as_dtype, type_name
from stages.aggregates.builtin import Collect, Count, First, Last, Max, Min, WindowLength
from stages.aggregates.totals import Mean, Sum
from tests.support.pipelines import SCHEMA, frame, plays
from windowing.columns import (
    EVENT_TIME,
    PANE_CAUSE,
    PANE_COMPLETE,
    PANE_DRAINED,
    PANE_FIRST,
    PANE_INDEX,
    PANE_LAST,
    PANE_NONSPECULATIVE_INDEX,
    PANE_TIMING,
    PANE_WATERMARK,
    WINDOW_END,
    WINDOW_START,
)

x, y, s, won = bl.col("x"), bl.col("y"), bl.col("s"), bl.col("won")


def test_readers_give_columns_of_plain_names_and_types_of_the_border():
    panes = plays().window_into(bl.FixedWindows("1m")).aggregate(n=bl.count())
    read = panes.select(
        bl.event_time(),
        bl.window_start(),
        bl.window_end(),
        bl.pane_timing(),
        bl.pane_index(),
        bl.pane_nonspeculative_index(),
        bl.pane_first(),
        bl.pane_last(),
        bl.pane_drained(),
        bl.pane_cause(),
        bl.pane_complete(),
        bl.pane_watermark(),
    )
    moment = pl.Datetime("us", "UTC")
    assert read.schema == pl.Schema(
        {
            "event_time": moment,
            "window_start": moment,
            "window_end": moment,
            "pane_timing": pl.String(),
            "pane_index": pl.Int64(),
            "pane_nonspeculative_index": pl.Int64(),
            "pane_first": pl.Boolean(),
            "pane_last": pl.Boolean(),
            "pane_drained": pl.Boolean(),
            "pane_cause": pl.String(),
            "pane_complete": pl.Float64(),
            "pane_watermark": moment,
        }
    )
    row = {
        EVENT_TIME: [59_999_999],
        WINDOW_START: [0],
        WINDOW_END: [60_000_000],
        PANE_TIMING: ["on_time"],
        PANE_INDEX: [0],
        PANE_NONSPECULATIVE_INDEX: [0],
        PANE_FIRST: [True],
        PANE_LAST: [True],
        PANE_DRAINED: [False],
        PANE_CAUSE: ["over"],
        PANE_COMPLETE: [0.5],
        PANE_WATERMARK: [60_000_000],
    }
    result = read.node.origin.apply(pl.LazyFrame({"n": [1], **row})).collect()
    assert result.select(read.schema.names()).row(0) == (
        datetime(1970, 1, 1, 0, 0, 59, 999_999, tzinfo=UTC),
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(1970, 1, 1, 0, 1, tzinfo=UTC),
        *("on_time", 0, 0, True, True, False, "over", 0.5),
        datetime(1970, 1, 1, 0, 1, tzinfo=UTC),
    )
    assert result.select(*row).row(0) == tuple(value for (value,) in row.values())


def test_event_time_before_1970_and_in_the_distance():
    times = pl.Series([-1, -86_400_000_000, 4_102_444_800_000_000])
    read = plays().select(bl.event_time())
    result = read.node.origin.apply(frame(1, 2, 3, **{EVENT_TIME: times}).lazy()).collect()
    assert result["event_time"].dt.year().to_list() == [1969, 1969, 2100]


@pytest.mark.parametrize("wildcard", [nw.all(), ncs.all(), ncs.numeric(), nw.exclude("user"), ~ncs.string()])
def test_wildcards_do_not_touch_the_engines_columns(wildcard):
    windowed = plays().window_into(bl.FixedWindows("1m"))
    chosen = windowed.select(wildcard)
    assert set(chosen.schema) <= set(SCHEMA)
    assert chosen.node.shape.system == (EVENT_TIME, WINDOW_START, WINDOW_END)


def test_wildcards_inside_of_expressions_are_the_users_columns_too():
    source = plays().select("score", "tick")
    total = source.with_columns(total=nw.sum_horizontal(nw.all()), twice=nw.max_horizontal(ncs.numeric() * 2))
    result = total.node.origin.apply(frame(3).select("score", "tick", EVENT_TIME).lazy()).collect()
    assert result.select("total", "twice").row(0) == (3, 6)
    doubled = source.with_columns(nw.all() * 2)
    assert doubled.node.origin.apply(frame(3, 4).lazy()).collect()[EVENT_TIME].to_list() == [0, 1_000_000]


@pytest.mark.parametrize(
    ("expression", "text", "columns"),
    [
        ((x + 1) * 2, "(x + 1) * 2", ["x"]),
        (1 - (x - y), "1 - (x - y)", ["x", "y"]),
        ((x > 1) & (y < 2) | won, "(x > 1) & (y < 2) | won", ["x", "y", "won"]),
        (~(won & (x > 1)), "~(won & (x > 1))", ["won", "x"]),
        (-(x**2), "-x ** 2", ["x"]),
        ((-x) ** 2, "(-x) ** 2", ["x"]),
        ((x * 2).alias("double"), "x * 2 as double", ["x"]),
        (s == "DE", "s == 'DE'", ["s"]),
        (s.str.contains("a"), "s.str.contains('a')", ["s"]),
        (bl.regexp_extract(s, "b(.)"), "regexp_extract(s, 'b(.)', 1)", ["s"]),
        (x.cast(nw.Float64), "x.cast(Float64)", ["x"]),
        (x.is_in([1, 2]), "x.is_in([1, 2])", ["x"]),
        (x.fill_null(y), "x.fill_null(y)", ["x", "y"]),
        (bl.when(x > 1).then("y").otherwise(bl.lit(3)), "when(x > 1).then(y).otherwise(3)", ["x", "y"]),
        (nw.concat_str("s", "s", separator="-"), "concat_str(s, s, separator='-')", ["s"]),
        (bl.event_time().dt.hour().alias("h"), "event_time().dt.hour() as h", [EVENT_TIME]),
        (bl.pane_timing() == "late", "pane_timing() == 'late'", [PANE_TIMING]),
        (bl.lit("a"), "'a'", []),
    ],
)
def test_expressions_are_read_as_they_were_written(expression, text, columns):
    assert expression_text(expression) == text
    assert columns_read(expression) == columns
    assert looks_at_other_rows(expression) is None


@pytest.mark.parametrize(
    ("expression", "function"),
    [
        (x.sum(), "sum"),
        (x - x.mean(), "mean"),
        (x.mean().over("s"), "mean"),
        (x.shift(1), "shift"),
        (x.cum_sum(), "cum_sum"),
        (x.is_unique(), "is_unique"),
        (x.drop_nulls(), "drop_nulls"),
        (x.fill_null(strategy="forward"), "fill_null"),
        (bl.when(x > x.max()).then(1), "max"),
        (nw.len(), "len"),
        (x.map_batches(lambda series: series), "map_batches"),
    ],
)
def test_what_looks_at_other_rows_is_found_wherever_it_stands(expression, function):
    assert looks_at_other_rows(expression) == function


def test_resolving_leaves_expressions_without_wildcards_as_they_are():
    schema = pl.Schema({"x": pl.Int64(), "y": pl.Int64()})
    assert expression_text(resolve((x + y).alias("z"), schema)) == "x + y as z"
    assert expression_text(resolve(nw.all() * 2, schema)) == "(x, y) * 2"
    assert expression_text(resolve(nw.nth(1), schema)) == "y"


def test_expressions_and_the_users_functions_survive_cloudpickle():
    cloudpickle = pytest.importorskip("pyspark.cloudpickle")
    limit = 3
    kept = plays().filter(bl.when(bl.col("score") > limit).then(bl.col("won")).otherwise(bl.lit(False)))
    computed = kept.with_columns(rate=bl.col("rate") * limit, user=bl.regexp_extract("user", "r (.)"))
    mapped = computed.map(lambda row: row | {"score": limit})
    for node in (mapped.node, mapped.node.inputs[0], kept.node):
        step = node.origin
        copy = cloudpickle.loads(cloudpickle.dumps(step))
        assert copy == step or step.python
        first, second = (each.apply(frame(1, 5, 7).lazy()).collect() for each in (step, copy))
        assert first.equals(second)


def test_expressions_survive_plain_pickle():
    expression = (x > 1) & bl.event_time().is_null()
    assert expression_text(pickle.loads(pickle.dumps(expression))) == expression_text(expression)


def test_steps_compare_by_their_expressions():
    assert plays().filter(won_of(1)).node.origin == plays().filter(won_of(1)).node.origin
    assert plays().filter(won_of(1)).node.origin != plays().filter(won_of(2)).node.origin


def won_of(score: int) -> nw.Expr:
    return bl.col("score") == score


def test_aggregates_are_functions_in_lower_case():
    assert [bl.count(), bl.count("x"), bl.sum("x"), bl.min("x"), bl.max("x"), bl.mean("x")] == [
        Count(),
        Count("x"),
        Sum("x"),
        Min("x"),
        Max("x"),
        Mean("x"),
    ]
    assert [bl.collect("x"), bl.first("x"), bl.last("x"), bl.window_length()] == [
        Collect("x"),
        First("x"),
        Last("x"),
        WindowLength(),
    ]


def test_a_combine_function_declares_the_type_of_its_results():
    class Longest(bl.CombineFn):
        pass

    windowed = plays().window_into(bl.FixedWindows("1m"))
    assert windowed.aggregate(longest=bl.combine(Longest(), "user", int)).schema["longest"] == pl.Int64
    with pytest.raises(TypeError, match="'int' is text, not a type"):
        bl.combine(Longest(), "user", "int")
    with pytest.raises(TypeError, match="is no column type"):
        bl.combine(Longest(), "user", object())


def test_constants_can_be_columns():
    made = plays().with_columns(answer=42, nothing=None, day=datetime(2026, 1, 1, tzinfo=UTC))
    assert [made.schema[name] for name in ("answer", "day")] == [pl.Int64(), pl.Datetime("us", "UTC")]


@pytest.mark.parametrize(
    ("dtype", "text"),
    [
        (pl.Datetime("us", "UTC"), "Datetime(us, UTC)"),
        (pl.Datetime("ns"), "Datetime(ns)"),
        (pl.List(pl.Datetime("ms")), "List(Datetime(ms))"),
        (pl.Duration("us"), "Duration(us)"),
        (pl.Int8(), "Int8"),
    ],
)
def test_types_have_short_names(dtype, text):
    assert type_name(as_dtype(dtype)) == text


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("int64", "did you mean pl.Int64?"),
        ("Float32", "did you mean pl.Float32?"),
        (np.int16, "did you mean pl.Int16?"),
        (pa.string(), "did you mean pl.String?"),
        (list, "did you mean list[str]?"),
        (dict, "write int, float, str, bool"),
        (None, "write int, float, str, bool"),
    ],
)
def test_what_is_no_type_is_told_with_the_one_that_was_perhaps_meant(given, meant):
    with pytest.raises(TypeError, match=re.escape(meant)):
        as_dtype(given)


def test_types_of_columns_can_be_pythons_own():
    given = [int, str, bool, date, list[int], float | None]
    assert list(map(as_dtype, given)) == [
        pl.Int64(), pl.String(), pl.Boolean(), pl.Date(), pl.List(pl.Int64), pl.Float64()
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("group", "found"),
    [(0, ["r 0", None, "r 2"]), (1, ["0", None, "2"]), (2, [None, None, "2"])],
)
def test_groups_of_patterns_are_null_where_they_match_nothing(group, found):
    read = plays().select(text=bl.regexp_extract(bl.col("user"), "r (0|(2))", group))
    assert read.schema["text"] == pl.String()
    assert read.node.origin.apply(frame(0, 1, 2).lazy()).collect()["text"].to_list() == found


@pytest.mark.parametrize(
    ("arguments", "error", "meant"),
    [
        ((3, "a"), bl.errors.WrongType, "takes a column or an expression, not 3"),
        (("s", 3), bl.errors.WrongType, "takes a pattern as a string, not 3"),
        (("s", "(a)", "1"), bl.errors.WrongType, "takes the number of a group, not '1'"),
        (("s", "a("), bl.errors.PlanError, "'a(' cannot be read"),
        (("s", "a"), bl.errors.PlanError, "'a' has no group 1; it has none"),
        (("s", "(a)", 2), bl.errors.PlanError, "'(a)' has no group 2; it has 1"),
        (("s", "(a)", -1), bl.errors.PlanError, "'(a)' has no group -1; it has 1"),
    ],
)
def test_patterns_that_cannot_work_are_told_of_when_they_are_written(arguments, error, meant):
    with pytest.raises(error, match=re.escape(meant)):
        bl.regexp_extract(*arguments)


def test_text_is_only_extracted_from_text():
    with pytest.raises(
        bl.errors.WrongType, match=re.escape("regexp_extract(score, '(a)', 1) as e: expected String")
    ):
        plays().with_columns(e=bl.regexp_extract("score", "(a)"))
