"""The distribution of the lateness of elements, learned from histograms of the event times of batches.

The lateness of an element is how far it is behind the newest element of all earlier batches; 0 if it is newer. It
decides whether the element is late, since elements are compared with the watermark before their batch.
"""

from __future__ import annotations

from typing import Any, Final

from stages.strategies.histogram import Histogram

Lateness = dict[str, Any]
"""`{"newest", "weights"}`: the newest event time (us), and sorted pairs (bucket of lateness, weight of elements)."""

HALF_LIFE: Final = 3_600_000_000
"""An hour of event time, in microseconds: after it, the weight of an element is half."""

_FINE: Final = 5
"""The binary logarithm of the number of buckets for each doubling of lateness: a quantile is at most 1/32 too large."""

_FORGOTTEN: Final = 1e-9
"""The weight up to which a bucket is removed."""


def learn(lateness: Lateness, batch: Histogram, half_life: int) -> Lateness:
    """Adds a batch to the distribution. An element has weight 1, which halves with each `half_life` (us) of event time.

    From the first batch only the newest time is learned, since lateness is relative to earlier batches.
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
    """Returns the lateness (us) that this share of elements do not exceed; None if nothing has been learned.

    It is never too small. It is too large by at most 1/32 and the width of a bucket of event times.
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
    """Returns the newest event time minus the quantile `share` of lateness (us); None if nothing has been learned."""
    late = quantile(lateness, share)
    return None if late is None else int(lateness["newest"]) - late


def levels(lateness: Lateness) -> tuple[list[int], list[float]]:
    """Returns the learned values of lateness (us) in order, none too small, and the weight of the elements of each."""
    weights = lateness.get("weights", [])
    return [_most(bucket) for bucket, _ in weights], [weight for _, weight in weights]


def _bucket(behind: int) -> int:
    """Returns the bucket of a lateness (us): exact below 64 us, then 32 buckets for each doubling."""
    # Integer arithmetic gives the same result on all machines.
    shift = max(0, behind.bit_length() - _FINE - 1)
    return (shift << _FINE) + (behind >> shift)


def _most(bucket: int) -> int:
    """Returns the greatest lateness (us) that belongs to a bucket, the inverse of `_bucket`."""
    shift = max(0, (bucket >> _FINE) - 1)
    return ((bucket - (shift << _FINE) + 1) << shift) - 1
