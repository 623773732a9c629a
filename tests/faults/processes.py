"""Processes and their children, killed together; found by `ps`, which Linux and macOS have."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterable


def parents() -> dict[int, int]:
    """Returns the parent of every process of this machine."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True)
    return {int(pid): int(parent) for pid, parent in map(str.split, listed.stdout.splitlines())}


def descendants(root: int) -> list[int]:
    """Returns all descendants of a process: Spark's Python workers are in process groups of their own."""
    table = parents()
    found = [root]
    for one in found:
        found += [pid for pid, parent in table.items() if parent == one and pid not in found]
    return found[1:]


def kill(pids: Iterable[int]) -> None:
    """Sends SIGKILL to each process, this one last."""
    for pid in sorted(pids, key=lambda pid: pid == os.getpid()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
