"""Trials: a job is killed again and again, as a seed says, and started again; then its sinks are looked at."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from tests.faults import plays
from tests.faults.outcome import Outcome, expected, outcome, records, taken
from tests.faults.processes import descendants, kill
from tests.faults.wires import IN_WORKERS, ON_DRIVER, Place, Victim, Wire, Wires

ROOT = Path(__file__).parents[2]
ALONE = "local[2,16]"  # a task whose Python worker was killed is tried again, up to 16 times in all
CLUSTER = "local-cluster[2,1,1024]"
_ROWS = 40  # of a file, about
_LONGEST = 900  # seconds that a process may take, on a machine that has much else to do
_STEPS = (0, 1, 1, 2)  # batches that a process gets done
_PLACES: tuple[Place | None, ...] = (*IN_WORKERS, *ON_DRIVER, None, None)  # None: wherever it is just then


@attrs.frozen
class Life:
    """What one process of the job meets: Python workers or executors are killed, and at last, maybe, it itself.

    `after`: so many seconds after the last wire was tripped, where that only tells how far a batch has come.
    """

    wires: Sequence[Wire]
    after: float = 0.0

    @property
    def ends_early(self) -> bool:
        """Whether it is killed."""
        return any(wire.victim in ("all", "driver", "later") for wire in self.wires)


def lives(seed: int, processes: int, workers: int) -> list[Life]:
    """So many processes that are killed, each after up to so many of its Python workers.

    All places come in turn; a batch that is done again may be cut short again. Of ten, one loses its driver only.
    """
    rng = random.Random(seed)
    made: list[Life] = []
    batch = 0
    while len(made) < processes:
        for place in rng.sample(_PLACES, len(_PLACES)):
            first, batch = batch, batch + rng.choice(_STEPS)
            wires = [
                Wire(rng.choice(IN_WORKERS), rng.randint(first, batch), "worker") for _ in range(workers)
            ]
            if place is None:
                made.append(Life([*wires, Wire("read", batch, "later")], rng.uniform(0, 2)))
            else:
                victim: Victim = "driver" if len(made) % 10 == 3 else "all"
                made.append(Life([*wires, Wire(place, batch, victim)]))
    return made[:processes]


def executors(seed: int, kills: int) -> Life:
    """One process, some executors of which are killed, one in a batch."""
    rng = random.Random(seed)
    return Life([Wire(rng.choice(IN_WORKERS), batch, "executor") for batch in range(1, kills + 1)])


@attrs.frozen
class Trial:
    """A folder with input, where the job is run."""

    folder: Path
    master: str

    @classmethod
    def of(cls, folder: Path, *, files: int, seed: int, master: str = ALONE) -> Trial:
        """With so many files of each source; a batch takes one of each."""
        plays.write(folder / "data", files=files, rows=_ROWS, seed=seed)
        return cls(folder, master)

    @property
    def wires(self) -> Wires:
        return Wires(str(self.folder / "wires"))

    def live(self, life: Life) -> list[Wire]:
        """Runs the job until it is killed; the wires that were tripped.

        Raises `AssertionError` with what it said if it ends in another way.
        """
        self.wires.lay(life.wires)
        command = [sys.executable, "-m", "tests.faults.job", str(self.folder), self.master]
        with (
            open(self.folder / "log", "ab") as log,
            subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log) as job,
        ):
            try:
                if life.after:
                    self._wait_and_kill(job, life.after)
                status = job.wait(_LONGEST)
            finally:
                if job.poll() is None:
                    kill([job.pid, *descendants(job.pid)])
        said = (self.folder / "log").read_text()[-4000:]
        assert status == (-signal.SIGKILL if life.ends_early else 0), f"it ended with {status}\n{said}"
        left = self.wires.left()
        return [wire for wire in life.wires if wire not in left]

    def _wait_and_kill(self, job: subprocess.Popen[bytes], after: float) -> None:
        while job.poll() is None and any(wire.victim == "later" for wire in self.wires.left()):
            time.sleep(0.02)
        time.sleep(after)
        kill([job.pid, *descendants(job.pid)])

    def outcome(self) -> Outcome:
        """Of what was run so far."""
        return outcome(self.folder / "out", records(self.folder / "checkpoint"))

    def differences(self) -> list[str]:
        """Between that and what an undisturbed run gives."""
        return self.outcome().differences(expected(self.folder, taken(self.folder)))


def survive(
    folder: Path, planned: Sequence[Life], *, files: int, seed: int, master: str = ALONE
) -> Iterator[list[Wire]]:
    """Runs them all, and at last a process that nobody kills; gives the wires that each has tripped.

    Raises `AssertionError` with the differences if a row is lost, doubled or another than it should be.
    """
    trial = Trial.of(folder, files=files, seed=seed, master=master)
    for life in planned:
        yield trial.live(life)
    if any(life.ends_early for life in planned):
        trial.live(Life([]))
    found = trial.differences()
    assert not found, "\n".join(found)


def attempts(folder: Path, url: str | None) -> list[str]:
    """Runs all cases of `tests.faults.attempts`, with a database's url or not; a line for each says what was found."""
    command = [sys.executable, "-m", "tests.faults.attempts", str(folder), *([url] if url else [])]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_LONGEST, check=False)
    assert run.returncode == 0, run.stderr[-4000:]
    return run.stdout.splitlines()
