"""The numbers of exact sums: their limbs as arrays, rounded to the nearest floats."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stages.aggregates.exact_parts import BITS, INTEGER, LIMBS, PLACES
from stages.aggregates.lists import GROUP

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_MASK: Final = 2**BITS - 1
_WHOLE: Final = 9
"""The number of places above the binary point that a column of 128 bits needs, with room for carries."""
_QUOTIENT: Final = 6
"""The number of places that a quotient has below those of the sum: more than 53 bits for any count of elements."""
_CARRIES: Final = 3
"""The number of further places that carries of a sum of limbs may need."""
_ROWS: Final = 50_000
"""The number of totals that are computed at once, to bound memory."""
_CERTAIN: Final = 2**53
"""Integers up to this absolute value are exact as floats."""


def rounded_floats(given: pl.Series) -> pl.Series:
    sums = given.struct.unnest()
    if "count" in sums.columns and _are_certain(sums):
        numbers = sums["whole"].cast(pl.Float64) / sums["count"].cast(pl.Float64)
        return numbers.alias(given.name)
    pieces = [_quotients(piece) for piece in sums.iter_slices(_ROWS)]
    return pl.Series(given.name, np.concatenate([np.empty(0), *pieces]), pl.Float64)


def _are_certain(sums: pl.DataFrame) -> bool:
    """True if all sums are integers that are exact as floats, so that a plain division rounds only once."""
    zero = [pl.col(name) == 0 for name in ("part", "high") if name in sums.columns]
    none = [pl.col("rest").list.len() == 0] if "rest" in sums.columns else []
    small = pl.col("whole").is_between(pl.lit(-_CERTAIN, INTEGER), pl.lit(_CERTAIN, INTEGER))
    return bool(sums.select(pl.all_horizontal(small, *zero, *none).all()).item())


def _quotients(sums: pl.DataFrame) -> Floats:
    lowest, limbs = _dense(sums)
    negative = _carry(limbs)
    if "count" in sums.columns:
        # Polars may pass null counts for rows whose result it does not use.
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
    """Converts sums to an array of limbs by place and row; limbs may exceed 20 bits. Returns (lowest place, array)."""
    columns = {name: place for name, place in PLACES.items() if name in sums.columns}
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
    """Converts lists of limbs to a frame with a row for each limb; the column GROUP has the position of its list."""
    nonzero = lists.alias("rest").to_frame().with_row_index(GROUP).filter(pl.col("rest").list.len() > 0)
    return nonzero.explode("rest").unnest("rest")


def _spread(column: pl.Series, limbs: Ints) -> None:
    """Adds integers of 128 bits, one for each column of `limbs`, to the limbs in its first seven rows."""
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
    """Replaces numbers in limbs by their absolute values with limbs of 20 bits. Returns a mask of negative numbers."""
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
    """Divides each number by its count in place. If there is a remainder, the lowest bit is set, for rounding."""
    left = np.zeros_like(counts)
    for place in range(len(limbs) - 1, -1, -1):
        limbs[place], left = np.divmod((left << BITS) | limbs[place], counts)
    limbs[0] |= left > 0


def _nearest(limbs: Ints, lowest: int) -> Floats:
    """Converts numbers in limbs of 20 bits to the nearest floats."""
    # Only the 60 highest bits are converted. The last of them is set if any lower bit is set, so they are rounded in
    # the same way as all bits.
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
    with np.errstate(over="ignore"):  # the result is infinite then
        nearest: Floats = np.ldexp(rounded, BITS * (lowest + first - 2) - room)
    return nearest


def split_limbs(values: pl.Series) -> pl.Series:
    """Returns the limbs of each float, at most four. Null, 0, infinities and NaN have none."""
    nonzero = (values.is_finite() & (values != 0)).fill_null(False)
    if not nonzero.any():
        return pl.repeat([], len(values), dtype=LIMBS, eager=True)
    fraction, exponent = np.frexp(values.filter(nonzero).to_numpy())
    place, shift = np.divmod(exponent.astype(np.int64) - 53, BITS)
    number = np.ldexp(np.abs(fraction), 53).astype(np.int64)
    sign = np.sign(fraction).astype(np.int64)
    # The least limb has the lowest bits after the shift; the three limbs above it have the others.
    limbs = [(number << shift) & _MASK, *((number >> (BITS * above - shift)) & _MASK for above in (1, 2, 3))]
    rows = nonzero.arg_true().to_numpy()
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
