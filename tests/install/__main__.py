"""`python -m tests.install`: builds the package, and checks it in empty environments.

The flagship runs in process on each supported Python that can be installed here; then with the lowest and the highest
versions of all dependencies, in process and on Spark. The tests that need no Spark run with the lowest. `--quick`
checks the package and this Python only.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from beamlike.spark.session.java import find_java
from tests.install.contents import faults_of_sdist, faults_of_wheel
from tests.install.environments import environment, python, uv
from tests.support.places import ROOT

WORK: Final = ROOT / "build" / "install"
PROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHONS: Final = [version for text in PROJECT["classifiers"] for version in re.findall(r":: (3\.\d+)$", text)]
TESTS: Final = ("tests/windowing", "tests/stages", "tests/beamlike")


def main(*, quick: bool) -> None:
    """Runs all checks. Raises `SystemExit` with the first that fails."""
    wheel = build()
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    for version in [here] if quick else PYTHONS:
        if (interpreter := python(version)) is None:
            print(f"Python {version}: none here, and none to download; not checked")
            continue
        with working(f"python{version}") as folder:
            flagship("local", environment(folder / "env", interpreter, wheel), folder)
    if not quick:
        for resolution in ("highest", "lowest-direct"):
            with_extras(wheel, resolution)


def build() -> Path:
    """Builds the sdist, and the wheel from it; checks their content. Returns the wheel."""
    shutil.rmtree(WORK, ignore_errors=True)
    uv("build", "--out-dir", WORK / "dist", ROOT)
    (wheel,), (sdist,) = (list((WORK / "dist").glob(pattern)) for pattern in ("*.whl", "*.tar.gz"))
    if faults := faults_of_wheel(wheel, ROOT) + faults_of_sdist(sdist):
        sys.exit("\n".join(faults))
    run([sys.executable, "-m", "twine", "check", "--strict", wheel, sdist])
    return wheel


def with_extras(wheel: Path, resolution: Any) -> None:
    """Runs the flagship on Spark with all extras on the lowest Python; with the lowest versions also some tests."""
    interpreter = python(PYTHONS[0])
    if interpreter is None:
        sys.exit(f"there is no Python {PYTHONS[0]}, on which the lowest versions are checked")
    with working(resolution) as folder:
        extras = sorted({*PROJECT["optional-dependencies"]} - {"beam", "dev", "java"})
        made = environment(folder / "env", interpreter, wheel, extras, resolution)
        print(f"{resolution}: {', '.join(uv('pip', 'freeze', '--python', made).stdout.split())}")
        flagship("spark", made, folder)
        if resolution == "lowest-direct":
            tools = [
                one for one in PROJECT["optional-dependencies"]["dev"] if not one.startswith("beamlike[")
            ]
            uv("pip", "install", "--python", made, *tools)
            chosen = ("-n", "2", "-q", "-m", "not spark and not slow and not connectors", *TESTS)
            run([made, "-m", "pytest", "-p", "no:cacheprovider", *chosen], cwd=ROOT)


def flagship(on: str, interpreter: Path, folder: Path) -> None:
    """Runs the flagship in a folder with the examples and nothing else of the project."""
    shutil.copytree(ROOT / "examples", folder / "examples")
    shutil.copy(ROOT / "tests" / "install" / "flagship.py", folder)
    java = find_java() if on == "spark" else None
    home = {} if java is None else {"JAVA_HOME": str(java.home)}
    run([interpreter, "flagship.py", on], cwd=folder, env={**os.environ, **home})


@contextmanager
def working(name: str) -> Iterator[Path]:
    """Yields a folder that is removed if its check passes."""
    print(f"-- {name}", flush=True)
    folder = WORK / name
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


def run(command: list[str | os.PathLike[str]], cwd: Path = WORK, env: dict[str, str] | None = None) -> None:
    """Runs a program and shows its output. Raises `SystemExit` if it fails."""
    env = {name: value for name, value in (env or os.environ).items() if name != "PYTHONPATH"}
    if subprocess.run(command, cwd=cwd, env=env).returncode:
        sys.exit(f"failed: {' '.join(map(str, command))}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    main(quick=parser.parse_args().quick)
