"""Plans whose sources are test streams. Each step of the streams is a batch."""

from __future__ import annotations

from beamlike.io.sources import ReadInSteps
from beamlike.plan.model import Plan


def steps_of(plan: Plan) -> int | None:
    """Returns the number of steps of the longest test stream; None if the plan has no test streams."""
    streams = [source.source for source in plan.sources.values() if isinstance(source.source, ReadInSteps)]
    return max(len(stream.steps) for stream in streams) if streams else None
