"""Aggregates of distinct values, of chosen rows and of flags equal plain Python in any order and bundles."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.aggregates.base import Aggregate
from stages.aggregates.counted import ApproxQuantile, CollectSet, CountDistinct, Median, Mode, Quantile
from stages.aggregates.distinct import ApproxCountDistinct
from stages.aggregates.flags import All
from stages.aggregates.flags import Any as Some
from stages.aggregates.ranked import ArgMax, ArgMin, Bottom, Sample, Top
from tests.support.aggregated import law, run_rows, windowings
from tests.support.strategies import us
from windowing import AfterCount, AfterWatermark, FixedWindows, Windowing
from windowing.columns import EVENT_TIME

Row = dict[str, Any]

VALUES: dict[str, tuple[pl.DataType, st.SearchStrategy[Any]]] = {
    "integers": (pl.Int64(), st.integers(-3, 3) | st.sampled_from([2**63 - 1, -(2**63)])),
    "floats": (pl.Float64(), st.sampled_from([0.0, -0.0, 1.5, -1.5, math.inf, -math.inf, math.nan, 5e-324])),
    "text": (pl.String(), st.sampled_from(["", "a", "b", "ab", "\x00", "ö"])),
    "booleans": (pl.Boolean(), st.booleans()),
    "bytes": (pl.Binary(), st.sampled_from([b"", b"a", b"\xff"])),
    "dates": (pl.Date(), st.sampled_from([date(1900, 1, 1), date(2020, 2, 29), date(2100, 1, 1)])),
    "times": (
        pl.Datetime("us", "UTC"),
        st.integers(0, 3).map(lambda second: datetime(2020, 1, 1, 0, 0, second, tzinfo=UTC)),
    ),
    "durations": (pl.Duration("us"), st.integers(-2, 2).map(timedelta)),
    "clock times": (pl.Time(), st.sampled_from([time(0), time(12, 0, 0, 1), time(23, 59)])),
    "decimals": (pl.Decimal(38, 2), st.sampled_from([Decimal("-1.50"), Decimal("0.00"), Decimal("2.25")])),
    "wide integers": (pl.Int128(), st.sampled_from([-(2**127), 0, 2**127 - 1])),
    "short floats": (pl.Float32(), st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf])),
    "categories": (pl.Categorical(), st.sampled_from(["b", "a", "c"])),
    "enums": (pl.Enum(["a", "b", "c"]), st.sampled_from(["b", "a", "c"])),
}

EVERY: dict[str, Aggregate] = {
    "distinct": CountDistinct("v"),
    "about": ApproxCountDistinct("v"),
    "set": CollectSet("v"),
    "mode": Mode("v"),
    "best": ArgMax("v", by="by"),
    "worst": ArgMin("v", by="by"),
    "best rows": ArgMax(["v", "by"], by="by"),
    "worst rows": ArgMin(["v", "by"], by="by"),
    "most": ArgMax("by", by="v"),
    "top": Top("v", 2, by="by"),
    "top of itself": Top("v", 3),
    "top rows": Top(["by", "v"], 2, by="by"),
    "top by two": Top("v", 2, by=["by", "v"]),
    "best by two": ArgMax("flag", by=["by", "v"]),
    "best of itself": ArgMax("v", by="v"),
    "worst rows by two": ArgMin(["flag", "v", "by"], by=["by", "v"]),
    "top with ties": Top("v", 2, by="by", ties=True),
    "bottom with ties": Bottom(["v", "flag"], 1, by=["v", "by"], ties=True),
    "bottom": Bottom("v", 2, by="by"),
    "bottom of itself": Bottom("v", 3),
    "any": Some("flag"),
    "all": All("flag"),
}


def order(value: Any) -> Any:
    """Returns a sort key by which null is last, and NaN before it."""
    if isinstance(value, tuple | list):
        return [order(each) for each in value]
    if value is None:
        return (2, 0)
    return (1, 0) if value != value else (0, value)


def ranked(
    rows: list[Row], by: str | list[str], columns: list[str], greatest: bool, tied: int | None = None
) -> list[Any]:
    """Returns the values of these columns in the ranked rows, in order of rank and then of the values.

    `tied` keeps the first `tied` rows and all rows that tie with the last of them.
    """
    ranks = [by] if isinstance(by, str) else by
    there = [row for row in rows if all(row[by] is not None and row[by] == row[by] for by in ranks)]
    by_value = sorted(there, key=lambda row: [order(row[column]) for column in columns])
    in_order = sorted(by_value, key=lambda row: [row[by] for by in ranks], reverse=greatest)
    if tied is not None:
        last = in_order[:tied][-1:]
        in_order = [
            *in_order[:tied],
            *(
                row
                for row in in_order[tied:]
                if [row[by] for by in ranks] == [row[by] for row in last for by in ranks]
            ),
        ]
    if len(columns) == 1:
        return [row[columns[0]] for row in in_order]
    return [{column: row[column] for column in columns} for row in in_order]


def first(values: list[Any]) -> Any:
    return values[0] if values else None


def expected(rows: list[Row]) -> dict[str, Any]:
    """Computes each aggregate in plain Python."""
    known = [row["v"] for row in rows if row["v"] is not None]
    # That no number equals itself, but is one value.
    counts = Counter("nan" if value != value else value for value in known)
    distinct = sorted(
        (math.nan if value == "nan" and value not in known else value for value in counts), key=order
    )
    most = max(counts.values(), default=0)
    often = [v for v in distinct if counts["nan" if v != v else v] == most]
    flags = [row["flag"] for row in rows if row["flag"] is not None]
    return {
        "distinct": len(counts),
        "about": len(counts),
        "set": distinct,
        "mode": first(often),
        "best": first(ranked(rows, "by", ["v"], True)),
        "worst": first(ranked(rows, "by", ["v"], False)),
        "best rows": first(ranked(rows, "by", ["v", "by"], True)),
        "worst rows": first(ranked(rows, "by", ["v", "by"], False)),
        "most": first(ranked(rows, "v", ["by"], True)),
        "top": ranked(rows, "by", ["v"], True)[:2],
        "top of itself": ranked(rows, "v", ["v"], True)[:3],
        "top rows": ranked(rows, "by", ["by", "v"], True)[:2],
        "top by two": ranked(rows, ["by", "v"], ["v"], True)[:2],
        "best by two": first(ranked(rows, ["by", "v"], ["flag"], True)),
        "best of itself": first(ranked(rows, "v", ["v"], True)),
        "worst rows by two": first(ranked(rows, ["by", "v"], ["flag", "v", "by"], False)),
        "top with ties": ranked(rows, "by", ["v"], True, tied=2),
        "bottom with ties": ranked(rows, ["v", "by"], ["v", "flag"], False, tied=1),
        "bottom": ranked(rows, "by", ["v"], False)[:2],
        "bottom of itself": ranked(rows, "v", ["v"], False)[:3],
        "any": any(flags),
        "all": all(flags),
    }


@st.composite
def cases(draw: st.DrawFn) -> tuple[pl.Schema, list[list[Row]]]:
    """Draws columns, and rows in bundles."""
    dtype, values = draw(st.sampled_from(list(VALUES.values())))
    by, ranks = draw(st.sampled_from([VALUES[kind] for kind in ("integers", "floats", "text", "decimals")]))
    row = st.fixed_dictionaries(
        {
            "v": st.none() | values,
            "by": st.none() | ranks,
            "flag": st.none() | st.booleans(),
            EVENT_TIME: st.integers(0, 5),
        }
    )
    bundles = draw(st.lists(st.lists(row, max_size=5), min_size=1, max_size=4).filter(any))
    return pl.Schema({"v": dtype, "by": by, "flag": pl.Boolean()}), bundles


def same(one: Any, other: Any) -> bool:
    """True if two results are equal; NaN equals itself."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other or (one != one and other != other))


