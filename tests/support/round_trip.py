"""Writes a pipeline to a file, reads the file, and compares the plans."""

from __future__ import annotations

from typing import Final

import beamlike as bl
from beamlike.plan.compiler import compile_plan
from beamlike.plan.manifest import describe
from beamlike.plan.model import Plan
from beamlike.spec.files import read

ONLY_PYTHON: Final = (
    *("is in no module", "is for Python only", "cannot be written; make it in a module", "has a secret"),
    "values change in JSON",
)
"""The error for a pipeline that a file cannot have contains one of these texts."""


def require_same_from_file(pipeline: bl.Pipeline, plan: Plan) -> bool:
    """Compares a plan with the plan of its pipeline's file; False if only Python can express the pipeline."""
    try:
        text = pipeline.to_yaml()
    except bl.PlanError as error:
        if not any(reason in str(error) for reason in ONLY_PYTHON):
            raise
        return False
    again = read(text, "pipeline.yaml", {})
    assert describe(compile_plan(again), 1) == describe(plan, 1)
    assert again.to_yaml() == text
    return True
