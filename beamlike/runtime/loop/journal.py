"""The journal of a run in process: the input of each batch, the state after the last one, the positions of sources.

The journal is an SQLite database. Each of its transactions is stored completely or not at all, also if the process is
killed or the machine loses power.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import Any, Final, Self

import attrs

from beamlike.errors import CheckpointError
from beamlike.io.sources import Position
from beamlike.runtime.loop import undo
from beamlike.runtime.loop.journal_changes import ChangesBehind
from beamlike.runtime.loop.journal_connection import read_only, to_write, translated
from beamlike.runtime.loop.journal_tables import (
    SETTINGS,
    VERSION,
    added,
    digest,
    digest_of,
    last_row,
    make_tables,
    state_sums,
    totals_of,
)
from beamlike.runtime.loop.logged_batch import LoggedBatch
from beamlike.runtime.run.dead_letter_limit import Counted
from stages.facts import from_json, to_json
from stages.state.memory import D, Memory
from stages.state.store import DictStore

KEPT_BATCHES: Final = 100

_RUN: Final = "@run"
"""The name under which the run stores its own values, where others have the name of a stage. No step has such
a name.
"""

MOST_AHEAD: Final = 16
"""The number of batches without output that may be processed before the first of them is on disk."""


@attrs.define(eq=False)
class Journal:
    """The journal, a database at `path`. Changes of the state are kept in memory until their batch is done.

    A second thread writes and syncs that a batch has begun, and that it is done; `settle` waits for that thread. Raises
    `CheckpointError` if the journal cannot be read or written, or is damaged.

    When the journal is opened, the rows of each table must have the total that the last transaction stored. The digests
    of all values of the state stay in memory; a value that is read later must exist and have its digest.
    """

    path: str
    damaged: Callable[[str], CheckpointError]
    _connection: sqlite3.Connection
    _turn: Any = attrs.field(factory=Lock, init=False)
    _behind: ChangesBehind = attrs.field(init=False)
    _ahead: int = attrs.field(default=0, init=False)
    """The number of batches that have begun since everything was on disk for certain."""
    _last: tuple[LoggedBatch, bool] | None = attrs.field(default=None, init=False)
    _changed: dict[tuple[str, str], bytes | None] = attrs.field(factory=dict, init=False)
    _unsettled: dict[tuple[str, str], bytes | None] = attrs.field(factory=dict, init=False)
    """Changes of committed batches that are perhaps not written to the database yet."""
    _memory: Memory = attrs.field(factory=Memory, init=False)
    _sums: dict[tuple[str, str], int] = attrs.field(factory=dict, init=False)
    _totals: dict[str, int] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self._behind = ChangesBehind(self._changing)

    @classmethod
    def open(
        cls, path: str, damaged: Callable[[str], CheckpointError], *, new: bool, unchanged: bool = False
    ) -> Self:
        """Opens the journal. With `new` it is created, otherwise it must exist. With `unchanged` it can only be read,
        and must be one of this version that no process has open.
        """
        if unchanged and not os.path.exists(path):
            raise damaged(f"{path}, which has the state, is gone or empty")
        with translated(path, damaged):
            connection = read_only(path) if unchanged else to_write(path, SETTINGS)
            journal = cls(path, damaged, connection)
            try:
                journal._prepare(new=new, unchanged=unchanged)
            except BaseException:
                connection.close()
                raise
            return journal

    def _prepare(self, *, new: bool, unchanged: bool) -> None:
        # The version is 0 in a database without tables, which is new or was emptied.
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if version == 0 and new:
            with self._transaction():
                make_tables(self._connection)
        elif version == 0:
            raise self.damaged(f"{self.path}, which has the state, is gone or empty")
        elif version != VERSION:
            raise self.damaged(
                f"{self.path} is of version {version}, and this version of beamlike reads {VERSION}"
            )
        if not unchanged:
            with self._transaction():
                undo.make_tables(self._connection)
        self._verify()
        self._last = self._found_last()

    def _verify(self) -> None:
        """Raises `CheckpointError` if rows are missing or damaged."""
        self._sums = state_sums(self._connection)
        self._totals = dict(self._connection.execute("SELECT name, total FROM totals"))
        for table, total in totals_of(self._connection, self._sums).items():
            if self._totals.get(table) != total:
                raise self._other_table(table)

    def _other_table(self, table: str) -> CheckpointError:
        return self.damaged(f"table {table!r} of {self.path} is not what was written")

    @contextmanager
    def _understood(self, table: str) -> Iterator[None]:
        """Raises `CheckpointError` if the content of a table cannot be decoded."""
        try:
            yield
        except (ValueError, TypeError, KeyError, AttributeError):
            raise self._other_table(table) from None

    def close(self) -> None:
        """Writes what can still be written, and closes the database. Later calls change nothing."""
        self._behind.close()
        self._connection.close()

    @property
    def last(self) -> tuple[LoggedBatch, bool] | None:
        """The batch that began last, and True if it is done; None before the first batch."""
        return self._last

    def _found_last(self) -> tuple[LoggedBatch, bool] | None:
        found = last_row(self._connection)
        with self._understood("batches"):
            return None if found is None else (LoggedBatch.from_json(found[0], found[1]), bool(found[2]))

    def logged(self) -> list[tuple[LoggedBatch, bool]]:
        """Returns the batches whose input the journal still has, in order, each with True if it is done."""
        self.settle()
        with self._translating(), self._understood("batches"):
            rows = self._connection.execute("SELECT number, facts, done FROM batches ORDER BY number")
            return [(LoggedBatch.from_json(number, facts), bool(done)) for number, facts, done in rows]

    def position(self, source: str) -> dict[str, Any]:
        """Returns the position of the source after the last batch that is done."""
        self.settle()
        with self._translating(), self._understood("positions"):
            rows = self._connection.execute("SELECT entry, value FROM positions WHERE source = ?", (source,))
            return {entry: json.loads(value) for entry, value in rows}

    def begin(self, batch: LoggedBatch) -> None:
        """Logs the input of a batch. Output of the batch may be written only after the next `settle`.

        Waits if the disk is so slow that too many batches are not on it. Raises the error of a task that failed.
        """
        self._behind.check()
        if self._ahead >= MOST_AHEAD:
            self.settle()
        self._ahead += 1
        self._last = batch, False
        self._behind.add(partial(self._begin, batch))

    def _begin(self, batch: LoggedBatch) -> None:
        self._note(batch, done=False)

    def forget(self, batch: LoggedBatch) -> None:
        """Removes a batch that has begun but has written no output."""
        self._changed = {}
        self._behind.add(partial(self._forget, batch))
        self.settle()
        self._last = self._found_last()

    def _forget(self, batch: LoggedBatch) -> None:
        self._connection.execute("DELETE FROM batches WHERE number = ? AND done = 0", (batch.number,))
        last = last_row(self._connection)
        self._totals["batches"] = 0 if last is None else digest(*last)

    def commit(self, batch: LoggedBatch) -> None:
        """Marks the batch as done, and stores its state and positions, in one transaction."""
        self._last, changed = (batch, True), self._changed
        # Until the second thread has written the changes, `get` finds them here.
        self._unsettled, self._changed = {**self._unsettled, **changed}, {}
        self._behind.add(partial(self._commit, batch, changed))

    def _commit(self, batch: LoggedBatch, changed: Mapping[tuple[str, str], bytes | None]) -> None:
        there = [name for name in changed if name in self._sums]
        new = [name for name in changed if name not in self._sums]
        undo.keep_before(self._connection, batch.number, there, new, undo.MOST_BYTES)
        self._put(changed)
        for source, taken in batch.taken.items():
            self._move(source, taken.position)
        self._note(batch, done=True)
        self._connection.execute("DELETE FROM batches WHERE number <= ?", (batch.number - KEPT_BATCHES,))
        undo.remove_up_to(self._connection, batch.number - KEPT_BATCHES)

    def later(self, task: Callable[[], object]) -> None:
        """Runs a task in the second thread, in the order of the calls of `begin`, `commit` and `later`."""
        self._behind.do(task)

    def settle(self, within: float | None = None) -> None:
        """Waits until everything that was begun, committed or passed to `later` is on disk, at most `within` s."""
        if self._behind.wait(within):
            self._unsettled, self._ahead = {}, 0

    def fill(
        self, batch: LoggedBatch, state: DictStore, positions: Mapping[str, Position], counted: Counted
    ) -> None:
        """Fills a new journal with the content of a savepoint, as if this batch had just been done."""
        self.keep_tally(counted)
        self._last = batch, True
        with self._changing():
            self._put({**self._changed, **state.values})
            for source, position in positions.items():
                self._move(source, position)
            self._note(batch, done=True)

    def _note(self, batch: LoggedBatch, *, done: bool) -> None:
        row = (batch.number, batch.to_json(), int(done))
        self._connection.execute("INSERT OR REPLACE INTO batches VALUES (?, ?, ?)", row)
        self._totals["batches"] = digest(*row)

    def _put(self, values: Mapping[tuple[str, str], bytes | None]) -> None:
        """Writes values of the state, by stage and key; None deletes a value."""
        there = [name for name in values if name in self._sums]
        before = [digest(*name, self._sums.pop(name)) for name in there]
        put = {name: value for name, value in values.items() if value is not None}
        sums = {name: digest_of(value, *name) for name, value in put.items()}
        # A changed row is deleted and inserted again. So a row that is missing in the database is noticed
        # here.
        gone = self._connection.executemany("DELETE FROM state WHERE stage = ? AND key = ?", there)
        if there and gone.rowcount != len(there):
            raise self.damaged(f"rows of table 'state' of {self.path} are missing")
        rows = ((*name, sums[name], value) for name, value in put.items())
        self._connection.executemany("INSERT INTO state VALUES (?, ?, ?, ?)", rows)
        self._sums |= sums
        self._count("state", before, [digest(*name, row) for name, row in sums.items()])

    def _move(self, source: str, position: Position) -> None:
        rows = [(source, entry, json.dumps(value)) for entry, value in position.items()]
        select = "SELECT * FROM positions WHERE source = ? AND entry = ?"
        found = (self._connection.execute(select, row[:2]).fetchone() for row in rows)
        before = [digest(*row) for row in found if row is not None]
        self._connection.executemany("INSERT OR REPLACE INTO positions VALUES (?, ?, ?)", rows)
        self._count("positions", before, [digest(*row) for row in rows])

    def _count(self, table: str, before: list[int], now: list[int]) -> None:
        """Updates the total of a table: rows with the digests `now` replace rows with the digests `before`."""
        self._totals[table] = added([self._totals[table], *now, *(-one for one in before)])

    def tally(self) -> Counted:
        """Returns the counts of rows and dead letters over all runs of the checkpoint so far."""
        value = self.get(_RUN, "tally")
        return Counted() if value is None else from_json(Counted, value)

    def keep_tally(self, counted: Counted) -> None:
        """Stores the counts of rows and dead letters over all runs, the current batch included."""
        self.put(_RUN, "tally", to_json(counted))

    def values(self) -> Iterator[tuple[str, str, bytes]]:
        """Iterates over all values of the state, as (stage, key, value)."""
        self.settle()
        for stage, key in sorted(name for name in self._sums if name[0] != _RUN):
            yield stage, key, self._read(stage, key)

    def reach(self) -> int:
        """Returns the earliest batch before which the state is known."""
        self.settle()
        done = -1 if self._last is None else self._last[0].number - (not self._last[1])
        with self._translating():
            return undo.reach(self._connection, done)

    def values_before(self, batch: int) -> dict[tuple[str, str], bytes]:
        """Returns all values of the state before a batch that is within `reach`, by stage and key."""
        now: dict[tuple[str, str], bytes | None] = {
            (stage, key): value for stage, key, value in self.values()
        }
        try:
            with self._translating():
                now |= undo.values_before(self._connection, batch)
        except ValueError as error:
            raise self.damaged(
                f"{error} in {self.path} before batch {batch} is not what was written"
            ) from None
        return {name: value for name, value in now.items() if value is not None and name[0] != _RUN}

    def keys(self, stage: str) -> list[str]:
        """Returns the keys of a stage that have a value in the current batch."""
        known = dict.fromkeys(self._sums, True)
        for values in (self._unsettled, self._changed):
            known |= {name: value is not None for name, value in values.items()}
        return [key for (owner, key), there in known.items() if there and owner == stage]

    @property
    def changed(self) -> bool:
        """True if a value has changed in the current batch."""
        return bool(self._changed)

    # The methods of a `StateStore`.

    @property
    def compress_from(self) -> int:
        return 0

    @property
    def remembers(self) -> bool:
        return True

    def get(self, stage: str, key: str) -> bytes | None:
        """Returns the value in the current batch if it was changed there, otherwise in the last batch that is done."""
        for known in (self._changed, self._unsettled):
            if (stage, key) in known:
                return known[stage, key]
        return self._read(stage, key) if (stage, key) in self._sums else None

    def decoded(self, stage: str, key: str, decode: Callable[[bytes], D]) -> D | None:
        """Returns the decoded value of a key. While the value does not change, it is decoded once."""
        name = stage, key
        token = self._changed.get(name, self._unsettled.get(name, self._sums.get(name)))
        if token is None:
            return None
        return self._memory.get(name, token, lambda: decode(self.get(stage, key) or b""))

    def put(self, stage: str, key: str, value: bytes) -> None:
        """Sets the value in the current batch."""
        self._memory.forget((stage, key))
        self._changed[stage, key] = value

    def delete(self, stage: str, key: str) -> None:
        """Deletes the value in the current batch."""
        self._memory.forget((stage, key))
        self._changed[stage, key] = None

    def _read(self, stage: str, key: str) -> bytes:
        """Reads a value that exists in the database. Raises `CheckpointError` if it is missing or damaged."""
        with self._translating(), self._turn:
            select = "SELECT value FROM state WHERE stage = ? AND key = ?"
            (value,) = self._connection.execute(select, (stage, key)).fetchone() or (None,)
        if not isinstance(value, bytes) or digest_of(value, stage, key) != self._sums[stage, key]:
            raise self._other(stage, key)
        return value

    def _other(self, stage: str, key: str) -> CheckpointError:
        return self.damaged(f"{key!r} of stage {stage!r} in {self.path} is not what was written")

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Runs a transaction, which also stores the new totals of all tables."""
        with self._translating(), self._transaction():
            yield
            totals = [(total, name) for name, total in self._totals.items()]
            self._connection.executemany("UPDATE totals SET total = ? WHERE name = ?", totals)

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

    def _translating(self) -> Any:
        return translated(self.path, self.damaged)
