"""The values of the state that the last batches of a run have replaced. With them, a replay begins at an earlier batch.

They are tables of the journal, and change in the transactions that commit batches.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable
from typing import Final

from beamlike.runtime.loop.journal_tables import digest_of

MOST_BYTES: Final = 32 << 20
"""The greatest size in bytes of all replaced values. Those of the oldest batches are removed first."""

_TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS undone (batch INTEGER PRIMARY KEY, bytes INTEGER NOT NULL, kept INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS undo (batch INTEGER NOT NULL, stage TEXT NOT NULL, key TEXT NOT NULL, "
    "sum INTEGER, value BLOB, PRIMARY KEY (batch, stage, key))",
)
_NAMES: Final = "WITH names AS (SELECT value ->> 0 AS stage, value ->> 1 AS key FROM json_each(?)) "
_SIZE: Final = f"{_NAMES}SELECT coalesce(sum(length(value)), 0) FROM names JOIN state USING (stage, key)"
_KEEP: Final = (
    f"{_NAMES}INSERT OR REPLACE INTO undo "
    "SELECT ?, stage, key, sum, value FROM names JOIN state USING (stage, key)"
)
_LACKING: Final = (
    "SELECT batch FROM undone WHERE batch >= ? "
    "AND kept <> (SELECT count(*) FROM undo WHERE undo.batch = undone.batch) LIMIT 1"
)
_NEW: Final = "INSERT OR REPLACE INTO undo VALUES (?, ?, ?, NULL, NULL)"
_BEFORE: Final = "SELECT stage, key, sum, value, min(batch) FROM undo WHERE batch >= ? GROUP BY stage, key"


def make_tables(connection: sqlite3.Connection) -> None:
    """Creates the tables if they do not exist."""
    for statement in _TABLES:
        connection.execute(statement)


def has_tables(connection: sqlite3.Connection) -> bool:
    """True if the tables exist."""
    found = connection.execute("SELECT count(*) FROM sqlite_master WHERE name IN ('undone', 'undo')")
    return bool(found.fetchone()[0] == len(_TABLES))


def keep_before(
    connection: sqlite3.Connection,
    batch: int,
    there: Collection[tuple[str, str]],
    new: Iterable[tuple[str, str]],
    most: int,
) -> None:
    """Keeps the values that a batch is about to replace, those of `there`, and that it adds those of `new`.

    Values of earlier batches are removed if all together have more than `most` bytes. So are those of this batch if it
    has more alone.
    """
    names = json.dumps([*there])
    (size,) = connection.execute(_SIZE, (names,)).fetchone()
    _trim(connection, most - size)
    if size > most:
        return
    connection.execute(_KEEP, (names, batch))
    connection.executemany(_NEW, ((batch, *name) for name in new))
    # Rows that are missing later would be taken for values that the batch has not replaced.
    (kept,) = connection.execute("SELECT count(*) FROM undo WHERE batch = ?", (batch,)).fetchone()
    connection.execute("INSERT OR REPLACE INTO undone VALUES (?, ?, ?)", (batch, size, kept))


def _trim(connection: sqlite3.Connection, room: int) -> None:
    """Removes the values of the oldest batches until all others fit into `room` bytes."""
    for batch, size in connection.execute("SELECT batch, bytes FROM undone ORDER BY batch DESC").fetchall():
        room -= size
        if room < 0:
            remove_up_to(connection, batch)
            return


def remove_up_to(connection: sqlite3.Connection, batch: int) -> None:
    """Removes the values of this batch and of all earlier ones."""
    connection.execute("DELETE FROM undo WHERE batch <= ?", (batch,))
    connection.execute("DELETE FROM undone WHERE batch <= ?", (batch,))


def reach(connection: sqlite3.Connection, done: int) -> int:
    """Returns the earliest batch before which the state is known. `done` is the last batch that is done.

    A version of beamlike without these tables may have run a batch, whose values are then missing.
    """
    first = done + 1
    for (batch,) in connection.execute("SELECT batch FROM undone ORDER BY batch DESC"):
        if batch != first - 1:
            break
        first = batch
    return first


def values_before(connection: sqlite3.Connection, batch: int) -> dict[tuple[str, str], bytes | None]:
    """Returns the values before a batch that it or a later one has replaced, by stage and key; None for new ones.

    Raises `ValueError` if a value is damaged, or values are missing.
    """
    if lacking := connection.execute(_LACKING, (batch,)).fetchone():
        raise ValueError(f"the table of the values that batch {lacking[0]} has replaced")
    found = dict[tuple[str, str], bytes | None]()
    for stage, key, total, value, _ in connection.execute(_BEFORE, (batch,)):
        if value is not None and (not isinstance(value, bytes) or digest_of(value, stage, key) != total):
            raise ValueError(f"{key!r} of stage {stage!r}")
        found[stage, key] = value
    return found
