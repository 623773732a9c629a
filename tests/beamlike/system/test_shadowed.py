"""A user's file or package that hides one of this project's is named by `import beamlike`, and is not run."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from beamlike.system.shadowed import require_own
from tests.support.places import ROOT


def imported(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Imports beamlike in a new process that begins in this folder, which Python searches first."""
    command = [sys.executable, *(arguments or ("-c", "import beamlike"))]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)


@pytest.mark.parametrize("hiding", ["stages.py", "stages/__init__.py", "windowing.py"])
def test_the_error_names_the_file_or_folder_that_hides_a_package(hiding: str, tmp_path: Path) -> None:
    file = tmp_path / hiding
    file.parent.mkdir(exist_ok=True)
    file.write_text("print('it ran')\n")
    done = imported(tmp_path)
    named = file.parent if file.name == "__init__.py" else file
    package = hiding.partition("/")[0].removesuffix(".py")
    assert (
        f"ImportError: beamlike needs its own package {package!r}, which {named} hides: rename" in done.stderr
    )
    assert done.stdout == ""


def test_a_script_that_hides_a_package_names_itself(tmp_path: Path) -> None:
    script = tmp_path / "stages.py"
    script.write_text("import beamlike\n")
    assert f"'stages', which {script} hides" in imported(tmp_path, str(script)).stderr


def test_a_folder_of_data_of_the_same_name_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "stages").mkdir()
    assert imported(tmp_path).returncode == 0


def test_a_link_to_the_package_and_a_zip_file_hide_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real" / "here").mkdir(parents=True)
    (tmp_path / "real" / "here" / "__init__.py").touch()
    (tmp_path / "linked").symlink_to(tmp_path / "real")
    with zipfile.ZipFile(tmp_path / "code.zip", "w") as archive:
        archive.writestr("packed/__init__.py", "")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "linked"), str(tmp_path / "code.zip"), *sys.path])
    require_own(["here"], str(tmp_path / "real"))
    require_own(["packed"], str(tmp_path / "code.zip"))


def test_a_package_that_is_not_there_or_made_by_hand_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        ImportError, match=r"lacks its package 'nowhere_at_all' in /x; install beamlike again"
    ):
        require_own(["nowhere_at_all"], "/x")
    monkeypatch.setitem(sys.modules, "by_hand", type(sys)("by_hand"))
    with pytest.raises(ImportError, match=r"which the module 'by_hand' in sys.modules hides"):
        require_own(["by_hand"], "/x")
