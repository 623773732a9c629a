"""`python -m tests.docs.site.versions FOLDER` adds the built site to a published one, as the version of this package.

The site of each version is in a folder with its name. `versions.json` lists them, the newest first, for the selector of
the theme, which knows the layout of mike (https://github.com/jimporter/mike). The folder's `index.html` leads to the
newest version.
"""

from __future__ import annotations

import json
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

from packaging.version import Version

from tests.support.places import ROOT

_HOME = """<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<title>beamlike</title>
<meta http-equiv="refresh" content="0; url={newest}/">
<a href="{newest}/">The documentation of beamlike {newest}</a>
"""


def add(built: Path, published: Path, version: str) -> None:
    """Adds a built site to a published one. A site of the same version is replaced.

    Args:
        built: The folder with the HTML of the site.
        published: The folder with the sites of all versions; it is made if it does not exist.
        version: The version of the package, such as "0.1.0".
    """
    shutil.rmtree(published / version, ignore_errors=True)
    shutil.copytree(built, published / version)
    listed = sorted({*_known(published), version}, key=Version, reverse=True)
    versions = [
        {"version": name, "title": name, "aliases": ["latest"] if name == listed[0] else []}
        for name in listed
    ]
    (published / "versions.json").write_text(json.dumps(versions, indent=2) + "\n", encoding="utf-8")
    (published / "index.html").write_text(_HOME.format(newest=listed[0]), encoding="utf-8")


def _known(published: Path) -> list[str]:
    path = published / "versions.json"
    if not path.exists():
        return []
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return [one["version"] for one in found]


def main(published: Path) -> None:
    """Adds the site of this version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    config = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]
    add(ROOT / config["site_dir"], published, project["version"])
    print(published / project["version"])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
