"""Connections to the database of a journal, and the errors of SQLite in words.

A database that cannot be read is damaged, unless its disk or its file system is the problem.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import quote

from beamlike.errors import CheckpointError
from beamlike.runtime.batch.storage import not_stored

_STORAGE: Final = (
    *(sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY),
    *(
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_AUTH,
        sqlite3.SQLITE_NOLFS,
    ),
)
"""The error codes of SQLite that mean a problem of the disk or the file system. All others mean a damaged database."""


def connected(where: str, *, uri: bool = False) -> sqlite3.Connection:
    """Opens a database, whose transactions begin and end by statements only."""
    return sqlite3.connect(where, timeout=0, isolation_level=None, check_same_thread=False, uri=uri)


def read_only(path: str) -> sqlite3.Connection:
    """Opens a database that no process has open, so that SQLite creates no file and takes no lock."""
    return connected(f"file:{quote(path)}?immutable=1", uri=True)


@contextmanager
def translated(path: str, damaged: Callable[[str], CheckpointError]) -> Iterator[None]:
    """Turns errors of SQLite into `CheckpointError`."""
    try:
        yield
    except sqlite3.Error as error:
        # The low byte of SQLite's extended error code is the primary error code.
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in _STORAGE:
            raise not_stored("use", path, error) from error
        raise damaged(f"{path}: {error}") from error
