"""Locks: one holder at a time, named in errors; a lock is free when its process ends in any way."""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from beamlike.system import locks
from beamlike.system.locks import InUse, Lock, is_locked, left_by_killed

HOLD = """
import sys
from beamlike.system.locks import Lock
lock = Lock.take(sys.argv[1], "the run of 'scores'")
print("held", flush=True)
sys.stdin.read()
"""


def take(file: Path) -> Lock:
    return Lock.take(str(file), "a test")


def test_who_holds_it_is_named_and_a_killed_process_leaves_it_free(tmp_path: Path) -> None:
    file = tmp_path / "beamlike" / "lock"
    job = [sys.executable, "-c", HOLD, str(file)]
    with subprocess.Popen(job, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            told = rf"the run of 'scores' in process {holder.pid} on {socket.gethostname()}, since 20"
            with pytest.raises(InUse, match=re.escape(told)):
                take(file)
            assert is_locked(str(file))
            assert [*left_by_killed(str(file))] == []
        finally:
            holder.kill()
    # Its file remains, but the lock is free.
    assert str(holder.pid) in file.read_text()
    assert is_locked(str(file)) is False
    take(file).release()
    assert not file.exists()


def test_what_a_killed_process_of_this_machine_has_left_is_found_and_goes(tmp_path: Path) -> None:
    facts = {"what": "x", "host": socket.gethostname(), "pid": 1, "since": "yesterday"}
    for name, said in {
        "mine": json.dumps(facts),
        "of another machine": json.dumps({**facts, "host": "elsewhere"}),
        "not signed yet": "",
    }.items():
        (tmp_path / name).write_text(said)
    with take(tmp_path / "held"):
        for left in left_by_killed(f"{tmp_path}/*"):
            assert left.path == str(tmp_path / "mine")
            with pytest.raises(InUse, match="what removes it"):
                take(tmp_path / "mine")
        assert {path.name for path in tmp_path.iterdir()} == {"of another machine", "not signed yet", "held"}


def test_within_a_process_it_is_one_holder_too(tmp_path: Path) -> None:
    lock = take(tmp_path / "lock")
    with pytest.raises(InUse, match=f"^a test in process {os.getpid()} "):
        take(tmp_path / "lock")
    lock.release()
    lock.release()
    other = take(tmp_path / "lock")
    # A second release does not release another holder's lock.
    lock.release()
    with pytest.raises(InUse):
        take(tmp_path / "lock")
    other.release()


def test_one_that_has_not_signed_yet_holds_it(tmp_path: Path) -> None:
    with take(tmp_path / "lock"):
        (tmp_path / "lock").write_text("")
        with pytest.raises(InUse, match=r"^another process$"):
            take(tmp_path / "lock")


def test_a_file_that_its_holder_removes_meanwhile_is_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, lock = take(tmp_path / "lock"), locks._lock

    def late(file: IO[bytes]) -> bool:
        first.release()
        return lock(file)

    monkeypatch.setattr(locks, "_lock", late)
    with take(tmp_path / "lock") as second:
        assert second.held
        assert is_locked(second.path)
        with pytest.raises(InUse):
            take(tmp_path / "lock")
    assert [*tmp_path.iterdir()] == []


def test_where_a_file_system_has_no_locks_nothing_is_locked_and_nothing_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without(file: IO[bytes], how: int) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr("fcntl.flock", without)
    for _ in range(2):
        with take(tmp_path / "lock") as lock:
            assert not lock.held
    assert [*tmp_path.iterdir()] == []


def test_on_an_object_store_nothing_is_locked() -> None:
    for _ in range(2):
        assert not Lock.take("s3://bucket/c/beamlike/lock", "a test").held
