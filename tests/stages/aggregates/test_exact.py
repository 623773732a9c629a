"""Exact sums equal sums of fractions that are rounded once."""

from __future__ import annotations

import math
import sys
from decimal import Decimal
from fractions import Fraction
from random import Random

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stages.aggregates import exact
from stages.aggregates.totals import FiniteMean, FiniteSum, Mean

FINITE = st.floats(allow_nan=False, allow_infinity=False)
NUMBERS = st.one_of(FINITE, st.floats(-1e3, 1e3), st.integers(-(2**60), 2**60).map(float))
SCHEMA = pl.Schema({"x": pl.Float64()})
MOST = sys.float_info.max
SMALLEST = 2.0**-1000
"""Quotients below the least normal float are rounded twice."""


def nearest(number: Fraction) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf  # copysign would make a float of the number, too


def folded(aggregate: FiniteSum | Mean, bundles: list[list[object]], schema: pl.Schema) -> object:
    """Returns the aggregate of the values of column `x`, merged bundle by bundle."""
    parts = aggregate.parts(schema)
    columns = {name: pl.col(name) for name in parts}
    merge = aggregate.merge(columns)
    state = pl.DataFrame([{name: part.empty for name, part in parts.items()}], _dtypes(aggregate, schema))
    for bundle in bundles:
        lifted = pl.DataFrame({"x": bundle}, schema).select(**aggregate.lift(schema))
        together = pl.concat([state, lifted.cast(dict(_dtypes(aggregate, schema)))])
        state = together.group_by(pl.lit(0).alias("")).agg(**merge).select(list(parts))
    return state.select(aggregate.extract(columns, schema)).item()


def _dtypes(aggregate: FiniteSum | Mean, schema: pl.Schema) -> pl.Schema:
    return pl.Schema({name: part.dtype for name, part in aggregate.parts(schema).items()})


@example([[MOST], [MOST, 1.0]])
@example([[-MOST, -MOST], [0.3]])
@given(st.lists(st.lists(NUMBERS, max_size=8), min_size=1, max_size=4))
def test_sums_and_means_are_those_of_fractions_however_floats_are_bundled(bundles: list[list[float]]) -> None:
    numbers = [Fraction(number) for bundle in bundles for number in bundle]
    assert folded(FiniteSum("x"), bundles, SCHEMA) == nearest(sum(numbers, Fraction()))
    mean = folded(FiniteMean("x"), bundles, SCHEMA)
    if not numbers:
        assert mean is None
    elif abs(expected := nearest(sum(numbers) / len(numbers))) > SMALLEST or expected == 0:
        assert mean == expected


@given(st.lists(NUMBERS, max_size=6), st.lists(NUMBERS, max_size=6), st.randoms())
def test_of_floats_that_are_taken_back_nothing_is_left(
    kept: list[float], gone: list[float], random: Random
) -> None:
    aggregate = FiniteSum("x")
    lifted = aggregate.lift(SCHEMA)
    undone = aggregate.negated(lifted, SCHEMA)
    columns = {name: pl.col(name) for name in lifted}
    rows = [(number, lifted) for number in (*kept, *gone)] + [(number, undone) for number in gone]
    random.shuffle(rows)
    accumulators = [pl.DataFrame({"x": [number]}, SCHEMA).select(**lift) for number, lift in rows]
    empty = pl.DataFrame({"x": []}, SCHEMA).select(**lifted)
    merged = pl.concat([empty, *accumulators], how="vertical_relaxed")
    merged = merged.group_by(pl.lit(0).alias("")).agg(**aggregate.merge(columns))
    expected = nearest(sum(map(Fraction, kept), Fraction()))
    assert merged.select(aggregate.extract(columns, SCHEMA)).to_series().to_list() in ([expected], [])
    assert len(merged) or not kept


@given(
    st.sampled_from([pl.Int64(), pl.UInt64(), pl.Int128(), pl.Int8(), pl.UInt128()]),
    st.data(),
)
def test_means_of_integers_are_those_of_fractions(dtype: pl.DataType, data: st.DataObject) -> None:
    bits = {pl.Int8(): 7, pl.Int64(): 63, pl.UInt64(): 64, pl.Int128(): 127, pl.UInt128(): 128}[dtype]
    integers = st.integers(0 if dtype.is_unsigned_integer() else -(2**bits), 2**bits - 1)
    bundles = data.draw(st.lists(st.lists(integers, min_size=1, max_size=6), min_size=1, max_size=4))
    numbers = [number for bundle in bundles for number in bundle]
    assert folded(Mean("x"), bundles, pl.Schema({"x": dtype})) == float(Fraction(sum(numbers), len(numbers)))


@pytest.mark.parametrize(
    ("aggregate", "dtype", "great"),
    [
        (Mean("x"), pl.Int64(), 2**60),
        (Mean("x"), pl.UInt128(), 2**127),
        (Mean("x"), pl.Decimal(38, 2), Decimal("1e35")),
        (FiniteMean("x"), pl.Float64(), 1e300),
        (FiniteMean("x"), pl.Float64(), 0.1),
    ],
)
def test_a_window_of_nulls_has_no_mean_beside_one_that_is_divided_exactly(
    aggregate: Mean, dtype: pl.DataType, great: object
) -> None:
    schema = pl.Schema({"x": dtype})
    columns = {name: pl.col(name) for name in aggregate.parts(schema)}
    rows = pl.DataFrame({"x": [great, None, great]}, schema)
    accumulators = rows.select(**aggregate.lift(schema)).cast(dict(_dtypes(aggregate, schema)))
    means = accumulators.select(aggregate.extract(columns, schema)).to_series()
    assert means.to_list() == [float(str(great)), None, float(str(great))]


@given(st.lists(FINITE.filter(bool), min_size=1, max_size=20))
def test_limbs_of_floats_have_their_values(numbers: list[float]) -> None:
    limbs = pl.DataFrame({"x": numbers}).select(exact.limbs_of(pl.col("x"))).to_series()
    for number, items in zip(numbers, limbs, strict=True):
        there = pl.DataFrame(items.struct.unnest()).rows()
        assert sum(limb * Fraction(2) ** (exact.BITS * place) for place, limb in there) == Fraction(number)
        assert len(there) <= 4
