"""Locks of the operating system on files. They end with the process that holds them."""

from __future__ import annotations

import glob
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from types import TracebackType
from typing import IO, Final, Self

import attrs

from beamlike.system import os_locks
from beamlike.system.path_names import is_remote

_NO_LINK: Final = getattr(os, "O_NOFOLLOW", 0)
_LOOKS: Final = 5
_PAUSE: Final = 0.01  # seconds


class InUse(RuntimeError):
    """Raised if another process holds a lock. The message names the process."""


@attrs.define(eq=False)
class Lock:
    """A file that this process has locked. Its content names the process. It is removed when the lock is released.

    Object stores, and some file systems, have no locks. There, `held` is False, and no other process is refused.
    """

    path: str
    _file: IO[bytes] | None

    @classmethod
    def take(cls, path: str, what: str) -> Self:
        """Locks the file at `path`, which is created if needed. `what` describes the holder in errors of other
        processes.

        Raises `InUse` if another process has locked the file.
        """
        if is_remote(path):
            return cls(path, None)
        path = os.path.abspath(path)  # a user's function may change the working directory
        try:
            file, locked = open_locked(path)
        except BlockingIOError:
            raise InUse(_holder(path)) from None
        if not locked:
            file.close()
            os.remove(path)
            return cls(path, None)
        since = datetime.now(UTC).isoformat(timespec="seconds")
        facts = {"what": what, "host": socket.gethostname(), "pid": os.getpid(), "since": since}
        file.truncate(0)
        file.write(json.dumps(facts).encode())
        return cls(path, file)

    @property
    def held(self) -> bool:
        """True if the lock excludes other processes."""
        return self._file is not None

    def release(self) -> None:
        """Releases the lock. Later calls have no effect."""
        if self._file is not None:
            os_locks.remove_and_close(self._file, self.path)
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def open_locked(path: str) -> tuple[IO[bytes], bool]:
    """Opens and locks a file, which is created if needed. Returns (the file, False if the file system has no locks).

    Raises `BlockingIOError` if another process has locked it, and `OSError` for a link, which is not followed. Only a
    process that has locked a file removes it.
    """
    os.makedirs(os.path.dirname(path), exist_ok=True)
    while True:
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | _NO_LINK, 0o666), "r+b", buffering=0)
        try:
            locked = _lock(file)
            # The process that held the lock may have removed the file. A later process then creates and locks
            # another file.
            if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                return file, locked
        except FileNotFoundError:
            pass
        except BaseException:
            file.close()
            raise
        file.close()


def _lock(file: IO[bytes]) -> bool:
    """Locks the file. Returns False if there are no locks."""
    for _ in range(_LOOKS - 1):
        try:
            return os_locks.lock(file)
        except BlockingIOError:  # a process that only checks the lock holds it for a moment
            time.sleep(_PAUSE)
    return os_locks.lock(file)


def is_locked(path: str) -> bool | None:
    """True if a running process has locked the file; None if that is unknown."""
    try:
        with open(path, "rb") as file:
            free = os_locks.is_free(file)
    except OSError:
        return None
    return None if free is None else not free


def left_by_killed(pattern: str) -> Iterator[Lock]:
    """Yields the locks matching a glob that killed processes of this machine have left. Each is held until the next.

    Locks of another machine may not be visible here, so its files are left alone.
    """
    for path in glob.glob(pattern):
        if is_locked(path) is False and _signed_here(path):
            with suppress(InUse), Lock.take(path, "what removes it, as its process was killed,") as lock:
                if lock.held:
                    yield lock


def _signed_here(path: str) -> bool:
    with suppress(OSError, ValueError), open(path, "rb") as file:
        return bool(json.load(file)["host"] == socket.gethostname())
    return False


def _holder(path: str) -> str:
    try:
        with open(path, "rb") as file:
            facts = json.load(file)
    except (OSError, ValueError):  # the holder has not written its name yet
        return "another process"
    return "{what} in process {pid} on {host}, since {since}".format(**facts)
