"""Status files of a run, next to its records. They have its current activity; a lock on the file means that
it is alive.
"""

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
from beamlike.system.os_locks import remove_and_close
from stages.facts import SPARSE, from_json, to_json

Now = TypeVar("Now", "RunStatus", "TaskStatus")

_LOOKS: Final = 5


def status_file_of(records: str) -> str:
    """Returns the path of the status file of the run that writes these records.

    The file exists while the run lasts, and after the run was killed.
    """
    return f"{records}.now"


def task_folder_of(records: str) -> str:
    """Returns the folder with the status files of the tasks of the run, which may not exist."""
    return f"{records}.tasks"


@attrs.frozen
class RunStatus:
    """The content of a run's status file: its process, whether its clock is simulated, and the current batch.

    `page`: the address of Spark's own page about the run; empty in process.
    """

    pid: int
    host: str
    simulated: bool
    in_hand: CurrentBatch | None = None
    page: str = attrs.field(default="", metadata=SPARSE)


@attrs.frozen
class TaskStatus:
    """The content of a task's status file: its level (0: the sources), and its current batch."""

    level: int
    in_hand: CurrentBatch | None = None


@attrs.define(eq=False)
class RunStatusFile:
    """The status file of a run, locked by its process. `now` is the content between two batches."""

    path: str
    now: RunStatus
    _file: IO[bytes]

    @classmethod
    def take(
        cls, records: str | os.PathLike[str], *, simulated: bool = False, page: str = ""
    ) -> RunStatusFile:
        """Creates and locks the status file for these records. Raises `RecordsInUse` if another living run
        writes them.
        """
        path = status_file_of(os.path.abspath(records))
        try:
            file, _ = open_locked(path)
        except BlockingIOError:
            other = read_status(RunStatus, path)
            where = "" if other is None else f", in process {other.pid} on {other.host}"
            raise RecordsInUse(
                f"the records {os.fspath(records)!r} belong to another run that is alive{where}; stop that first, "
                "or name another file"
            ) from None
        slip = cls(path, RunStatus(os.getpid(), socket.gethostname(), simulated, page=page), file)
        slip.write(None)
        return slip

    def write(self, in_hand: CurrentBatch | None) -> None:
        """Writes the current batch to the file. Errors of storage, such as a full disk, are ignored."""
        if not self._file.closed:
            with suppress(OSError):
                # Many times in each batch, so without `attrs.evolve`, which takes several times as long.
                now = self.now
                _write(self._file, RunStatus(now.pid, now.host, now.simulated, in_hand, now.page))

    def remove(self) -> None:
        """Removes the file at the end of the run. Later calls change nothing."""
        if not self._file.closed:
            remove_and_close(self._file, self.path)


def write_status(path: str, now: TaskStatus) -> None:
    """Writes the status file of a task, in an existing folder."""
    with open(path, "r+b", buffering=0, opener=_made_if_missing) as file:
        _write(file, now)


def _made_if_missing(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CREAT, 0o644)


def _write(file: IO[bytes], now: RunStatus | TaskStatus) -> None:
    """Overwrites the file, which is cheap. If the content was longer, its rest stays after the new line."""
    content = to_json(now) + b"\n"
    if hasattr(os, "pwrite"):  # one call of the system instead of two, many times in each batch
        os.pwrite(file.fileno(), content, 0)
    else:
        file.seek(0)
        file.write(content)


def read_status(kind: type[Now], path: str) -> Now | None:
    """Reads a status file; None if there is no file, or it is incomplete."""
    for _ in range(_LOOKS):  # Repeated, since the process may be writing the file now.
        try:
            with open(path, "rb") as file:
                return from_json(kind, file.readline())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return None


def with_tasks(in_hand: CurrentBatch, records: str, levels: Mapping[str, int]) -> CurrentBatch:
    """Returns the current batch with the activities of its tasks. `levels` has the level of each stage.

    All tasks of a level have ended when the first task of a later level begins.
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
    """Merges equal activities of several tasks; those that began first are first."""
    found: dict[tuple[str, str, str], Activity] = {}
    for work in sorted(works, key=lambda work: work.since):
        what = work.kind, work.name, work.inside
        first = found.get(what)
        found[what] = work if first is None else attrs.evolve(first, tasks=first.tasks + work.tasks)
    return list(found.values())
