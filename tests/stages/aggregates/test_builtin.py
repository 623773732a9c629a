"""Every aggregate equals plain Python over a window's values, of any type and in any bundles."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, time, timedelta
from decimal import Context, Decimal
from typing import Any

import attrs
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.aggregates.base import Aggregate
from stages.aggregates.builtin import Collect, Count, First, Last, Max, Min, WindowLength
from stages.aggregates.totals import Mean, Sum
from stages.errors import StepError
from stages.grouping.grouping import Grouping
from stages.operator import MAIN
from stages.stage import Stage
from stages.state.store import DictStore
from tests.support.aggregated import Elements, law, run, windowings
from tests.support.model import MAX_TIME
from tests.support.strategies import us
from windowing import (
    AfterCount,
    AfterWatermark,
    FixedWindows,
    GlobalWindows,
    Sessions,
    SlidingWindows,
    WindowFn,
    Windowing,
)
from windowing.clocks import Times
from windowing.columns import EVENT_TIME, PANE_RETRACTED

NUMBERS: dict[str, Aggregate] = {"sum": Sum("v"), "mean": Mean("v")}
ORDERED: dict[str, Aggregate] = {"min": Min("v"), "max": Max("v")}
ANY: dict[str, Aggregate] = {
    "n": Count(),
    "n_values": Count("v"),
    "values": Collect("v"),
    "first": First("v"),
    "last": Last("v"),
}
EMPTY = {"n": 0, "n_values": 0, "values": [], "sum": 0}
"""Results for no elements; those that are not here are null."""


@attrs.frozen
class Kind:
    """A type of column: its values, the type of their sum, and the aggregates that accept it."""

    dtype: pl.DataType
    values: st.SearchStrategy[Any]
    summed: pl.DataType | None = None
    ordered: bool = True
    has_mean: bool = True

    def aggregates(self) -> dict[str, Aggregate]:
        numbers = dict(NUMBERS) if self.summed is not None else {}
        if not self.has_mean:
            numbers.pop("mean")
        return {**ANY, **numbers, **(ORDERED if self.ordered else {})}


floats = st.floats(-1e6, 1e6)
cents = st.decimals(-99, 99, places=2)
moments = st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1))

KINDS = {
    "small integers": Kind(pl.Int8(), st.integers(-128, 127), pl.Int64()),
    "integers": Kind(pl.Int64(), st.integers(-(2**58), 2**58), pl.Int64()),
    "unsigned integers": Kind(pl.UInt64(), st.integers(0, 2**59), pl.UInt64()),
    "wide integers": Kind(pl.Int128(), st.integers(-(2**100), 2**100), pl.Int128()),
    "floats": Kind(pl.Float64(), floats, pl.Float64()),
    "short floats": Kind(pl.Float32(), st.floats(-1e6, 1e6, width=32), pl.Float64()),
    "booleans": Kind(pl.Boolean(), st.booleans(), pl.Int64()),
    "decimals": Kind(pl.Decimal(4, 2), cents, pl.Decimal(38, 2)),
    "durations": Kind(
        pl.Duration("us"), st.timedeltas(-timedelta(900), timedelta(900)), pl.Duration("us"), has_mean=False
    ),
    "text": Kind(pl.String(), st.text(max_size=3)),
    "bytes": Kind(pl.Binary(), st.binary(max_size=3)),
    "dates": Kind(pl.Date(), moments.map(datetime.date)),
    "clock times": Kind(pl.Time(), st.times()),
    "times": Kind(pl.Datetime("us", "UTC"), moments.map(lambda moment: moment.replace(tzinfo=UTC))),
    "lists": Kind(pl.List(pl.Int64()), st.lists(st.none() | st.integers(-9, 9), max_size=2), ordered=False),
    "lists of lists": Kind(
        pl.List(pl.List(pl.String())),
        st.lists(st.lists(st.text(max_size=1), max_size=2), max_size=2),
        ordered=False,
    ),
    "structs": Kind(
        pl.Struct({"a": pl.Int64()}), st.fixed_dictionaries({"a": st.integers(-9, 9)}), ordered=False
    ),
}


def expected(elements: Elements, names: Sequence[str], zero: Any) -> dict[str, Any]:
    """Computes each aggregate in plain Python; aggregates of values skip nulls."""
    values = [value for value, _ in elements]
    known = [value for value in values if value is not None]
    arrived = list(enumerate(elements))
    plain: dict[str, Callable[[], Any]] = {
        "n": lambda: len(values),
        "n_values": lambda: len(known),
        "values": lambda: values,
        "first": lambda: min(arrived, key=lambda at: (at[1][1], at[0]))[1][0],
        "last": lambda: max(arrived, key=lambda at: (at[1][1], at[0]))[1][0],
        "sum": lambda: sum(known, zero),
        "mean": lambda: math.fsum(known) / len(known) if known else None,
        "min": lambda: min(known, default=None),
        "max": lambda: max(known, default=None),
    }
    return {name: plain[name]() for name in names}


def alike(found: Any, wanted: Any, largest: float = 0) -> bool:
    """True if values are equal; for floats nearly, because the order of additions affects digits of the `largest`."""
    if isinstance(found, float) and wanted is not None:
        return math.isclose(found, wanted, rel_tol=1e-9, abs_tol=max(1e-6, 1e-12 * largest))
    return bool(found == wanted)


@pytest.mark.parametrize("kind", KINDS)
@law
@given(data=st.data())
def test_aggregates_are_those_of_plain_python_however_elements_are_bundled(
    kind: str, data: st.DataObject
) -> None:
    of = KINDS[kind]
    elements = st.tuples(st.none() | of.values, st.integers(0, 5))  # few times: many ties
    bundles = data.draw(st.lists(st.lists(elements, max_size=4), min_size=1, max_size=4).filter(any))
    (pane,) = run(of.aggregates(), of.dtype, bundles, data.draw(windowings))
    zero = timedelta(0) if isinstance(of.dtype, pl.Duration) else 0
    wanted = expected([element for bundle in bundles for element in bundle], list(pane), zero)
    values = [value for bundle in bundles for value, _ in bundle if isinstance(value, int | float)]
    largest = max(map(abs, values), default=0)
    for name in pane:
        assert alike(pane[name], wanted[name], largest), (name, pane[name], wanted[name])


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_pane_has_the_results_of_no_elements(kind: str) -> None:
    # Discarding: after the early pane of the element, the one on time has nothing.
    aggregates = KINDS[kind].aggregates()
    zero = timedelta(0) if isinstance(KINDS[kind].dtype, pl.Duration) else 0
    nothing: dict[str, Any] = {**dict.fromkeys(aggregates), **EMPTY, "sum": zero}
    for windows in (FixedWindows(us(10)), Sessions(us(10))):
        windowing = Windowing(windows, AfterWatermark(early=AfterCount(1)))
        early, on_time = run(aggregates, KINDS[kind].dtype, [[(None, 1)]], windowing)
        assert on_time == {name: nothing[name] for name in aggregates}
        assert early == on_time | {"n": 1, "values": [None]}  # an element without a value


@pytest.mark.parametrize("kind", [kind for kind in KINDS if KINDS[kind].summed is not None])
def test_a_sum_is_wide_enough_to_add_up(kind: str) -> None:
    assert Sum("v").dtype(pl.Schema({"v": KINDS[kind].dtype})) == KINDS[kind].summed


def test_sums_of_small_types_do_not_overflow() -> None:
    windowing = Windowing(FixedWindows(us(10)))
    for dtype, value in ((pl.Int8(), 127), (pl.UInt8(), 255), (pl.Decimal(4, 2), Decimal("99.99"))):
        (pane,) = run({"s": Sum("v")}, dtype, [[(value, 1)] * 3, [(value, 2)] * 2], windowing)
        assert pane["s"] == value * 5


def test_of_equal_times_first_is_the_earlier_arrival_and_last_the_later_one() -> None:
    aggregates: dict[str, Aggregate] = {"first": First("v"), "last": Last("v")}
    for windows in (FixedWindows(us(10)), Sessions(us(10))):
        bundles: list[Elements] = [[("b", 3), ("a", 3)], [("d", 3), ("c", 3)]]
        assert run(aggregates, pl.String(), bundles, Windowing(windows)) == [{"first": "b", "last": "c"}]
        bundles = [[("late", 5)], [("early", 1), (None, 1), (None, 5)]]
        assert run(aggregates, pl.String(), bundles, Windowing(windows)) == [{"first": "early", "last": None}]


def test_the_length_of_a_window_is_in_seconds() -> None:
    length: dict[str, Aggregate] = {"length": WindowLength()}
    assert run(length, pl.Int64(), [[(1, 0)]], Windowing(FixedWindows("1.5s"))) == [{"length": 1.5}]
    apart: list[Elements] = [[(1, 0)], [(1, 40_000_000)]]
    assert run(length, pl.Int64(), apart, Windowing(Sessions("1m"))) == [{"length": 100.0}]


@pytest.mark.parametrize(
    ("aggregate", "dtype", "message"),
    [
        (
            Sum("v"),
            pl.String(),
            r"sum\('v'\) needs a column of numbers or durations, but the column is String",
        ),
        (Sum("v"), pl.Datetime("us"), r"sum\('v'\) needs a column of numbers or durations"),
        (Mean("v"), pl.Duration("us"), r"mean\('v'\) needs a column of numbers, but the column is Duration"),
        (Mean("v"), pl.Date(), r"mean\('v'\) needs a column of numbers"),
        (
            Min("v"),
            pl.List(pl.Int64()),
            r"min\('v'\) needs a column of numbers, text, booleans or times, but",
        ),
        (Max("v"), pl.Struct({"a": pl.Int64()}), r"max\('v'\) needs a column of numbers, text, booleans"),
        (
            Collect("v"),
            pl.Object(),
            r"collect\('v'\) needs values that can be stored, but the column is Object",
        ),
        (First("v"), pl.Object(), r"first\('v'\) needs values that can be stored"),
    ],
)
def test_a_column_of_the_wrong_type_is_a_type_error(
    aggregate: Aggregate, dtype: pl.DataType, message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        aggregate.dtype(pl.Schema({"v": dtype}))


@law
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 19)), max_size=6), max_size=4),
    st.sampled_from(
        [FixedWindows(us(20)), SlidingWindows(us(40), us(20)), GlobalWindows(), Sessions(us(20))]
    ),
)
def test_collect_keeps_the_order_of_arrival(bundles: list[list[tuple[int, int]]], windows: WindowFn) -> None:
    panes = run({"all": Collect("v")}, pl.Int64(), [list(bundle) for bundle in bundles], Windowing(windows))
    arrived = [value for bundle in bundles for value, _ in bundle]
    assert all(pane["all"] == arrived for pane in panes)
    assert bool(panes) == bool(arrived)


def test_clock_times_and_text_compare_as_in_python() -> None:
    bundle: Elements = [(time(13), 1), (time(2, 30), 2)]
    (pane,) = run(dict(ORDERED), pl.Time(), [bundle], Windowing(FixedWindows(us(9))))
    assert pane == {"min": time(2, 30), "max": time(13)}


# Sums at the limits

LIMITS: dict[pl.DataType, tuple[int, int]] = {
    pl.Int64(): (-(2**63), 2**63 - 1),
    pl.UInt64(): (0, 2**64 - 1),
    pl.Int128(): (-(2**127), 2**127 - 1),
    pl.UInt128(): (0, 2**128 - 1),
    pl.Decimal(38, 3): (1 - 10**38, 10**38 - 1),
    pl.Duration("us"): (-(2**63), 2**63 - 1),
}


def valued(stored: int, dtype: pl.DataType) -> Any:
    if isinstance(dtype, pl.Decimal):
        return Decimal(stored).scaleb(-dtype.scale, Context(prec=40))
    return timedelta(microseconds=stored) if isinstance(dtype, pl.Duration) else stored


@st.composite
def near_the_limits(draw: st.DrawFn) -> tuple[pl.DataType, list[list[int]]]:
    dtype = draw(st.sampled_from(list(LIMITS)))
    least, most = LIMITS[dtype]
    near = st.integers(0, 3)
    values = near.map(lambda n: most - n) | near.map(lambda n: least + n) | st.integers(least, most) | near
    return dtype, draw(st.lists(st.lists(values, max_size=4), min_size=1, max_size=4).filter(any))


@law
@given(near_the_limits(), windowings)
def test_a_sum_is_exact_or_an_error_whatever_its_parts_are_and_however_they_come(
    case: tuple[pl.DataType, list[list[int]]], windowing: Windowing
) -> None:
    dtype, bundles = case
    rows: list[Elements] = [[(valued(value, dtype), 1) for value in bundle] for bundle in bundles]
    total, (least, most) = sum(value for bundle in bundles for value in bundle), LIMITS[dtype]
    if least <= total <= most:
        assert run({"sum": Sum("v")}, dtype, rows, windowing) == [{"sum": valued(total, dtype)}]
    else:
        with pytest.raises(StepError, match=r"sum\('v'\) is "):
            run({"sum": Sum("v")}, dtype, rows, windowing)


@pytest.mark.parametrize("dtype", LIMITS, ids=str)
def test_what_is_taken_back_is_subtracted_exactly(dtype: pl.DataType) -> None:
    least, most = LIMITS[dtype]
    values = [most, most, least, most, most]
    rows = pl.DataFrame(
        {
            "v": pl.Series([valued(value, dtype) for value in values], dtype=dtype),
            EVENT_TIME: pl.Series([1] * 5, dtype=pl.Int64),
            PANE_RETRACTED: [False, False, False, True, True],
        }
    )
    grouping = Grouping((), Windowing(FixedWindows(us(10))), {"sum": Sum("v")}, pl.Schema({"v": dtype}))
    stage, store = Stage("stage", grouping), DictStore()
    stage.step(store, {MAIN: rows[3:]}, Times.of(0))
    panes = stage.step(store, {MAIN: rows[:3]}, Times.of(MAX_TIME)).panes
    assert panes["sum"].to_list() == [valued(least, dtype)]
