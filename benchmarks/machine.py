"""The machine, the versions and the commit of a figure."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from beamlike.spark.session.java import Java

MEASURED: Final = ("beamlike", "stages", "windowing", "examples", "pyproject.toml")
"""The code that is measured. Commits that change none of it have the same figures."""

_ROOT: Final = Path(__file__).parents[1]


def commit(root: Path = _ROOT) -> str | None:
    """Returns the last commit that changed the measured code, with a "+" if the code has changed since.

    None without git.
    """
    if not (found := _git(root, "log", "-1", "--format=%H", "--", *MEASURED)):
        return None
    return found + ("+" if _git(root, "status", "--porcelain", "--", *MEASURED) else "")


def _git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()


def machine(java: Java | None) -> dict[str, Any]:
    """Returns the machine on which a figure is measured, the versions, the commit and the time."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "processors": os.cpu_count(),
        "processor": _processor(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "java": None if java is None else java.version,
        "polars": version("polars"),
        "pyspark": version("pyspark"),
    }


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown"
    )
