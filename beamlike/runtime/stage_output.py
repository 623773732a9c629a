"""Routes the output of a step: panes, dropped elements, and dead letters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import polars as pl

from beamlike.plan.model import StagePlan
from beamlike.plan.route import Output, Routed, apply_routes
from beamlike.rows.dead_letters import DeadLetterCounts, dead_letters, error_text
from stages.operator import Refused
from stages.stage import StageResult


def route_step(plan: StagePlan, step: StageResult) -> Iterator[tuple[Output, Routed]]:
    """The rows for each consumer, panes first. Raises the error of a user's function if dead letters fail the run."""
    if step.refused and plan.on_error == "fail":
        error = step.refused[0].errors[0]
        error.add_note(f"in step {plan.name!r}")
        raise error
    panes = _routed(plan, step.panes, "main")
    used = DeadLetterCounts(used=[plan.name] if step.used else ())
    yield "main", Routed(panes.frames, used.plus(panes.letters))
    yield "late", _routed(plan, step.late, "late")
    if step.refused:
        yield "dead_letters", _route_refused(plan, step.refused)


def _routed(plan: StagePlan, rows: pl.DataFrame, output: Output) -> Routed:
    """Routes rows. Most small batches have no panes, and steps take as long for no rows as for some."""
    if rows.is_empty():
        return Routed({})
    return apply_routes(rows, plan.routes, output=output, on_error=plan.on_error)


def _route_refused(plan: StagePlan, refused: Iterable[Refused]) -> Routed:
    """Routes refused rows, which are dead letters of the stage."""
    letters = pl.concat(
        dead_letters(plan.name, part.rows, [error_text(error) for error in part.errors]) for part in refused
    )
    routed = apply_routes(letters, plan.routes, output="dead_letters", on_error=plan.on_error)
    return Routed(routed.frames, DeadLetterCounts.of([letters]).plus(routed.letters))
