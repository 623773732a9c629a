"""The operating system's lock on an open file: `flock`, or on Windows a lock on one byte far behind the content.

Both end when the file is closed, and so with the process.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import IO, Any, Final

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]
try:
    import msvcrt
except ImportError:
    msvcrt = None  # type: ignore[assignment]

POSIX: Final[Any] = fcntl
"""Returns the module `fcntl`; None on Windows."""
_WINDOWS: Final[Any] = msvcrt

# Windows refuses to read locked bytes, and the content names the holder of the lock.
_BYTE: Final = 1 << 30
_NONE: Final = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


def lock(file: IO[bytes]) -> bool:
    """Locks an open file. Returns False if this platform, or this file system, has no locks.

    Raises `BlockingIOError` if the file is locked already, also through another open file of this process.
    """
    return _locked(file, shared=False)


def is_free(file: IO[bytes]) -> bool | None:
    """True if no process has locked the file; None if there are no locks."""
    try:
        if not _locked(file, shared=True):
            return None
    except BlockingIOError:
        return False
    if POSIX is None:  # Windows may end the lock some time after the file is closed
        _windows_lock(file, _WINDOWS.LK_UNLCK)
    return True


def _locked(file: IO[bytes], *, shared: bool) -> bool:
    try:
        if POSIX is not None:
            how = POSIX.LOCK_SH if shared else POSIX.LOCK_EX
            POSIX.flock(file, how | POSIX.LOCK_NB)
        elif _WINDOWS is not None:
            _windows_lock(file, _WINDOWS.LK_NBLCK)
        else:
            return False
    except BlockingIOError:
        raise
    except OSError as error:
        if error.errno not in _NONE:
            raise
        return False
    return True


def _windows_lock(file: IO[bytes], mode: int) -> None:
    """Locks or unlocks the byte. Raises `BlockingIOError` if it is locked already."""
    number = file.fileno()
    before = os.lseek(number, 0, os.SEEK_CUR)
    os.lseek(number, _BYTE, os.SEEK_SET)  # where `locking` begins
    try:
        _WINDOWS.locking(number, mode, 1)
    except PermissionError as error:
        raise BlockingIOError(errno.EAGAIN, "the file is locked") from error
    finally:
        os.lseek(number, before, os.SEEK_SET)


def remove_and_close(file: IO[bytes], path: str) -> None:
    """Removes a file that this process has locked, and ends the lock. Does nothing to a file that is gone.

    Elsewhere the name must go before the lock does, or a process that locks the file in between would lose it. Windows
    refuses to remove an open file, and so it keeps a file that another process has opened in between.
    """
    if POSIX is not None:
        with suppress(FileNotFoundError, NotADirectoryError):  # its folder may have been removed or replaced
            os.remove(path)
        file.close()
    else:
        file.close()
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            os.remove(path)
