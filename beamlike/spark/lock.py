"""The lock of a checkpoint: one run at a time, and whoever comes second is told who has it."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
from datetime import UTC, datetime
from typing import IO

import attrs

from beamlike.errors import CheckpointError
from beamlike.io.paths import is_remote

_WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


@attrs.define
class RunLock:
    """Held by the operating system on a file in the checkpoint, so it goes with the process, however that ends.

    On a file system without such locks, as on an object store, nothing is locked: there, of two queries that work on
    one checkpoint, Spark fails the one that comes second to note a batch as done.
    """

    _file: IO[str] | None

    @classmethod
    def take(cls, checkpoint: str, file: str, what: str) -> RunLock:
        """The lock of the checkpoint, in this file. `what` holds it, in words.

        Raises `CheckpointError`, which says who holds it, where somebody does.
        """
        if is_remote(file):
            return cls(None)
        os.makedirs(os.path.dirname(file), exist_ok=True)
        opened = open(file, "a+")  # noqa: SIM115  # it is open as long as the lock is held
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with opened:
                raise CheckpointError(
                    f"the checkpoint {checkpoint} is in use by {_holder(opened)}; stop that first, or wait for its end"
                ) from None
        except OSError as error:
            opened.close()
            if error.errno not in _WITHOUT_LOCKS:
                raise
            return cls(None)
        _sign(opened, what)
        return cls(opened)

    def release(self) -> None:
        """Lets others have it. A second call changes nothing."""
        if self._file is not None:
            # The file stays: whoever took it while it was removed would hold another one.
            self._file.truncate(0)
            self._file.close()
            self._file = None


def _sign(file: IO[str], what: str) -> None:
    file.truncate(0)
    since = datetime.now(UTC).isoformat(timespec="seconds")
    json.dump({"what": what, "host": socket.gethostname(), "pid": os.getpid(), "since": since}, file)
    file.flush()


def _holder(file: IO[str]) -> str:
    file.seek(0)
    try:
        facts = json.load(file)
    except ValueError:  # it has the lock, and has not signed yet
        return "another process"
    return "{what} in process {pid} on {host}, since {since}".format(**facts)
