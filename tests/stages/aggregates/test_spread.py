"""Variance and standard deviation equal those of exact fractions, in any order and bundles."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.aggregates.base import Aggregate
from stages.aggregates.spread import Std, Var
from stages.grouping.grouping import Grouping
from stages.operator import MAIN
from stages.stage import Stage
from stages.state.store import DictStore
from tests.support.aggregated import Elements, law, run, windowings
from tests.support.model import MAX_TIME
from tests.support.strategies import us
from windowing import FixedWindows, Windowing
from windowing.clocks import Times
from windowing.columns import EVENT_TIME, PANE_RETRACTED

BOTH: dict[str, Aggregate] = {"var": Var("v"), "std": Std("v")}
FIXED = Windowing(FixedWindows(us(100)))

KINDS: dict[str, tuple[pl.DataType, st.SearchStrategy[Any]]] = {
    "small integers": (pl.Int8(), st.integers(-128, 127)),
    "integers": (pl.Int64(), st.integers(-(2**63), 2**63 - 1)),
    "great integers": (pl.Int64(), st.integers(2**62, 2**62 + 100)),
    "unsigned integers": (pl.UInt64(), st.integers(2**64 - 100, 2**64 - 1)),
    "floats": (pl.Float64(), st.floats(-1e150, 1e150)),
    "floats that are near": (pl.Float64(), st.floats(1e9, 1e9 + 1e-3)),
    "least floats": (pl.Float64(), st.floats(-1e-300, 1e-300)),
    "short floats": (pl.Float32(), st.floats(width=32, allow_nan=False, allow_infinity=False)),
    "decimals": (pl.Decimal(4, 2), st.decimals(-99, 99, places=2)),
    "long decimals": (
        pl.Decimal(18, 2),
        st.integers(10**17, 10**17 + 999).map(lambda one: Decimal(one) / 100),
    ),
    "booleans": (pl.Boolean(), st.booleans()),
}


def variance(values: list[Any]) -> Fraction | None:
    """Returns the exact variance."""
    if len(values) < 2:
        return None
    exact = [Fraction(value) for value in values]
    mean = sum(exact) / len(exact)
    return sum((value - mean) ** 2 for value in exact) / (len(exact) - 1)


def root(number: Fraction) -> float:
    """Returns the square root, to the precision of a float."""
    bits = number.denominator.bit_length() - number.numerator.bit_length()
    up = max(0, bits + 120) // 2
    return float(Fraction(math.isqrt(int(number * 4**up)), 2**up))


def assert_near(found: float | None, wanted: float | None) -> None:
    if found is None or wanted is None:
        assert found is wanted
    else:
        assert math.isclose(found, wanted, rel_tol=1e-15, abs_tol=5e-324), (found, wanted)


@pytest.mark.parametrize("kind", KINDS)
@law
@given(data=st.data())
def test_they_are_those_of_exact_fractions(kind: str, data: st.DataObject) -> None:
    dtype, values = KINDS[kind]
    elements = st.tuples(st.none() | values, st.integers(0, 5))
    bundles = data.draw(st.lists(st.lists(elements, max_size=5), min_size=1, max_size=4).filter(any))
    (pane,) = run(BOTH, dtype, bundles, data.draw(windowings))
    exact = variance([value for bundle in bundles for value, _ in bundle if value is not None])
    if exact is None:
        assert pane == {"var": None, "std": None}
    else:
        assert_near(pane["var"], float(exact))
        assert_near(pane["std"], root(exact))


@law
@given(
    st.lists(st.none() | st.floats() | st.integers(-9, 9).map(float), min_size=1, max_size=12),
    windowings,
    st.randoms(use_true_random=False),
    st.integers(1, 5),
)
def test_neither_order_nor_bundles_show(
    values: list[float | None], windowing: Windowing, random: Any, size: int
) -> None:
    elements: Elements = [(value, 1) for value in values]
    first = run(BOTH, pl.Float64(), [elements], windowing)
    random.shuffle(elements)
    bundles = [elements[start : start + size] for start in range(0, len(elements), size)]
    assert repr(run(BOTH, pl.Float64(), bundles, windowing)) == repr(first)


def test_what_is_no_number_makes_the_result_none() -> None:
    for value in (math.nan, math.inf, -math.inf):
        (pane,) = run(BOTH, pl.Float64(), [[(1.0, 1), (value, 1)], [(2.0, 1)]], FIXED)
        assert math.isnan(pane["var"])
        assert math.isnan(pane["std"])


def test_a_deviation_that_a_float_holds_is_there_where_the_variance_is_beyond() -> None:
    (pane,) = run(BOTH, pl.Float64(), [[(1e200, 1), (3e200, 1)]], FIXED)
    assert pane["var"] == math.inf
    assert_near(pane["std"], math.sqrt(2) * 1e200)


def test_many_values_far_from_zero_lose_no_digit() -> None:
    values = [1e12 + number % 7 / 8 for number in range(70_000)]
    bundles: list[Elements] = [[(value, 1) for value in values[start::3]] for start in range(3)]
    (pane,) = run(BOTH, pl.Float64(), bundles, FIXED)
    assert_near(pane["var"], float(variance(values) or 0))


@law
@given(st.lists(st.integers(-9, 9) | st.floats(-1e9, 1e9), min_size=1), st.data())
def test_what_is_taken_back_is_subtracted(values: list[float], data: st.DataObject) -> None:
    gone = data.draw(st.lists(st.sampled_from(values), max_size=4))
    rows = [(float(value), False) for value in [*values, *gone]] + [(float(value), True) for value in gone]
    played = data.draw(st.permutations(rows))
    stage, store = Stage("stage", Grouping((), FIXED, BOTH, pl.Schema({"v": pl.Float64()}))), DictStore()
    schema = {"v": pl.Float64, PANE_RETRACTED: pl.Boolean, EVENT_TIME: pl.Int64}
    for bundle in (played[:3], played[3:]):
        arrivals = pl.DataFrame([(*row, 1) for row in bundle], schema, orient="row")
        stage.step(store, {MAIN: arrivals}, Times.of(0))
    panes = stage.step(store, {MAIN: pl.DataFrame(schema=schema)}, Times.of(MAX_TIME)).panes
    (wanted,) = run(BOTH, pl.Float64(), [[(float(value), 1) for value in values]], FIXED)
    assert panes.select(list(BOTH)).rows(named=True) == [wanted]


def test_a_column_that_has_no_numbers_is_refused() -> None:
    for dtype in (pl.String(), pl.Duration("us")):
        with pytest.raises(TypeError, match=r"std\('v'\) needs a column of numbers, but the column is"):
            Std("v").dtype(pl.Schema({"v": dtype}))
    assert Var("v").dtype(pl.Schema({"v": pl.Decimal(9, 2)})) == pl.Float64()
