"""Checks of the content of built packages."""

from __future__ import annotations

import re
import tarfile
import zipfile
from email import message_from_string
from pathlib import Path
from typing import Final

IN_SDIST: Final = (
    "docs/install.md",
    "tests/install/contents.py",
    "examples/demo.py",
    "Makefile",
    "CHANGELOG.md",
)
_LINK: Final = re.compile(r"\]\(([^)\s]+)\)")


def faults_of_wheel(wheel: Path, source: Path) -> list[str]:
    """Returns the differences between a wheel and the packages in `source`, and relative links in its description."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        about = message_from_string(archive.read(metadata).decode())
    files = {
        path.relative_to(source).as_posix()
        for package in ("beamlike", "stages", "windowing")
        for path in (source / package).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    faults = [f"the wheel lacks {name}" for name in sorted(files - names)]
    faults += [f"the wheel should not have {name}" for name in sorted(names - files)]
    faults += [f"the description links to {link}" for link in relative_links(str(about.get_payload()))]
    if about["License-Expression"] != "Apache-2.0" or not about.get_all("Project-URL"):
        faults.append("the wheel has no licence expression, or no addresses of the project")
    return faults


def relative_links(text: str) -> list[str]:
    """Returns the links of a page that do not work on another site."""
    return [link for link in _LINK.findall(text) if not link.startswith(("https://", "#"))]


def faults_of_sdist(sdist: Path) -> list[str]:
    """Returns the files that a source distribution lacks."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    return [f"the sdist lacks {name}" for name in IN_SDIST if name not in names]
