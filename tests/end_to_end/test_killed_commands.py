"""A command that is killed at any of its operations on files leaves nothing that a run takes for a new checkpoint."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.places import ROOT

LONG = (pytest.mark.slow, pytest.mark.long)


@pytest.mark.parametrize(
    ("command", "least", "place"),
    [
        ("restore", 10, "new"),
        pytest.param("restore", 10, "empty", marks=LONG),
        pytest.param("savepoint", 20, "new", marks=LONG),
        pytest.param("savepoint", 20, "empty", marks=LONG),
        pytest.param("rebuild", 20, "new", marks=LONG),
        pytest.param("record", 5, "new", marks=LONG),
        pytest.param("new", 20, "new", marks=LONG),
    ],
)
def test_a_run_on_what_a_killed_command_left_is_refused_or_right(
    command: str, least: int, place: str, tmp_path: Path
) -> None:
    arguments = [sys.executable, "-m", "tests.support.killed_commands", command, str(tmp_path), place]
    ran = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=True)
    outcomes = [json.loads(line) for line in ran.stdout.splitlines()]
    assert len(outcomes) > least
    for outcome in outcomes:
        first, second = outcome["numbers"]
        if outcome["refused"]:
            assert first == [1, 2], outcome
            assert second == ([1, 2, 3] if outcome["again"] else None), outcome
        elif command == "restore":
            assert first == [1, 2, 3], outcome
        else:
            # Nothing has been made under that name, or a whole project, which is no checkpoint.
            is_project = command == "new" and {"made/made", "made/Makefile"} <= {*outcome["left"]}
            assert is_project or outcome["left"] in ([], ["made"], [".made.tmp"]), outcome
    assert outcomes[-1]["done"]
