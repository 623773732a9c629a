"""Files on this machine that a power cut leaves whole: synced, then renamed, then their folder synced.

What comes after one of these calls may depend on it; on a file system that cannot sync folders, on the file alone.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from typing import Final

_FOLDERS: Final = os.name != "nt"  # Windows opens no folders, and keeps names by itself
_CANNOT: Final = (errno.EINVAL, errno.ENOTSUP, errno.EBADF)  # what file systems say that sync no folders


def replace(source: str, target: str) -> None:
    """Renames a file that was just written, in whatever place is there already."""
    sync(source)
    os.replace(source, target)
    sync_folder(os.path.dirname(target))


def sync(file: str) -> None:
    """What is in a file stays."""
    number = os.open(file, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def sync_folder(folder: str) -> None:
    """The names that are in a folder stay, and those that are gone do; nothing if it is gone itself."""
    if not _FOLDERS:
        return
    try:
        number = os.open(folder or os.curdir, os.O_RDONLY)
    except FileNotFoundError:  # another run has removed it, as nothing was in it
        return
    try:
        os.fsync(number)
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
    finally:
        os.close(number)


def make_folder(folder: str) -> None:
    """Makes a folder, and those above it that are not there."""
    made = list(_missing(os.path.abspath(folder)))
    os.makedirs(folder, exist_ok=True)
    sync_folders(map(os.path.dirname, made))


def sync_folders(folders: Iterable[str]) -> None:
    """Each of these once."""
    for folder in sorted(set(folders)):
        sync_folder(folder)


def sync_tree(folder: str) -> None:
    """All that is in a folder and below it, and its own name."""
    for below, _, names in os.walk(folder, topdown=False):
        for name in names:
            sync(os.path.join(below, name))
        sync_folder(below)
    sync_folder(os.path.dirname(os.path.abspath(folder)))


def _missing(folder: str) -> Iterator[str]:
    while not os.path.isdir(folder):
        yield folder
        folder = os.path.dirname(folder)
