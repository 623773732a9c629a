"""The naive model of keyed state and timers, on cases whose values were derived by hand or taken from other systems."""

from __future__ import annotations

import pytest

from tests.cases.case import Case, load
from tests.cases.compare import compare
from tests.cases.on_model import on_model
from tests.support.model_process import Endless
from tests.support.places import ROOT

FILES = [ROOT / "tests" / "cases" / name for name in ("examples.yaml", "process.yaml")]
ALL = [case for file in FILES for case in load(file) if case.kind == "process"]


@pytest.mark.parametrize("case", [case for case in ALL if case.error is None], ids=lambda case: case.id)
def test_the_model_gives_what_was_derived_by_hand(case: Case) -> None:
    assert compare(case, on_model(case)) is None


@pytest.mark.parametrize("case", [case for case in ALL if case.error is not None], ids=lambda case: case.id)
def test_a_timer_without_end_is_found(case: Case) -> None:
    with pytest.raises(Endless, match=case.error):
        on_model(case)
