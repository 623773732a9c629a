"""Files on this machine that survive a power cut whole: synced, renamed, and then their folder synced.

Later writes may depend on a file that one of these functions has synced. If a file system cannot sync folders, only the
file itself is synced.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from typing import Final

_FOLDERS: Final = os.name != "nt"  # Windows cannot open folders, and makes names durable by itself
_CANNOT: Final = (errno.EINVAL, errno.ENOTSUP, errno.EBADF)  # errors of file systems that cannot sync folders


def replace(source: str, target: str) -> None:
    """Renames a file that was just written, and replaces the target if it exists."""
    sync(source)
    os.replace(source, target)
    sync_folder(os.path.dirname(target))


def sync(file: str) -> None:
    """Syncs the content of a file to disk."""
    number = os.open(file, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def sync_folder(folder: str) -> None:
    """Syncs the names in a folder, also removed ones. Does nothing if the folder no longer exists."""
    if not _FOLDERS:
        return
    try:
        number = os.open(folder or os.curdir, os.O_RDONLY)
    except FileNotFoundError:  # another run has removed it, since it was empty
        return
    try:
        os.fsync(number)
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
    finally:
        os.close(number)


def make_folder(folder: str) -> None:
    """Makes a folder, and missing folders above it."""
    made = list(_missing(os.path.abspath(folder)))
    os.makedirs(folder, exist_ok=True)
    sync_folders(map(os.path.dirname, made))


def sync_folders(folders: Iterable[str]) -> None:
    """Syncs each of these folders once."""
    for folder in sorted(set(folders)):
        sync_folder(folder)


def sync_tree(folder: str) -> None:
    """Syncs everything below a folder, and the folder's own name."""
    for below, _, names in os.walk(folder, topdown=False):
        for name in names:
            sync(os.path.join(below, name))
        sync_folder(below)
    sync_folder(os.path.dirname(os.path.abspath(folder)))


def _missing(folder: str) -> Iterator[str]:
    while not os.path.isdir(folder):
        yield folder
        folder = os.path.dirname(folder)
