"""Locks a table for one run of a given name, if the database has locks."""

from __future__ import annotations

import glob
import hashlib
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from types import TracebackType
from typing import Final, Self

import attrs
import sqlalchemy as sa

from beamlike.io.sql.statements import engine
from beamlike.system.locks import InUse, Lock, left_by_killed
from beamlike.system.path_names import file_name

_MINE: Final = sa.text("SELECT pg_try_advisory_xact_lock(:key)")
# Prevents the server from ending the transaction because it is idle.
_STAY: Final = sa.text(
    "SELECT set_config(name, '0', true) FROM pg_settings "
    "WHERE name IN ('idle_in_transaction_session_timeout', 'transaction_timeout')"
)
_SIGN: Final = sa.text("SELECT set_config('application_name', :who, true)")
# A statement that reads keeps its snapshot until the next statement, and the server cannot clean up rows that
# are newer. This statement has no snapshot, so it releases that.
_LET_GO: Final = sa.text("SET LOCAL statement_timeout TO DEFAULT")
_HOLDER: Final = sa.text(
    "SELECT application_name FROM pg_locks JOIN pg_stat_activity USING (pid) "
    "WHERE locktype = 'advisory' AND objsubid = 1 AND granted "
    "AND (classid::bigint << 32) | objid::bigint = :key AND datname = current_database()"
)
_NAMED: Final = sa.text("SELECT GET_LOCK(:key, 0)")
_STAY_CONNECTED: Final = sa.text("SET SESSION wait_timeout = 31536000")  # seconds; the maximum
_HOLDER_OF_NAMED: Final = sa.text(
    "SELECT CONCAT('connection ', id, ' from ', host) FROM information_schema.processlist "
    "WHERE id = IS_USED_LOCK(:key)"
)
_LONGEST: Final = 63
"""The greatest length of an application name in PostgreSQL."""


@attrs.define(eq=False)
class ServerLock:
    """A lock that the server holds for a connection of its own. It is released when the connection ends, for
    any reason.
    """

    _connection: sa.Connection

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(sa.exc.DBAPIError):  # the server has released the lock of a connection that was lost
            self._connection.close()


def hold(url: sa.URL, place: Sequence[str], run: str) -> Lock | ServerLock | None:
    """Locks the table at `place` for a run of this name. Raises `InUse` if another run of this name holds the lock.

    Returns None if the database has no locks.
    """
    match url.get_backend_name():
        case "sqlite":
            folder, database = os.path.split(place[1])
            for _ in left_by_killed(f"{glob.escape(folder)}/.{file_name(database)}-*.lock"):
                pass  # iterating removes the lock file
            name = file_name("-".join([database, *place[2:], run]))
            return Lock.take(f"{folder}/.{name}.lock", f"the run {run!r}")
        case "postgresql":
            return _on_server(url, _key_of([*place[4:], run]), run)
        case "mysql" | "mariadb":
            return _on_mysql(url, f"beamlike {_key_of([*place[3:], run])}", run)
    return None


def _on_server(url: sa.URL, key: int, run: str) -> ServerLock:
    # In other isolation levels, the whole transaction would keep a snapshot.
    connection = engine(url).connect().execution_options(isolation_level="READ COMMITTED")
    try:
        if not connection.scalar(_MINE, {"key": key}):
            raise InUse(f"the run {run!r} in {connection.scalar(_HOLDER, {'key': key}) or 'another process'}")
        who = f"process {os.getpid()} since {datetime.now(UTC):%Y-%m-%dT%H:%MZ} on {socket.gethostname()}"
        connection.execute(_STAY)
        connection.execute(_SIGN, {"who": who[:_LONGEST]})
        connection.execute(_LET_GO)
    except BaseException:
        connection.close()
        raise
    return ServerLock(connection)


def _on_mysql(url: sa.URL, key: str, run: str) -> ServerLock:
    connection = engine(url).connect().execution_options(isolation_level="AUTOCOMMIT")
    try:
        if not connection.scalar(_NAMED, {"key": key}):
            holder = connection.scalar(_HOLDER_OF_NAMED, {"key": key})
            raise InUse(f"the run {run!r} in {holder or 'another connection'}")
        connection.execute(_STAY_CONNECTED)
    except BaseException:
        connection.close()
        raise
    return ServerLock(connection)


def _key_of(names: Sequence[str]) -> int:
    digest = hashlib.sha256("\0".join(["beamlike", *names]).encode()).digest()
    return int.from_bytes(digest[:8], signed=True)
