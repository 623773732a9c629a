"""`beamlike new` makes a project that passes its own tests and runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from beamlike.cli.main import main
from tests.support.places import ROOT


def made(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(folder)
    return CliRunner().invoke(main, ["new", name]).output


def python(folder: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, check=True, capture_output=True, text=True
    ).stdout


def test_a_new_project_passes_its_tests_and_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = made("play-counts", tmp_path, monkeypatch)
    assert printed.endswith("next: cd play-counts && make test && make run\n")
    project = tmp_path / "play-counts"
    assert "2 passed" in python(project, "pytest", "-q", "-p", "no:cacheprovider")
    assert "4 on time" in python(project, "beamlike", "run", "play_counts.pipeline:pipeline")
    assert [*project.glob("out/clicks-per-minute/*.parquet")]
    texts = [file.read_text() for file in project.rglob("*") if file.is_file() and file.suffix != ".parquet"]
    assert not [text for text in texts if "PROJECT" in text or "NAME" in text]
    assert "play_counts.pipeline:pipeline" in (project / "Dockerfile").read_text()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("2nd", "'2nd': write letters, digits, '-' and '_', such as play-counts"),
        ("../plays", "'../plays': write letters"),
        ("class", "'class': write letters"),
        ("polars", "its package 'polars' would hide the installed one of that name"),
        ("full", "'full' exists and is not an empty folder"),
    ],
)
def test_a_name_that_would_do_harm_is_refused(
    name: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    assert says in made(name, tmp_path, monkeypatch)
    assert [*tmp_path.rglob("*.py")] == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_the_commands(shell: str) -> None:
    script = CliRunner().invoke(main, ["completion", shell]).output
    assert "_BEAMLIKE_COMPLETE" in script
    environment = {"_BEAMLIKE_COMPLETE": "bash_complete", "COMP_WORDS": "beamlike wa", "COMP_CWORD": "1"}
    result = CliRunner(env=environment).invoke(main, prog_name="beamlike")
    assert result.output == "plain,watch\n"
