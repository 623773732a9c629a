"""A pytest plugin that runs Beam's own tests on `BeamlikeRunner`, and compares the failures with a list.

A failure that is not listed fails the run, and so does a listed test that does not fail.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import apache_beam.pipeline as beam_pipeline
import pytest
from apache_beam.runners.portability.fn_api_runner import fn_runner

import beamlike as bl
from beamlike.beam import BeamlikeRunner
from tests.beam.recorded import record_in_file, take_records

ON_SPARK: Final = os.environ.get("BEAM_SUITE_ON") == "spark"
EXPECTED: Final = [
    Path(__file__).with_name(name)
    for name in ("failures.txt", *(["failures_on_spark.txt"] if ON_SPARK else []))
]
REPLACED: Final = {
    "BundleBasedDirectRunner",
    "DirectRunner",
    "FnApiRunner",
    "InteractiveRunner",
    "PrismRunner",
    "SwitchingDirectRunner",
    "TestDataflowRunner",
    "TestDirectRunner",
}
MARKERS: Final = (
    "it_postcommit",
    "it_validatesrunner",
    "no_sickbay_batch",
    "no_sickbay_streaming",
    "no_xdist",
    "sickbay_direct",
    "uses_dill",
    "uses_transform_service",
    "xlang_transforms",
)

_construct = beam_pipeline.Pipeline.__init__
_run_stages = BeamlikeRunner.run_stages
_runs: list[int] = [0]
_RECORDS: Final = Path(tempfile.mkdtemp(), "records")
_outcomes: dict[str, str] = {}


def _constructed(pipeline: Any, *arguments: Any, **named: Any) -> None:
    _construct(pipeline, *arguments, **named)
    given = pipeline.runner
    if type(given).__name__ in REPLACED:
        pipeline.runner = BeamlikeRunner(spark=spark())
        if type(given) is fn_runner.FnApiRunner:
            vars(pipeline.runner).update(vars(given))


def spark() -> Any:
    """Returns the runner on Spark, if the suites run on it."""
    settings = {"spark.ui.enabled": "false"}
    return bl.SparkRunner(master="local[1]", shards=1, quiet=True, config=settings) if ON_SPARK else None


def _counted(runner: BeamlikeRunner, *arguments: Any) -> Any:
    _runs[0] += 1
    result = _run_stages(runner, *arguments)
    take_records(_RECORDS)
    return result


def expected_failures() -> dict[str, str]:
    """Reads the listed failures: the id of each test, with the reason."""
    text = "\n".join(file.read_text() for file in EXPECTED)
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return dict(line.split(": ", 1) for line in lines)


def unlisted_failures() -> list[str]:
    """Returns the tests that have failed and are not listed."""
    expected = expected_failures()
    return [name for name, outcome in _outcomes.items() if outcome == "failed" and name not in expected]


def untrue() -> list[str]:
    """Returns the listed tests that have passed or are missing, of the classes that have run."""
    classes = {name.rpartition("::")[0] for name in _outcomes}
    listed = [name for name in expected_failures() if name.rpartition("::")[0] in classes]
    return [name for name in listed if _outcomes.get(name) != "failed"]


def pytest_configure(config: pytest.Config) -> None:
    beam_pipeline.Pipeline.__init__ = _constructed
    BeamlikeRunner.run_stages = _counted
    if ON_SPARK:
        record_in_file(_RECORDS)
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Iterator[None]:
    outcome: Any = yield
    report = outcome.get_result()
    name = item.nodeid.rsplit("site-packages/", 1)[-1].removeprefix("apache_beam/")
    item.stash.setdefault(_BEGAN, _runs[0])
    if report.failed:
        _outcomes[name] = "failed"
    elif report.when == "call" and report.passed:
        _outcomes[name] = "passed" if _runs[0] > item.stash[_BEGAN] else "ran no pipeline"
    elif report.skipped:
        _outcomes[name] = "skipped"


_BEGAN: Final = pytest.StashKey[int]()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    wrong = [*unlisted_failures(), *untrue()]
    if session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED if wrong else pytest.ExitCode.OK
    if out := os.environ.get("BEAM_SUITE_OUT"):
        Path(out).write_text("".join(f"{outcome}\t{name}\n" for name, outcome in sorted(_outcomes.items())))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    outcomes, expected = list(_outcomes.values()), expected_failures()
    counts = {each: outcomes.count(each) for each in ("passed", "failed", "skipped", "ran no pipeline")}
    terminalreporter.write_line(
        f"on BeamlikeRunner: {', '.join(f'{n} {each}' for each, n in counts.items())}"
    )
    for name, outcome in sorted(_outcomes.items()):
        if outcome == "failed":
            terminalreporter.write_line(f"{name}: {expected.get(name, 'NOT LISTED in ' + EXPECTED[-1].name)}")
    for name in untrue():
        terminalreporter.write_line(
            f"{name}: {_outcomes.get(name, 'missing')}, but is LISTED in {EXPECTED[-1].name}"
        )
