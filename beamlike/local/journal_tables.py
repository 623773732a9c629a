"""The tables of a journal, with a digest of each row, and for each table a total of its digests.

A changed row has another digest. A missing row changes the total, also if only a page of the database was lost.
"""

from __future__ import annotations

import hashlib
import sqlite3
import zlib
from collections.abc import Iterable
from typing import Any, Final

VERSION: Final = 2
OLDER: Final = 1
"""The version without row digests, which has a checksum of each value of the state only."""

SETTINGS: Final = (
    "PRAGMA page_size = 16384",  # values are some kilobytes to a megabyte
    "PRAGMA locking_mode = EXCLUSIVE",
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA cell_size_check = ON",
)

# The index covers all columns except the values, and is read as a whole when a journal is opened.
_STATE: Final = (
    "CREATE TABLE state (stage TEXT NOT NULL, key TEXT NOT NULL, sum INTEGER NOT NULL, value BLOB NOT NULL)",
    "CREATE INDEX state_rows ON state (stage, key, sum)",
    "CREATE TABLE totals (name TEXT PRIMARY KEY, total INTEGER NOT NULL) WITHOUT ROWID",
    "INSERT INTO totals VALUES ('batches', 0), ('positions', 0), ('state', 0)",
)
_TABLES: Final = (
    "CREATE TABLE batches (number INTEGER PRIMARY KEY, facts TEXT NOT NULL, done INTEGER NOT NULL)",
    "CREATE TABLE positions (source TEXT, entry TEXT, value TEXT NOT NULL, PRIMARY KEY (source, entry)) WITHOUT ROWID",
    *_STATE,
    f"PRAGMA user_version = {VERSION}",
)
_LAST: Final = "SELECT * FROM batches ORDER BY number DESC LIMIT 1"
_PUT: Final = "INSERT INTO state VALUES (?, ?, ?, ?)"


def make_tables(connection: sqlite3.Connection) -> None:
    """Makes the tables of a new journal."""
    for statement in _TABLES:
        connection.execute(statement)


def bring_up(connection: sqlite3.Connection) -> tuple[str, str] | None:
    """Migrates the tables of a journal of version 1.

    Returns the stage and key of the first damaged value, if there is one.
    """
    connection.execute("ALTER TABLE state RENAME TO state_before")
    for statement in _STATE:
        connection.execute(statement)
    for stage, key, value, total in connection.execute("SELECT * FROM state_before"):
        if not isinstance(value, bytes) or zlib.crc32(value) != total:
            return stage, key
        connection.execute(_PUT, (stage, key, digest_of(value, stage, key), value))
    connection.execute("DROP TABLE state_before")
    found = totals_of(connection, state_sums(connection))
    connection.executemany(
        "UPDATE totals SET total = ? WHERE name = ?", [(n, name) for name, n in found.items()]
    )
    connection.execute(f"PRAGMA user_version = {VERSION}")
    return None


def last_row(connection: sqlite3.Connection) -> Any:
    """The row of the batch that was begun last; None if there is none."""
    return connection.execute(_LAST).fetchone()


def state_sums(connection: sqlite3.Connection) -> dict[tuple[str, str], int]:
    """The digests of the rows of state, by stage and key."""
    rows = connection.execute("SELECT stage, key, sum FROM state INDEXED BY state_rows")
    return {(stage, key): digest for stage, key, digest in rows}


def totals_of(connection: sqlite3.Connection, state: dict[tuple[str, str], int]) -> dict[str, int]:
    """The totals of the rows in the database. For batches, only the last row is read, and counts."""
    last = last_row(connection)
    return {
        "batches": 0 if last is None else digest(*last),
        "positions": added(digest(*row) for row in connection.execute("SELECT * FROM positions")),
        "state": added(digest(*name, row) for name, row in state.items()),
    }


def digest(*row: Any) -> int:
    """A digest of 64 bits over all columns of a row."""
    return digest_of(b"", *row)


def digest_of(value: bytes, *name: Any) -> int:
    """The digest of a row with a large value, and other columns that name it."""
    text = repr(name).encode(errors="surrogatepass")
    found = hashlib.blake2b(text, digest_size=8)
    found.update(value)
    return int.from_bytes(found.digest(), "big", signed=True)


def added(digests: Iterable[int]) -> int:
    """The sum of digests modulo 2^64, as a signed integer, which is independent of their order."""
    total = sum(digests) & 0xFFFF_FFFF_FFFF_FFFF
    return total - (1 << 64) if total >> 63 else total
