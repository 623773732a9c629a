"""Environments of uv: the available Python versions, and packages in them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from tests.support.places import ROOT

UV = Path(sys.executable).with_name("uv")
PIP_WORDS = {
    "PIP_INDEX_URL": "UV_DEFAULT_INDEX",
    "PIP_FIND_LINKS": "UV_FIND_LINKS",
    "PIP_CERT": "SSL_CERT_FILE",
}
"""Settings of pip that uv knows by other names."""


def uv(*arguments: str | os.PathLike[str], check: bool = True) -> subprocess.CompletedProcess[str]:
    """Runs uv. Raises `CalledProcessError` after its output, if `check`."""
    own = {theirs: os.environ[ours] for ours, theirs in PIP_WORDS.items() if ours in os.environ}
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run([UV, *arguments], env=own | env, capture_output=True, text=True)
    if check and done.returncode:
        print(done.stdout + done.stderr, file=sys.stderr)
        done.check_returncode()
    return done


def python(version: str) -> Path | None:
    """Returns an interpreter of a version such as "3.13": from the path, from pyenv, or found by uv."""
    for candidate in _candidates(version):
        if _version(candidate) == version:
            return candidate
    return None


def _candidates(version: str) -> Iterator[Path]:
    yield Path(sys.executable)
    if on_path := shutil.which(f"python{version}"):
        yield Path(on_path)
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from sorted(root.glob(f"versions/{version}.*/bin/python"), reverse=True)
    for attempt in (["python", "find", version], ["python", "install", version], ["python", "find", version]):
        if found := re.findall(r"^/.*python.*$", uv(*attempt, check=False).stdout, re.M):
            yield Path(found[0])


def _version(executable: Path) -> str | None:
    program = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([executable, "-c", program], capture_output=True, text=True)
    return done.stdout.strip() or None


def environment(
    folder: Path,
    interpreter: Path,
    wheel: Path,
    extras: Sequence[str] = (),
    resolution: Literal["highest", "lowest-direct"] = "highest",
) -> Path:
    """Makes an environment with a wheel of this project and its dependencies, and returns its Python."""
    uv("venv", "--clear", "--no-project", "--python", interpreter, folder)
    made = folder / "bin" / "python"
    # The requirements of the wheel must be named here: for uv, those of a package are indirect ones.
    needs = ("-r", ROOT / "pyproject.toml", *(f"--extra={extra}" for extra in extras))
    uv("pip", "install", "--python", made, "--resolution", resolution, *needs)
    uv("pip", "install", "--python", made, "--no-deps", wheel)
    return made
