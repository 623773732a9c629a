"""PostgreSQL tables as sources: connections that break, runs that are killed, transactions that commit late."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

import beamlike as bl
from beamlike.errors import SourceError
from beamlike.system import retries
from tests.support.databases import execute, postgres, rows_of
from tests.support.followed import Followed

pytestmark = pytest.mark.connectors

_COLUMNS = "id SERIAL PRIMARY KEY, n INTEGER, tx xid8 DEFAULT pg_current_xact_id()"
_FRAGILE = """
CREATE FUNCTION fragile() RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF {when} THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;
  RETURN true;
END $$
"""
_SETTLED = "SELECT n, tx::text::bigint AS tx FROM plays WHERE tx < pg_snapshot_xmin(pg_current_snapshot())"
_JOB = """
import os, signal, sys
import beamlike as bl

url, checkpoint, dies_in = sys.argv[1:]

def dies(record):
    if record.batch == int(dies_in):
        os.kill(os.getpid(), signal.SIGKILL)

p = bl.Pipeline("copy")
p.read("plays", bl.Table(url, "plays", grows="id")).select("n").write("out", bl.Table(url, "out", mode="append"))
p.run(bl.LocalRunner(checkpoint=checkpoint, chunk_rows=3, on_batch=dies))
"""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres() as url:
        yield url


@pytest.fixture
def url(server: str) -> str:
    """A database with ten plays."""
    execute(
        server,
        "DROP TABLE IF EXISTS plays, out, beamlike_ledger CASCADE",
        "DROP FUNCTION IF EXISTS fragile",
        "DROP SEQUENCE IF EXISTS looks",
        f"CREATE TABLE plays ({_COLUMNS})",
        "CREATE SEQUENCE looks",
        "INSERT INTO plays (n) SELECT generate_series(0, 9)",
    )
    return server


def shaky(url: str, when: str) -> list[int]:
    """Returns the plays in a view that ends its reader's connection."""
    execute(url, _FRAGILE.format(when=when), "CREATE VIEW shaky AS SELECT n FROM plays WHERE fragile()")
    return bl.Pipeline("p").read("plays", bl.Table(url, "shaky")).collect()["n"].to_list()


def test_a_connection_that_breaks_is_made_anew(url: str) -> None:
    assert shaky(url, "nextval('looks') = 5") == [*range(10)]
    assert rows_of(url, "looks")[0]["last_value"] == 15


def test_a_connection_that_always_breaks_fails_the_run(url: str) -> None:
    with pytest.raises(SourceError, match=r"'shaky' of .* cannot be read: .*terminat"):
        shaky(url, "nextval('looks') > 0")
    assert rows_of(url, "looks")[0]["last_value"] == retries.TRIES  # so often it was tried


@pytest.mark.parametrize("batch", [0, 2, 3])
def test_a_run_that_is_killed_goes_on(url: str, tmp_path: Path, batch: int) -> None:
    def run(dies_in: int) -> int:
        job = [sys.executable, "-c", _JOB, url, str(tmp_path / "checkpoint"), str(dies_in)]
        return subprocess.run(job, cwd=tmp_path, timeout=600).returncode

    assert run(batch) == -signal.SIGKILL
    execute(url, "INSERT INTO plays (n) VALUES (10), (11)")
    assert run(-1) == 0
    assert [row["n"] for row in rows_of(url, "out", "n")] == [*range(12)]


@contextmanager
def in_flight(url: str) -> Iterator[None]:
    """Opens a transaction with a play, which commits at the end of the block."""
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.execute(sa.text("INSERT INTO plays (n) VALUES (10)"))
        yield


def test_what_commits_late_with_a_smaller_value_is_missed(url: str, tmp_path: Path) -> None:
    followed = Followed(lambda: bl.Table(url, "plays", grows="id"), tmp_path)
    with in_flight(url):
        execute(url, "INSERT INTO plays (n) VALUES (11)")
        followed.run()
    assert followed.run() == [[*range(10), 11]]


def test_what_commits_late_comes_once_by_transactions_that_have_settled(url: str, tmp_path: Path) -> None:
    schema = {"n": int, "tx": int}
    followed = Followed(lambda: bl.Table(url, _SETTLED, grows="tx", schema=schema), tmp_path)
    with in_flight(url):
        execute(url, "INSERT INTO plays (n) VALUES (11)")
        assert followed.run() == [[*range(10)]]
    assert followed.run() == [[*range(10)], [10, 11]]
