"""Temporary folders: removed with their process, or when another one begins; those of runs are kept for a day."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from beamlike.spark.session import scratch
from beamlike.system.locks import Lock

HOLD = """
import sys
from beamlike.spark.session.scratch import scratch
(scratch() / "big").touch()
print(scratch(), flush=True)
sys.stdin.read()
"""
DAY = 24 * 60 * 60


@pytest.fixture(autouse=True)
def _of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_a_folder_goes_with_its_process_and_if_that_was_killed_with_the_next(tmp_path: Path) -> None:
    pipes: dict[str, int] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    job = [sys.executable, "-c", HOLD]
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    with (
        subprocess.Popen(job, env=env, text=True, **pipes) as killed,
        subprocess.Popen(job, env=env, text=True, **pipes) as ending,
    ):
        assert killed.stdout is not None
        assert ending.stdout is not None
        left, going = Path(killed.stdout.readline().strip()), Path(ending.stdout.readline().strip())
        killed.kill()
        killed.wait()
        mine = scratch.scratch.__wrapped__()
        assert {*mine.parent.iterdir()} == {going, mine}
        assert (going / "big").exists()
        ending.communicate("")
    assert not going.exists()
    assert not left.exists()


def test_a_checkpoint_of_a_run_is_kept_for_a_day_after_its_end(tmp_path: Path) -> None:
    def past(checkpoint: str, days: float) -> None:
        (Path(checkpoint) / "beamlike").mkdir(exist_ok=True)
        for path in [checkpoint, *map(str, Path(checkpoint).rglob("*"))]:
            when = os.stat(path).st_mtime - days * DAY
            os.utime(path, (when, when))

    recent, old, going, long = (scratch.temporary_checkpoint() for _ in range(4))
    past(recent, 0.9)
    past(old, 1.1)
    past(long, 1.1)
    (Path(long) / "beamlike" / "records.jsonl").touch()  # killed just now
    with Lock.take(f"{going}/beamlike/lock", "a run"):
        past(going, 9)
        new = scratch.temporary_checkpoint()
        assert {str(path) for path in Path(new).parent.iterdir()} == {recent, going, long, new}
