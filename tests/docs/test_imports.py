"""README, docs and examples import public modules only."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.places import ROOT

PUBLIC = {
    "beamlike",
    "beamlike.beam",
    "beamlike.errors",
    "beamlike.observe",
    "beamlike.operators",
    "beamlike.testing",
}
SHOWN = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "examples").glob("*.py"))]

_IMPORT = re.compile(r"^\s*(?:from|import) ((?:beamlike|stages|windowing)\b[\w.]*)", re.M)


@pytest.mark.parametrize("file", SHOWN, ids=lambda file: file.name)
def test_what_is_shown_imports_public_places_only(file: Path) -> None:
    assert set(_IMPORT.findall(file.read_text())) <= PUBLIC
