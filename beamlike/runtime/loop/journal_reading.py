"""Reads the journal of a run that has ended, without a change of the folder of its checkpoint."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from tempfile import TemporaryDirectory

from beamlike.errors import CheckpointError
from beamlike.runtime.batch.storage import stored
from beamlike.runtime.loop import undo
from beamlike.runtime.loop.journal import Journal
from beamlike.runtime.loop.journal_connection import read_only
from beamlike.runtime.loop.journal_tables import VERSION


@contextmanager
def journal_to_read(path: str, damaged: Callable[[str], CheckpointError]) -> Iterator[Journal]:
    """Opens a journal that no other process writes to.

    A journal that a killed run has left with a write-ahead log must be changed to be read, so a copy of it is read.
    """
    if _is_settled(path):
        with closing(Journal.open(path, damaged, new=False, unchanged=True)) as journal:
            yield journal
        return
    with TemporaryDirectory(prefix="beamlike-journal-") as folder:
        copy = os.path.join(folder, os.path.basename(path))
        with stored("read", path):
            shutil.copyfile(path, copy)
            if os.path.exists(f"{path}-wal"):
                shutil.copyfile(f"{path}-wal", f"{copy}-wal")
        with closing(Journal.open(copy, lambda why: damaged(why.replace(copy, path)), new=False)) as journal:
            yield journal


def _is_settled(path: str) -> bool:
    """True if a journal has all its content in its database, in the form of this version; also if it is damaged, which
    is reported when it is opened.
    """
    if not os.path.exists(path):
        return True
    if os.path.exists(f"{path}-wal") and os.path.getsize(f"{path}-wal"):
        return False
    try:
        with closing(read_only(path)) as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            return version != VERSION or undo.has_tables(connection)
    except sqlite3.Error:
        return True
