"""Refuses pickled objects in state that may be from elsewhere: loading one runs code that its writer chose."""

from __future__ import annotations

from collections.abc import Container

from beamlike.errors import CheckpointError, listed
from beamlike.plan.model import Plan


def pickled(plan: Plan) -> dict[str, list[str]]:
    """Returns, by stage, the aggregates and fields of the plan whose values are pickled objects of users."""
    found = {
        name: [one for kept in stage.stage.operator.tables for one in kept.table.pickled]
        for name, stage in plan.stages.items()
    }
    return {name: what for name, what in found.items() if what}


def require_trusted(plan: Plan, what: str, trust: bool, stages: Container[str] | None = None) -> None:
    """Raises `CheckpointError` if the plan would unpickle objects of `what`, which is not trusted.

    `stages` has the stages of which it has state; by default, any.
    """
    # The plan decides, and not the file, which may say anything.
    for stage, names in pickled(plan).items():
        if not trust and (stages is None or stage in stages):
            raise CheckpointError(
                f"{what} has pickled objects in the state of stage {stage!r}: {listed(names)}. To load them runs code "
                "that its writer chose. If you trust where it is from, give trust=True, or --trust to the command"
            )


def trust_option(plan: Plan) -> str:
    """Returns the option, after a blank, with which a command reads a savepoint of this plan that is the user's own."""
    return " --trust" if pickled(plan) else ""
