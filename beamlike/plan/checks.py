"""Checks of a compiled plan that need all of its parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from beamlike.errors import PlanError, listed
from beamlike.io.base import Source
from beamlike.io.sources import AcceptsCommits, ReadInSteps
from beamlike.logical.overlaps import require_apart
from beamlike.plan.model import Plan, SourcePlan, StagePlan
from stages.sides.declarations import side_name
from windowing.clocks import percentile_clock
from windowing.columns import EVENT_TIME


def require_sinks_apart(plan: Plan) -> None:
    """Raises `PlanError` if a sink writes to a place that a source reads."""
    sinks = {name: sink.sink for name, sink in plan.sinks.items()}
    for name, source in plan.sources.items():
        require_apart(source.source, sinks, name)


def require_one_clock(plan: Plan) -> None:
    """Raises `PlanError` for test streams together with other sources, because a test stream sets the clocks
    of the run.
    """
    own = [name for name, source in plan.sources.items() if isinstance(source.source, ReadInSteps)]
    others = [name for name in plan.sources if name not in own]
    if own and others:
        raise PlanError(
            f"it has a clock of its own, unlike {listed(map(repr, others))}; read all from test streams, or none",
            step=own[0],
        )


def require_read_once(plan: Plan) -> None:
    """Raises `PlanError` if a source that acknowledges its input is read twice: each reader would get only a
    part of it.
    """
    seen: list[tuple[str, Source]] = []
    for name, source in plan.sources.items():
        if not isinstance(source.source, AcceptsCommits):
            continue
        if before := [other for other, one in seen if one is source.source or one == source.source]:
            raise PlanError(
                f"it reads the same {type(source.source).__name__} as {before[0]!r}, and each would receive only "
                "a part of the rows; read it once, and set event time and watermark there",
                step=name,
            )
        seen.append((name, source.source))


def require_percentiles(plan: Plan) -> None:
    """Raises `PlanError` if a trigger waits for a percentile watermark that one of its sources does not compute."""
    for name, stage in plan.stages.items():
        upstream = plan.graph.upstream(name)
        sources = {source: plan.sources[source] for source in upstream if source in plan.sources}
        _require_percentiles(stage, sources)


def _require_percentiles(stage: StagePlan, sources: Mapping[str, SourcePlan]) -> None:
    clocks = stage.stage.operator.clocks
    for percentile in (number for number in range(1, 100) if percentile_clock(number) in clocks):
        unknown = [name for name, plan in sources.items() if percentile not in plan.watermark.percentiles]
        if unknown:
            raise PlanError(
                f"AfterWatermark(percentile={percentile}) waits for a watermark that {listed(map(repr, unknown))} does "
                f"not have; give its strategy percentiles=({percentile},), or let its TestStream announce it",
                step=stage.name,
            )


def require_known_ends(plan: Plan) -> None:
    """Raises `PlanError` for a side without event time that must be complete, if its source is not read before other
    input.
    """
    for name, stage in plan.stages.items():
        inputs = stage.stage.operator.inputs
        for role in (role for role, one in inputs.items() if one.read_fully and EVENT_TIME not in one.schema):
            elsewhere = [one for one in stage.reads(role) if not plan.sources[one].whole]
            if elsewhere:
                side, source = side_name(role), elsewhere[0]
                raise PlanError(
                    f"side {side!r} has no event time, and its source {source!r} also leads elsewhere, so "
                    "it is never known to be complete; read it once more for the side alone, or give it "
                    "timestamp= and watermark=",
                    step=name,
                )


CHECKS: Final[tuple[Callable[[Plan], None], ...]] = (
    require_known_ends,
    require_sinks_apart,
    require_one_clock,
    require_read_once,
    require_percentiles,
)
"""All checks, in their order. Each raises `PlanError`, which names the step."""
