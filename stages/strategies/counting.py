"""Counts of times in buckets, computed with numpy."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Times: TypeAlias = "npt.NDArray[np.int64]"

_BITS: Final = 14
"""The binary logarithm of the number of places in which times are counted at once, which fit into a fast cache."""


def bucket_counts(times: Times, most: int, weights: Times | None = None) -> tuple[int, Times, Times]:
    """Counts times (us) in buckets of the finest level with at most `most` buckets that have times.

    Args:
        times: The times, in any order; at least one.
        most: The greatest number of buckets.
        weights: The weight of each time, by default 1.

    Returns:
        The level, the buckets in order, which have the times in `[b, b + 1) * 2**level`, and their counts.
    """
    level, buckets, found = _counted(times, most)
    up = bisect_left(range(64), True, key=lambda up: _occupied(buckets, up) <= most)
    level, buckets = level + up, buckets >> up
    first = np.flatnonzero(np.diff(buckets, prepend=buckets[0] - 1))
    buckets, found = buckets[first], np.add.reduceat(found, first)
    if weights is not None:
        found = np.zeros_like(buckets)
        np.add.at(found, np.searchsorted(buckets, times >> level), weights)
    return level, buckets, found


def _occupied(buckets: Times, up: int) -> int:
    return 1 + int(np.count_nonzero(np.diff(buckets >> up)))


def _counted(times: Times, most: int) -> tuple[int, Times, Times]:
    """Counts times at a level at which more than `most` buckets have some, or at level 0. Returns the level, the
    buckets with times in order, and their counts.
    """
    # Times are counted, not sorted, which is several times as fast. A far outlier makes the first level coarse; each
    # further pass divides only the few buckets that have times.
    least = int(times.min())
    level = max(0, (int(times.max()) - least).bit_length() - _BITS)
    first = least >> level
    places = (times >> level) - first
    counts = np.bincount(places)
    occupied = np.flatnonzero(counts)
    buckets = occupied + first
    while level > 0 and len(occupied) <= most:
        finer = min(level, _BITS - most.bit_length())
        level -= finer
        within = (1 << finer) - 1
        rank = np.cumsum(counts > 0) - 1
        places = (rank[places] << finer) + ((times >> level) & within)
        counts = np.bincount(places)
        occupied = np.flatnonzero(counts)
        buckets = (buckets[occupied >> finer] << finer) + (occupied & within)
    return level, buckets, counts[occupied]
