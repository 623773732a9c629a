"""Locks of the operating system on files: they go with the process that holds them, however it ends."""

from __future__ import annotations

import errno
import glob
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from importlib.util import find_spec
from types import TracebackType
from typing import IO, Final, Self

import attrs

from beamlike.system.path_names import is_remote

_LOCKS: Final = find_spec("fcntl") is not None
_WITHOUT_LOCKS: Final = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_LOOKS: Final = 5
_PAUSE: Final = 0.01  # seconds


class InUse(RuntimeError):
    """Somebody else has the lock; the message says who."""


@attrs.define(eq=False)
class Lock:
    """A file that this process has locked, and in which stands who has it. It is removed when it is released.

    Object stores, and some file systems, have no locks: there nothing is `held`, and nobody is refused.
    """

    path: str
    _file: IO[bytes] | None

    @classmethod
    def take(cls, path: str, what: str) -> Self:
        """The lock of this file, which is made if need be. `what` holds it, in words. Raises `InUse`."""
        if is_remote(path):
            return cls(path, None)
        path = os.path.abspath(path)  # a function of the user's may go to another folder
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
        """Whether it keeps others out."""
        return self._file is not None

    def release(self) -> None:
        """Lets others have it. A second call changes nothing."""
        if self._file is not None:
            with suppress(
                FileNotFoundError, NotADirectoryError
            ):  # its folder may have been removed or replaced
                os.remove(self.path)
            self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def open_locked(path: str) -> tuple[IO[bytes], bool]:
    """The file, made if need be, and locked; whether it is, as there may be no locks.

    Raises `BlockingIOError` where another process has locked it. Whoever removes it has it locked.
    """
    os.makedirs(os.path.dirname(path), exist_ok=True)
    while True:
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+b", buffering=0)
        try:
            locked = _lock(file)
            # Who had it may have removed it meanwhile: then whoever comes now locks another file.
            if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                return file, locked
        except FileNotFoundError:
            pass
        except BaseException:
            file.close()
            raise
        file.close()


def _lock(file: IO[bytes]) -> bool:
    """Whether the file is locked now; False where there are no locks."""
    if not _LOCKS:
        return False
    import fcntl

    for look in range(_LOOKS):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:  # who looks whether it is locked has it for a moment
            if look == _LOOKS - 1:
                raise
            time.sleep(_PAUSE)
        except OSError as error:
            if error.errno not in _WITHOUT_LOCKS:
                raise
            break
    return False


def is_locked(path: str) -> bool | None:
    """Whether a process that goes on has locked the file; None where nobody knows."""
    if not _LOCKS:
        return None
    import fcntl

    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False


def left_by_killed(pattern: str) -> Iterator[Lock]:
    """The locks at a glob that processes of this machine have left which were killed: each taken for a moment.

    What another machine has locked may not show here, so its files are left alone.
    """
    for path in glob.glob(pattern):
        if is_locked(path) is False and _signed_here(path):
            with suppress(InUse), Lock.take(path, "what removes it, as its process was killed,") as lock:
                if lock.held:
                    yield lock


def _signed_here(path: str) -> bool:
    with suppress(OSError, ValueError), open(path) as file:
        return bool(json.load(file)["host"] == socket.gethostname())
    return False


def _holder(path: str) -> str:
    try:
        with open(path, "rb") as file:
            facts = json.load(file)
    except (OSError, ValueError):  # it has the lock, and has not signed yet
        return "another process"
    return "{what} in process {pid} on {host}, since {since}".format(**facts)
