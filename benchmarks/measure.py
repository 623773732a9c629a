"""Wall time, CPU time and memory of a command together with its descendants."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import attrs

_PR_SET_CHILD_SUBREAPER = 36
_SIGCHLD_BIT = 1 << (signal.SIGCHLD - 1)
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_INTERVAL = 0.1  # between two looks at the processes, seconds
_PATIENCE = 30.0  # with processes that outlive the command, seconds


@attrs.frozen
class Usage:
    """The resources of a command: wall seconds until it ended, CPU seconds of its whole process tree, the greatest
    sum of the tree's resident memory (bytes; a shared page counts in each process), and its exit code.
    """

    wall: float
    cpu: float
    memory: int
    code: int


def measure(
    command: Sequence[str], *, env: Mapping[str, str] | None = None, log: IO[str] | None = None
) -> Usage:
    """Runs `command` until it and all its descendants have ended, and returns their resources. Linux only.

    Output goes to `log` where one is given. The command runs below a process of its own, so that other
    children of the caller do not count. A descendant that is still there 30 s after the command is killed.
    """
    if not sys.platform.startswith("linux"):
        raise OSError(f"measure: needs Linux (/proc and a child subreaper), this is {sys.platform}")
    with tempfile.NamedTemporaryFile("r", suffix=".json") as report:
        helper = [sys.executable, str(Path(__file__).resolve()), report.name, *command]
        subprocess.run(helper, env=env, stdout=log, stderr=log, check=True)
        return Usage(**json.load(report))


@attrs.frozen
class _Process:
    pid: int
    parent: int
    ticks: int  # of CPU, its own and those of the children that it waited for
    memory: int  # bytes


class Watch(threading.Thread):
    """Polls the descendants of a process.

    If the parent of a process ignores SIGCHLD (the workers of PySpark's daemon), no process waits for it, so the kernel
    adds its CPU time to no account: its last known CPU time is stored in `unclaimed`. If its parent dies first, this
    process may inherit it: such CPU time is in `claimed`.
    """

    def __init__(self, root: int) -> None:
        super().__init__(daemon=True)
        self.root = root
        self.unclaimed: dict[int, int] = {}
        self.claimed: set[int] = set()
        self.memory = 0
        self.deadline = float("inf")
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.wait(_INTERVAL):
            self._look()

    def lost(self) -> float:
        """Returns the CPU seconds of the processes for which no process waited."""
        return sum(ticks for pid, ticks in self.unclaimed.items() if pid not in self.claimed) / _TICKS

    def cpu(self) -> float:
        """Returns the CPU seconds so far of the process and all that it has started."""
        family = [one for one in (_process(self.root), *_descendants(self.root)) if one is not None]
        alive = {one.pid for one in family}
        gone = sum(ticks for pid, ticks in [*self.unclaimed.items()] if pid not in alive)
        return (sum(one.ticks for one in family) + gone) / _TICKS

    def _look(self) -> None:
        family = _descendants(self.root)
        ignoring = {parent for parent in {process.parent for process in family} if _ignores_children(parent)}
        for process in family:
            if process.parent in ignoring:
                self.unclaimed[process.pid] = process.ticks
        memory = sum(process.memory for process in family)
        if self.root != os.getpid() and (own := _process(self.root)) is not None:
            memory += own.memory
        self.memory = max(self.memory, memory)
        if time.monotonic() > self.deadline:
            for process in family:
                _kill(process.pid)


def cpu_of_family(root: int) -> float:
    """Returns the CPU seconds so far of a process, its descendants, and the processes that they waited for."""
    known = [_process(root), *_descendants(root)]
    return sum(process.ticks for process in known if process is not None) / _TICKS


def _descendants(root: int) -> list[_Process]:
    children: dict[int, list[_Process]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (process := _process(int(name))) is not None:
            children.setdefault(process.parent, []).append(process)
    found: list[_Process] = []
    parents = [root]
    while parents:
        below = children.get(parents.pop(), [])
        found.extend(below)
        parents.extend(process.pid for process in below)
    return found


def _process(pid: int) -> _Process | None:
    try:
        # The second field, a name, may hold spaces and brackets: count the others from its end (proc(5)).
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return _Process(pid, int(fields[1]), sum(map(int, fields[11:15])), int(fields[21]) * _PAGE)


def _ignores_children(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    ignored = next(line for line in status.splitlines() if line.startswith("SigIgn:"))
    return bool(int(ignored.split()[1], 16) & _SIGCHLD_BIT)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _run(command: Sequence[str]) -> Usage:
    """Runs the command as a child of this process, which adopts all orphans of the family."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
    watch = Watch(os.getpid())
    start = time.monotonic()
    root = os.posix_spawnp(command[0], list(command), os.environ)
    watch.start()
    wall, code = 0.0, 0
    while True:
        try:
            pid, status = os.waitpid(-1, 0)
        except ChildProcessError:
            break
        watch.claimed.add(pid)
        if pid == root:
            wall, code = time.monotonic() - start, os.waitstatus_to_exitcode(status)
            watch.deadline = time.monotonic() + _PATIENCE
    watch.ended.set()
    watch.join()
    account = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = account.ru_utime + account.ru_stime + watch.lost()
    return Usage(wall, cpu, watch.memory, code)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(attrs.asdict(_run(sys.argv[2:]))))
