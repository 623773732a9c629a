"""The policy for services that are briefly unwell: which errors may pass, and how often a call is repeated."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator

import polars as pl
import pyarrow as pa
import pytest
import redis.exceptions
import sqlalchemy as sa

from beamlike.errors import SinkError, SourceError
from beamlike.system import retries
from beamlike.system.activity import ActivityTracker, tracked_by
from beamlike.system.retries import again, may_pass


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "_FIRST", 0)


def database(text: str) -> sa.exc.OperationalError:
    return sa.exc.OperationalError("SELECT 1", None, Exception(text))


def caused(error: Exception, by: Exception) -> Exception:
    error.__cause__ = by
    return error


PASSING = [
    database('connection to server at "db-full.example" failed: Connection refused'),
    socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"),
    ConnectionResetError(errno.ECONNRESET, "reset"),
    ConnectionRefusedError(errno.ECONNREFUSED, "refused"),
    BrokenPipeError(errno.EPIPE, "pipe"),
    TimeoutError("timed out"),
    OSError(errno.EHOSTUNREACH, "no route"),
    OSError("AWS Error SLOW_DOWN during PutObject operation: Reduce your request rate."),
    OSError("AWS Error INTERNAL_FAILURE during GetObject operation: Failed to flush response stream"),
    OSError("AWS Error NETWORK_CONNECTION during HeadObject operation: curlCode: 56"),
    OSError("AWS Error UNKNOWN (HTTP status 503) during GetObject operation"),
    pl.exceptions.ComputeError("Generic S3 error: Error performing GET: error sending request"),
    database("server closed the connection unexpectedly"),
    database("database is locked"),
    sa.exc.OperationalError("INSERT", {"name": "Fullerton"}, Exception("server closed the connection")),
    pl.exceptions.ComputeError("object-store error: Generic S3 error: Error performing HEAD: timed out"),
    redis.exceptions.ConnectionError("Connection closed by server."),
    redis.exceptions.BusyLoadingError("Redis is loading the dataset in memory"),
    caused(SourceError("stream 'plays'"), redis.exceptions.TimeoutError("Timeout reading from socket")),
    caused(SinkError("out", "cannot be written"), ConnectionAbortedError("aborted")),
]
LASTING = [
    sa.exc.OperationalError(
        "SELECT 1", None, Exception(1044, "Access denied for user 'ada' to database 'db'")
    ),
    database("no pg_hba.conf entry for host 10.0.0.1"),
    database("table t has 2 columns but 3 values were supplied"),
    sa.exc.OperationalError("INSERT", None, Exception(1364, "Field 'x' doesn't have a default value")),
    redis.exceptions.AuthenticationError("invalid username-password pair"),
    socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
    FileNotFoundError(errno.ENOENT, "no file"),
    PermissionError(errno.EACCES, "no"),
    OSError(errno.ENOSPC, "No space left on device"),
    OSError("AWS Error ACCESS_DENIED during PutObject operation"),
    OSError("AWS Error NO_SUCH_BUCKET during PutObject operation"),
    pl.exceptions.ComputeError("parquet: File out of specification"),
    pl.exceptions.ComputeError("error deserializing value 'connection refused: timed out'"),
    pl.exceptions.InvalidOperationError("conversion failed: ['Generic S3 error: timed out']"),
    pa.ArrowInvalid("Failed to parse string: 'timed out' as a scalar of type int64"),
    sa.exc.IntegrityError("INSERT", {"note": "connection reset"}, Exception("not null")),
    pl.exceptions.ColumnNotFoundError("status 503"),
    database('relation "plays" does not exist'),
    database("no such table: plays"),
    database('password authentication failed for user "ada"'),
    sa.exc.IntegrityError("INSERT", None, Exception("unique")),
    ValueError("connection reset"),
    SourceError("timed out"),
]


@pytest.mark.parametrize("error", PASSING, ids=repr)
def test_errors_of_a_service_that_is_unwell_may_pass(error: Exception) -> None:
    assert may_pass(error)
    left = iter([error, error])

    def call() -> str:
        for one in left:
            raise one
        return "done"

    assert again("a service", call) == "done"


@pytest.mark.parametrize("error", LASTING, ids=repr)
def test_other_errors_are_raised_at_once(error: Exception) -> None:
    calls = [error]

    def call() -> None:
        raise calls.pop()

    with pytest.raises(type(error)):
        again("a service", call)


def test_an_error_of_a_users_function_is_the_users() -> None:
    error = ConnectionError("the price service")
    error.add_note("in the function of step 'ask' (map)")
    assert not may_pass(error)
    assert not may_pass(caused(SinkError("out", "x"), error))


def test_each_repetition_is_told_and_counted_up_to_the_limit(caplog: pytest.LogCaptureFixture) -> None:
    tracker, calls = ActivityTracker(lambda: 0), list[int]()

    def call() -> None:
        calls.append(1)
        raise ConnectionError("redis://ada:hunter2@queue is down")

    def outer() -> None:
        again("the inner call", call)

    with tracked_by(tracker), pytest.raises(ConnectionError) as caught:
        again("the outer call", outer)  # a call that was repeated to the limit is not repeated again
    assert len(calls) == retries.TRIES
    assert caught.value.__notes__ == ["after 10 attempts at: the inner call"]
    assert tracker.take_retries() == retries.TRIES - 1
    assert tracker.take_retries() == 0
    assert (
        caplog.text.count("the inner call: ConnectionError: redis://***@queue is down; trying again in 0.0s")
        == 9
    )
    assert "attempt 10 of 10" in caplog.text


def test_few_attempts_before_a_service_has_answered() -> None:
    errors: Iterator[Exception] = (ConnectionRefusedError("refused") for _ in range(100))

    def call() -> None:
        raise next(errors)

    with pytest.raises(ConnectionRefusedError):
        again("a service", call, retries.FEW)
    assert len([*errors]) == 100 - retries.FEW


def test_an_error_that_lasts_ends_the_attempts_that_a_brief_one_began() -> None:
    calls = []

    def call() -> None:
        calls.append("rows")
        if len(calls) == 1:
            raise ConnectionResetError(errno.ECONNRESET, "reset")
        raise PermissionError(errno.EACCES, "no")

    with pytest.raises(PermissionError) as caught:
        again("a sink", call)
    assert len(calls) == 2
    assert not getattr(caught.value, "__notes__", [])


def test_errors_that_are_raised_for_each_other_are_judged() -> None:
    first, second = FileNotFoundError(errno.ENOENT, "x"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert not may_pass(first)


def test_an_error_that_was_raised_while_another_was_handled_is_judged_by_itself() -> None:
    error = PermissionError(errno.EACCES, "no")
    error.__context__ = ConnectionResetError(errno.ECONNRESET, "reset")
    assert not may_pass(error)
    hidden = SinkError("out", "cannot be written")
    hidden.__context__ = ConnectionResetError(errno.ECONNRESET, "reset")
    assert may_pass(hidden)
