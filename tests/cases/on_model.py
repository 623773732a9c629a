"""Cases of keyed state and timers on the naive model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.cases.case import Case, Outcome, us
from tests.cases.scripts import script_of
from tests.support.model_calls import Row
from tests.support.model_process import Model, Step
from tests.support.process_script import END


def on_model(case: Case) -> list[Outcome]:
    """Plays a case on the model, and returns the outcome of each step."""
    model = Model(script_of(case))
    outcomes = []
    for step in case.steps:
        watermark = END if step.get("watermark") == "end" else step.get("watermark")
        rows = map(_row, step.get("elements", []))
        outcomes.append(outcome(model.step(rows, watermark, step.get("processing_time"))))
    return outcomes


def _row(given: Mapping[str, Any]) -> Row:
    return Row(given.get("key", "k"), given.get("v"), given["at"], given.get("do"))


def outcome(step: Step) -> Outcome:
    """Converts a step of the model to an outcome."""
    out = [(one.value, us(one.time)) for one in step.out]
    return Outcome(out, step.late, step.letters, us(step.output_watermark), step.live)
