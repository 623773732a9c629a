"""MariaDB tables, as sinks and as sources: the last result of panes, rows once, also in runs that die."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import beamlike as bl
from beamlike.errors import PlanError, SourceError
from beamlike.io import Part
from beamlike.io.sinks import RowKey, SinkInput
from beamlike.system.locks import InUse
from tests.support.databases import execute, mariadb, rows_of
from tests.support.followed import Followed

pytestmark = pytest.mark.connectors

TYPES = (
    "n INTEGER PRIMARY KEY, `us:er %` VARCHAR(20), at DATETIME(6), day DATE, ok BOOLEAN, price NUMERIC(10, 2)"
)
END = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with mariadb() as url:
        yield url


@pytest.fixture
def url(server: str) -> str:
    """A database with a table of plays, which has the first ones."""
    execute(server, *(f"DROP TABLE IF EXISTS {name}" for name in ("plays", "t", "beamlike_ledger")))
    execute(server, f"CREATE TABLE plays ({TYPES})")
    add(server, 1, 2, 3)
    return server


def add(url: str, *numbers: int) -> None:
    execute(
        url,
        *(
            f"INSERT INTO plays VALUES ({n}, 'u{n}', '2026-01-01 00:00:{n:02d}.500000', '2026-01-{n:02d}', "
            f"{n % 2}, 1.{n:02d})"
            for n in numbers
        ),
    )


def test_a_table_is_held_by_one_run_of_a_name_until_that_lets_go(url: str) -> None:
    sink = bl.Table(url, "t", mode="append")
    with sink.hold("run"), pytest.raises(InUse, match=r"^the run 'run' in connection \d+ from localhost"):
        bl.Table(url, "t", mode="append").hold("run")
    for one in (sink, bl.Table(url, "other"), sink):
        with one.hold("run"), sink.hold("another"):
            pass


def test_all_rows_in_their_types(url: str) -> None:
    found = bl.Pipeline("p").read("rows", bl.Table(url, "plays")).collect()
    assert found.row(2) == (
        3,
        "u3",
        datetime(2026, 1, 1, 0, 0, 3, 500_000),
        date(2026, 1, 3),
        1,
        Decimal("1.03"),
    )
    assert found.schema["price"] == pl.Decimal(10, 2)


@pytest.mark.parametrize("grows", ["n", "at", "day", "us:er %"])
@pytest.mark.parametrize("batch", [0, 1, 3])
def test_rows_above_the_greatest_value_come_once(url: str, tmp_path: Path, grows: str, batch: int) -> None:
    followed = Followed(lambda: bl.Table(url, "plays", grows=grows), tmp_path)
    followed.run(dies_in=batch, rows=2)
    add(url, 4, 5)
    followed.run(dies_in=batch, rows=2)
    add(url, 6)
    assert [n for found in followed.run(rows=2) for n in found] == [1, 2, 3, 4, 5, 6]


def test_a_query_in_place_of_a_table(url: str) -> None:
    query = "SELECT n, at AS began FROM plays WHERE `us:er %` LIKE 'u%' AND n > 1"
    source = bl.Table(url, query, grows="began", schema={"n": int, "began": datetime})
    assert bl.Pipeline("p").read("rows", source).collect()["n"].to_list() == [2, 3]


def test_what_cannot_be_is_told_without_the_password(url: str) -> None:
    with pytest.raises(PlanError, match="has no table 'play'; did you mean 'plays'"):
        bl.Pipeline("p").read("rows", bl.Table(url, "play"))
    with pytest.raises(SourceError, match="nothing") as failed:
        bl.Pipeline("p").read(
            "rows", bl.Table(url, "SELECT nothing FROM plays", schema={"nothing": int})
        ).collect()
    assert "hunter2" not in str(failed.value)


def sessions(url: str, mode: Any, dies_in: int | None, checkpoint: Path) -> None:
    """Writes sessions of users with retracted early panes, and the plays, to tables."""
    plays = [{"user": f"u{n % 3}", "at": 13 * n} for n in range(40)]
    p = bl.Pipeline("sessions")
    source = bl.Rows(plays, rows_per_batch=10)
    read = p.read("plays", source, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    early = bl.AfterWatermark(early=bl.AfterCount(1))
    windowed = read.window_into(bl.Sessions("1m"), trigger=early, accumulation=bl.RETRACTING)
    if mode == "upsert":
        windowed.group_by("user").aggregate(n=bl.count()).write("out", bl.Table(url, "t"))
    else:
        read.write("out", bl.Table(url, "t", mode="append"))

    def dies(record: Any) -> None:
        if record.batch == dies_in:
            raise InterruptedError("the process is gone")

    p.run(bl.LocalRunner(checkpoint=str(checkpoint), drain=dies_in is None, on_batch=dies))


@pytest.mark.parametrize("mode", ["upsert", "append"])
def test_a_run_that_dies_and_goes_on_leaves_each_row_once(url: str, tmp_path: Path, mode: str) -> None:
    for dies_in in (1, 2):
        with pytest.raises(Exception, match="the process is gone"):
            sessions(url, mode, dies_in, tmp_path / "checkpoint")
    sessions(url, mode, None, tmp_path / "checkpoint")
    found = rows_of(url, "t", "user")
    if mode == "upsert":
        assert [(row["user"], row["n"]) for row in found] == [("u0", 14), ("u1", 13), ("u2", 13)]
    else:
        assert sorted(row["at"] for row in found) == [13 * n for n in range(40)]


VALUES = pl.DataFrame(
    {
        "k": ["a", "ä€😀", "A", None],
        "whole": [2**62, -1, 0, None],
        "wide": pl.Series([2**64 - 1, 0, 1, None], dtype=pl.UInt64),
        "float": [0.1, -1e300, 0.0, None],
        "decimal": pl.Series(
            [Decimal("123456789012345678.90"), Decimal("-0.01"), Decimal(0), None], dtype=pl.Decimal(30, 2)
        ),
        "yes": [True, False, True, None],
        "at": pl.Series([END + timedelta(microseconds=5), END, END, None]),
        "day": [date(9999, 12, 31), date(1901, 1, 1), END.date(), None],
        "time": [time(23, 59, 59, 999999), time(0), time(1), None],
        "took": [timedelta(days=-1), timedelta(microseconds=7), timedelta(0), None],
        "bytes": [b"\0x", b"", b"\xff", None],
        "tags": [["a", '"'], [], ["b"], None],
    }
)


def test_values_come_back_as_they_were_and_keys_tell_rows_apart(url: str) -> None:
    schema = pl.Schema({**VALUES.schema, "pane_index": pl.Int64()})
    users = tuple(VALUES.columns)
    sink = bl.Table(url, "t").fitted(SinkInput("out", schema, users, RowKey(("k",), "pane_index", None)))
    sink.check()
    for pane in (0, 1):
        for _ in range(2):
            sink.write(VALUES.with_columns(pane_index=pl.lit(pane, pl.Int64)), Part("q", pane))
    source = bl.Table(url, "t", schema={**VALUES.schema, "took": int, "tags": str, "pane_index": int})
    found = bl.Pipeline("p").read("rows", source).collect().sort("whole", nulls_last=True, descending=True)
    assert found["pane_index"].to_list() == [1, 1, 1, 1]
    expected = VALUES.sort("whole", nulls_last=True, descending=True)
    plain = [name for name in VALUES.columns if name not in ("took", "tags")]
    assert found.select(plain).to_dicts() == expected.select(plain).to_dicts()
    assert found["took"].to_list() == [-86_400_000_000, 0, 7, None]
    assert found["tags"].to_list() == ['["a","\\""]', '["b"]', "[]", None]


def test_keys_that_differ_in_case_accents_or_blanks_are_several(url: str) -> None:
    keys = ["a", "A", "á", "a ", " a", "a\t", ""]
    rows = [{"k": key, "n": number, "at": 0} for number, key in enumerate(keys)]
    p = bl.Pipeline("keys")
    strategy = bl.BoundedOutOfOrderness("1s")
    read = p.read("rows", bl.Rows(rows), timestamp="at", timestamp_unit="s", watermark=strategy)
    counts = read.group_by("k").aggregate(n=bl.sum("n"))
    counts.write("out", bl.Table(url, "t", mode="upsert"))
    p.run()
    assert {row["k"]: row["n"] for row in rows_of(url, "t", "k")} == dict(zip(keys, range(7), strict=True))
