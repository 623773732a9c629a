"""The lateness of elements, learned from the histograms of event times of batches.

The lateness of an element is its distance to the newest element of all batches before its own; 0 for a newer one.
It decides whether the element is late: the elements of a batch are compared with the watermark before the batch.
"""

from __future__ import annotations

from typing import Any, Final

from stages.strategies.histogram import Histogram

Lateness = dict[str, Any]
"""`{"newest", "weights"}`: pairs of a bucket of lateness and the weight of its elements, in order."""

HALF_LIFE: Final = 3_600_000_000
"""An hour of event time, in microseconds: after it, the weight of an element is half."""

_FINE: Final = 5
"""The binary logarithm of the buckets for each doubling of lateness: a quantile is at most 1/32 too large."""

_FORGOTTEN: Final = 1e-9


def learn(lateness: Lateness, batch: Histogram, half_life: int) -> Lateness:
    """The lateness after a batch: an element weighs 1, and half as much with each `half_life` (us) of event time.

    For the first batch only the newest time is known: its elements have no batch before them.
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
    """A lateness (us) that this share of elements do not exceed; None if nothing has been learned.

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
    """The newest event time less that quantile of lateness (us); None if nothing has been learned."""
    late = quantile(lateness, share)
    return None if late is None else int(lateness["newest"]) - late


def _bucket(behind: int) -> int:
    """The bucket of a lateness: exact below 64 us, then 32 for each doubling.

    Integers give the same on all machines.
    """
    shift = max(0, behind.bit_length() - _FINE - 1)
    return (shift << _FINE) + (behind >> shift)


def _most(bucket: int) -> int:
    """The largest lateness in a bucket."""
    shift = max(0, (bucket >> _FINE) - 1)
    return ((bucket - (shift << _FINE) + 1) << shift) - 1
