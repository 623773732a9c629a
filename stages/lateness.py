"""How late elements are: a histogram of event times that tasks make, and what is learned of lateness from batches.

The lateness of an element is how far it lies behind the newest element of all batches before its own; one that is
newer has none. That is what decides whether it is late: the elements of a batch are judged by the watermark before it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import Any, Final

import polars as pl

Histogram = dict[str, Any]
"""`{"newest", "level", "buckets", "counts"}`: how many event times are in each `[bucket, bucket + 1) * 2**level` us."""

Lateness = dict[str, Any]
"""`{"newest", "weights"}`: pairs of a bucket of lateness and how much weighs what was in it, in order."""

BUCKETS: Final = 256
"""How many buckets a histogram has at most. Up to so many different event times it is exact."""

HALF_LIFE: Final = 3_600_000_000
"""An hour of event time, in microseconds: after it, what has been learned counts half."""

_FINE: Final = 5
"""Lateness has 2**5 buckets for each doubling: a quantile is at most 1/32 too large."""

_FORGOTTEN: Final = 1e-9


# What a task sees


def histogram(times: pl.Series) -> Histogram:
    """Of event times in microseconds, at the finest level that takes no more than `BUCKETS`; `{}` of none."""
    if times.is_empty():
        return {}
    ordered = times.sort()
    level = _finest_level(ordered)
    runs = (ordered // 2**level).rle().struct
    return {
        "newest": int(ordered[-1]),
        "level": level,
        "buckets": runs.field("value").to_list(),
        "counts": runs.field("len").to_list(),
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


def merge_histograms(one: Histogram, other: Histogram) -> Histogram:
    """The histogram of the event times of both: exactly what `histogram` gives for all of them together.

    A set has no finer level than a part of it, so what the parts have lost the whole does not need.
    """
    if not one or not other:
        return one or other
    level = max(one["level"], other["level"])
    counts: Counter[int] = Counter()
    for part in (one, other):
        for bucket, count in zip(part["buckets"], part["counts"], strict=True):
            counts[bucket >> (level - part["level"])] += count
    while len(counts) > BUCKETS:
        level += 1
        finer, counts = counts, Counter()
        for bucket, count in finer.items():
            counts[bucket >> 1] += count
    ordered = sorted(counts.items())
    return {
        "newest": max(one["newest"], other["newest"]),
        "level": level,
        "buckets": [bucket for bucket, _ in ordered],
        "counts": [count for _, count in ordered],
    }


# What is learned from batches


def learn(lateness: Lateness, batch: Histogram, half_life: int) -> Lateness:
    """What is known after a batch: an element weighs 1, and half as much with each `half_life` (us) of event time.

    Of the first batch only the newest is known: there is nothing yet that its elements could be behind.
    """
    if not batch:
        return lateness
    if not lateness:
        return {"newest": batch["newest"], "weights": []}
    before = lateness["newest"]
    newest = max(before, batch["newest"])
    kept = 2.0 ** -((newest - before) / half_life)
    weights: dict[int, float] = {bucket: weight * kept for bucket, weight in lateness["weights"]}
    for bucket, count in zip(batch["buckets"], batch["counts"], strict=True):
        behind = max(0, before - (bucket << batch["level"]))
        weights[_bucket(behind)] = weights.get(_bucket(behind), 0.0) + count
    known = [[bucket, weight] for bucket, weight in sorted(weights.items()) if weight > _FORGOTTEN]
    return {"newest": newest, "weights": known}


def quantile(lateness: Lateness, share: float) -> int | None:
    """A lateness (us) that this share of elements do not exceed; None where nothing has been learned.

    Never less than the least such lateness, and more by at most 1/32 and the width of a bucket of event times.
    """
    weights = lateness.get("weights", [])
    wanted = share * sum(weight for _, weight in weights)
    seen = 0.0
    for bucket, weight in weights:
        seen += weight
        if seen >= wanted:
            return _most(bucket)
    return None


def percentile_watermark(lateness: Lateness, share: float) -> int | None:
    """The newest event time less that quantile of lateness (us); None where nothing has been learned."""
    late = quantile(lateness, share)
    return None if late is None else int(lateness["newest"]) - late


def _bucket(behind: int) -> int:
    """The bucket of a lateness: exact below 64 us, then 32 for each doubling. In integers: alike on all machines."""
    shift = max(0, behind.bit_length() - _FINE - 1)
    return (shift << _FINE) + (behind >> shift)


def _most(bucket: int) -> int:
    """The largest lateness in a bucket."""
    shift = max(0, (bucket >> _FINE) - 1)
    return ((bucket - (shift << _FINE) + 1) << shift) - 1
