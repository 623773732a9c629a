"""The recipes for contributors: their code runs, and the files that they name exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import beamlike as bl
from tests.docs.test_examples import require_printed
from tests.support.places import ROOT

NAME = "contributing/recipes.md"
PAGE = ROOT / "docs" / NAME


@pytest.fixture
def made(tmp_path: Path) -> dict[str, Any]:
    """The names that the code of the page defines, after it has printed what the page shows."""
    namespace: dict[str, Any] = {}
    require_printed(NAME, tmp_path, namespace)
    return namespace


def test_the_recipes_make_a_source_an_aggregate_and_a_trigger(made: dict[str, Any]) -> None:
    rows = bl.Pipeline("recipes").read("orders", made["Pages"](), timestamp="at", timestamp_unit="s")
    trigger = bl.Repeatedly(made["AfterBundles"](2))
    panes = rows.window_into(bl.FixedWindows("1m"), trigger=trigger).aggregate(range=made["Range"]("id"))
    panes.write("out", bl.Memory())
    explained = rows.pipeline.explain()
    assert "Repeatedly(AfterBundles(2))" in explained
    assert "range(id)" in explained


def test_an_aggregate_of_a_recipe_refuses_text_and_retractions(made: dict[str, Any]) -> None:
    p = bl.Pipeline("recipes")
    source, watermark = bl.Rows([{"at": 1, "user": "ada", "points": 2}]), bl.MonotonousTimestamps()
    plays = p.read("plays", source, timestamp="at", timestamp_unit="s", watermark=watermark)
    early = bl.AfterWatermark(early=bl.AfterCount(1))
    minutes = plays.window_into(bl.FixedWindows("1m"), trigger=early, accumulation=bl.RETRACTING)
    with pytest.raises(bl.PlanError, match="range\\('user'\\) needs a column of numbers"):
        minutes.aggregate(range=made["Range"]("user"))
    panes = minutes.aggregate(points=bl.sum("points"))
    with pytest.raises(bl.PlanError, match="subtract"):
        panes.aggregate(range=made["Range"]("points"))


def test_files_that_are_named_exist() -> None:
    text = PAGE.read_text()
    for target in re.findall(r"\]\(([^)#]+)", text):
        assert (PAGE.parent / target).exists(), target
    for name in re.findall(r"`((?:beamlike|stages|windowing|tests)/[\w/*.]+)`", text):
        assert list(ROOT.glob(name)), name
