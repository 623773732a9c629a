"""The resources of this process and its descendants: CPU time, bytes written, and memory, of Java and of Python."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import attrs

_TICKS = os.sysconf("SC_CLK_TCK")


@attrs.frozen
class Used:
    """Wall seconds, CPU seconds of Java and of Python, and bytes that were written to files."""

    wall: float
    java: float
    python: float
    written: float

    @property
    def cpu(self) -> float:
        return self.java + self.python

    def since(self, begin: Self) -> Self:
        """Returns the difference of two readings."""
        pairs = zip(attrs.astuple(self), attrs.astuple(begin), strict=True)
        return type(self)(*(now - before for now, before in pairs))


@attrs.frozen
class Member:
    """A process: its name, and the CPU seconds of it and of the children for which it waited."""

    pid: int
    parent: int
    name: str
    cpu: float

    @classmethod
    def read(cls, pid: int) -> Self | None:
        """Returns a process; None if it has ended."""
        text = _text(pid, "stat")
        if text is None:
            return None
        # The second field, a name, may hold spaces and brackets: count the others from its end (proc(5)).
        before, _, rest = text.rpartition(")")
        fields = rest.split()
        return cls(pid, int(fields[1]), before.partition("(")[2], sum(map(int, fields[11:15])) / _TICKS)

    @property
    def is_java(self) -> bool:
        return self.name == "java"

    @property
    def written(self) -> int:
        """The bytes that it has written to files; 0 if it has ended."""
        lines = (_text(self.pid, "io") or "").splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("write_bytes:"))

    @property
    def memory(self) -> int:
        """The bytes of its memory, in which a shared page counts as its share; 0 if it has ended."""
        lines = (_text(self.pid, "smaps_rollup") or "").splitlines()
        return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))

    @property
    def files(self) -> int:
        """The number of its open files; 0 if it has ended."""
        try:
            return len(os.listdir(f"/proc/{self.pid}/fd"))
        except OSError:
            return 0


def _text(pid: int, name: str) -> str | None:
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except OSError:
        return None


def family() -> list[Member]:
    """Returns this process and its descendants."""
    everything = (Member.read(int(name)) for name in os.listdir("/proc") if name.isdigit())
    children: dict[int, list[Member]] = {}
    own = list[Member]()
    for member in everything:
        if member is not None:
            children.setdefault(member.parent, []).append(member)
            own += [member] if member.pid == os.getpid() else []
    for member in own:
        own += children.get(member.pid, [])
    return own


@attrs.define
class Meter:
    """Reads the resources used so far. Its own CPU time does not count."""

    _own: float = attrs.field(default=0.0, init=False)

    def read(self) -> Used:
        with self.aside():
            members = family()
            java = sum(member.cpu for member in members if member.is_java)
            others = sum(member.cpu for member in members[1:] if not member.is_java)
            written = sum(member.written for member in members)
        return Used(time.monotonic(), java, others + time.process_time() - self._own, written)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Leaves out the CPU time of the `with` block."""
        begin = time.thread_time()
        try:
            yield
        finally:
            self._own += time.thread_time() - begin


def memory(members: Sequence[Member]) -> dict[str, float]:
    """Returns the megabytes of the driver's Python, of Java and of the Python workers, and the open files of all."""
    parts = {
        "driver MB": [members[0]],
        "Java MB": [member for member in members if member.is_java],
        "workers MB": [member for member in members[1:] if not member.is_java],
    }
    megabytes = {name: sum(member.memory for member in part) / 1e6 for name, part in parts.items()}
    return {**megabytes, "open files": sum(member.files for member in members)}
