"""Writes files on this machine so that they survive a power failure: they are synced, renamed, and their folder synced.

Later writes may rely on a file that one of these functions has synced. If a file system cannot sync folders, only the
file itself is synced.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

from beamlike.system.os_locks import POSIX

_FOLDERS: Final = hasattr(os, "O_DIRECTORY")  # Windows cannot open folders, and makes names durable by itself
_SYNCED: Final = os.O_RDONLY if _FOLDERS else os.O_RDWR  # Windows syncs only files that are open for writing
_CANNOT: Final = (errno.EINVAL, errno.ENOTSUP, errno.EBADF)  # errors of file systems that cannot sync folders

_FULL_SYNC: Final = getattr(POSIX, "F_FULLFSYNC", None)
_TRIES: Final = 1 if _FOLDERS else 50
_PAUSE: Final = 0.02  # seconds


def replace(source: str, target: str) -> None:
    """Renames a file that was just written. The target is replaced if it exists."""
    sync(source)
    rename(source, target)
    sync_folder(os.path.dirname(target))


def write(file: str, content: bytes) -> None:
    """Writes a file, or replaces it. It appears when it is complete; if that fails, nothing is left."""
    temporary = os.path.join(os.path.dirname(file), f".{os.path.basename(file)}.tmp")
    try:
        with open(temporary, "wb") as opened:
            opened.write(content)
        replace(temporary, file)
    except BaseException:
        with suppress(OSError):
            os.remove(temporary)
        raise


def rename(source: str, target: str) -> None:
    """Renames a file or folder, and replaces a target file if it exists; nothing is synced.

    Windows does not replace a file that another process has open. There, the reader gets a second to close it.
    """
    for _ in range(_TRIES - 1):
        try:
            return os.replace(source, target)
        except PermissionError:
            time.sleep(_PAUSE)
    return os.replace(source, target)


def sync(file: str) -> None:
    """Syncs the content of a file to disk."""
    number = os.open(file, _SYNCED)
    try:
        _flush(number)
    finally:
        os.close(number)


def _flush(number: int) -> None:
    """Syncs an open file or folder. On macOS, `fsync` leaves the content in the cache of the disk."""
    if _FULL_SYNC is None:
        os.fsync(number)
        return
    try:
        POSIX.fcntl(number, _FULL_SYNC)
    except OSError:  # a file system that is not on a disk of this machine
        os.fsync(number)


def sync_folder(folder: str) -> None:
    """Syncs the names in a folder, so that new and removed files survive. Does nothing if the folder no
    longer exists.
    """
    if not _FOLDERS:
        return
    try:
        number = os.open(folder or os.curdir, os.O_RDONLY)
    except FileNotFoundError:  # another run has removed it because it was empty
        return
    try:
        _flush(number)
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
    finally:
        os.close(number)


def make_folder(folder: str) -> None:
    """Creates a folder, and missing folders above it."""
    made = list(_missing(os.path.abspath(folder)))
    os.makedirs(folder, exist_ok=True)
    sync_folders(map(os.path.dirname, made))


def sync_folders(folders: Iterable[str]) -> None:
    """Syncs each of these folders once."""
    for folder in sorted(set(folders)):
        sync_folder(folder)


def sync_tree(folder: str) -> None:
    """Syncs everything below a folder, and the name of the folder itself."""
    for below, _, names in os.walk(folder, topdown=False):
        for name in names:
            sync(os.path.join(below, name))
        sync_folder(below)
    sync_folder(os.path.dirname(os.path.abspath(folder)))


def _missing(folder: str) -> Iterator[str]:
    while not os.path.isdir(folder):
        yield folder
        folder = os.path.dirname(folder)
