"""The benchmark's measurements, compared with processes that know their own CPU time."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.measure import Usage, measure

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="measure reads /proc")

SLACK = 0.4  # CPU seconds to start and end the interpreter
BURN = """
import os, signal, sys, time

def burn(seconds):
    start = time.process_time()
    while time.process_time() - start < seconds:
        pass

def child(seconds):
    pid = os.fork()
    if pid == 0:
        burn(seconds)
        os._exit(0)
    return pid
"""


def run(program: str) -> Usage:
    return measure([sys.executable, "-S", "-c", BURN + program])


def test_the_command_itself_counts():
    usage = run("burn(0.5)")
    assert 0.5 <= usage.cpu <= 0.5 + SLACK
    assert usage.wall >= 0.5


def test_children_that_are_waited_for_count():
    assert 0.7 <= run("os.waitpid(child(0.5), 0)\nburn(0.2)").cpu <= 0.7 + SLACK


def test_orphans_that_outlive_the_command_count():
    usage = run("child(1.0)")
    assert 1.0 <= usage.cpu <= 1.0 + SLACK
    assert usage.wall < 1.0  # that of the command alone


def test_grandchildren_that_outlive_their_parents_count():
    usage = run("if os.fork() == 0:\n    os.setsid()\n    child(0.5)\nburn(0.2)")
    assert 0.9 <= usage.cpu <= 0.9 + SLACK  # both processes of the fork burn 0.2


def test_children_that_nobody_waits_for_count_until_they_were_last_seen():
    # PySpark's daemon ignores SIGCHLD: the kernel adds the time of its workers to no account.
    ignoring = "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\nchild(1.0)\n"
    until_it_ended = "try:\n    os.wait()\nexcept ChildProcessError:\n    burn(0.2)"
    assert 0.9 <= run(ignoring + until_it_ended).cpu <= 1.2 + SLACK


def test_children_that_nobody_waits_for_count_once_where_they_outlive_their_parent():
    usage = run("signal.signal(signal.SIGCHLD, signal.SIG_IGN)\nchild(0.8)\nburn(0.3)")
    assert 1.1 <= usage.cpu <= 1.1 + SLACK


def test_memory_is_that_of_all_processes_together():
    grow = "if pid == 0:\n    more = bytearray(60_000_000)\n    burn(0.5)\n    os._exit(0)\n"
    usage = run("block = bytearray(60_000_000)\npid = os.fork()\n" + grow + "os.wait()")
    assert usage.memory >= 180_000_000  # the first block counts in both processes


def test_the_exit_code_and_the_output_are_those_of_the_command(tmp_path: Path):
    with open(tmp_path / "log", "w") as log:
        usage = measure([sys.executable, "-c", "print('here', flush=True); raise SystemExit(3)"], log=log)
    assert usage.code == 3
    assert (tmp_path / "log").read_text() == "here\n"
