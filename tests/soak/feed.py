"""Input of the soak: files of two sources, in cycles of bursts, silence, clock jumps, late and invalid rows.

The files are written in real time, or ahead, by a simulated clock.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import attrs

CYCLE = 24.0
"""Seconds of a cycle, after which the input repeats, so that the halves of a run are alike."""

USERS = 300
EVERY = 0.5
"""Seconds from file to file of a source."""

STEP = 10.0
"""Seconds of a file with a simulated clock; it does not divide a cycle, so that files meet all phases."""


@attrs.define
class Feed:
    """Writes files in a thread until it is stopped; `rows` counts the lines by source."""

    folder: Path
    rows: Counter[str] = attrs.field(factory=Counter)
    files: int = 0
    _random: random.Random = attrs.field(factory=lambda: random.Random(7))
    _stop: threading.Event = attrs.field(factory=threading.Event)
    _thread: threading.Thread | None = None

    def __attrs_post_init__(self) -> None:
        for name in ("mobile", "web"):
            (self.folder / name).mkdir(parents=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stops the thread."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def simulate(self, files: int) -> None:
        """Writes `files` files of each source at once; each has the rows of `STEP` seconds."""
        began = datetime(2026, 1, 1, tzinfo=UTC)
        for number in range(1, files + 1):
            phase = number * STEP % CYCLE
            now = began + timedelta(seconds=number * STEP)
            self._file("mobile", [] if silent(phase) else self._lines(phase, now, STEP))
            self._file("web", self._lines(phase, now, STEP))

    def _write(self) -> None:
        began = time.monotonic()
        while not self._stop.wait(EVERY):
            phase = (time.monotonic() - began) % CYCLE
            if not silent(phase):
                self._file("mobile", self._lines(phase, datetime.now(UTC)))
            self._file("web", self._lines(phase, datetime.now(UTC)))

    def _lines(self, phase: float, now: datetime, span: float = 0.0) -> list[str]:
        """Returns rows, most of them of the last `span` seconds."""
        # A burst, then times that jump ahead for a moment and back: the rows after that are late.
        count = 2_000 if 2 <= phase < 4 else 200
        ahead = 8.0 if 16 <= phase < 17 else 0.0
        return [
            self._line(now + timedelta(seconds=ahead - self._random.uniform(0, span))) for _ in range(count)
        ]

    def _line(self, now: datetime) -> str:
        chance = self._random.random()
        if chance < 0.002:
            return '{"id": 1, "user": "cut o'
        delay = self._random.expovariate(2.0) if chance < 0.98 else self._random.uniform(5, 20)
        at = now - timedelta(seconds=delay)
        user = "nobody" if chance > 0.995 else f"user {self._random.randrange(USERS)}"
        return json.dumps(
            {
                "id": sum(self.rows.values()),
                "user": user,
                "at": "soon" if 0.002 <= chance < 0.004 else at.isoformat(),
                "value": -1.0 if 0.004 <= chance < 0.006 else self._random.random(),
            }
        )

    def _file(self, name: str, lines: list[str]) -> None:
        # Under a hidden name first: a reader must not see half a file.
        path = self.folder / name / f"{self.files:08d}.jsonl"
        hidden = path.with_name(f".{path.name}")
        hidden.write_text("".join(f"{line}\n" for line in lines))
        os.replace(hidden, path)
        self.files += 1
        self.rows[name] += len(lines)


def silent(phase: float) -> bool:
    """True if the one source is idle for longer than the job waits for it."""
    return 8 <= phase < 14
