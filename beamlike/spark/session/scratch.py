"""Temporary folders of this process, and of runs without a checkpoint. Removes folders that killed processes left."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from beamlike.system.locks import Lock, is_locked, left_by_killed
from beamlike.system.own_folder import own_folder

_PROCESS: Final = "process-"
_RUN: Final = "run-"
_KEPT: Final = 24 * 60 * 60  # seconds


@functools.cache
def scratch() -> Path:
    """Returns a folder for files that this process needs until it ends."""
    for left in left_by_killed(f"{own_folder()}/{_PROCESS}*/lock"):
        shutil.rmtree(os.path.dirname(left.path), ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=_PROCESS, dir=own_folder()))
    atexit.register(_remove, folder, Lock.take(str(folder / "lock"), "its process"))
    return folder


def _remove(folder: Path, lock: Lock) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    lock.release()


def temporary_checkpoint() -> str:
    """Creates a folder for a run without a checkpoint. Removes folders of runs that ended more than a day ago.

    Until then, users can read their records and dead letters.
    """
    for checkpoint in Path(own_folder()).glob(f"{_RUN}*"):
        if not is_locked(str(checkpoint / "beamlike" / "lock")) and _age(checkpoint) > _KEPT:
            shutil.rmtree(checkpoint, ignore_errors=True)
    return tempfile.mkdtemp(prefix=_RUN, dir=own_folder())


def _age(checkpoint: Path) -> float:
    """Returns the seconds since the run last wrote something, whether or not its lock still exists."""
    found = [checkpoint, checkpoint / "beamlike", *checkpoint.glob("beamlike/*")]
    return time.time() - max(map(_modified, found))


def _modified(path: Path) -> float:
    with suppress(OSError):
        return path.stat().st_mtime
    return 0.0
