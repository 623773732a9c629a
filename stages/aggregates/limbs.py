"""Sums of floats and of their squares in integer limbs (superaccumulators), and the variance computed from them.

A float is divided into limbs of 26 bits: the limb at place p has the value limb * 2**(26 * p). Limbs are integers, so
their sums do not depend on the order. A sum has the top limb of its greatest number and the three limbs below; lower
limbs are dropped. For each number this loses less than 2**-78 of the greatest number, much less than rounding does.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

BITS: Final = 26
WIDTH: Final = 13
"""The integers of a row: top place, number of infinities and NaNs, number of values, sum in limbs, squares in limbs."""

_TOP, _WILD, _COUNT = 0, 1, 2
_SUM: Final = slice(3, 7)
"""The limbs of the sum, from the highest one on, which is at the place `top`."""
_SQUARES: Final = slice(7, 13)
"""The limbs of the sum of squares, from the highest one on, which is at the place `2 * top + 1`."""
_LEAST: Final = -42
"""The top place of 0: that of the least positive float."""
_ROOM: Final = 2
"""The number of limbs above the top place that carries of a sum may need, since sums of limbs are below 2**63."""


def of_numbers(values: Floats) -> Ints:
    """Converts each number to a row of `WIDTH` integers."""
    known = np.isfinite(values)
    fraction, exponent = np.frexp(np.where(known, values, 0.0))
    top = np.where(fraction == 0, _LEAST, (exponent.astype(np.int64) - 1) // BITS)
    rows = np.zeros((len(values), WIDTH), np.int64)
    rows[:, _TOP], rows[:, _WILD], rows[:, _COUNT] = top, ~known, 1
    limbs = rows[:, _SUM]
    rest = np.ldexp(fraction, exponent - BITS * top)
    for place in range(3):  # 53 bits are in three limbs
        limbs[:, place] = np.trunc(rest)
        rest = (rest - limbs[:, place]) * 2.0**BITS
    rows[:, _SQUARES] = _carried(_product(limbs[:, :3], limbs[:, :3]), room=1)
    return rows


def of_integers(values: npt.NDArray[np.integer[Any]]) -> Ints:
    """Converts each integer of 64 bits, with or without sign, to a row of `WIDTH` integers that has all of its bits."""
    size = np.abs(values).view(np.uint64)
    rows = np.zeros((len(values), WIDTH), np.int64)
    rows[:, _TOP], rows[:, _COUNT] = 2, 1
    limbs = rows[:, _SUM]
    for place in range(3):
        limbs[:, place] = (size >> np.uint64(BITS * (2 - place))) & np.uint64(2**BITS - 1)
    limbs[values < 0] *= -1
    rows[:, _SQUARES] = _carried(_product(limbs[:, :3], limbs[:, :3]), room=1)
    return rows


def added(rows: Ints, starts: Ints) -> Ints:
    """Returns the sums of consecutive rows: one for each of `starts`, up to the next start."""
    tops = np.maximum.reduceat(rows[:, _TOP], starts)
    lower = np.repeat(tops, np.diff(starts, append=len(rows))) - rows[:, _TOP]
    lowered = rows.copy()
    for limbs, places in ((_SUM, lower), (_SQUARES, 2 * lower)):
        lowered[:, limbs] = _moved(rows[:, limbs], places)
    sums = np.add.reduceat(lowered, starts, axis=0)
    sums[:, _TOP] = tops
    return sums


def negated(rows: Ints) -> Ints:
    """Returns the negated rows, which undo these rows in a sum."""
    undone = -rows
    undone[:, _TOP] = rows[:, _TOP]
    return undone


def counts(rows: Ints) -> Ints:
    """Returns the number of values in each row."""
    return rows[:, _COUNT]


def variance(rows: Ints) -> tuple[Floats, Ints]:
    """Returns the sample variance of each row, as (number, exponent): the variance is number * 2**exponent.

    It is NaN for fewer than two values, and if one of them is infinite or NaN.
    """
    count = counts(rows)
    in_limbs = np.stack([count >> BITS, count & (2**BITS - 1)], axis=1)
    total, squares = (_carried(rows[:, limbs], room=_ROOM) for limbs in (_SUM, _SQUARES))
    # The highest limb of both products is at place 2 * top + 4.
    above = _product(in_limbs, squares)
    below = _product(total, total)
    difference = -below
    difference[:, : above.shape[1]] += above
    spread = np.maximum(_number(_carried(difference, room=_ROOM)), 0.0)
    defined = (count > 1) & (rows[:, _WILD] == 0)
    pairs = np.where(defined, count.astype(np.float64) * (count - 1), np.nan)
    return spread / pairs, BITS * (2 * rows[:, _TOP] + 4 + _ROOM)


def _product(one: Ints, other: Ints) -> Ints:
    """Returns the limbs of products, without carries. Each is below 2**55 if both factors have at most seven limbs."""
    product = np.zeros((len(one), one.shape[1] + other.shape[1] - 1), np.int64)
    for place in range(one.shape[1]):
        product[:, place : place + other.shape[1]] += one[:, place : place + 1] * other
    return product


def _carried(limbs: Ints, room: int) -> Ints:
    """Normalizes limbs by carrying: all except the highest are from 0 to 2**26 - 1. Adds `room` limbs at the top."""
    carried = np.concatenate([np.zeros((len(limbs), room), np.int64), limbs], axis=1)
    for place in range(carried.shape[1] - 1, 0, -1):
        carry = carried[:, place] >> BITS
        carried[:, place] -= carry << BITS
        carried[:, place - 1] += carry
    return carried


def _moved(limbs: Ints, places: Ints) -> Ints:
    """Moves the limbs of each row down by `places`; limbs below the last place are dropped."""
    if not places.any():
        return limbs
    source = np.arange(limbs.shape[1]) - places[:, None]
    moved: Ints = np.where(source >= 0, np.take_along_axis(limbs, np.maximum(source, 0), axis=1), 0)
    return moved


def _number(limbs: Ints) -> Floats:
    """Converts limbs to a float whose integer part is the highest limb."""
    number: Any = np.zeros(len(limbs))
    for place in range(limbs.shape[1] - 1, -1, -1):
        number = number / 2.0**BITS + limbs[:, place]
    return np.asarray(number, np.float64)
