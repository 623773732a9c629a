"""Layers: the imports of each room, and the packages that `import beamlike` does not load."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import beamlike as bl
from tests.support.places import ROOT

LAYERS = {
    "windowing": {"windowing"},
    "stages": {"windowing", "stages"},
    "beamlike": {"windowing", "stages", "beamlike"},
}


def run(code: str) -> str:
    """Runs code in a new Python process and returns its output."""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_importing_beamlike_does_not_import_spark_or_what_only_some_need():
    slow = ("pyspark", "pandas", "pyarrow", "click")
    assert run(f"import sys, beamlike; print([name for name in {slow} if name in sys.modules])") == "[]"


def test_a_pipeline_is_declared_planned_and_run_without_spark():
    code = """
import sys
import tomllib
from importlib import metadata
from datetime import datetime
import beamlike as bl
p = bl.Pipeline("p")
source = bl.Rows([{"at": datetime(2026, 1, 1)}])
rows = p.read("rows", source, timestamp="at", watermark=bl.MonotonousTimestamps())
out = bl.Memory()
rows.window_into(bl.FixedWindows("1m")).aggregate(n=bl.count()).write("out", out)
p.explain()
p.run()
print(out.frame()["n"].to_list(), "pyspark" in sys.modules)
"""
    assert run(code) == "[1] False"


def test_the_spark_runner_is_imported_when_it_is_asked_for():
    pytest.importorskip("pyspark")
    assert run("import sys, beamlike as bl; bl.SparkRunner; print('pyspark' in sys.modules)") == "True"


def test_every_public_name_is_there_once_and_in_order():
    assert sorted(bl.__all__) == sorted(set(bl.__all__))
    for name in bl.__all__:
        assert name == "SparkRunner" or getattr(bl, name) is not None
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = bl.nothing_of_the_kind


def imported(path: Path) -> set[str]:
    """Returns the top-level packages that a file imports, at any depth."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").partition(".")[0])
    return names


@pytest.mark.parametrize("package", LAYERS)
def test_each_layer_imports_only_those_before_it(package):
    for path in sorted((ROOT / package).rglob("*.py")):
        own = imported(path) & {*LAYERS}
        assert own <= LAYERS[package], path
        if "spark" not in path.relative_to(ROOT).parts:
            assert "pyspark" not in imported(path), path


@pytest.mark.parametrize("package", LAYERS)
def test_no_file_is_longer_than_800_lines(package):
    for path in (ROOT / package).rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 800, path


def test_dir_shows_what_is_public_and_nothing_else():
    assert dir(bl) == sorted([*bl.__all__, "__version__"])


def test_the_version_is_that_of_the_package_or_of_the_source_tree(monkeypatch):
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert bl.__version__ == metadata.version("beamlike")

    def not_installed(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr("beamlike.version.installed", not_installed)
    assert bl.__version__ == declared


def may_import() -> dict[str, str]:
    """Returns the rooms that each room may import, by its contract in pyproject.toml."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    said = {}
    for contract in (one for one in contracts if one["type"] == "layers"):
        layers = [[name.strip() for name in re.split("[|:]", row)] for row in contract["layers"]]
        for container in contract.get("containers", [""]):
            for row, below in zip(layers, [*layers[1:], []], strict=True):
                said |= {f"{container}.{name}".strip("."): _may_import(below, container) for name in row}
    return said


def _may_import(below: list[str], container: str) -> str:
    if not below and "." in container:
        return f"May import what `{container.rpartition('.')[2]}` may."
    if not below:
        return "Imports nothing else of the project."
    names = ", ".join(f"`{name}`" for name in below)
    return f"May import {names} and all below {'it' if len(below) == 1 else 'them'}."


FOLDERS = [
    ".".join(file.relative_to(ROOT).parent.parts)
    for layer in LAYERS
    for file in sorted((ROOT / layer).rglob("__init__.py"))
]


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_folder_says_what_it_may_import(folder: str):
    """The last sentence of its docstring says so; a folder in a room refers to the room."""
    file = ROOT / folder.replace(".", "/") / "__init__.py"
    text = " ".join((ast.get_docstring(ast.parse(file.read_text())) or "").split())
    within = f"May import what `{folder.rpartition('.')[0].rpartition('.')[2]}` may."
    expected = may_import().get(folder, within)
    assert text.endswith(f" {expected}"), (
        f"the docstring of {file.relative_to(ROOT)} is to end with: {expected}"
    )
