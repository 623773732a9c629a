"""Runs Beam's own tests on `BeamlikeRunner`: `python -m tests.beam` (`make test-beam`), or some: `... userstate`.

Beam is installed into an environment of its own in `build/beam`, with the packages that its tests need: its
dependencies exclude the newest versions of packages that other extras install. `--version 2.72.0` tests the lowest
version that the extra `beam` allows. `--spark` runs the suites of triggers, `TestStream`, state and the portable runner
on Spark, in one process with one core, and the tests of this project's own that start Spark. `--slow` runs those that
are slow, and no suites: a pipeline on Spark is killed 20 times.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

from tests.support.places import ROOT

VERSION: Final = "2.77.0"
FOLDER: Final = ROOT / "build" / "beam"
PACKAGES: Final = ("hypothesis", "mock", "parameterized", "pyhamcrest", "pytest")
OWN: Final = ("tests/beamlike/beam", "tests/connectors/test_beam_kafka.py")
FNS: Final = "runners.portability.fn_api_runner.fn_runner_test"
SUITES: Final = (
    "transforms.trigger_test",
    "transforms.window_test",
    "testing.test_stream_test",
    "transforms.userstate_test",
    "transforms.sideinputs_test",
    "testing.util_test",
    "transforms.util_test",
    "transforms.combiners_test",
    "transforms.core_test",
    "transforms.create_test",
    "transforms.combinefn_lifecycle_test",
    "transforms.deduplicate_test",
    "transforms.dofn_lifecycle_test",
    "transforms.error_handling_test",
    "transforms.ptransform_test",
    "transforms.stats_test",
    "transforms.timestamped_value_type_test",
    "transforms.transforms_keyword_only_args_test",
    "transforms.write_ptransform_test",
    "pipeline_test",
)
CLASSES: Final = (
    "FnApiRunnerTest",
    "FnApiRunnerMetricsTest",
    "FnApiRunnerSplitTest",
    "FnApiBasedStateBackedCoderTest",
)
"""The classes of `FNS`. Others choose another worker of Beam or several, which this runner does not have."""


ON_SPARK: Final = (
    "transforms.trigger_test",
    "testing.test_stream_test",
    "transforms.userstate_test",
)


def environment(version: str, *, spark: bool) -> Path:
    """Makes or updates the environment, and returns its Python."""
    python = FOLDER / version / "bin" / "python"
    if not python.exists():
        venv.create(FOLDER / version, symlinks=True, with_pip=True)
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    extras = "kafka,spark" if spark else "kafka"
    subprocess.run(
        [python, *install, "-e", f"{ROOT}[{extras}]", f"apache-beam[yaml]=={version}", *PACKAGES], check=True
    )
    return python


def job(python: Path, parts: list[str], *, spark: bool) -> list[str | Path]:
    """Returns the command that runs Beam's suites of which a name contains one of `parts`, or all."""
    suites, classes = (ON_SPARK, CLASSES[:1]) if spark else (SUITES, CLASSES)
    where = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = subprocess.run(where, check=True, capture_output=True, text=True).stdout.strip()
    chosen = [suite for suite in (*suites, FNS) if not parts or any(part in suite for part in parts)]
    files = [f"{packages}/apache_beam/{suite.replace('.', '/')}.py" for suite in chosen if suite != FNS]
    if FNS in chosen:
        files += [f"{packages}/apache_beam/{FNS.replace('.', '/')}.py::{name}" for name in classes]
    options = [
        "-q",
        "-c",
        os.devnull,
        f"--rootdir={packages}",
        "-p",
        "no:cacheprovider",
        "-p",
        "tests.beam.plugin",
    ]
    return [python, "-m", "pytest", "--no-header", "--tb=short", *options, *files]


def main() -> int:
    """Runs this project's own tests for Beam, then Beam's suites."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suites", nargs="*", help="parts of names of Beam's suites; all by default")
    parser.add_argument("--version", default=VERSION, help="the version of Beam")
    parser.add_argument("--spark", action="store_true", help="runs on Spark")
    parser.add_argument("--slow", action="store_true", help="runs only the slow tests of this project's own")
    given = parser.parse_args()
    python = environment(given.version, spark=given.spark or given.slow)
    own = [python, "-m", "pytest", "-o", "addopts=", "-W", "default", "-q", "-p", "no:cacheprovider", *OWN]
    own += ["-m", "slow" if given.slow else f"{'spark' if given.spark else 'not spark'} and not slow"]
    place = {"BEAM_SUITE_ON": "spark"} if given.spark else {}
    here = {"cwd": ROOT, "env": {**os.environ, "PYTHONPATH": str(ROOT), **place}}
    suites = job(python, given.suites, spark=given.spark)
    jobs = [own] if given.slow else [own, suites]
    return max(subprocess.run(each, **here).returncode for each in jobs)  # type: ignore[call-overload]


if __name__ == "__main__":
    sys.exit(main())
