"""Connections to the database of a journal, and the errors of SQLite in words.

A database that cannot be read is damaged, unless its disk or its file system is the problem.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import quote

from beamlike.errors import CheckpointError
from beamlike.runtime.batch.storage import not_stored

_STORAGE: Final = (
    *(sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY),
    *(sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH, sqlite3.SQLITE_NOLFS),
)
"""The error codes of SQLite that mean a problem of the disk or the file system. Others mean a damaged database, except
`_IN_USE`.
"""
_IN_USE: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


PATIENCE: Final = 10.0
"""The seconds for which a write waits for another process that has locked the database."""


def connected(where: str, *, uri: bool = False, wait: float = 0) -> sqlite3.Connection:
    """Opens a database, whose transactions begin and end by statements only."""
    return sqlite3.connect(where, timeout=wait, isolation_level=None, check_same_thread=False, uri=uri)


def to_write(path: str, settings: Iterable[str]) -> sqlite3.Connection:
    """Opens a database with these settings. No other process can use it meanwhile, unless a reader has it open already,
    which then may read on.
    """
    connection = connected(path)
    try:
        for setting in ("PRAGMA locking_mode = EXCLUSIVE", *settings, "PRAGMA user_version"):
            connection.execute(setting)
    except sqlite3.OperationalError as error:
        connection.close()
        if _code(error) not in _IN_USE:
            raise
        connection = connected(path, wait=PATIENCE)
        try:
            for setting in settings:
                connection.execute(setting)
        except BaseException:
            connection.close()
            raise
    return connection


def read_only(path: str) -> sqlite3.Connection:
    """Opens a database that no process has open, so that SQLite creates no file and takes no lock."""
    return connected(f"file:{quote(path)}?immutable=1", uri=True)


@contextmanager
def translated(path: str, damaged: Callable[[str], CheckpointError]) -> Iterator[None]:
    """Turns errors of SQLite into `CheckpointError`."""
    try:
        yield
    except sqlite3.Error as error:
        if _code(error) in _IN_USE:
            raise CheckpointError(
                f"{path} is locked by another process that writes to it, or moves or copies it: wait for that process, "
                "or end it, and run again: a run continues from its last batch"
            ) from error
        if _code(error) in _STORAGE:
            raise not_stored("use", path, error) from error
        raise damaged(f"{path}: {error}") from error


def _code(error: sqlite3.Error) -> int:
    """Returns the primary error code, which is the low byte of the extended one."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
