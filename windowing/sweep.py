"""The sweep over windows that merge by overlap: sorts rows by key and start, and finds where a new window begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from windowing.columns import WINDOW_START

Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]

_FEW: Final = 6_000
"""The number of rows up to which numpy sorts faster than polars."""

_TWO_TO_64: Final = pl.lit(1 << 64, pl.Int128)
_LIMIT: Final = 2**63


def by_key_and_start(rows: pl.DataFrame, keys: Sequence[str]) -> tuple[pl.DataFrame, Flags]:
    """Sorts rows by key and start. Returns (sorted rows, mask of the first row of each key).

    The sort is stable: elements with equal event times stay in order of arrival.
    """
    # A sort by a single integer is several times faster than a sort by all columns, especially if keys are text. The
    # hash is halved, so that the integer of 128 bits cannot overflow.
    hashes = (
        rows[:, list(keys)].hash_rows().to_numpy() >> np.uint64(1) if keys else np.zeros(len(rows), np.uint64)
    )
    order = _order(hashes, rows[WINDOW_START].to_numpy())
    ordered, hashes = rows[pl.Series(order, dtype=pl.UInt32)], hashes[order]
    begins = begins_key(ordered, keys)
    if (begins[1:] & (hashes[1:] == hashes[:-1])).any():
        # Two keys have the same hash, so their rows may be mixed.
        ordered = rows.sort(*keys, WINDOW_START, maintain_order=True)
        begins = begins_key(ordered, keys)
    return ordered, begins


def _order(hashes: npt.NDArray[np.uint64], starts: Numbers) -> npt.NDArray[np.uint32]:
    """Returns the positions of rows in the order of hash, start and arrival."""
    if len(starts) <= _FEW:
        return np.lexsort((starts, hashes)).astype(np.uint32)
    rows = pl.DataFrame({"hash": hashes, "start": starts, "row": np.arange(len(starts), dtype=np.uint32)})
    by = pl.col("hash").cast(pl.Int128) * _TWO_TO_64 + pl.col("start")
    return rows.select(by.alias("by"), "row").sort("by", maintain_order=True)["row"].to_numpy()


def begins_key(ordered: pl.DataFrame, keys: Sequence[str]) -> Flags:
    """Returns a mask of the first row of each key. The rows of a key must be together."""
    begins = np.zeros(len(ordered), np.bool_)
    begins[:1] = True
    for key in keys:
        values = ordered[key]
        now, before = values[1:], values[:-1]
        differs = now.ne_missing(before) if values.null_count() else now != before
        begins[1:] |= differs.to_numpy()
    return begins


def begins_run(begins: Flags, starts: Numbers, ends: Numbers) -> Flags:
    """Returns a mask of the rows that begin a new window, because no earlier window of their key reaches their start.

    Args:
        begins: True for the first row of each key.
        starts: The starts (us) of the rows, in ascending order for each key.
        ends: The ends (us) of the rows.
    """
    # A running maximum of ends is needed only if a window ends before an earlier one of its key.
    if not (begins[1:] | (ends[1:] >= ends[:-1])).all():
        starts, ends = _offset_by_key(begins, starts, ends)
        ends = np.maximum.accumulate(ends)
    new = begins.copy()
    new[1:] |= starts[1:] >= ends[:-1]
    return new


def _offset_by_key(begins: Flags, starts: Numbers, ends: Numbers) -> tuple[Numbers, Numbers]:
    """Offsets times by key, so that all times of a key are greater than those of the key before.

    So a running maximum over all rows does not mix keys.
    """
    keys = np.cumsum(begins)
    least, width = int(starts.min()), int(ends.max()) - int(starts.min()) + 1
    if width * (int(keys[-1]) + 1) >= _LIMIT:
        # Offset times would overflow. Their ranks have the same order, and are smaller.
        times, ranks = np.unique(np.concatenate([starts, ends]), return_inverse=True)
        starts, ends = ranks[: len(starts)], ranks[len(starts) :]
        least, width = 0, len(times)
    shift = keys * width - least
    return starts + shift, ends + shift
