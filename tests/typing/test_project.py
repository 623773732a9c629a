"""The typed project is complete: it uses all public names, and its declarations are accepted."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import beamlike as bl
from tests.docs.test_docstrings import PUBLIC
from tests.support.places import ROOT
from tests.typing.project import operators, processes, runs, sources, steps, windows

TEXT = "\n".join(path.read_text() for path in sorted((ROOT / "tests/typing/project").glob("*.py")))

OF_RUNNERS = {f"TestStream.{name}" for name in ("chunks", "datasets", "schema", "step")}
"""Methods that runs call."""


def names() -> Iterator[tuple[str, str]]:
    """Yields the public names, each with the pattern of its use."""
    for name in PUBLIC:
        owner, _, last = name.rpartition(".")
        if owner != "bl.errors" and name != "bl.operators":
            yield name, rf"\b{name}\b" if owner.startswith("bl") else rf"\.{last}\("
    yield from ((f"bl.operators.{name}", rf"\b{name}\b") for name in bl.operators.__all__)


DECLARE: list[Callable[[bl.Pipeline], Any]] = [
    sources.services,
    sources.of_spark,
    sources.own,
    steps.columns,
    steps.rows,
    steps.times,
    steps.together,
    windows.triggers,
    windows.aggregates,
    processes.declared,
    operators.declared,
]


def test_the_project_uses_all_that_is_public() -> None:
    missing = [name for name, pattern in names() if not re.search(pattern, TEXT)]
    assert sorted(set(missing) - OF_RUNNERS) == []


@pytest.mark.parametrize("declare", DECLARE, ids=lambda declare: f"{declare.__module__}.{declare.__name__}")
def test_what_it_declares_is_accepted(
    declare: Callable[[bl.Pipeline], Any], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    declare(bl.Pipeline("typed"))


def test_what_it_runs_runs(tmp_path: Path) -> None:
    runs.tested()
    assert len(runs.run(tmp_path)) == 2
