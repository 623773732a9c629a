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
    # Suites that resemble the code of users.
    "io.fileio_test",
    "io.parquetio_test",
    "io.textio_test",
    "transforms.periodicsequence_test",
    "dataframe.transforms_test",
    "ml.inference.base_test",
    "examples.snippets.snippets_test",
    "examples.complete.autocomplete_test",
    "examples.complete.estimate_pi_test",
    "examples.complete.game.game_stats_test",
    "examples.complete.game.hourly_team_score_test",
    "examples.complete.game.leader_board_test",
    "examples.complete.game.user_score_test",
    "examples.complete.tfidf_test",
    "examples.complete.top_wikipedia_sessions_test",
    "examples.cookbook.coders_test",
    "examples.cookbook.combiners_test",
    "examples.cookbook.filters_test",
    "examples.matrix_power_test",
    "yaml.main_test",
    "yaml.yaml_combine_test",
    "yaml.yaml_mapping_test",
)
CLASSES: Final = (
    "FnApiRunnerTest",
    "FnApiRunnerMetricsTest",
    "FnApiRunnerSplitTest",
    "FnApiBasedStateBackedCoderTest",
)
"""The classes of `FNS`. Others choose another worker of Beam or several, which this runner does not have."""
PARTS: Final = {
    FNS: CLASSES,
    "io.parquetio_test": ("TestParquet",),
    "io.textio_test": ("CsvTest", "JsonTest", "WriteStreamingTest"),
    "ml.inference.base_test": ("RunInferenceBaseTest",),
}
"""The classes of suites of which only some run. Others have no pipeline, or take long."""
LEFT_OUT: Final = (
    "io/parquetio_test.py::TestParquet::test_dynamic_work_rebalancing",
    "io/parquetio_test.py::TestParquet::test_sink_transform_multiple_row_group",
    "transforms/periodicsequence_test.py::PeriodicImpulseTest::test_fuzzy_length_and_interval",
    "transforms/periodicsequence_test.py::PeriodicImpulseTest::test_fuzzy_length_at_minimal_interval",
    "ml/inference/base_test.py::RunInferenceBaseTest::test_run_inference_timeout_does_garbage_collection",
    "ml/inference/base_test.py::RunInferenceBaseTest::test_run_inference_timeout_on_inference_dlq",
    "ml/inference/base_test.py::RunInferenceBaseTest::test_run_inference_timeout_on_load_dlq",
    "dataframe/transforms_test.py::TransformTest::test_groupby_apply",
    "dataframe/transforms_test.py::TransformTest::test_scalar",
)
"""Tests that pass, and take long."""
QUICK: Final = (
    "transforms.trigger_test",
    "transforms.window_test",
    "testing.test_stream_test",
    "transforms.userstate_test",
    "transforms.sideinputs_test",
    "pipeline_test",
)
"""The suites of `--quick`, besides that of the portable runner: those that check the most of the model."""


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


def job(python: Path, parts: list[str], *, spark: bool, quick: bool) -> list[str | Path]:
    """Returns the command that runs Beam's suites of which a name contains one of `parts`, or all."""
    suites, parts_of = (ON_SPARK, {FNS: CLASSES[:1]}) if spark else (SUITES, PARTS)
    where = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = subprocess.run(where, check=True, capture_output=True, text=True).stdout.strip()
    chosen = [suite for suite in (*suites, FNS) if not parts or any(part in suite for part in parts)]
    chosen = [suite for suite in chosen if not quick or suite in (*QUICK, FNS)]
    files = [
        f"{packages}/apache_beam/{suite.replace('.', '/')}.py{part}"
        for suite in chosen
        for part in [f"::{name}" for name in parts_of.get(suite, ())] or [""]
    ]
    options = [
        "-q",
        "-c",
        os.devnull,
        f"--rootdir={packages}",
        "-p",
        "no:cacheprovider",
        "-p",
        "tests.beam.plugin",
        *(f"--deselect=apache_beam/{name}" for name in LEFT_OUT),
    ]
    return [python, "-m", "pytest", "--no-header", "--tb=short", *options, *files]


def main() -> int:
    """Runs this project's own tests for Beam, then Beam's suites."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suites", nargs="*", help="parts of names of Beam's suites; all by default")
    parser.add_argument("--version", default=VERSION, help="the version of Beam")
    parser.add_argument("--spark", action="store_true", help="runs on Spark")
    parser.add_argument("--slow", action="store_true", help="runs only the slow tests of this project's own")
    parser.add_argument(
        "--quick", action="store_true", help="only the suites that check the most of the model"
    )
    given = parser.parse_args()
    python = environment(given.version, spark=given.spark or given.slow)
    own = [python, "-m", "pytest", "-o", "addopts=", "-W", "default", "-q", "-p", "no:cacheprovider", *OWN]
    own += ["-m", "slow" if given.slow else f"{'spark' if given.spark else 'not spark'} and not slow"]
    place = {"BEAM_SUITE_ON": "spark"} if given.spark else {}
    here = {"cwd": ROOT, "env": {**os.environ, "PYTHONPATH": str(ROOT), **place}}
    suites = job(python, given.suites, spark=given.spark, quick=given.quick)
    jobs = [own] if given.slow else [own, suites]
    return max(subprocess.run(each, **here).returncode for each in jobs)  # type: ignore[call-overload]


if __name__ == "__main__":
    sys.exit(main())
