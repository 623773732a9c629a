"""AGENTS.md and llms.txt are true: their commands, paths and pages exist, and no page is missing."""

from __future__ import annotations

import re
from importlib.util import find_spec

import pytest

from tests.support.places import ROOT

AGENTS = (ROOT / "AGENTS.md").read_text()
LLMS = (ROOT / "llms.txt").read_text()

_ENTRY = re.compile(r"- \[[^\]]+\]\((?P<path>[^)#]+)\)(: .+)?")


def targets() -> set[str]:
    """Returns the targets of the Makefile that it lists."""
    return set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.M))


def test_commands_for_make_are_targets() -> None:
    named = set(re.findall(r"(?:^ {4}|`)make ([a-z-]+)", AGENTS, re.M))
    assert named >= {"setup", "test", "lint"}
    assert named <= targets()


def test_programs_of_the_environment_are_installed_by_the_set_up() -> None:
    programs = set(re.findall(r"\.venv/bin/([\w-]+)", AGENTS)) - {"python"}
    makefile = (ROOT / "Makefile").read_text()
    assert programs == {"ruff", "mypy", "lint-imports"}
    assert all(f"$(BIN)/{program}" in makefile for program in programs)
    modules = set(re.findall(r"python -m ([\w.]+)", AGENTS))
    assert all(find_spec(module) for module in modules)


def test_markers_exist() -> None:
    known = set(re.findall(r'^    "(\w+):', (ROOT / "pyproject.toml").read_text(), re.M))
    used = set(re.findall(r"\bnot (\w+)(?= and|\")", AGENTS)) | set(re.findall(r"'-m (\w+)'", AGENTS))
    assert used == {"spark", "slow", "connectors"}
    assert used <= known


def test_paths_exist() -> None:
    paths = re.findall(
        r"`((?:\.ci|beamlike|stages|windowing|tests|docs|benchmarks|examples|changelog\.d)/[\w/.-]*)`", AGENTS
    )
    paths += re.findall(r"pytest (tests[\w/]*)", AGENTS)
    assert len(paths) > 20
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("folder", ["beamlike", "stages", "windowing"])
def test_the_layout_names_the_top_folders(folder: str) -> None:
    assert re.search(rf"^\| `{folder}/", AGENTS, re.M)


def test_the_layout_has_every_room_of_the_product() -> None:
    rooms = {path.parent.name for path in (ROOT / "beamlike").glob("*/__init__.py")}
    named = set(re.findall(r"`beamlike/(\w+)`", AGENTS))
    # Small rooms that explain themselves.
    assert rooms - named == {"rows", "spec", "system", "testing"}


def test_llms_txt_has_the_form_of_its_specification() -> None:
    lines = [line for line in LLMS.splitlines() if line]
    assert lines[0] == "# beamlike"
    assert lines[1].startswith("> ")
    sections = LLMS.split("\n## ")[1:]
    assert sections[-1].startswith("Optional\n")
    assert not re.search(r"^(?:# .*\n[\s\S]*)?^### ", LLMS, re.M)
    for section in sections:
        for line in section.splitlines()[1:]:
            assert not line or _ENTRY.fullmatch(line), line


def test_llms_txt_lists_every_page_once() -> None:
    listed = [match["path"] for match in map(_ENTRY.fullmatch, LLMS.splitlines()) if match]
    pages = {str(page.relative_to(ROOT)) for page in [*ROOT.glob("docs/**/*.md"), *ROOT.glob("*.md")]}
    assert len(listed) == len(set(listed))
    assert set(listed) == pages | {"benchmarks/README.md"}


def test_llms_txt_names_only_what_there_is() -> None:
    import beamlike as bl

    for name in re.findall(r"bl\.(\w+)", LLMS):
        assert hasattr(bl, name), name
