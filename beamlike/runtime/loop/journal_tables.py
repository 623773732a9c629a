"""The tables of a journal. Each row has a digest, and the sum of the digests of a table is stored as its total.

A changed row has another digest. A missing row changes the total, even if SQLite does not notice that a page of the
database is lost.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable
from typing import Any, Final

VERSION: Final = 2
SETTINGS: Final = (
    "PRAGMA page_size = 16384",  # values are some kilobytes to a megabyte
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA fullfsync = ON",  # macOS: otherwise, the content may stay in the cache of the disk
    "PRAGMA cell_size_check = ON",
)

# The index has all columns except the values; it is read completely when a journal is opened.
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


def make_tables(connection: sqlite3.Connection) -> None:
    """Creates the tables of a new journal."""
    for statement in _TABLES:
        connection.execute(statement)


def last_row(connection: sqlite3.Connection) -> Any:
    """Returns the row of the batch that was begun last; None if there is none."""
    return connection.execute(_LAST).fetchone()


def state_sums(connection: sqlite3.Connection) -> dict[tuple[str, str], int]:
    """Returns the digests of the rows of the state, by stage and key."""
    rows = connection.execute("SELECT stage, key, sum FROM state INDEXED BY state_rows")
    return {(stage, key): digest for stage, key, digest in rows}


def totals_of(connection: sqlite3.Connection, state: dict[tuple[str, str], int]) -> dict[str, int]:
    """Returns the totals of the rows that are in the database, by table. For batches, only the last row counts."""
    last = last_row(connection)
    return {
        "batches": 0 if last is None else digest(*last),
        "positions": added(digest(*row) for row in connection.execute("SELECT * FROM positions")),
        "state": added(digest(*name, row) for name, row in state.items()),
    }


def digest(*row: Any) -> int:
    """Returns a digest of 64 bits of all columns of a row."""
    return digest_of(b"", *row)


def digest_of(value: bytes, *name: Any) -> int:
    """Returns the digest of a row with a large value; `name` has its other columns."""
    text = repr(name).encode(errors="surrogatepass")
    found = hashlib.blake2b(text, digest_size=8)
    found.update(value)
    return int.from_bytes(found.digest(), "big", signed=True)


def added(digests: Iterable[int]) -> int:
    """Returns the sum of digests modulo 2^64, as a signed integer. The order of the digests does not matter."""
    total = sum(digests) & 0xFFFF_FFFF_FFFF_FFFF
    return total - (1 << 64) if total >> 63 else total
