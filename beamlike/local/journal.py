"""What a run in process keeps on disk: the input of each batch, the state after the last one, where each source is.

It is a database of SQLite's, whose transactions a process that is killed, or a machine that loses power, leaves whole.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from threading import Lock
from typing import Any, Final, Self

import attrs

from beamlike.errors import CheckpointError
from beamlike.io.sources import Position
from beamlike.local.begun import Begun
from beamlike.runtime.checkpoint import not_stored
from beamlike.runtime.dead_letter_limit import Counted
from beamlike.system.behind import Behind
from stages.facts import from_json, to_json
from stages.state.store import DictStore

KEPT_BATCHES: Final = 100

_RUN: Final = "@run"
"""In the place of a stage, for what the run itself keeps; no step has such a name."""

_VERSION: Final = 1
_DAMAGED: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_SETTINGS: Final = (
    "PRAGMA page_size = 16384",  # values are some kilobytes to a megabyte
    "PRAGMA locking_mode = EXCLUSIVE",
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
)
_TABLES: Final = (
    "CREATE TABLE batches (number INTEGER PRIMARY KEY, facts TEXT NOT NULL, done INTEGER NOT NULL)",
    "CREATE TABLE positions (source TEXT, entry TEXT, value TEXT NOT NULL, PRIMARY KEY (source, entry)) WITHOUT ROWID",
    "CREATE TABLE state (stage TEXT, key TEXT, value BLOB NOT NULL, sum INTEGER NOT NULL, PRIMARY KEY (stage, key))",
    f"PRAGMA user_version = {_VERSION}",
)


@attrs.define(eq=False)
class Journal:
    """The database at `path`. What a batch does to the state is in memory until it is done.

    That a batch has begun, and that it is done, is written and synced by a thread beside the run: `settle` waits for
    that. Raises `CheckpointError` where it cannot be read or written, or is not what was written.
    """

    path: str
    damaged: Callable[[str], CheckpointError]
    _connection: sqlite3.Connection
    _turn: Any = attrs.field(factory=Lock, init=False)
    _behind: Behind = attrs.field(factory=Behind, init=False)
    _last: tuple[Begun, bool] | None = attrs.field(default=None, init=False)
    _changed: dict[tuple[str, str], bytes | None] = attrs.field(factory=dict, init=False)
    _unsettled: dict[tuple[str, str], bytes | None] = attrs.field(factory=dict, init=False)
    """What batches that are committed have changed, and may not be written yet."""

    @classmethod
    def open(cls, path: str, damaged: Callable[[str], CheckpointError], *, new: bool) -> Self:
        """Makes it if it is `new`; else it must be there."""
        with _told(path, damaged):
            connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
            journal = cls(path, damaged, connection)
            try:
                journal._prepare(new=new)
            except BaseException:
                connection.close()
                raise
            return journal

    def _prepare(self, *, new: bool) -> None:
        for setting in _SETTINGS:
            self._connection.execute(setting)
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if version == 0 and new:
            with self._transaction():
                for table in _TABLES:
                    self._connection.execute(table)
        elif version == 0:
            raise self.damaged(f"{self.path}, which has the state, is gone or empty")
        elif version != _VERSION:
            raise self.damaged(
                f"{self.path} is of version {version}, and this version of beamlike reads {_VERSION}"
            )
        self._last = self._found_last()

    def close(self) -> None:
        """Settles what can be. A second call changes nothing."""
        self._behind.close()
        self._connection.close()

    @property
    def last(self) -> tuple[Begun, bool] | None:
        """The batch that was begun last, and whether it is done."""
        return self._last

    def _found_last(self) -> tuple[Begun, bool] | None:
        found = self._connection.execute("SELECT * FROM batches ORDER BY number DESC LIMIT 1").fetchone()
        return None if found is None else (Begun.from_json(found[0], found[1]), bool(found[2]))

    def position(self, source: str) -> dict[str, Any]:
        """Where the source is after the last batch that is done."""
        self.settle()
        with self._telling():
            rows = self._connection.execute("SELECT entry, value FROM positions WHERE source = ?", (source,))
            return {entry: json.loads(value) for entry, value in rows}

    def begin(self, batch: Begun) -> None:
        """Notes what the batch takes; nothing of it may be written anywhere before that has settled."""
        self._last = batch, False
        self.later(partial(self._begin, batch))

    def _begin(self, batch: Begun) -> None:
        with self._telling(), self._transaction():
            self._connection.execute("INSERT INTO batches VALUES (?, ?, 0)", (batch.number, batch.to_json()))

    def forget(self, batch: Begun) -> None:
        """Takes back that a batch has begun, of which nothing was written anywhere."""
        self._changed = {}
        self.later(partial(self._forget, batch))
        self.settle()
        self._last = self._found_last()

    def _forget(self, batch: Begun) -> None:
        with self._telling(), self._transaction():
            self._connection.execute("DELETE FROM batches WHERE number = ? AND done = 0", (batch.number,))

    def commit(self, batch: Begun) -> None:
        """The batch is done: its state and positions count from now on, all or nothing."""
        self._last, changed = (batch, True), self._changed
        self._unsettled, self._changed = {**self._unsettled, **changed}, {}
        self.later(partial(self._commit, batch, changed))

    def _commit(self, batch: Begun, changed: Mapping[tuple[str, str], bytes | None]) -> None:
        with self._telling(), self._transaction():
            self._put(changed)
            for source, taken in batch.taken.items():
                self._move(source, taken.position)
            self._connection.execute("UPDATE batches SET done = 1 WHERE number = ?", (batch.number,))
            self._connection.execute("DELETE FROM batches WHERE number <= ?", (batch.number - KEPT_BATCHES,))

    def later(self, task: Callable[[], object]) -> None:
        """Has it done after all that was begun and committed before, and before what follows."""
        self._behind.do(task)

    def settle(self) -> None:
        """Waits until all of that is done and synced."""
        self._behind.wait()
        self._unsettled = {}

    def fill(
        self, batch: Begun, state: DictStore, positions: Mapping[str, Position], counted: Counted
    ) -> None:
        """Puts what a savepoint has in a new one, as if it came of this batch."""
        self.keep_tally(counted)
        self._last = batch, True
        with self._telling(), self._transaction():
            self._put(self._changed)
            self._put(state.values)
            for source, position in positions.items():
                self._move(source, position)
            self._connection.execute("INSERT INTO batches VALUES (?, ?, 1)", (batch.number, batch.to_json()))

    def _put(self, values: Mapping[tuple[str, str], bytes | None]) -> None:
        gone = [name for name, value in values.items() if value is None]
        self._connection.executemany("DELETE FROM state WHERE stage = ? AND key = ?", gone)
        put = ((*name, value, zlib.crc32(value)) for name, value in values.items() if value is not None)
        self._connection.executemany("INSERT OR REPLACE INTO state VALUES (?, ?, ?, ?)", put)

    def _move(self, source: str, position: Position) -> None:
        entries = ((source, entry, json.dumps(value)) for entry, value in position.items())
        self._connection.executemany("INSERT OR REPLACE INTO positions VALUES (?, ?, ?)", entries)

    def tally(self) -> Counted:
        """What the runs so far have counted of dead letters."""
        value = self.get(_RUN, "tally")
        return Counted() if value is None else from_json(Counted, value)

    def keep_tally(self, counted: Counted) -> None:
        """What they have counted with the batch in hand."""
        self.put(_RUN, "tally", to_json(counted))

    def values(self) -> Iterator[tuple[str, str, bytes]]:
        """All of the state, by stage and key."""
        self.settle()
        select = "SELECT * FROM state WHERE stage != ? ORDER BY stage, key"
        with self._telling(), closing(self._connection.execute(select, (_RUN,))) as rows:
            for stage, key, value, total in rows:
                yield stage, key, self._whole(stage, key, value, total)

    # A StateStore.

    def get(self, stage: str, key: str) -> bytes | None:
        """As the batch in hand has left it, else as the last one that is done did."""
        for known in (self._changed, self._unsettled):
            if (stage, key) in known:
                return known[stage, key]
        with self._telling(), self._turn:
            select = "SELECT value, sum FROM state WHERE stage = ? AND key = ?"
            found = self._connection.execute(select, (stage, key)).fetchone()
        return None if found is None else self._whole(stage, key, *found)

    def put(self, stage: str, key: str, value: bytes) -> None:
        """In the batch in hand."""
        self._changed[stage, key] = value

    def delete(self, stage: str, key: str) -> None:
        """In the batch in hand."""
        self._changed[stage, key] = None

    def _whole(self, stage: str, key: str, value: bytes, total: int) -> bytes:
        if zlib.crc32(value) != total:
            raise self.damaged(f"{key!r} of stage {stage!r} in {self.path} is not what was written")
        return value

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._turn:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def _telling(self) -> Any:
        return _told(self.path, self.damaged)


@contextmanager
def _told(path: str, damaged: Callable[[str], CheckpointError]) -> Iterator[None]:
    """Raises `CheckpointError` for what SQLite says."""
    try:
        yield
    except sqlite3.Error as error:
        # The low byte has the kind of error.
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED:
            raise damaged(f"{path}: {error}") from error
        raise not_stored("use", path, error) from error
