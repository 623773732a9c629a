"""Plans that are played step by step, as test streams say."""

from __future__ import annotations

from beamlike.io.sources import ReadInSteps
from beamlike.plan.model import Plan


def steps_of(plan: Plan) -> int | None:
    """How many steps the longest test stream of the plan has; None if its sources are others."""
    streams = [source.source for source in plan.sources.values() if isinstance(source.source, ReadInSteps)]
    return max(len(stream.steps) for stream in streams) if streams else None
