"""The arrivals of a source in a batch: a histogram of the event times of each split, for predictions.

A record keeps them in a compact form of bounded size. Watermarks do not depend on them.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate, pairwise
from typing import Any, Final

import polars as pl

from stages.progress.logs import TimeOrderedLogs
from stages.progress.splits import WHOLE, SourceSummary, newest_of_splits, split_name
from stages.strategies.base import BoundedOutOfOrderness, Summary, WatermarkStrategy
from stages.strategies.histogram import BUCKETS, Histogram, coarser, histogram, merge_histograms
from windowing.columns import EVENT_TIME

Arrivals = SourceSummary
"""A summary by split: `{"times": a histogram of event times}`.

In a large batch it is `{"newest": the newest event time (us)}`.
If rows of several splits are counted together, the histogram is that of `MIXED`. `"over": True` is added if the split
was read to its end.
"""

MOST_SPLITS: Final = 64
"""The greatest number of splits with a name. More are not told apart."""

MIXED: Final = "\x1f"
"""The name of the histogram of several splits together. No split has this name."""

TOO_MANY: Final = "\x1f\x1f"
"""The name of the histogram of all splits, if there are so many that they are not told apart."""

_MOST_ROWS: Final = 20_000
"""The greatest number of rows that are divided by split, which costs several times as much as counting them."""

_LEAST_BUCKETS: Final = 8


def arrivals(strategy: WatermarkStrategy, frame: pl.DataFrame, file: str, summary: SourceSummary) -> Arrivals:
    """Returns the arrivals of rows, of which `summary` is the summary. Rows with times of arrival have none."""
    if frame.is_empty() or strategy.assigns_event_time:
        return {}
    if not isinstance(strategy.per_split, str):
        return {WHOLE if strategy.per_split is None else file: _of(frame, summary)}
    if len(summary) > MOST_SPLITS:
        return {TOO_MANY: _of(frame, summary)}
    if strategy.learns_lateness:
        return {split: {"times": part["times"]} for split, part in summary.items()}
    if len(summary) == 1:
        return dict.fromkeys(summary, _of(frame, summary))
    if len(frame) <= _MOST_ROWS:
        parts = frame.select(strategy.per_split, EVENT_TIME).partition_by(strategy.per_split)
        return {split_name(part, strategy.per_split): _of(part) for part in parts}
    # The watermarks of splits depend only on their newest times, which most strategies have found already.
    found = summary if isinstance(strategy, _OF_NEWEST) else newest_of_splits(strategy.per_split, frame)
    return {MIXED: _of(frame, summary)} | {
        split: {"newest": part["own"]["newest"]} for split, part in found.items()
    }


_OF_NEWEST: Final = (BoundedOutOfOrderness, TimeOrderedLogs)


def _of(frame: pl.DataFrame, summary: SourceSummary | None = None) -> dict[str, Any]:
    """Returns the histogram of rows. If the source observes lateness, their `summary` has it already."""
    known = [part["observed"] for part in (summary or {}).values() if "observed" in part]
    return {"times": known[0] if known else histogram(frame[EVENT_TIME])}


def newest(part: Summary) -> int | None:
    """Returns the newest event time (us) of the rows of a split; None if it had none."""
    times = [part["newest"]] if "newest" in part else []
    times += [part["times"]["newest"]] if "times" in part else []
    return max(times, default=None)


def merge_arrivals(parts: Iterable[Arrivals]) -> Arrivals:
    """Merges the arrivals of the tasks of a batch."""
    merged: Arrivals = {}
    for part in parts:
        for split, found in part.items():
            merged[split] = _merged(merged[split], found) if split in merged else found
    return merged


def _merged(one: Summary, other: Summary) -> Summary:
    found = {**one, **other}
    if "newest" in one and "newest" in other:
        found["newest"] = max(one["newest"], other["newest"])
    if "times" in one and "times" in other:
        found["times"] = merge_histograms(one["times"], other["times"])
    return found


def to_record(found: Arrivals) -> dict[str, Any]:
    """Converts the arrivals of a batch to plain data with at most `BUCKETS` buckets, or a few for each split."""
    if TOO_MANY in found or len(found) > MOST_SPLITS + 1:
        found = {TOO_MANY: {"times": merge_histograms(*(part.get("times", {}) for part in found.values()))}}
    timed = sum("times" in part for part in found.values())
    most = max(_LEAST_BUCKETS, BUCKETS // max(1, timed))
    return {split: _packed(part, most) for split, part in sorted(found.items())}


def _packed(part: dict[str, Any], most: int) -> dict[str, Any]:
    packed: dict[str, Any] = {name: part[name] for name in ("over", "newest") if name in part}
    if times := coarser(part.get("times", {}), most):
        first, *_ = buckets = times["buckets"]
        gaps = [later - earlier for earlier, later in pairwise(buckets)]
        packed["times"] = [times["newest"], times["level"], first, gaps, times["counts"]]
    return packed


def from_record(packed: dict[str, Any]) -> Arrivals:
    """Reads the result of `to_record`."""
    return {split: _unpacked(part) for split, part in packed.items()}


def _unpacked(part: dict[str, Any]) -> dict[str, Any]:
    found = dict(part)
    if "times" in part:
        newest, level, first, gaps, counts = part["times"]
        buckets = [*accumulate(gaps, initial=first)]
        found["times"] = Histogram(newest=newest, level=level, buckets=buckets, counts=counts)
    return found


def merge_records(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Merges the arrivals of two consecutive batches, each as plain data."""
    if not one or not other:
        return one or other
    return to_record(merge_arrivals([from_record(one), from_record(other)]))
