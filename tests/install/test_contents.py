"""The metadata of the package, and the checks of `make test-install`."""

from __future__ import annotations

import re
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any, Final

from tests.install.contents import faults_of_wheel, relative_links
from tests.install.environments import python
from tests.support.places import ROOT

DECLARED: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS: Final[dict[str, list[str]]] = DECLARED["project"]["optional-dependencies"]


def names(requirements: list[str]) -> set[str]:
    """Returns the packages of requirements."""
    return {re.split(r"[\[<>=;]", one)[0] for one in requirements}


def test_in_process_nothing_of_spark_is_installed_and_on_a_cluster_no_second_spark() -> None:
    assert names(DECLARED["project"]["dependencies"]).isdisjoint({"pyspark", "pandas", "protobuf"})
    assert names(EXTRAS["cluster"]) == {"pandas", "protobuf"}
    assert names(EXTRAS["spark"]) == {"beamlike", "pyspark"}
    assert "beamlike[cluster]" in EXTRAS["spark"]


def test_development_has_every_extra_but_java_and_beam() -> None:
    (own,) = (one for one in EXTRAS["dev"] if one.startswith("beamlike["))
    assert {*re.findall(r"\w+", own)} - {"beamlike"} == {*EXTRAS} - {"beam", "dev", "java", "cluster"}


def test_an_index_page_has_no_links_that_are_relative() -> None:
    text = (ROOT / "README.md").read_text()
    assert "docs/install.md" in relative_links(text)
    for one in DECLARED["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(one["pattern"], one["replacement"], text)
    assert relative_links(text) == []
    source = DECLARED["project"]["urls"]["Source"]
    assert f"]({source}/blob/main/docs/install.md)" in text
    assert (
        f"]({source.replace('github.com', 'raw.githubusercontent.com')}/main/docs/pictures/graph.svg)" in text
    )


def test_a_wheel_is_compared_with_the_source(tmp_path: Path) -> None:
    source, wheel = tmp_path / "source", tmp_path / "some.whl"
    for name in ("beamlike/__init__.py", "beamlike/__pycache__/x.pyc", "stages/graph.py", "stages/py.typed"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).touch()
    about = (
        "License-Expression: Apache-2.0\nProject-URL: Source, https://x\n\n[a](docs/a.md) [b](https://b)\n"
    )
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in ("beamlike/__init__.py", "tests/conftest.py"):
            archive.writestr(name, "")
        archive.writestr("beamlike-1.dist-info/METADATA", about)
    assert faults_of_wheel(wheel, source) == [
        "the wheel lacks stages/graph.py",
        "the wheel lacks stages/py.typed",
        "the wheel should not have tests/conftest.py",
        "the description links to docs/a.md",
    ]


def test_this_python_is_found_by_its_version() -> None:
    found = python(f"{sys.version_info.major}.{sys.version_info.minor}")
    assert found is not None
    assert found.samefile(sys.executable)
