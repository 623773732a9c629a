"""The lock of a checkpoint: one holder at a time, who is named, and who leaves it free however he ends."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import beamlike as bl
from beamlike.spark.lock import RunLock

HOLD = """
import sys
from beamlike.spark.lock import RunLock
lock = RunLock.take("the-checkpoint", sys.argv[1], "the run of 'scores'")
print("held", flush=True)
sys.stdin.read()
"""


def take(file: Path) -> RunLock:
    return RunLock.take("the-checkpoint", str(file), "a test")


def test_who_holds_it_is_named_and_a_killed_process_leaves_it_free(tmp_path: Path) -> None:
    file = tmp_path / "beamlike" / "lock"
    job = [sys.executable, "-c", HOLD, str(file)]
    with subprocess.Popen(job, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            told = rf"the-checkpoint is in use by the run of 'scores' in process {holder.pid} on {socket.gethostname()}"
            with pytest.raises(
                bl.CheckpointError, match=re.escape(told) + r", since 20\d\d-.*; stop that first"
            ):
                take(file)
        finally:
            holder.kill()
    # What it wrote is still there, but nobody holds it.
    assert str(holder.pid) in file.read_text()
    take(file).release()


def test_within_a_process_it_is_one_holder_too(tmp_path: Path) -> None:
    lock = take(tmp_path / "lock")
    with pytest.raises(bl.CheckpointError, match=f"in use by a test in process {os.getpid()} "):
        take(tmp_path / "lock")
    lock.release()
    lock.release()
    other = take(tmp_path / "lock")
    # Who has released it does not release it for another.
    lock.release()
    with pytest.raises(bl.CheckpointError, match="in use"):
        take(tmp_path / "lock")
    other.release()


def test_one_that_has_not_signed_yet_holds_it(tmp_path: Path) -> None:
    lock = take(tmp_path / "lock")
    (tmp_path / "lock").write_text("")
    with pytest.raises(bl.CheckpointError, match="in use by another process"):
        take(tmp_path / "lock")
    lock.release()


def test_on_an_object_store_it_is_left_to_spark() -> None:
    RunLock.take("s3://bucket/c", "s3://bucket/c/beamlike/lock", "a test").release()
