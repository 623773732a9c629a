"""Tables of SQL databases as sources: all their rows once, or the rows above the greatest value so far."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import beamlike as bl
from beamlike.errors import PlanError, SourceError, UnknownColumn
from tests.support.databases import execute, postgres
from tests.support.followed import Followed

KINDS = ("sqlite", "plain", pytest.param("postgres", marks=pytest.mark.connectors))


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """A function that returns the URL of a new database of a kind; there is one server, whose table is dropped."""
    with ExitStack() as started:
        servers: list[str] = []

        def url(kind: str) -> str:
            if kind != "postgres":
                return f"{kind}:///{tmp_path_factory.mktemp(kind)}/plays.db"
            if not servers:
                servers.append(started.enter_context(postgres()))
            execute(servers[0], "DROP TABLE IF EXISTS plays CASCADE")
            return servers[0]

        yield url


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, urls: Callable[[str], str]) -> str:
    """A database with a table of plays, which has the first ones."""
    url = urls(request.param)
    types = 'n INTEGER PRIMARY KEY, "us:er %" VARCHAR(20), at TIMESTAMP, day DATE, ok BOOLEAN, price NUMERIC(10, 2)'
    execute(url, f"CREATE TABLE plays ({types}, x DOUBLE PRECISION)")
    add(url, 1, 2, 3)
    return url


def add(url: str, *numbers: int) -> None:
    execute(
        url,
        *(
            f"INSERT INTO plays VALUES ({n}, 'u%{n}', '2026-01-01 00:00:{n:02d}.500000', '2026-01-{n:02d}', "
            f"{'true' if n % 2 else 'false'}, 1.{n:02d}, 0.5)"
            for n in numbers
        ),
    )


def rows(source: Any) -> list[dict[str, Any]]:
    return bl.Pipeline("p").read("rows", source).collect().to_dicts()


def test_all_rows_once_in_their_types(url: str, tmp_path: Path) -> None:
    as_text, moment, day = (
        "sqlite" in url or "plain" in url,
        datetime(2026, 1, 1, 0, 0, 3, 500_000),
        date(2026, 1, 3),
    )
    found = rows(bl.Table(url, "plays"))
    assert found[2] == {
        "n": 3,
        "us:er %": "u%3",
        "at": f"{moment}" if as_text and "sqlite" in url else moment,
        "day": f"{day}" if as_text and "sqlite" in url else day,
        "ok": True,
        "price": 1.03 if "sqlite" in url else Decimal("1.03"),
        "x": 0.5,
    }
    followed = Followed(lambda: bl.Table(url, "plays"), tmp_path)
    assert followed.run() == [[1, 2, 3]]
    add(url, 4)
    assert followed.run() == [[1, 2, 3]]


@pytest.mark.parametrize("grows", ["n", "at", "day"])
@pytest.mark.parametrize("batch", [None, 0, 1, 3])
def test_rows_above_the_greatest_value_come_once(
    url: str, tmp_path: Path, grows: str, batch: int | None
) -> None:
    followed = Followed(lambda: bl.Table(url, "plays", grows=grows), tmp_path)
    followed.run(dies_in=batch, rows=2)
    add(url, 4, 5)
    followed.run(dies_in=batch, rows=2)
    add(url, 6)
    numbers = [n for found in followed.run(rows=2) for n in found]
    assert numbers == [1, 2, 3, 4, 5, 6]


def test_the_bound_of_a_batch_is_fixed_before_it_is_read(url: str, tmp_path: Path) -> None:
    followed = Followed(lambda: bl.Table(url, "plays", grows="n"), tmp_path)
    followed.run(dies_in=0)
    add(url, 4)
    assert followed.run() == [[1, 2, 3], [4]]


def test_rows_of_one_value_stay_together(url: str, tmp_path: Path) -> None:
    execute(url, "UPDATE plays SET day = '2026-01-01'")
    followed = Followed(lambda: bl.Table(url, "plays", grows="day"), tmp_path)
    assert [sorted(batch) for batch in followed.run(rows=1)] == [[1, 2, 3]]


def test_a_query_in_place_of_a_table(url: str) -> None:
    query = """SELECT n, at AS "begin", '12:30 :n' AS said FROM plays WHERE "us:er %" LIKE 'u%' AND n > 1;"""
    source = bl.Table(url, query, grows="begin", schema={"n": int, "begin": datetime, "said": str})
    assert rows(source) == [
        {"n": n, "begin": datetime(2026, 1, 1, 0, 0, n, 500_000, tzinfo=UTC), "said": "12:30 :n"}
        for n in (2, 3)
    ]


def test_an_empty_table(url: str, tmp_path: Path) -> None:
    execute(url, "DELETE FROM plays")
    followed = Followed(lambda: bl.Table(url, "plays", grows="n"), tmp_path)
    assert (rows(bl.Table(url, "plays")), rows(bl.Table(url, "plays", grows="n")), followed.run()) == (
        [],
        [],
        [],
    )
    add(url, 1)
    assert followed.run() == [[1]]


def test_a_table_is_looked_up_and_read_anew(url: str) -> None:
    p = bl.Pipeline("p")
    numbers = bl.Rows([{"n": 2}, {"n": 9}])
    asked = p.read("asked", numbers, timestamp="n", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    prices = p.read("prices", bl.Refreshed(bl.Table(url, "plays"), every="1h"))
    fixed = p.read("fixed", bl.Table(url, "plays"))
    found = asked.with_columns(x=bl.lookup(prices, on="n")["x"], ok=bl.lookup(fixed, on="n")["ok"]).collect()
    assert found.drop("event_time").to_dicts() == [
        {"n": 2, "x": 0.5, "ok": False},
        {"n": 9, "x": None, "ok": None},
    ]


def test_no_file_is_made_for_a_database_of_sqlite_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(
        PlanError, match=r"step 'plays': .* has no table 'plays': there is no file '.*none.db'"
    ):
        bl.Pipeline("p").read("plays", bl.Table(f"sqlite:///{tmp_path}/none.db", "plays"))
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_is_said_when_it_is_declared(url: str) -> None:
    with pytest.raises(PlanError, match="has no table 'play'; did you mean 'plays'"):
        rows(bl.Table(url, "play"))
    with pytest.raises(UnknownColumn, match="there is no column 'm'"):
        rows(bl.Table(url, "plays", grows="m"))
    with pytest.raises(PlanError, match="grows='x' is Float64; it must be a whole number, a time or text"):
        rows(bl.Table(url, "plays", grows="x"))
    with pytest.raises(PlanError, match=r"give the columns of a query: schema="):
        rows(bl.Table(url, "SELECT n FROM plays"))
    with pytest.raises(PlanError, match="Table: grows= is for a source, and would have no effect in a sink"):
        bl.Pipeline("p").read("rows", bl.Rows([{"n": 1}])).write(
            "out", bl.Table(url, "plays", mode="append", grows="n")
        )


def test_what_the_database_says_is_told_without_its_password(url: str) -> None:
    with pytest.raises(SourceError, match="nothing") as failed:
        rows(bl.Table(url, "SELECT nothing FROM plays", schema={"nothing": int}))
    assert "hunter2" not in str(failed.value)
    execute(url, "UPDATE plays SET at = NULL WHERE n = 2")
    with pytest.raises(SourceError, match=r"column 'at' .* is null in 1 rows, which would never be read"):
        rows(bl.Table(url, "plays", grows="at"))
