"""The naive model of keyed state and timers, on cases whose values were derived by hand or come from other systems."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.cases.case import Case, Outcome, load, us
from tests.cases.compare import compare
from tests.cases.scripts import script_of
from tests.support.model_process import Endless, Model, Row, Step
from tests.support.places import ROOT
from tests.support.process_script import END

FILES = [ROOT / "tests" / "cases" / name for name in ("examples.yaml", "process.yaml")]
ALL = [case for file in FILES for case in load(file) if case.kind == "process"]
CASES = [case for case in ALL if case.error is None]


def _outcome(step: Step) -> Outcome:
    out = [(one.value, us(one.time)) for one in step.out]
    return Outcome(out, step.late, step.letters, us(step.output_watermark), step.live)


def _row(given: Mapping[str, Any]) -> Row:
    return Row(given.get("key", "k"), given.get("v"), given["at"], given.get("do"))


def played(case: Case) -> list[Outcome]:
    """What the model gives in each step."""
    model = Model(script_of(case))
    outcomes = []
    for step in case.steps:
        watermark = END if step.get("watermark") == "end" else step.get("watermark")
        rows = map(_row, step.get("elements", []))
        outcomes.append(_outcome(model.step(rows, watermark, step.get("processing_time"))))
    return outcomes


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_the_model_gives_what_was_derived_by_hand(case: Case) -> None:
    assert compare(case, played(case)) is None


@pytest.mark.parametrize("case", [case for case in ALL if case.error is not None], ids=lambda case: case.id)
def test_a_timer_without_end_is_found(case: Case) -> None:
    with pytest.raises(Endless, match=case.error):
        played(case)


def test_names_of_cases_are_told_apart() -> None:
    names = [case.id for case in ALL]
    assert sorted(set(names)) == sorted(names)
