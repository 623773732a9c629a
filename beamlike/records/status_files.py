"""Small files beside the records of a run that say what it is at, and by a lock whether it is alive."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, Final, TypeVar

import attrs

from beamlike.errors import RecordsInUse
from beamlike.system.activity import Activity, CurrentBatch
from beamlike.system.locks import open_locked
from stages.facts import from_json, to_json

Now = TypeVar("Now", "RunStatus", "TaskStatus")

_LOOKS: Final = 5


def status_file_of(records: str) -> str:
    """The slip of the run that writes these records. It is there while the run goes on, or if it was killed."""
    return f"{records}.now"


def task_folder_of(records: str) -> str:
    """The folder with the slips of its tasks, where it has some."""
    return f"{records}.tasks"


@attrs.frozen
class RunStatus:
    """What the slip of a run says: its process, whether its clock is simulated, and the batch in hand."""

    pid: int
    host: str
    simulated: bool
    in_hand: CurrentBatch | None = None


@attrs.frozen
class TaskStatus:
    """What the slip of a task says: of which level it is (0: of the sources), and what it is at."""

    level: int
    in_hand: CurrentBatch | None = None


@attrs.define(eq=False)
class RunStatusFile:
    """The slip of a run, which its process has locked. `now` is what it says, as long as nothing is in hand."""

    path: str
    now: RunStatus
    _file: IO[bytes]

    @classmethod
    def take(cls, records: str | os.PathLike[str], *, simulated: bool = False) -> RunStatusFile:
        """The slip beside these records. Raises `RecordsInUse` where another run that goes on writes them."""
        path = status_file_of(os.path.abspath(records))
        try:
            file, _ = open_locked(path)
        except BlockingIOError:
            other = read_status(RunStatus, path)
            where = "" if other is None else f", in process {other.pid} on {other.host}"
            raise RecordsInUse(
                f"the records {os.fspath(records)!r} are those of another run that goes on{where}; stop that first, "
                "or name another file"
            ) from None
        slip = cls(path, RunStatus(os.getpid(), socket.gethostname(), simulated), file)
        slip.write(None)
        return slip

    def write(self, in_hand: CurrentBatch | None) -> None:
        """What is in hand now. Storage that is full does not end a run for that."""
        if not self._file.closed:
            with suppress(OSError):
                _write(self._file.fileno(), attrs.evolve(self.now, in_hand=in_hand))

    def remove(self) -> None:
        """The run is over. A second call changes nothing."""
        if not self._file.closed:
            with suppress(FileNotFoundError):
                os.remove(self.path)
            self._file.close()


def write_status(path: str, now: TaskStatus) -> None:
    """The slip of a task, in a folder that is there."""
    number = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        _write(number, now)
    finally:
        os.close(number)


def _write(file: int, now: RunStatus | TaskStatus) -> None:
    """In place and at once, so that it costs next to nothing; what is left of a longer one is after the line."""
    os.pwrite(file, to_json(now) + b"\n", 0)


def read_status(kind: type[Now], path: str) -> Now | None:
    """What a slip of this kind says; None where there is none, or it is no whole one."""
    for _ in range(_LOOKS):  # it may be written just now
        try:
            with open(path, "rb") as file:
                return from_json(kind, file.readline())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return None


def with_tasks(in_hand: CurrentBatch, records: str, levels: Mapping[str, int]) -> CurrentBatch:
    """With what the tasks of the batch are at. `levels` has the level of each stage.

    All tasks of a level have ended when the first of a later one begins.
    """
    folder = task_folder_of(records)
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    slips = [
        slip for name in names if (slip := read_status(TaskStatus, os.path.join(folder, name))) is not None
    ]
    at_it = [
        (slip.level, slip.in_hand)
        for slip in slips
        if slip.in_hand is not None and slip.in_hand.batch == in_hand.batch
    ]
    done = dict(in_hand.done)
    for stage, level in levels.items():
        later = [task.started for other, task in at_it if other > level]
        if later:
            done[stage] = min(later)
    works = [*in_hand.works, *(work for _, task in at_it for work in task.works)]
    return attrs.evolve(in_hand, works=tuple(_together(works)), done=done)


def _together(works: list[Activity]) -> list[Activity]:
    """What several tasks are at, once, the longest first."""
    found: dict[tuple[str, str, str], Activity] = {}
    for work in sorted(works, key=lambda work: work.since):
        what = work.kind, work.name, work.inside
        first = found.get(what)
        found[what] = work if first is None else attrs.evolve(first, tasks=first.tasks + work.tasks)
    return list(found.values())
