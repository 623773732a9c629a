"""Trials in process: a run with a checkpoint is killed repeatedly, and then its sinks are checked."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import IO

import attrs

from tests.faults import moods, plays
from tests.faults.outcome import Batch, expected, outcome, records
from tests.faults.processes import kill
from tests.faults.wires import IN_WORKERS, ON_DRIVER, Place, Wire, Wires

ROOT = Path(__file__).parents[2]
_STEPS = (0, 0, 1, 1, 2)  # batches that get done between two deaths
_LONGEST = 0.3  # seconds after a batch has begun, within which a process is killed that is killed anywhere
_PLACES: tuple[Place | None, ...] = (
    *IN_WORKERS,
    *ON_DRIVER,
    None,
    None,
    None,
)  # None: at any place


@attrs.frozen
class Death:
    """The end of one process: by a wire, perhaps after other runs in it have failed, or `after` some seconds."""

    wires: Sequence[Wire]
    after: float | None = None

    @property
    def count(self) -> int:
        """The number of runs that end."""
        return len(self.wires)

    def __str__(self) -> str:
        last = self.wires[-1]
        where = last.place if self.after is None else f"{1000 * self.after:.0f} ms after {last.place}"
        before = "".join(f"an exception at {wire.place}, " for wire in self.wires[:-1])
        return f"{before}SIGKILL at {where} of batch {last.batch}"


def deaths(seed: int, count: int) -> list[Death]:
    """Returns kills of `count` processes, at all places in turn; before every third, a run in it fails."""
    rng = random.Random(seed)
    places = cycle(rng.sample(_PLACES, len(_PLACES)))
    made: list[Death] = []
    batch = 0
    for number in range(count):
        fails = [Wire(rng.choice(ON_DRIVER), batch, "exception")] if number % 3 == 2 else []
        batch += rng.choice(_STEPS)
        place = next(places)
        if place is None:
            made.append(Death([*fails, Wire("read", batch, "later")], rng.uniform(0, _LONGEST)))
        else:
            made.append(Death([*fails, Wire(place, batch, "all")]))
    return made


@attrs.define
class LocalTrial:
    """A folder with `files` files of each source, where the job is run in process; a batch reads one of each."""

    folder: Path
    files: int
    _job: subprocess.Popen[str] = attrs.field(init=False)
    _log: IO[bytes] = attrs.field(init=False)

    @classmethod
    def of(cls, folder: Path, *, files: int, seed: int) -> LocalTrial:
        plays.write(folder / "data", files=files, seed=seed)
        return cls(folder, files)

    def __enter__(self) -> LocalTrial:
        self._log = open(self.folder / "log", "ab")
        command = [sys.executable, "-m", "tests.faults.local_job", str(self.folder)]
        self._job = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._job.kill()
        self._job.communicate()
        self._log.close()

    @property
    def wires(self) -> Wires:
        return Wires(str(self.folder / "wires"))

    def live(self, death: Death | None) -> None:
        """Runs the job until it is killed, or to its end. Raises `AssertionError` for any other end."""
        self.wires.lay(death.wires if death else [])
        assert self._job.stdin is not None
        assert self._job.stdout is not None
        (self.folder / "wires" / "driver").unlink(missing_ok=True)
        self._job.stdin.write("once more\n")
        self._job.stdin.flush()
        if death is not None and death.after is not None:
            self._wait_and_kill(death.after)
        status = self._job.stdout.readline().strip()
        said = (self.folder / "log").read_text()[-4000:]
        assert status == (str(-signal.SIGKILL) if death else "0"), f"it ended with {status!r}\n{said}"

    def _wait_and_kill(self, after: float) -> None:
        while self.wires.left() and self._job.poll() is None:
            time.sleep(0.005)
        time.sleep(after)
        kill([int((self.folder / "wires" / "driver").read_text())])

    def differences(self) -> list[str]:
        """Returns the differences between the output and that of an undisturbed run with the same batches."""
        out, checkpoint = self.folder / "out", self.folder / "checkpoint"
        found = outcome(out, records(checkpoint)).differences(expected(self.folder, self._batches()))
        letters = checkpoint / "beamlike" / "dead-letters"
        return [*found, *moods.differences(out, letters, records(checkpoint))]

    def _batches(self) -> list[Batch]:
        files = {
            source: sorted(map(str, (self.folder / "data" / source).iterdir())) for source in plays.SOURCES
        }
        return [{source: [files[source][number]] for source in files} for number in range(self.files)]


def survive_in_process(folder: Path, planned: Sequence[Death], *, seed: int) -> Iterator[Death]:
    """Runs all these deaths, and at last to the end; yields each death after it has happened.

    Raises `AssertionError` with the differences if a row is lost, doubled or changed.
    """
    files = max((wire.batch for death in planned for wire in death.wires), default=0) + 4
    with LocalTrial.of(folder, files=files, seed=seed) as trial:
        for death in planned:
            trial.live(death)
            yield death
        trial.live(None)
    found = trial.differences()
    assert not found, "\n".join(found)
