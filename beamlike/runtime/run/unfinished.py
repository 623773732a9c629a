"""Marks of folders that a command has not made completely, so that no run takes one of them for a new checkpoint.

A mark is the first file that a command makes. It is in the folder or, if the folder is not there yet, beside it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from beamlike.errors import CheckpointError
from beamlike.io.files.paths import path_text
from beamlike.runtime.batch.storage import stored
from beamlike.system.durable import make_folder, rename, sync, sync_folder, sync_tree
from beamlike.system.path_names import is_remote

MARK: Final = "unfinished"
FACTS: Final = "savepoint.json"
"""The file of a savepoint that is written last."""


class MarkFiles(Protocol):
    """Files on any storage. Raises `CheckpointError` if the storage fails."""

    def read_bytes(self, name: str) -> bytes | None:
        """Returns the content of a file; None if it does not exist."""

    def write_bytes(self, name: str, content: bytes) -> None:
        """Writes a file."""

    def remove(self, folder: str) -> None:
        """Removes a file or folder."""


def mark(folder: str, files: MarkFiles) -> str:
    """Marks a folder that a command begins to make, and returns the path of the mark. `files.remove` removes it."""
    if is_remote(folder):
        files.write_bytes(f"{folder}/{MARK}", b"")
        return f"{folder}/{MARK}"
    path = path_text(folder)
    place = os.path.join(path, MARK) if os.path.isdir(path) else _beside(path)
    with stored("write", place):
        make_folder(os.path.dirname(place))
        _clear(place)
        with open(place, "wb"):  # not by a rename: from its first moment, the file is a mark
            pass
        sync(place)
        sync_folder(os.path.dirname(place))
    return place


def require_new(folder: str, files: MarkFiles) -> None:
    """Raises `CheckpointError` if a folder without a manifest is not that of a new run."""
    inside, remote = f"{folder}/{MARK}", is_remote(folder)
    # A mark beside a remote folder is never made, and the settings of its storage may be those of the folder only.
    for place in (inside,) if remote else (inside, _beside(folder)):
        if files.read_bytes(place) is not None if remote else os.path.exists(path_text(place)):
            raise CheckpointError(
                f"{folder} was not made completely, as {place} says: remove both, and make it again, as by beamlike "
                "restore"
            )
    if files.read_bytes(f"{folder}/{FACTS}") is not None:
        raise CheckpointError(
            f"{folder} is a savepoint, not a checkpoint: restore it with beamlike restore, and continue from the new "
            "checkpoint"
        )


@contextmanager
def unfinished(target: str) -> Iterator[str]:
    """Creates a folder beside the target, which gets the name of the target if the block succeeds.

    The folder of an attempt that was killed is removed.
    """
    folder = _beside(target)
    _clear(folder)
    make_folder(folder)
    try:
        yield folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    sync_tree(folder)
    if os.path.isdir(target):
        os.rmdir(target)
    rename(folder, target)
    sync_folder(os.path.dirname(os.path.abspath(target)))


def _beside(folder: str) -> str:
    return f"{folder.rstrip('/')}.{MARK}"


def _clear(place: str) -> None:
    if os.path.isdir(place):
        shutil.rmtree(place)
    elif os.path.exists(place):
        os.remove(place)
