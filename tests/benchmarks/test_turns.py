"""The resources of each turn of a process that stays, compared with processes that know their own CPU time."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from benchmarks.engines import Failed
from benchmarks.peers import turns
from benchmarks.turns import Job

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="measure reads /proc")

SLACK = 0.3  # CPU seconds
ROUNDING = 4 / os.sysconf("SC_CLK_TCK")  # the user and system time of two processes, each in whole ticks
PEERS = Path(turns.__file__).parent
JOB = f"""
import os, sys, time
sys.path.insert(0, {str(PEERS)!r})
from turns import turns

def burn(seconds):
    start = time.process_time()
    while time.process_time() - start < seconds:
        pass

for folder in turns():
    if folder.name == "fail":
        raise SystemExit(3)
    if os.fork() == 0:
        burn(float(folder.name))
        os._exit(0)
    os.wait()
    print(folder.name, flush=True)
"""


def test_each_turn_has_the_cpu_time_of_its_own(tmp_path: Path) -> None:
    with (
        open(tmp_path / "log", "w") as log,
        Job.of([sys.executable, "-c", JOB], os.environ, log) as job,
    ):
        used = [job.turn(tmp_path / seconds) for seconds in ("0.1", "0.6", "0.2")]
    for usage, seconds in zip(used, (0.1, 0.6, 0.2), strict=True):
        assert seconds - ROUNDING <= usage.cpu <= seconds + SLACK
        assert usage.wall >= seconds
    assert (tmp_path / "log").read_text().split() == ["0.1", "0.6", "0.2"]


def test_a_process_that_ends_meanwhile_is_told(tmp_path: Path) -> None:
    with (
        open(tmp_path / "log", "w") as log,
        Job.of([sys.executable, "-c", JOB], os.environ, log) as job,
    ):
        job.turn(tmp_path / "0.1")
        with pytest.raises(Failed, match="code 3"):
            job.turn(tmp_path / "fail")
        with pytest.raises(Failed, match="ended before its turn"):
            job.turn(tmp_path / "0.1")
