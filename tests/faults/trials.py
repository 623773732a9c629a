"""Trials: a job is killed repeatedly, by a seed, and restarted; then its sinks are checked."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path

import attrs

from tests.faults import moods, plays
from tests.faults.outcome import Outcome, expected, outcome, records, taken
from tests.faults.processes import descendants, kill
from tests.faults.wires import IN_WORKERS, ON_DRIVER, Place, Victim, Wire, Wires

ROOT = Path(__file__).parents[2]
ALONE = "local[2,{tries}]"
CLUSTER = "local-cluster[2,1,1024]"
_LONGEST = 900  # seconds that a process may take, on a machine that has much else to do
_TRIES = 16  # of a task whose Python worker was killed
_STEPS = (0, 1, 1, 2)  # batches that get done between two deaths
_RUNS = 5  # failing runs of a process before its own end, at most: starting Java takes longest
_PLACES: tuple[Place | None, ...] = (*IN_WORKERS, *ON_DRIVER, None, None)  # None: at any place


@attrs.frozen
class Life:
    """The faults of one process of the job: killed workers or executors, failing runs, and perhaps its own end.

    `after` is the delay in seconds after the last wire, where that only marks a batch. `tries` is the number of
    attempts at a task; after the last one its run fails, and the next one begins in the same process.
    """

    wires: Sequence[Wire]
    after: float = 0.0
    tries: int = _TRIES

    @property
    def ends_early(self) -> bool:
        """True if the process is killed."""
        return any(wire.victim in ("all", "driver", "later") for wire in self.wires)

    @property
    def deaths(self) -> int:
        """The number of ends of the process and of its runs."""
        return sum(is_death(wire, self.tries) for wire in self.wires)


def is_death(wire: Wire, tries: int) -> bool:
    """True if the wire ends a run."""
    return wire.victim not in ("worker", "executor") or (wire.victim == "worker" and tries == 1)


def lives(seed: int, deaths: int, workers: int) -> list[Life]:
    """Returns `deaths` ends of runs, each after up to `workers` killed workers whose task is repeated.

    The last death in a process is its own, at all places in turn; every fifth process loses its driver only. A batch
    that is repeated may be cut short again.
    """
    rng = random.Random(seed)
    places = cycle(rng.sample(_PLACES, len(_PLACES)))
    made: list[Life] = []
    batch = 0
    while left := deaths - sum(life.deaths for life in made):
        runs = min(rng.randint(1, _RUNS), left - 1)
        tries = rng.choice((1, _TRIES)) if runs else _TRIES
        wires: list[Wire] = []
        for number in range(runs + 1):
            # The process dies in a later batch than its runs, so that the runs end first.
            first, batch = batch, batch + (rng.choice(_STEPS) if number < runs else 1)
            if tries > 1:
                wires += _workers(rng, first, batch, workers)
            if number < runs:
                wires.append(_of_a_run(rng, batch, tries))
        victim: Victim = "driver" if len(made) % 5 == 3 else "all"
        place = next(places)
        last = Wire("read", batch, "later") if place is None else Wire(place, batch, victim)
        made.append(Life([*wires, last], rng.uniform(0, 2) if place is None else 0.0, tries))
    return made


def _workers(rng: random.Random, first: int, last: int, count: int) -> list[Wire]:
    return [Wire(rng.choice(IN_WORKERS), rng.randint(first, last), "worker") for _ in range(count)]


def _of_a_run(rng: random.Random, batch: int, tries: int) -> Wire:
    """Returns a wire that ends a run: the driver fails, or a worker is killed whose task is not repeated."""
    place = rng.choice((*IN_WORKERS, *ON_DRIVER) if tries == 1 else ON_DRIVER)
    return Wire(place, batch, "worker" if place in IN_WORKERS else "exception")


def files_for(planned: Sequence[Life]) -> int:
    """Returns the number of files of each source that is enough for all wires."""
    return max((wire.batch for life in planned for wire in life.wires), default=0) + 4


def executors(seed: int, kills: int) -> Life:
    """Returns one process in which executors are killed, one in each batch."""
    rng = random.Random(seed)
    return Life([Wire(rng.choice(IN_WORKERS), batch, "executor") for batch in range(1, kills + 1)])


@attrs.frozen
class Trial:
    """A folder with input, where the job is run."""

    folder: Path
    master: str
    state: str = "files"

    @classmethod
    def of(cls, folder: Path, *, files: int, seed: int, master: str = ALONE, state: str = "files") -> Trial:
        """Writes `files` files of each source; a batch reads one of each."""
        plays.write(folder / "data", files=files, seed=seed)
        return cls(folder, master, state)

    @property
    def wires(self) -> Wires:
        return Wires(str(self.folder / "wires"))

    def live(self, life: Life) -> list[Wire]:
        """Runs the job until it is killed, and returns the wires that were tripped.

        Raises `AssertionError` with its output if it ends in another way.
        """
        self.wires.lay(life.wires)
        master = self.master.format(tries=life.tries)
        command = [sys.executable, "-m", "tests.faults.job", str(self.folder), master, self.state]
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
        """Returns the outcome so far."""
        return outcome(self.folder / "out", records(self.folder / "checkpoint"))

    def differences(self) -> list[str]:
        """Returns the differences between the outcome and that of an undisturbed run."""
        out, checkpoint = self.folder / "out", self.folder / "checkpoint"
        letters = checkpoint / "beamlike" / "dead-letters"
        found = self.outcome().differences(expected(self.folder, taken(self.folder)))
        return [*found, *moods.differences(out, letters, records(checkpoint))]


def survive(
    folder: Path, planned: Sequence[Life], *, seed: int, master: str = ALONE, state: str = "files"
) -> Iterator[list[Wire]]:
    """Runs all lives, and at last one to its end; yields the wires that each has tripped.

    Raises `AssertionError` with the differences if a row is lost, doubled or changed.
    """
    trial = Trial.of(folder, files=files_for(planned), seed=seed, master=master, state=state)
    for life in planned:
        yield trial.live(life)
    if any(life.ends_early for life in planned):
        trial.live(Life([]))
    found = trial.differences()
    assert not found, "\n".join(found)


def attempts(folder: Path, url: str | None, state: str = "files") -> list[str]:
    """Runs all cases of `tests.faults.attempts`, perhaps with a database's URL; returns a line for each."""
    command = [sys.executable, "-m", "tests.faults.attempts", str(folder), state, *([url] if url else [])]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_LONGEST, check=False)
    assert run.returncode == 0, run.stderr[-4000:]
    return run.stdout.splitlines()