@law
@given(cases(), windowings)
def test_they_are_those_of_plain_python_however_elements_are_bundled(
    case: tuple[pl.Schema, list[list[Row]]], windowing: Windowing
) -> None:
    columns, bundles = case
    (pane,) = run_rows(EVERY, columns, bundles, windowing)
    wanted = expected([row for bundle in bundles for row in bundle])
    for name in EVERY:
        assert same(pane[name], wanted[name]), (name, pane[name], wanted[name])


ORDERLESS = {
    **EVERY,
    "sample": Sample("v", 2),
    "sample of rows": Sample(["v", "by"], 3),
}


@law
@given(cases(), windowings, st.randoms(use_true_random=False), st.integers(1, 5))
def test_neither_order_nor_bundles_show(
    case: tuple[pl.Schema, list[list[Row]]], windowing: Windowing, random: Any, size: int
) -> None:
    columns, bundles = case
    rows = [row for bundle in bundles for row in bundle]
    random.shuffle(rows)
    others = [rows[start : start + size] for start in range(0, len(rows), size)]
    first, second = (run_rows(ORDERLESS, columns, each, windowing) for each in (bundles, others))
    assert repr(first) == repr(second)  # to the sign of a zero


NOTHING: dict[str, Any] = {
    **dict.fromkeys(["distinct", "about"], 0),
    **dict.fromkeys(["mode", "best", "worst", "best rows", "worst rows", "most"]),
    **dict.fromkeys(["best by two", "best of itself", "worst rows by two"]),
    "any": False,
    "all": True,
}
"""Results for no elements; those that are not here are empty lists."""


