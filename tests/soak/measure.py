"""The measurements of the soak, their growth, and a picture of them."""

from __future__ import annotations

import os
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs
import numpy as np

from beamlike.records.model import BatchRecord

LIMITS = {
    "bytes of state": 0.5,  # goes up and down with the input
    "rows of state": 0.5,
    "memory of the JVM, MB": 0.15,
    "memory of Python workers, MB": 0.15,
    "memory of the driver's Python, MB": 0.15,
    "files in the checkpoint": 0.15,
    "files half written": 0.0,
    "seconds per batch": 0.5,
}
"""The allowed growth of each series over the second half of the run, relative to its mean."""

LEAST = {
    "memory of the driver's Python, MB": 20.0,
    "memory of Python workers, MB": 50.0,
    "files half written": 2.0,
}
"""Smaller growth does not count: a running batch has unfinished files."""


@attrs.define
class Measure:
    """Samples a run after each batch; `series` has a value for each of `times`, in seconds."""

    folder: Path
    began: float = attrs.field(factory=time.monotonic)
    times: list[float] = attrs.field(factory=list)
    series: defaultdict[str, list[float]] = attrs.field(factory=lambda: defaultdict(list))

    def take(self, record: BatchRecord) -> None:
        """Takes a sample."""
        memory = dict(resident())
        took = 0 if record.finished is None else (record.finished - record.processing_time) / 1e6
        sample = {
            "bytes of state": sum(stage.bytes for stage in record.stages.values()),
            "rows of state": sum(stage.live for stage in record.stages.values()),
            "memory of the JVM, MB": memory.get("java", 0),
            "memory of Python workers, MB": memory.get("workers", 0),
            "memory of the driver's Python, MB": memory.get("driver", 0),
            "files in the checkpoint": sum(1 for _ in self._checkpoint()),
            "files half written": sum(1 for _ in self._half_written()),
            "seconds per batch": took,
        }
        self.times.append(time.monotonic() - self.began)
        for name, value in sample.items():
            self.series[name].append(float(value))

    def _checkpoint(self) -> Iterator[str]:
        """Yields all files except the dead letters, which are output."""
        for _, folders, names in os.walk(self.folder / "checkpoint"):
            folders[:] = [name for name in folders if name != "dead-letters"]
            yield from names

    def _half_written(self) -> Iterator[str]:
        """Yields hidden files of sinks: those that a writer has not finished."""
        for sink in ("panes", "sums", "checkpoint/beamlike/dead-letters"):
            for _, _, names in os.walk(self.folder / sink):
                yield from (name for name in names if name.startswith((".", "_")) and name != "_SUCCESS")

    def growth(self, name: str) -> float:
        """Returns the growth of a series over its second half, by a linear fit, relative to its mean."""
        half = len(self.times) // 2
        times, values = np.array(self.times[half:]), np.array(self.series[name][half:])
        slope = np.polyfit(times - times[0], values, 1)[0] if len(times) > 2 else 0.0
        grown = float(slope * (times[-1] - times[0]))
        return 0.0 if grown < LEAST.get(name, 0.0) else grown / max(float(values.mean()), 1e-9)

    def complaints(self) -> list[str]:
        """Returns the series that grow more than allowed."""
        grown = {name: self.growth(name) for name in LIMITS}
        return [
            f"{name} grew by {share:.0%} over the second half, more than {LIMITS[name]:.0%}"
            for name, share in grown.items()
            if share > LIMITS[name]
        ]

    def draw(self, path: Path) -> None:
        """Draws the series."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(9, 1.7 * len(self.series)), layout="constrained")
        axes: Sequence[object] = figure.subplots(len(self.series), sharex=True)
        minutes = np.array(self.times) / 60
        for axis, (name, values) in zip(axes, self.series.items(), strict=True):
            axis.plot(minutes, values, linewidth=0.8)  # type: ignore[attr-defined]
            axis.set_title(f"{name}: {self.growth(name):+.0%} over the second half", loc="left", fontsize=9)  # type: ignore[attr-defined]
            axis.set_ylim(bottom=0)  # type: ignore[attr-defined]
            axis.axvline(minutes[len(minutes) // 2], color="grey", linewidth=0.5)  # type: ignore[attr-defined]
        axes[-1].set_xlabel("minutes")  # type: ignore[attr-defined]
        figure.savefig(path)


def resident() -> Iterator[tuple[str, float]]:
    """Yields MB in memory of this process, of the JVM below it, and of the Python workers below that."""
    listed = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,rss=,comm="], capture_output=True, text=True, check=True
    )
    rows = [line.split(None, 3) for line in listed.stdout.splitlines()]
    children = defaultdict[str, list[str]](list)
    facts = {}
    for pid, parent, size, command in rows:
        children[parent].append(pid)
        facts[pid] = (int(size) / 1024, command)
    yield "driver", facts[str(os.getpid())][0]
    sizes: defaultdict[str, float] = defaultdict(float)
    waiting = list(children[str(os.getpid())])
    while waiting:
        pid = waiting.pop()
        taken, command = facts[pid]
        waiting += children[pid]
        sizes["java" if "java" in command else "workers" if "python" in command else "other"] += taken
    yield from sizes.items()
