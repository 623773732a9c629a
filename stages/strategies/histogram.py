"""Histograms of times: of bounded size, exact for few times, and merged from parts without a loss."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import Any, Final

import polars as pl

Histogram = dict[str, Any]
"""`{"newest", "level", "buckets", "counts"}`: the weight of the times in each `[bucket, bucket + 1) * 2**level` us."""

BUCKETS: Final = 256
"""The buckets of a histogram, at most. Up to so many different times it is exact."""


def histogram(times: pl.Series, counts: pl.Series | None = None) -> Histogram:
    """The histogram of times in microseconds, at the finest level with at most `BUCKETS`; `{}` for no times.

    `counts` is the weight of each time, 1 by default.
    """
    if times.is_empty():
        return {}
    ordered = times.sort()
    level = _finest_level(ordered)
    weight = pl.len() if counts is None else pl.col("count").sum()
    rows = {"bucket": times // 2**level} | ({} if counts is None else {"count": counts})
    found = pl.DataFrame(rows).group_by("bucket").agg(weight.cast(pl.Int64).alias("count")).sort("bucket")
    return {
        "newest": int(ordered[-1]),
        "level": level,
        "buckets": found["bucket"].to_list(),
        "counts": found["count"].to_list(),
    }


def _finest_level(ordered: pl.Series) -> int:
    # At this level even a range without gaps fits, and most data have few gaps.
    coarse = max(0, ((int(ordered[-1]) - int(ordered[0])) // (BUCKETS - 1)).bit_length())
    if coarse == 0 or not _fits(ordered, coarse - 1):
        return coarse
    return bisect_left(range(coarse - 1), True, key=lambda level: _fits(ordered, level))


def _fits(ordered: pl.Series, level: int) -> bool:
    last = (ordered // 2**level).rle_id()[-1]
    return int(last) < BUCKETS


def merge_histograms(*parts: Histogram) -> Histogram:
    """The histogram of all their times: exactly what `histogram` returns for all of them together.

    A set has no finer level than a part of it, so the whole does not need what the parts have lost.
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
        level += 1
        finer, counts = counts, Counter()
        for bucket, count in finer.items():
            counts[bucket >> 1] += count
    ordered = sorted(counts.items())
    return {
        "newest": max(part["newest"] for part in parts),
        "level": level,
        "buckets": [bucket for bucket, _ in ordered],
        "counts": [count for _, count in ordered],
    }


def percentile(times: Histogram, percent: int) -> int | None:
    """The latest of the times (us) that at most so many percent of them, fewer than all, are before; None for no times.

    If a time shares its bucket with others, it is the beginning of the bucket.
    """
    left = percent * sum(times.get("counts", ())) // 100
    for bucket, count in zip(times.get("buckets", ()), times.get("counts", ()), strict=True):
        left -= count
        if left < 0:
            return int(bucket << times["level"])
    return None
