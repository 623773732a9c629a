"""The end of a run that would wait for input, but has only complete sources: no input can follow."""

from __future__ import annotations

from beamlike.plan.model import Plan
from beamlike.records.model import BatchRecord


def is_over(plan: Plan, last: BatchRecord | None) -> bool:
    """True if all sources of a plan are complete, or read as a whole, and were over after this batch."""
    if last is None or not plan.sources:
        return False
    return all(
        (source.complete or source.whole) and name in last.sources and last.sources[name].over
        for name, source in plan.sources.items()
    )
