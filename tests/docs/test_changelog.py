"""The changelog and the files of a release: one version, and fragments that towncrier can read."""

from __future__ import annotations

import re
import tomllib

import yaml

import beamlike as bl
from tests.support.places import ROOT

FRAGMENTS = ROOT / "changelog.d"


def types() -> set[str]:
    """Returns the types of fragments that pyproject.toml declares."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]
    return {kind["directory"] for kind in settings["type"]}


def test_the_version_has_a_section() -> None:
    assert re.search(rf"^## {re.escape(bl.__version__)}\b", (ROOT / "CHANGELOG.md").read_text(), re.M)


def test_the_citation_has_the_version() -> None:
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == bl.__version__


def test_forms_of_issues_can_be_read() -> None:
    forms = [yaml.safe_load(path.read_text()) for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")]
    assert len([form for form in forms if {"name", "description", "body"} <= set(form)]) == 3


def test_fragments_have_a_type_and_a_text() -> None:
    for file in FRAGMENTS.iterdir():
        if file.name != "README.md":
            name = re.fullmatch(r"(?:\+[\w-]+|\d+)\.(\w+)\.md", file.name)
            assert name, f"{file.name}: expected +SUBJECT.TYPE.md or ISSUE.TYPE.md"
            assert name[1] in types(), file.name
            assert file.read_text().strip(), file.name


def test_the_types_of_the_page_are_those_of_towncrier() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", (FRAGMENTS / "README.md").read_text(), re.M)) == types()
