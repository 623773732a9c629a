"""Exact sums of numbers and of their squares in limbs (superaccumulators), and the variance that follows from them.

A float is divided into limbs of 26 bits, whose places are multiples of 26 from the point. Limbs are whole numbers, so
sums of them do not depend on the order, and a sum has the limbs of its greatest number and three below; lower limbs are
left out. That loses less than one part in 2**78 of the greatest number for each: much less than a rounded sum does.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

BITS: Final = 26
WIDTH: Final = 13
"""Numbers of a row: the place of the greatest limb, how many are no numbers, how many there are, two sums in limbs."""

_TOP, _WILD, _COUNT = 0, 1, 2
_SUM: Final = slice(3, 7)
"""The columns of the sum, whose first limb is at the place `top`."""
_SQUARES: Final = slice(7, 13)
"""The columns of the sum of squares, whose first limb is at the place `2 * top + 1`."""
_LEAST: Final = -42
"""The place of the greatest limb of 0: that of the least float."""
_ROOM: Final = 2
"""More limbs, above the first, that a sum of limbs needs: they are below 2**63."""


def of_numbers(values: Floats) -> Ints:
    """A row for each number."""
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


def added(rows: Ints, starts: Ints) -> Ints:
    """The sums of rows that are next to each other, from each start to the next."""
    tops = np.maximum.reduceat(rows[:, _TOP], starts)
    lower = np.repeat(tops, np.diff(starts, append=len(rows))) - rows[:, _TOP]
    lowered = rows.copy()
    for limbs, places in ((_SUM, lower), (_SQUARES, 2 * lower)):
        lowered[:, limbs] = _moved(rows[:, limbs], places)
    sums = np.add.reduceat(lowered, starts, axis=0)
    sums[:, _TOP] = tops
    return sums


def negated(rows: Ints) -> Ints:
    """Rows that undo these rows when they are added."""
    undone = -rows
    undone[:, _TOP] = rows[:, _TOP]
    return undone


def counts(rows: Ints) -> Ints:
    """The number of numbers in each row."""
    return rows[:, _COUNT]


def variance(rows: Ints) -> tuple[Floats, Ints]:
    """(the sample variance of each row as a number, the power of two by which it must be multiplied).

    It is NaN for fewer than two numbers, and if some are infinite or NaN.
    """
    count = counts(rows)
    in_limbs = np.stack([count >> BITS, count & (2**BITS - 1)], axis=1)
    total, squares = (_carried(rows[:, limbs], room=_ROOM) for limbs in (_SUM, _SQUARES))
    above = _product(in_limbs, squares)  # from the place 2 * top + 4, like the square of the sum
    below = _product(total, total)
    difference = -below
    difference[:, : above.shape[1]] += above
    spread = np.maximum(_number(_carried(difference, room=_ROOM)), 0.0)
    defined = (count > 1) & (rows[:, _WILD] == 0)
    pairs = np.where(defined, count.astype(np.float64) * (count - 1), np.nan)
    return spread / pairs, BITS * (2 * rows[:, _TOP] + 4 + _ROOM)


def _product(one: Ints, other: Ints) -> Ints:
    """Limbs of products, not carried: each is below 2**55 if both have at most seven."""
    product = np.zeros((len(one), one.shape[1] + other.shape[1] - 1), np.int64)
    for place in range(one.shape[1]):
        product[:, place : place + other.shape[1]] += one[:, place : place + 1] * other
    return product


def _carried(limbs: Ints, room: int) -> Ints:
    """Carries: the number stays, with limbs from 0 to 2**26, except the first, and with `room` more before it."""
    carried = np.concatenate([np.zeros((len(limbs), room), np.int64), limbs], axis=1)
    for place in range(carried.shape[1] - 1, 0, -1):
        carry = carried[:, place] >> BITS
        carried[:, place] -= carry << BITS
        carried[:, place - 1] += carry
    return carried


def _moved(limbs: Ints, places: Ints) -> Ints:
    """The limbs so many places lower; limbs below the last place are left out."""
    if not places.any():
        return limbs
    source = np.arange(limbs.shape[1]) - places[:, None]
    moved: Ints = np.where(source >= 0, np.take_along_axis(limbs, np.maximum(source, 0), axis=1), 0)
    return moved


def _number(limbs: Ints) -> Floats:
    """Converts limbs to a number whose whole part is the first limb."""
    number: Any = np.zeros(len(limbs))
    for place in range(limbs.shape[1] - 1, -1, -1):
        number = number / 2.0**BITS + limbs[:, place]
    return np.asarray(number, np.float64)
