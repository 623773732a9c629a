"""Runs selected tests on other Spark versions: `python -m tests.versions 4.0 4.1` (`make test-spark`).

Each version has an environment of its own in `build/spark`, with its newest patch. All other packages are those of the
environment that runs this.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
import time
import venv
from pathlib import Path
from typing import Final

from beamlike.spark.versions import NEWEST, OLDEST, OLDEST_CONNECT, OLDEST_STATE_STORE, version_of
from tests.support.places import ROOT

FLAGSHIP: Final = (
    "tests/end_to_end/test_flagship.py::test_on_spark_it_equals_the_plain_computation[TimestampCombiner.EARLIEST]",
)
MATTERING: Final = (
    *FLAGSHIP,
    # Keyed state, timers, a checkpoint, a savepoint.
    "tests/beamlike/spark/savepoint/test_process.py::test_on_spark_a_run_goes_on_from_its_checkpoint_and_from_a_savepoint",
    "tests/end_to_end/test_joins.py::test_spark_gives_the_same",
    "tests/end_to_end/test_tables.py::test_to_spark_and_back_too",
    "tests/beamlike/spark/savepoint/test_savepoint.py::test_from_the_command_line_a_spark_source_goes_on_from_its_offsets",
    "tests/beamlike/spark/test_runner.py::test_any_streaming_reader_of_spark_is_a_source",
    "tests/beamlike/spark/test_runner.py::test_with_an_interval_it_goes_on_until_it_is_stopped",
    "tests/beamlike/spark/test_runner.py::test_processing_time_passes_where_a_trigger_waits_for_it",
    "tests/end_to_end/test_recovery.py::test_a_killed_run_goes_on_where_it_was",
    "tests/beamlike/spark/test_versions.py",
)
_KILLED: Final = (
    "tests/faults/test_faults.py::test_a_job_that_is_killed_again_and_again_loses_and_doubles_nothing"
)
KILLS: Final = (f"{_KILLED}[files]",)
# With state in Spark's own store.
STORED: Final = (
    "tests/beamlike/spark/savepoint/test_one_shard.py::test_its_state_goes_to_two_shards_and_two_operators",
)
STORED_KILLS: Final = (f"{_KILLED}[spark]",)
_CONNECT: Final = "tests/beamlike/spark/connect/test_connect.py::"
CONNECT: Final = (
    f"{_CONNECT}test_rows_are_as_in_process_also_if_a_run_with_an_interval_is_stopped_and_continued",
)
CONNECTED: Final = (f"{_CONNECT}test_errors_are_those_of_a_classic_session",)
KAFKA: Final = (
    "tests/connectors/test_kafka_source.py::test_spark_gives_what_is_given_in_process_batch_by_batch",
)

EVERY: Final = (".".join(map(str, OLDEST)), *(f"{NEWEST[0]}.{minor}" for minor in range(NEWEST[1] + 1)))
"""The supported versions. The oldest is the last one of its major version."""

# Earlier versions of PySpark leave sockets to the collector, and 3.5 imports a module that Python has deprecated.
_WARNINGS: Final = (
    "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
    "ignore:The distutils package is deprecated:DeprecationWarning",
    "ignore:distutils Version classes are deprecated:DeprecationWarning",
)


def environment(version: str) -> Path:
    """Makes or updates the environment of a version, and returns its Python."""
    folder = ROOT / "build" / "spark" / version
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, symlinks=True)
        inside = {"base": str(folder), "platbase": str(folder)}
        shared = Path(sysconfig.get_path("purelib", vars=inside)) / "shared.pth"
        shared.write_text(sysconfig.get_path("purelib"))
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade"]
    subprocess.run([python, *install, f"pyspark=={version}.*"], check=True)
    return python


def passes(python: Path, tests: tuple[str, ...]) -> bool:
    """True if these tests pass."""
    options = ["-o", "addopts=", "-q", "-ra", "-p", "no:cacheprovider"]
    options += [option for warning in _WARNINGS for option in ("-W", warning)]
    job = [python, "-m", "pytest", *options, *tests]
    return subprocess.run(job, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}).returncode == 0


def main() -> int:
    """Runs the tests on each version, and prints their duration."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="*", default=EVERY, choices=EVERY, metavar="VERSION")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="without kills and Kafka; between the oldest and the newest version, only the flagship example, Spark's "
        "own state store on the oldest version that has it, and errors on Spark Connect, likewise",
    )
    given = parser.parse_args()
    failed: list[str] = []
    for version in given.versions:
        began = time.monotonic()
        python = environment(version)
        made = time.monotonic()
        print(f"== Spark {version}: its environment took {made - began:.0f} s", flush=True)
        passed = [passes(python, tests) for tests in _parts(version, quick=given.quick)]
        failed += [] if all(passed) else [version]
        print(f"== Spark {version}: its tests took {time.monotonic() - made:.0f} s", flush=True)
    if failed:
        print(f"tests failed on Spark {', '.join(failed)}")
    return bool(failed)


def _parts(version: str, *, quick: bool) -> tuple[tuple[str, ...], ...]:
    """Returns the tests for each process. The Kafka test has a session with other jars."""
    number = version_of(version)
    if quick and version in (EVERY[0], EVERY[-1]):
        return (MATTERING,)
    if quick:
        stored = STORED if number == OLDEST_STATE_STORE else ()
        return (FLAGSHIP + stored + (CONNECTED if number == OLDEST_CONNECT else ()),)
    stored = STORED + STORED_KILLS if number >= OLDEST_STATE_STORE else ()
    connect = CONNECT if number >= OLDEST_CONNECT else ()
    return (MATTERING + KILLS + stored + connect, KAFKA)


if __name__ == "__main__":
    sys.exit(main())