def test_what_the_value_says_is_not_kept_twice() -> None:
    schema = pl.Schema({"v": pl.Int64(), "by": pl.Int64(), "text": pl.String()})
    assert list(ArgMax(["text", "v", "by"], by=["by", "v"]).parts(schema)) == ["value"]
    assert list(ArgMin("v", by="v").parts(schema)) == ["value"]
    assert list(ArgMax(["text", "v"], by=["by", "v"]).parts(schema)) == ["by", "value"]


def test_an_empty_pane_has_the_results_of_no_elements() -> None:
    # Discarding: after the early pane of the element, the one on time has nothing.
    windowing = Windowing(FixedWindows(us(10)), AfterWatermark(early=AfterCount(1)))
    columns = pl.Schema({"v": pl.Float64(), "by": pl.Int64(), "flag": pl.Boolean()})
    row = {"v": 1.0, "by": 2, "flag": False, EVENT_TIME: 1}
    aggregates = {**ORDERLESS, "median": Median("v"), "quantile": Quantile("by", 0.9)}
    nothing = {**{name: [] for name in ORDERLESS}, "median": None, "quantile": None, **NOTHING}
    early, on_time = run_rows(aggregates, columns, [[row]], windowing)
    assert on_time == nothing
    assert (early["best rows"], early["top rows"]) == ({"v": 1.0, "by": 2}, [{"by": 2, "v": 1.0}])


# Quantiles

NUMBERS: dict[str, tuple[pl.DataType, st.SearchStrategy[Any]]] = {
    "integers": (pl.Int64(), st.integers(-(2**53), 2**53)),
    "small": (pl.UInt8(), st.integers(0, 255)),
    "unsigned": (pl.UInt64(), st.integers(0, 2**64 - 1)),
    "decimals": (pl.Decimal(9, 2), st.decimals(-99, 99, places=2)),
    "floats": (pl.Float64(), st.floats()),
    "durations": (pl.Duration("us"), st.timedeltas(-timedelta(900), timedelta(900))),
}


def draw_numbers(kind: str, data: st.DataObject, q: float) -> tuple[dict[str, Any], list[Any]]:
    """Returns the quantiles of drawn elements, and the numbers among them in order."""
    dtype, values = NUMBERS[kind]
    row = st.fixed_dictionaries({"v": st.none() | values, EVENT_TIME: st.integers(0, 5)})
    bundles = data.draw(st.lists(st.lists(row, max_size=5), min_size=1, max_size=4).filter(any))
    aggregates = {"quantile": Quantile("v", q), "median": Median("v"), "near": ApproxQuantile("v", q)}
    (pane,) = run_rows(aggregates, pl.Schema({"v": dtype}), bundles, data.draw(windowings))
    known = [row["v"] for bundle in bundles for row in bundle if row["v"] is not None]
    unit = timedelta(microseconds=1)
    if kind == "durations":
        known = [value / unit for value in known]
        pane = {name: value if value is None else value / unit for name, value in pane.items()}
    return pane, sorted(float(value) for value in known if value == value)


SHARES = st.sampled_from([0, 0.25, 0.5, 0.9, 1.0]) | st.floats(0, 1)


@pytest.mark.parametrize("kind", NUMBERS)
@law
@given(data=st.data(), q=SHARES)
def test_an_approximate_quantile_is_a_hundredth_away_at_most(
    kind: str, data: st.DataObject, q: float
) -> None:
    pane, numbers = draw_numbers(kind, data, q)
    wanted = numbers[math.floor(q * (len(numbers) - 1))] if numbers else None
    assert_near(pane["near"], wanted, rounded=kind == "durations")


@pytest.mark.parametrize("kind", NUMBERS)
@law
@given(data=st.data(), q=SHARES)
def test_quantiles_and_medians_are_exact(kind: str, data: st.DataObject, q: float) -> None:
    pane, numbers = draw_numbers(kind, data, q)
    for name, share in (("quantile", q), ("median", 0.5)):
        if not numbers:
            assert pane[name] is None
            continue
        place = share * (len(numbers) - 1)
        low, high = numbers[math.floor(place)], numbers[math.ceil(place)]
        if low == high or place == math.floor(place):
            assert pane[name] == low
        elif math.isinf(high - low):
            assert low <= pane[name] <= high or math.isnan(pane[name])
        else:
            wanted = low + (high - low) * (place - math.floor(place))
            assert math.isclose(
                pane[name],
                wanted,
                rel_tol=1e-12,
                abs_tol=1 if kind == "durations" else 1e-300 + (high - low) * 1e-12,
            )


def assert_near(found: float | None, wanted: float | None, rounded: bool) -> None:
    if wanted is None or found is None:
        assert found is wanted
    else:
        # The least of all floats have no neighbours within a hundredth.
        assert found == wanted or math.isclose(found, wanted, rel_tol=0.0100001, abs_tol=rounded or 1e-322)


