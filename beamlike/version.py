"""The version of the installed package, or of the source tree if it is not installed."""

from __future__ import annotations

import tomllib
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed
from pathlib import Path


def version(root: Path = Path(__file__).parents[1]) -> str:
    """Returns the version of the package, such as "0.1.0"."""
    try:
        return installed("beamlike")
    except PackageNotFoundError:
        project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        return str(project["version"])
