"""Histograms of times with bounded size. They are exact for few times, and can be merged without loss."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import polars as pl

Histogram = dict[str, Any]
"""`{"newest", "level", "buckets", "counts"}`: a count for each bucket, the times in `[b, b + 1) * 2**level` us.

"newest" is the greatest time.
"""

BUCKETS: Final = 256
"""The maximum number of buckets. A histogram of up to so many distinct times is exact."""


def histogram(times: pl.Series, counts: pl.Series | None = None) -> Histogram:
    """Computes the histogram of times (us) at the finest level with at most `BUCKETS`; `{}` if there are no times.

    `counts` is the weight of each time, by default 1.
    """
    if times.is_empty():
        return {}
    from stages.strategies.counting import bucket_counts  # numpy is slow to import

    level, buckets, found = bucket_counts(
        times.to_numpy(), BUCKETS, None if counts is None else counts.to_numpy()
    )
    return {
        "newest": times.max(),
        "level": level,
        "buckets": buckets.tolist(),
        "counts": found.tolist(),
    }


def merge_histograms(*parts: Histogram) -> Histogram:
    """Merges histograms. The result equals the histogram of all times together.

    The level of all times is at least that of any part, so detail that a part has lost is not needed.
    """
    parts = tuple(part for part in parts if part)
    if len(parts) < 2:
        return parts[0] if parts else {}
    level = max(part["level"] for part in parts)
    counts: Counter[int] = Counter()
    for part in parts:
        for bucket, count in zip(part["buckets"], part["counts"], strict=True):
            counts[bucket >> (level - part["level"])] += count
    while len(counts) > BUCKETS:
        level, counts = level + 1, _halved(counts)
    return _made(max(part["newest"] for part in parts), level, counts)


def coarser(times: Histogram, most: int) -> Histogram:
    """Returns the histogram at the finest level with at most `most` buckets."""
    if len(times.get("buckets", ())) <= most:
        return times
    level, counts = times["level"], Counter(dict(zip(times["buckets"], times["counts"], strict=True)))
    while len(counts) > most:
        level, counts = level + 1, _halved(counts)
    return _made(times["newest"], level, counts)


def _halved(counts: Counter[int]) -> Counter[int]:
    halved: Counter[int] = Counter()
    for bucket, count in counts.items():
        halved[bucket >> 1] += count
    return halved


def _made(newest: int, level: int, counts: Counter[int]) -> Histogram:
    ordered = sorted(counts.items())
    return {
        "newest": newest,
        "level": level,
        "buckets": [bucket for bucket, _ in ordered],
        "counts": [count for _, count in ordered],
    }


def percentile(times: Histogram, percent: int) -> int | None:
    """Returns the latest time (us) in a histogram before which there are at most `percent` % of its times; None if it
    is empty.

    The time is rounded down to the start of its bucket.
    """
    left = percent * sum(times.get("counts", ())) // 100
    for bucket, count in zip(times.get("buckets", ()), times.get("counts", ()), strict=True):
        left -= count
        if left < 0:
            return int(bucket << times["level"])
    return None