# Samples


def test_a_sample_takes_rows_evenly_and_the_same_ones_again() -> None:
    rows = [[{"v": value, EVENT_TIME: value % 7} for value in range(start, 2_000, 4)] for start in range(4)]
    windowing = Windowing(FixedWindows(us(10)))
    (pane,) = run_rows({"some": Sample("v", 500)}, pl.Schema({"v": pl.Int64()}), rows, windowing)
    assert len(set(pane["some"])) == 500
    assert 900 < sum(pane["some"]) / 500 < 1_100
    assert pane["some"][:4] == SAMPLE


SAMPLE = [0, 168, 412, 454]
"""Samples are in savepoints, so they must be the same in every version."""


def test_a_sample_has_nulls_and_rows_that_are_equal() -> None:
    rows = [{"v": None, EVENT_TIME: 1}] * 3
    panes = run_rows(
        {"some": Sample("v", 2)}, pl.Schema({"v": pl.Int64()}), [rows], Windowing(FixedWindows(us(10)))
    )
    assert panes == [{"some": [None, None]}]


# About how many

MANY = (4_000, 4_095, 4_096, 20_000, 300_000)


@pytest.mark.parametrize("dtype", [pl.Int64(), pl.String(), pl.Float64()], ids=str)
def test_a_distinct_count_is_about_right(dtype: pl.DataType) -> None:
    aggregate = ApproxCountDistinct("v")
    schema = pl.Schema({"v": dtype})
    for many in MANY:
        values = pl.Series("v", range(many)).cast(dtype)
        rows = (
            pl.concat([values, values[: many // 3]])
            .to_frame()
            .with_columns(bundle=pl.int_range(pl.len()) % 5)
        )
        acc = {part: pl.col(part) for part in aggregate.parts(schema)}
        lifted = rows.select("bundle", **aggregate.lift(schema))
        merged = lifted.group_by("bundle").agg(**aggregate.merge(acc))
        whole = merged.group_by(pl.lit(0)).agg(**aggregate.merge(acc))
        count = whole.select(aggregate.extract(acc, schema)).item()
        assert count == many if many < 4_096 else abs(count / many - 1) < 0.04, many


# Refusals


@pytest.mark.parametrize(
    ("aggregate", "message"),
    [
        (
            CountDistinct("list"),
            r"count_distinct\('list'\) needs a column of numbers, text, booleans or times, but",
        ),
        (Mode("list"), r"mode\('list'\) needs a column of numbers, text"),
        (
            Quantile("text", 0.5),
            r"quantile\('text'\) needs a column of numbers or durations, but the column is String",
        ),
        (Some("text"), r"any\('text'\) needs a Boolean column, but the column is String"),
        (Top("list", 3, by="v"), r"top\('list'\) needs a column of numbers, text, booleans or times"),
        (Top("v", 3, by="list"), r"top\('list'\) needs a column of numbers, text, booleans or times"),
        (Top(["v", "text"], 3), r"top of several columns needs by=, the column that says which rows"),
        (ArgMin("v", by="list"), r"arg_min\('list'\) needs a column of numbers"),
    ],
)
def test_a_column_of_the_wrong_type_is_a_type_error(aggregate: Aggregate, message: str) -> None:
    schema = pl.Schema({"v": pl.Int64(), "text": pl.String(), "list": pl.List(pl.Int64())})
    with pytest.raises(TypeError, match=message):
        aggregate.dtype(schema)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Top("v", 0), "top: n must be a whole number of at least 1, not 0"),
        (lambda: Sample("v", 2.5), "sample: n must be a whole number of at least 1, not 2.5"),
        (lambda: Bottom("v", True), "bottom: n must be a whole number of at least 1, not True"),
        (lambda: Top("v", 2**70), "top: n must be at most 4,294,967,296, not 1,180,591,620,717,411,303,424"),
        (lambda: ArgMax([], by="v"), r"arg_max: column must be a column, or several, each once, not \[\]"),
        (lambda: ArgMax("v", by=[]), r"arg_max: by must be a column, or several, each once, not \[\]"),
        (lambda: Top(["v", "v"], 2, by="v"), r"top: column must be .*, each once, not \['v', 'v'\]"),
        (lambda: Quantile("v", 95), "quantile: q must be from 0 to 1, such as 0.99, not 95"),
        (lambda: ApproxQuantile("v", 95), "approx_quantile: q must be from 0 to 1, such as 0.99, not 95"),
        (lambda: Quantile("v", "0.5"), "quantile: q must be from 0 to 1, such as 0.99, not '0.5'"),
    ],
)
def test_numbers_that_mean_nothing_are_refused(make: Callable[[], Aggregate], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        make()
