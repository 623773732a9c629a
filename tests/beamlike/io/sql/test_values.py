"""Database values in the types of columns: numbers keep every digit; values that do not fit are dead letters."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import beamlike as bl
from beamlike.errors import SourceError
from tests.support.databases import execute, postgres


def read(source: Any, **choices: Any) -> tuple[list[Any], list[str]]:
    """Returns the values of the column `v`, and the errors of the dead letters."""
    good, bad = bl.Memory(), bl.Memory()
    rows = bl.Pipeline("p", max_dead_letters=10**6).read("in", source, **choices)
    rows.write("good", good)
    rows.dead_letters().write("bad", bad)
    rows.pipeline.run()
    return good.frame()["v"].to_list(), [str(letter["error"]) for letter in bad.rows()]


@pytest.mark.parametrize(
    ("kind", "given", "expected", "odd"),
    [
        ("INTEGER", "1, 2.5, NULL, 'n/a', 3", [1, None, 3], ["'2.5'", "'n/a'"]),
        ("INTEGER", "1, 2.5, 3", [1, 3], ["'2.5'"]),
        ("REAL", "1.5, 'n/a', 2", [1.5, 2.0], ["'n/a'"]),
        ("BOOLEAN", "0, 1, 7", [False, True], ["7"]),
        ("BOOLEAN", "0, 'true', 1, x'ff'", [False, True], ["'true'", "'\\xff'"]),
        ("TEXT", "'a', x'ff', x'62'", ["a", "b"], ["'\\xff'"]),
        ("BLOB", "x'ff', 'text', 1", [b"\xff", b"text"], ["'1'"]),
        ("INTEGER", "0.5, 9007199254740993", [9007199254740993], ["'0.5'"]),
    ],
)
def test_values_of_another_type_in_sqlite_are_letters(
    kind: str, given: str, expected: list[Any], odd: list[str], tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    values = ", ".join(f"({value})" for value in given.split(", "))
    execute(url, f"CREATE TABLE a (v {kind})", f"INSERT INTO a VALUES {values}")
    good, bad = read(bl.Table(url, "a"))
    assert good == expected
    assert [error.partition("is ")[2].partition(",")[0] for error in bad] == odd
    assert all(error.startswith("table 'a': column 'v'") for error in bad)


VALUES = (
    "0",
    "1",
    "7",
    "2.5",
    "9007199254740993",
    "'true'",
    "'n/a'",
    "'2026-01-01'",
    "x'61'",
    "x'fffe'",
    "NULL",
)
AFFINITIES = (
    "INTEGER",
    "REAL",
    "BOOLEAN",
    "TEXT",
    "BLOB",
    "DATE",
    "TIMESTAMP",
    "DECIMAL(10, 2)",
    "NUMERIC",
    "",
)


@pytest.mark.parametrize("kind", AFFINITIES)
def test_a_value_of_sqlite_has_one_fate_whatever_is_read_with_it(kind: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"

    def fate(values: tuple[str, ...], **choices: Any) -> tuple[list[Any], int]:
        rows = ", ".join(f"({number}, {value})" for number, value in enumerate(values))
        execute(
            url,
            "DROP TABLE IF EXISTS a",
            f"CREATE TABLE a (n INTEGER, v {kind})",
            f"INSERT INTO a VALUES {rows}",
        )
        good, bad = read(bl.Table(url, "a", **choices))
        return good, len(bad)

    alone = [fate((value,)) for value in VALUES]
    expected = [one for good, _ in alone for one in good], sum(bad for _, bad in alone)
    assert all(len(good) + bad == 1 for good, bad in alone)
    assert fate(VALUES) == expected
    assert fate(VALUES, grows="n") == expected
    good, bad = fate(VALUES[::-1])
    assert (good[::-1], bad) == expected


@pytest.mark.parametrize(
    ("kind", "given"), [("INTEGER", "'n/a'"), ("INTEGER", "x'01'"), ("TEXT", "x'ff'"), ("DATE", "x'01'")]
)
def test_a_table_of_sqlite_does_not_grow_past_a_value_that_is_after_all_others(
    kind: str, given: str, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    execute(url, f"CREATE TABLE a (v {kind})", f"INSERT INTO a VALUES ('1'), ({given})")
    with pytest.raises(SourceError, match=r"column 'v' .* is greater than all values of that type"):
        read(bl.Table(url, "a", grows="v"))


def test_decimals_of_sqlite_keep_their_digits(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    execute(url, "CREATE TABLE a (v TEXT)", "INSERT INTO a VALUES ('90071992547409.93'), ('0.125'), ('7')")
    good, bad = read(bl.Table(url, "a", schema={"v": pl.Decimal(20, 2)}))
    assert good == [Decimal("90071992547409.93"), Decimal(7)]
    assert len(bad) == 1


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres() as url:
        yield url


@pytest.mark.connectors
def test_numbers_without_digits_of_postgres_are_decimals(server: str) -> None:
    more = "1234567890123456789012345"
    execute(server, "DROP TABLE IF EXISTS a", "CREATE TABLE a (n INTEGER, v NUMERIC)")
    execute(server, f"INSERT INTO a VALUES (1, 1.10), (2, 'NaN'), (3, {more}), (4, NULL), (5, 1e-19)")
    good, bad = read(bl.Table(server, "a", grows="n"))
    assert good == [Decimal("1.10"), None]
    assert len(bad) == 3
    assert f"'{more}', expected Decimal" in bad[1]
    total = "SELECT sum(n) AS v, sum(v) AS s FROM a WHERE n IN (1, 4)"
    for dtype, value in ((int, 5), (float, 5.0), (pl.Decimal(38, 2), Decimal(5)), (str, "5")):
        assert read(bl.Table(server, total, schema={"v": dtype, "s": float})) == ([value], [])
    good, bad = read(bl.Table(server, "SELECT v FROM a WHERE n = 1", schema={"v": int}))
    assert (good, len(bad)) == ([], 1)


@pytest.mark.connectors
@pytest.mark.parametrize("kind", ["timestamptz", "timestamp", "date"])
def test_infinite_times_of_postgres_are_letters(server: str, kind: str) -> None:
    values = ", ".join(f"({n}, '{value}')" for n, value in enumerate(["2026-07-01", "infinity", "-infinity"]))
    execute(server, "DROP TABLE IF EXISTS a", f"CREATE TABLE a (n INTEGER, v {kind})")
    execute(server, f"INSERT INTO a VALUES {values}")
    good, bad = read(bl.Table(server, "a"))
    assert [value.year for value in good] == [2026]
    assert [error.partition(", ")[0] for error in bad] == [
        f"table 'a': column 'v' is '{sign}infinity'" for sign in ("", "-")
    ]
    with pytest.raises(SourceError, match=r"column 'v' .*infinite"):
        read(bl.Table(server, "a", grows="v"))
