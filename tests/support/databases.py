"""Databases for tests: SQLite files, SQLite as a database without upserts, and servers of PostgreSQL and MariaDB."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite


class Plain(SQLiteDialect_pysqlite):
    """SQLite under another name, so that rows are deleted and inserted as in any database without upserts."""

    name = "plain"
    supports_statement_cache = True


registry.register("plain", __name__, "Plain")


def rows_of(url: str, table: str, order: str = "1") -> list[dict[str, Any]]:
    """Returns the rows of a table, ordered by these columns."""
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.connect() as connection:
        found = connection.execute(sa.text(f"SELECT * FROM {table} ORDER BY {order}"))
        return [dict(row) for row in found.mappings()]


def execute(url: str, *statements: str) -> None:
    """Executes statements in one transaction."""
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(sa.text(statement))


@contextmanager
def postgres() -> Iterator[str]:
    """Runs a PostgreSQL server and yields its URL, with a password; skips the test where none is installed."""
    programs = {name: _program(name) for name in ("initdb", "postgres")}
    if missing := [name for name, path in programs.items() if path is None]:
        pytest.skip(f"PostgreSQL is not installed: no {missing[0]}")
    user = _unprivileged()
    folder = Path(tempfile.mkdtemp(prefix="postgres-"))
    try:
        if user is not None:
            shutil.chown(folder, user)
        as_user: dict[str, Any] = {"cwd": folder, "user": user, "stderr": subprocess.STDOUT}
        data = ["-D", str(folder / "data")]
        made = [programs["initdb"], *data, "-A", "trust", "-U", "tests", "-N", "-E", "UTF8", "--locale=C"]
        subprocess.run(made, check=True, stdout=subprocess.PIPE, **as_user)
        fast = ["-c", "listen_addresses=", "-c", "timezone=Asia/Tokyo", "-F"]
        server = subprocess.Popen(
            [programs["postgres"], *data, "-k", str(folder), *fast], stdout=subprocess.PIPE, **as_user
        )
        try:
            assert server.stdout is not None
            for line in server.stdout:
                if b"ready to accept connections" in line:
                    break
            yield f"postgresql+psycopg://tests:hunter2@/postgres?host={folder}"
        finally:
            server.send_signal(signal.SIGINT)
            server.communicate()
    finally:
        shutil.rmtree(folder)


@contextmanager
def mariadb() -> Iterator[str]:
    """Runs a MariaDB server and yields its URL; skips the test where none is installed."""
    pytest.importorskip("pymysql")
    programs = {name: shutil.which(name) for name in ("mariadb-install-db", "mariadbd")}
    if missing := [name for name, path in programs.items() if path is None]:
        pytest.skip(
            f"MariaDB is not installed: no {missing[0]} (on Debian and Ubuntu: apt install mariadb-server)"
        )
    folder = Path(tempfile.mkdtemp(prefix="mariadb-"))
    try:
        owner = pwd.getpwuid(os.getuid()).pw_name
        where = ["--no-defaults", f"--datadir={folder}/data", f"--user={owner}"]
        made = [programs["mariadb-install-db"], *where, "--auth-root-authentication-method=normal"]
        subprocess.run(made, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        alone = ["--skip-networking", f"--socket={folder}/socket", f"--pid-file={folder}/pid"]
        run = [programs["mariadbd"], *where, *alone, "--default-time-zone=+09:00"]
        with subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as server:
            try:
                assert server.stdout is not None
                for line in server.stdout:
                    if b"ready for connections" in line:
                        break
                url = f"mysql+pymysql://root@localhost/{{}}?unix_socket={folder}/socket"
                execute(url.format("mysql"), "CREATE DATABASE plays", "SET PASSWORD = PASSWORD('hunter2')")
                yield url.replace("root@", "root:hunter2@").format("plays")
            finally:
                server.kill()
                server.communicate()
    finally:
        shutil.rmtree(folder)


def _program(name: str) -> str | None:
    """Returns the path of a PostgreSQL program, which some systems do not have on PATH."""
    places = [str(path.parent) for path in Path("/usr/lib/postgresql").glob(f"*/bin/{name}")]
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *places]))


def _unprivileged() -> str | None:
    """Returns the user to run the server as, because it refuses to run as root; None for the current user."""
    if os.getuid():
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    for name in ("postgres", "nobody"):
        if name in names:
            return name
    return pytest.skip("PostgreSQL does not run as root, and there is no user 'postgres' or 'nobody'")
