"""A Beam pipeline on Spark that is killed 20 times has the output of a run that is not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from signal import SIGKILL

import pytest

pytest.importorskip("apache_beam")
pytest.importorskip("pyspark")

from tests.beamlike.beam.planned.killed_on_spark import expected, places
from tests.beamlike.beam.planned.readings import written

KILLS = 20


@pytest.mark.slow
def test_a_run_on_spark_that_is_killed_20_times_has_the_same_output(tmp_path: Path) -> None:
    traps, log = tmp_path / "traps", tmp_path / "log"
    for name in ("out", "traps"):
        tmp_path.joinpath(name).mkdir()
    job = [sys.executable, "-m", "tests.beamlike.beam.planned.killed_on_spark", str(tmp_path)]

    def run() -> int:
        with log.open("wb") as out:
            return subprocess.run(job, stdout=out, stderr=out).returncode

    kills = places()
    for place in sorted([*kills, *kills[: KILLS - len(kills)]], key=kills.index):
        traps.joinpath(place).touch()
        assert run() == -SIGKILL, f"{place}: {log.read_text()[-4000:]}"
        assert not traps.joinpath(place).exists()
    assert run() == 0, log.read_text()[-4000:]
    assert written(tmp_path) == expected()
