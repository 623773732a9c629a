"""`import beamlike` is fast: it loads no module that only some pipelines, or only runs, need."""

from __future__ import annotations

import ast
import subprocess
import sys
from typing import Final

import pytest

import beamlike as bl
from tests.support.places import ROOT

HEAVY: Final = {
    "adbc_driver_postgresql", "asyncio", "click", "confluent_kafka", "deltalake", "fastavro", "google", "matplotlib",
    "multiprocessing", "networkx", "numpy", "pandas", "prometheus_client", "py4j", "pyarrow", "pyiceberg", "pyspark",
    "redis", "rich", "sqlalchemy", "sqlglot", "sqlite3", "tenacity", "yaml",
}  # fmt: skip
OWN: Final = 267
"""The greatest number of this project's modules. An import that exceeds it belongs into the function that uses it."""


def loaded(code: str) -> set[str]:
    """Returns the modules of a new process that has run this code."""
    program = f"import sys; {code}; print(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(done.stderr.split())


def test_it_loads_no_heavy_module_and_few_of_its_own() -> None:
    modules = loaded("import beamlike")
    assert {name.partition(".")[0] for name in modules} & HEAVY == set()
    own = [name for name in modules if name.partition(".")[0] in ("beamlike", "stages", "windowing")]
    assert len(own) <= OWN, len(own)


def test_a_run_in_process_needs_no_package_of_an_extra() -> None:
    run = "p = bl.Pipeline('p'); p.read('a', bl.Rows([{'x': 1}])).write('out', bl.Console()); p.run()"
    extras = {"google", "matplotlib", "pandas", "py4j", "pyspark", "sqlalchemy"}
    assert {name.partition(".")[0] for name in loaded(f"import beamlike as bl; {run}")} & extras == set()


def test_type_checkers_see_each_name_where_it_is_imported_from() -> None:
    module = ast.parse((ROOT / "beamlike" / "__init__.py").read_text())
    checked = next(
        part for part in module.body if isinstance(part, ast.If) and "TYPE_CHECKING" in ast.unparse(part.test)
    )
    imports = {
        name.name: part.module
        for part in checked.body
        if isinstance(part, ast.ImportFrom)
        for name in part.names
    }
    rooms = {name: place.rpartition(".")[0] for name, place in bl._ROOMS.items()}
    assert imports == {**bl._MODULES, **rooms}


def test_every_public_name_is_there() -> None:
    assert all(getattr(bl, name) is getattr(bl, name) for name in bl.__all__)
    assert set(bl.__all__) <= set(dir(bl))


def test_without_pyspark_all_names_are_imported_except_its_runner() -> None:
    gone = "sys.modules['pyspark'] = None"
    loaded(f"{gone}; from beamlike import *; assert LocalRunner and 'SparkRunner' not in globals()")
    with pytest.raises(subprocess.CalledProcessError) as failed:
        loaded(f"{gone}; from beamlike import SparkRunner")
    assert (
        "runs on Spark and their savepoints need PySpark: pip install 'beamlike[spark]'"
        in failed.value.stderr
    )
