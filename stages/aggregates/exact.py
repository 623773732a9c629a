"""Exact sums of numbers as columns of whole numbers, and their correctly rounded totals and means.

A float is split into columns that are added up without an error, so a sum depends neither on the order of its elements,
nor on bundles, nor on elements that were retracted:

    whole   its whole part, if the float is below 2**80
    part    the remainder, in units of 2**-80, if the float is a multiple of that
    rest    limbs of other floats: (place, limb) pairs, each of the value limb * 2**(20 * place)

`total` and `mean` combine them and round once, to the nearest float and ties to even, as IEEE 754 does for a
single operation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stages.aggregates.base import Part
from stages.aggregates.lists import GROUP, merged

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Columns = dict[str, pl.Expr]

BITS: Final = 20
"""Bits of a limb. Sums of fewer than 2**43 limbs are within 64 bits."""

INTEGER: Final = pl.Int128()
LIMBS: Final = pl.List(pl.Struct({"place": pl.Int64(), "limb": pl.Int64()}))

_MASK: Final = 2**BITS - 1
_FRACTION: Final = 4
"""Places below the point in `part`."""
_WHOLE: Final = 9
"""Places above the point that a column of 128 bits needs, with room to carry."""
_QUOTIENT: Final = 6
"""Places below the last of a sum to which it is divided: more than 53 bits for any number of elements."""
_CARRIES: Final = 3
"""Places that a sum of limbs may have more than its elements."""
_ROWS: Final = 50_000
"""Totals that are computed at once, to bound memory."""
_CERTAIN: Final = 2**53
"""Whole numbers up to this are exact as floats."""

PARTS: Final[Mapping[str, Part]] = {
    "whole": Part(INTEGER, 0),
    "part": Part(INTEGER, 0),
    "rest": Part(LIMBS, ()),
}


def split(value: pl.Expr) -> tuple[Columns, pl.Expr]:
    """The columns `whole` and `part` of each float, and the float itself if it does not fit, else 0.

    Infinities and NaN do not fit; null is in neither column.
    """
    unit = 2.0 ** (BITS * _FRACTION)
    below = (value - value.truncate()) * unit
    fits = (value.abs() < 2.0**80) & (below == below.floor())
    fitting = pl.when(fits).then(value).otherwise(0.0)
    whole = fitting.truncate()
    part = (fitting - whole) * unit
    return {"whole": whole.cast(INTEGER), "part": part.cast(INTEGER)}, value - fitting


def integers(value: pl.Expr, dtype: pl.DataType) -> Columns:
    """The column `whole` of integers, and `high` of those of 128 bits; 0 for null."""
    if dtype not in (pl.Int128, pl.UInt128):
        return {"whole": value.cast(INTEGER).fill_null(0)}
    base = pl.lit(2 ** (BITS * _PLACES["high"]), dtype)
    columns = {"whole": value % base, "high": value // base}
    return {name: column.cast(INTEGER).fill_null(0) for name, column in columns.items()}


def limbs_of(beyond: pl.Expr) -> pl.Expr:
    """The column `rest` of floats; no limbs for null, 0, infinities and NaN."""
    return beyond.map_batches(_limbs, return_dtype=LIMBS, is_elementwise=True)


def negated(limbs: pl.Expr) -> pl.Expr:
    """Limbs that undo these when they are added."""
    place, limb = (pl.element().struct.field(name) for name in ("place", "limb"))
    return limbs.list.eval(pl.struct(place, -limb))


def added(limbs: pl.Expr) -> pl.Expr:
    """Adds up the limbs of a group, as an aggregation."""
    return merged(limbs, _added)


def total(whole: pl.Expr, part: pl.Expr, rest: pl.Expr) -> pl.Expr:
    """The sum as a float, rounded once."""
    return _rounded({"whole": whole, "part": part}, rest, None)


def mean(count: pl.Expr, whole: pl.Expr, rest: pl.Expr | None = None, **others: pl.Expr) -> pl.Expr:
    """The sum divided by `count`, rounded once; NaN if that is 0. `others` may be `part` and `high`.

    `high` is a column of whole numbers in units of 2**60.
    """
    return _rounded({"whole": whole, **others}, rest, count)


def _rounded(columns: Columns, rest: pl.Expr | None, count: pl.Expr | None) -> pl.Expr:
    given = {**columns, **({} if rest is None else {"rest": rest})}
    given |= {} if count is None else {"count": count}
    together = pl.struct(expression.alias(name) for name, expression in given.items())
    return together.map_batches(_floats, return_dtype=pl.Float64, is_elementwise=True)


_PLACES: Final = {"whole": 0, "part": -_FRACTION, "high": 3}
"""The place of the last limb of each column."""


def _floats(given: pl.Series) -> pl.Series:
    sums = given.struct.unnest()
    if "count" in sums.columns and _are_certain(sums):
        numbers = sums["whole"].cast(pl.Float64) / sums["count"].cast(pl.Float64)
        return numbers.alias(given.name)
    pieces = [_quotients(piece) for piece in sums.iter_slices(_ROWS)]
    return pl.Series(given.name, np.concatenate([np.empty(0), *pieces]), pl.Float64)


def _are_certain(sums: pl.DataFrame) -> bool:
    """True if all are whole numbers that are exact as floats, so that a division is rounded once."""
    zero = [pl.col(name) == 0 for name in ("part", "high") if name in sums.columns]
    none = [pl.col("rest").list.len() == 0] if "rest" in sums.columns else []
    small = pl.col("whole").is_between(pl.lit(-_CERTAIN, INTEGER), pl.lit(_CERTAIN, INTEGER))
    return bool(sums.select(pl.all_horizontal(small, *zero, *none).all()).item())


def _quotients(sums: pl.DataFrame) -> Floats:
    lowest, limbs = _dense(sums)
    negative = _carry(limbs)
    if "count" in sums.columns:
        # Polars gives null for rows of which the result is not wanted.
        counts = sums["count"].fill_null(0).to_numpy()
        limbs = np.concatenate([np.zeros((_QUOTIENT, len(sums)), np.int64), limbs])
        lowest -= _QUOTIENT
        _divide(limbs, np.maximum(counts, 1))
    else:
        counts = np.ones(len(sums), np.int64)
    numbers = _nearest(limbs, lowest)
    signed: Floats = np.where(negative, -numbers, numbers)
    signed[counts <= 0] = np.nan
    return signed


def _dense(sums: pl.DataFrame) -> tuple[int, Ints]:
    """(the lowest place, an array of limbs by place and row); limbs may be of any size."""
    columns = {name: place for name, place in _PLACES.items() if name in sums.columns}
    lowest, highest = min(columns.values()), max(columns.values()) + _WHOLE
    rest = _flat(sums["rest"]) if "rest" in sums.columns else None
    if rest is not None and len(rest):
        lowest = min(lowest, int(rest["place"].min()))  # type: ignore[arg-type]
        highest = max(highest, int(rest["place"].max()) + 1 + _CARRIES)  # type: ignore[arg-type]
    limbs = np.zeros((highest - lowest, len(sums)), np.int64)
    for name, place in columns.items():
        _spread(sums[name], limbs[place - lowest :])
    if rest is not None and len(rest):
        np.add.at(limbs, (rest["place"].to_numpy() - lowest, rest[GROUP].to_numpy()), rest["limb"].to_numpy())
    return lowest, limbs


def _flat(lists: pl.Series) -> pl.DataFrame:
    """A row for each limb, with the number of its list."""
    there = lists.alias("rest").to_frame().with_row_index(GROUP).filter(pl.col("rest").list.len() > 0)
    return there.explode("rest").unnest("rest")


def _spread(column: pl.Series, limbs: Ints) -> None:
    """Adds numbers of 128 bits to limbs, whose first row is the place of the last limb."""
    base = pl.lit(2**64, INTEGER)
    number = pl.col(column.name).fill_null(0)
    halves = column.to_frame().select(
        low=(number % base).cast(pl.UInt64), high=(number // base).cast(pl.Int64)
    )
    low, high = halves["low"].to_numpy(), halves["high"].to_numpy()
    for place in range(3):
        limbs[place] += ((low >> np.uint64(BITS * place)) & np.uint64(_MASK)).astype(np.int64)
    limbs[3] += (low >> np.uint64(3 * BITS)).astype(np.int64) | ((high & 0xFFFF) << 4)
    for place in range(4, 6):
        limbs[place] += (high >> (BITS * place - 64)) & _MASK
    limbs[6] += high >> (6 * BITS - 64)


def _carry(limbs: Ints) -> npt.NDArray[np.bool_]:
    """Makes each limb one of 20 bits, of the absolute value; True for numbers that are below 0."""
    _carry_up(limbs)
    negative: npt.NDArray[np.bool_] = limbs[-1] < 0
    if negative.any():
        limbs[:, negative] *= -1
        _carry_up(limbs)
    return negative


def _carry_up(limbs: Ints) -> None:
    for place in range(len(limbs) - 1):
        limbs[place + 1] += limbs[place] >> BITS
        limbs[place] &= _MASK


def _divide(limbs: Ints, counts: Ints) -> None:
    """Divides each number by its count, from the first limb to the last; a remainder marks the last one."""
    left = np.zeros_like(counts)
    for place in range(len(limbs) - 1, -1, -1):
        limbs[place], left = np.divmod((left << BITS) | limbs[place], counts)
    limbs[0] |= left > 0


def _nearest(limbs: Ints, lowest: int) -> Floats:
    """The floats that are nearest to numbers in limbs of 20 bits.

    Sixty bits from the first one on, with a mark in the last for all below them, round like the whole number.
    """
    rows = np.arange(limbs.shape[1])
    first = len(limbs) - 1 - np.argmax(limbs[::-1] != 0, axis=0)
    marked = np.zeros(len(rows), bool)
    for place in range(len(limbs)):
        marked |= (limbs[place] != 0) & (place < first - 3)
    top, second, third, fourth = (
        np.where(first >= lower, limbs[np.maximum(first - lower, 0), rows], 0) for lower in range(4)
    )
    room = BITS - np.frexp(top.astype(np.float64))[1]
    bits = ((top << 2 * BITS) | (second << BITS) | third) << room
    bits |= fourth >> (BITS - room)
    below = (fourth & ((1 << (BITS - room)) - 1)) != 0
    rounded = (bits | below | marked).astype(np.float64)
    with np.errstate(over="ignore"):  # infinite, then
        nearest: Floats = np.ldexp(rounded, BITS * (lowest + first - 2) - room)
    return nearest


def _limbs(values: pl.Series) -> pl.Series:
    """The limbs of each float that is not null; at most four."""
    there = (values.is_finite() & (values != 0)).fill_null(False)
    if not there.any():
        return pl.repeat([], len(values), dtype=LIMBS, eager=True)
    fraction, exponent = np.frexp(values.filter(there).to_numpy())
    place, shift = np.divmod(exponent.astype(np.int64) - 53, BITS)
    number = np.ldexp(np.abs(fraction), 53).astype(np.int64)
    sign = np.sign(fraction).astype(np.int64)
    # The last limb has what fits beside the shift, and the others follow.
    limbs = [(number << shift) & _MASK, *((number >> (BITS * above - shift)) & _MASK for above in (1, 2, 3))]
    rows = there.arg_true().to_numpy()
    items = pl.DataFrame(
        {
            GROUP: np.tile(rows, 4),
            "place": np.concatenate([place + above for above in range(4)]),
            "limb": np.concatenate([sign * limb for limb in limbs]),
        }
    )
    lists = _listed(items.filter(pl.col("limb") != 0).sort(GROUP, "place"))
    numbered = pl.DataFrame({GROUP: np.arange(len(values))})
    found = numbered.join(lists.cast({GROUP: pl.Int64}), on=GROUP, how="left", maintain_order="left")
    return found["limbs"].fill_null(pl.Series([[]], dtype=LIMBS)).alias(values.name)


def _listed(items: pl.DataFrame) -> pl.DataFrame:
    structs = items.select(GROUP, pl.struct("place", "limb").alias("limbs"))
    return structs.group_by(GROUP, maintain_order=True).agg("limbs")


def _added(items: pl.DataFrame) -> pl.DataFrame:
    sums = items.group_by(GROUP, "place").agg(pl.col("limb").sum())
    return sums.filter(pl.col("limb") != 0).sort(GROUP, "place")
