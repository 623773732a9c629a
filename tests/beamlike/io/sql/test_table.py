"""Tables: they have the last result of the panes, in any database, also if batches are repeated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

import beamlike as bl
from beamlike.errors import PlanError
from beamlike.io import Part
from beamlike.io.sinks import RowKey, SinkInput
from beamlike.io.sql.statements import column_types, table_of
from beamlike.io.sql.table import Table
from tests.support.databases import execute, postgres, rows_of
from tests.support.examples import share

KINDS = ("sqlite", "plain", "postgres")


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """A function that returns the URL of a database of a kind; starts a server on first use."""
    folder, found = tmp_path_factory.mktemp("tables"), dict[str, str]()
    with ExitStack() as started:

        def url(kind: str) -> str:
            if kind not in found:
                own = kind == "postgres"
                found[kind] = started.enter_context(postgres()) if own else f"{kind}:///{folder}/{kind}.db"
            return found[kind]

        yield url


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, urls: Callable[[str], str]) -> str:
    return urls(request.param)


SCHEMA = pl.Schema(
    {"window_end": pl.Datetime("us", "UTC"), "user": pl.String(), "n": pl.Int64()}
    | {"pane_index": pl.Int64(), "pane_retracted": pl.Boolean()}
)
KEY = RowKey(("user", "window_end"), "pane_index", "pane_retracted")
END = datetime(2026, 1, 1, tzinfo=UTC)


def table(url: str, name: str = "t", key: RowKey | None = KEY, schema: pl.Schema = SCHEMA) -> Table:
    """Returns a sink that knows its schema and row key."""
    mode = "append" if key is None else "upsert"
    sink = Table(url, name, mode, per_pane=bool(key and key.per_pane))
    users = tuple(column for column in schema if column not in ("window_end", "pane_index", "pane_retracted"))
    return sink.fitted(SinkInput("out", schema, users, key))


def anew(url: str, name: str = "t") -> str:
    execute(url, f"DROP TABLE IF EXISTS {name}", "DROP TABLE IF EXISTS beamlike_ledger")
    return url


# Declarations


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("sqlite://bob:hunter2@@::/x", "t"), "url is not that of a database, such as 'sqlite:///out.db'"),
        (("sqlit:///x.db", "t"), "knows no database 'sqlit'"),
        (("sqlite://", "t"), "in memory is gone after a batch; name a file, or use bl.Memory"),
        (("sqlite:///x.db", ""), "table must be a name such as 'averages'"),
        (
            ("sqlite:///x.db", "t", "upsrt"),
            "mode may be 'upsert' or 'append', not 'upsrt'; did you mean 'upsert'?",
        ),
        (("sqlite:///x.db", "t", "append", True), "per_pane=True goes with mode='upsert'"),
    ],
)
def test_a_declaration_that_cannot_be_is_refused(arguments: tuple[Any, ...], says: str) -> None:
    with pytest.raises(ValueError, match=says.replace("(", r"\(")) as caught:
        Table(*arguments)
    assert "hunter2" not in str(caught.value)


def test_a_database_without_its_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PlanError, match=r"step 'out': 'postgresql\+psycopg2' needs the module 'psycopg2'"):
        table("postgresql+psycopg2://bob:hunter2@nowhere/x").check()
    with pytest.raises(PlanError, match=r"step 'rows': 'postgresql\+psycopg2' needs the module 'psycopg2'"):
        bl.Pipeline("p").read("rows", bl.Table("postgresql+psycopg2://bob:hunter2@nowhere/x", "t"))


@pytest.mark.parametrize("dialect", ["mysql", "mssql", "oracle", "postgresql", "sqlite"])
def test_every_column_has_a_type_in_every_database(dialect: str) -> None:
    schema = EVERYTHING.schema
    made = table_of("s.t", column_types(schema, ("text",)), ("text",))
    text = str(sa.schema.CreateTable(made).compile(dialect=sa.dialects.registry.load(dialect)()))
    assert len(text.splitlines()) > len(schema)


# Content of the table


def test_a_later_pane_replaces_the_row_and_one_taken_back_removes_it(url: str) -> None:
    sink = table(anew(url))
    sink.check()
    batches = [
        [("a", 1, 0, False), ("b", 2, 0, False), (None, 3, 0, False)],
        [("a", 1, 0, True), ("a", 5, 1, False), (None, 4, 1, False), ("b", 2, 0, True)],
    ]
    for number, rows in enumerate(batches):
        for _ in range(2):  # a repeated batch changes nothing
            sink.write(batch(rows), Part("q", number))
    found = [(row["user"], row["n"], row["window_end"]) for row in rows_of(url, "t", "n")]
    end = END if "postgres" in url else "2026-01-01 00:00:00.000000"
    assert found == [(None, 4, end), ("a", 5, end)]


QUOTED = [
    'us"er',
    '"',
    "us'er",
    "a[b]",
    "`b`",
    "a)b",
    "(c, d",
    "%s",
    "%(x)s",
    ":x",
    "?",
    "a\nb",
    "a.b",
    "-- c",
]


@pytest.mark.parametrize("name", ["t", "main.t", '"t.u"', '"t ""u"" [v]"', 'main."t.u"'])
def test_names_of_columns_and_tables_may_be_anything(name: str, url: str) -> None:
    name = name.replace("main", "public" if "postgres" in url else "main")
    anew(url, name)
    schema = pl.Schema({"n": pl.Int64()} | dict.fromkeys(QUOTED, pl.String()) | {"pane_index": pl.Int64()})
    frame = pl.DataFrame([[1, *QUOTED, 0]], schema=schema, orient="row")
    for number in range(2):  # the second time the table is there
        sink = table(url, name, RowKey(tuple(QUOTED), "pane_index", None), schema)
        sink.check()
        sink.write(frame.with_columns(pl.lit(number, pl.Int64).alias("n")), Part(f"q {number}", 0))
    assert rows_of(url, name) == [{"n": 1, "pane_index": 0} | dict(zip(QUOTED, QUOTED, strict=True))]


def test_a_schema_that_is_not_there_is_told_with_how_a_dot_is_written(url: str) -> None:
    advice = "a table with a dot in its name is written in quotes, '\"plays.2026\"'"
    with pytest.raises(PlanError, match=f"the database has no schema 'plays'; {advice}"):
        table(url, "plays.2026").check()
    near = "publik" if "postgres" in url else "mian"
    with pytest.raises(PlanError, match=f"no schema '{near}'; did you mean '(public|main)'"):
        table(url, f"{near}.t").check()


def test_with_per_pane_there_is_a_row_per_pane_and_what_was_taken_back_is_marked(url: str) -> None:
    sink = table(anew(url), key=RowKey(KEY.groups, KEY.pane, KEY.retracted, per_pane=True))
    sink.write(batch([("a", 1, 0, False)]), Part("q", 0))
    sink.write(batch([("a", 1, 0, True), ("a", 5, 1, False)]), Part("q", 1))
    found = [(row["n"], row["pane_index"], bool(row["pane_retracted"])) for row in rows_of(url, "t", "n")]
    assert found == [(1, 0, True), (5, 1, False)]


def batch(rows: list[tuple[Any, ...]]) -> pl.DataFrame:
    columns = {"user": pl.String(), "n": pl.Int64(), "pane_index": pl.Int64(), "pane_retracted": pl.Boolean()}
    frame = pl.DataFrame(rows, schema=columns, orient="row")
    return frame.with_columns(pl.lit(END).dt.cast_time_unit("us").alias("window_end")).select(SCHEMA.names())


def test_appended_rows_are_there_once_for_every_run(url: str) -> None:
    anew(url)
    sink = table(url, key=None, schema=pl.Schema({"n": pl.Int64()}))
    for run, number in (("q", 0), ("q", 0), ("q", 3), ("q", 3), ("other", 3)):
        sink.write(pl.DataFrame({"n": [number]}), Part(run, number))
    assert [row["n"] for row in rows_of(url, "t")] == [0, 3, 3]
    assert len(rows_of(url, "beamlike_ledger")) == 2
    sink.start("q")
    sink.write(pl.DataFrame({"n": [7]}), Part("q", 0))
    assert len(rows_of(url, "t")) == 4


Operation = tuple[str | None, int, int, bool]
OPERATIONS = st.tuples(
    st.sampled_from([None, "a", "b"]), st.integers(0, 2), st.integers(0, 99), st.booleans()
)
BATCHES = st.lists(st.lists(OPERATIONS, max_size=6), max_size=4)


@pytest.mark.parametrize("kind", KINDS)
def test_the_table_is_what_the_operations_say_in_their_order(kind: str, urls: Callable[[str], str]) -> None:
    url = urls(kind)

    @share(3)
    @given(BATCHES, st.integers(0, 3))
    def check(batches: list[list[Operation]], replayed: int) -> None:
        sink = table(anew(url, "m"), "m")
        sink.check()
        model: dict[tuple[str | None, int], int] = {}
        index = 0
        for number, operations in enumerate(batches):
            rows = []
            for user, window, n, retracted in operations:
                rows.append((user, END + timedelta(minutes=window), n, index, retracted))
                model.pop((user, window), None)
                model |= {} if retracted else {(user, window): n}
                index += 1
            frame = pl.DataFrame(
                rows, schema=["user", "window_end", "n", "pane_index", "pane_retracted"], orient="row"
            ).cast({"user": pl.String, "window_end": pl.Datetime("us", "UTC"), "n": pl.Int64})
            for _ in range(1 + (number == replayed)):
                sink.write(frame, Part("q", number))
        found = {(row["user"], str(row["window_end"])[14:16]): row["n"] for row in rows_of(url, "m")}
        assert found == {(user, f"{window:02}"): n for (user, window), n in model.items()}
        assert len(rows_of(url, "m")) == len(model)

    check()


def test_a_batch_is_written_whole_or_not_at_all(url: str) -> None:
    anew(url)
    execute(url, "CREATE TABLE t (n BIGINT CHECK (n < 5), x BIGINT)")
    sink = table(url, key=None, schema=pl.Schema({"n": pl.Int64()}))
    sink.check()
    with pytest.raises(sa.exc.IntegrityError):
        sink.write(pl.DataFrame({"n": [1, 9]}), Part("whole", 0))
    assert rows_of(url, "t") == []
    sink.write(pl.DataFrame({"n": [1]}), Part("whole", 0))
    assert [row["n"] for row in rows_of(url, "t")] == [1]


# Types

EVERYTHING = pl.DataFrame(
    {
        "text": ["a", "", None],
        "whole": [2**62, -1, None],
        "wide": pl.Series([2**64 - 1, 0, None], dtype=pl.UInt64),
        "float": [0.1, float("inf"), None],
        "decimal": pl.Series(
            [Decimal("123456789012345678.90"), Decimal("-0.01"), None], dtype=pl.Decimal(30, 2)
        ),
        "yes": [True, False, None],
        "at": pl.Series([datetime(2026, 1, 1, 12, 0, 0, 5), datetime(1901, 1, 1), None]).dt.replace_time_zone(
            "Europe/Berlin"
        ),
        "naive": [datetime(2026, 7, 1), datetime(1, 1, 1), None],
        "nano": pl.Series([1_500, -1, None]).cast(pl.Datetime("ns", "UTC")),
        "day": [date(9999, 12, 31), date(1, 1, 1), None],
        "far": pl.Series([10**9, None, -(10**9)], dtype=pl.Int32).cast(pl.Date),
        "time": [time(23, 59, 59, 999999), time(0), None],
        "took": [timedelta(days=-1), timedelta(microseconds=7), None],
        "bytes": [b"\0x", b"", None],
        "kind": pl.Series(["x", "y", None], dtype=pl.Enum(["x", "y"])),
        "tags": [["a", '"'], [], None],
        "nested": [{"at": datetime(2026, 1, 1), "n": [1]}, {"at": None, "n": None}, None],
        "nothing": [None, None, None],
        "odd (name)%s: --": [1, 2, 3],
    }
)


def test_values_come_back_as_they_were(url: str) -> None:
    sink = table(anew(url), key=None, schema=EVERYTHING.schema)
    if url.startswith("plain"):
        return  # its decimals are those of SQLite, which it does not say
    sink.write(EVERYTHING, Part("types", 0))
    first, second, third = rows_of(url, "t", "19")
    expected = EVERYTHING.drop("far").row(0, named=True)
    expected |= {"far": None, "took": -86_400_000_000, "nano": datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)}
    if "postgres" in url:
        expected |= {"nested": {"at": "2026-01-01T00:00:00.000000Z", "n": [1]}}
        expected |= {"wide": Decimal(2**64 - 1)}
    else:
        texts = {"naive": "2026-07-01 00:00:00.000000", "at": "2026-01-01 11:00:00.000005"}
        expected |= texts | {"day": "9999-12-31", "nano": "1970-01-01 00:00:00.000001"}
        expected |= {"time": "23:59:59.999999", "wide": str(2**64 - 1), "decimal": "123456789012345678.90"}
        expected |= {"tags": '["a","\\""]', "nested": '{"at":"2026-01-01T00:00:00.000000Z","n":[1]}'}
    assert {
        name: bytes(value) if isinstance(value, memoryview) else value for name, value in first.items()
    } == expected
    assert second["float"] == float("inf")
    assert second["text"] == ""
    assert str(second["naive"]).startswith("0001-01-01 00:00:00")
    assert [name for name, value in third.items() if value is not None] == ["odd (name)%s: --"]


def test_a_column_that_no_table_holds_is_refused_when_it_is_declared() -> None:
    with pytest.raises(PlanError, match="step 'out': column 'x' is Object, which no table can hold"):
        table("sqlite:///x.db", key=None, schema=pl.Schema({"x": pl.Object()}))


# A table that is there


FITS = {
    "sqlite": "user TEXT, window_end TIMESTAMP, n BIGINT, mine TEXT, own INTEGER PRIMARY KEY",
    "plain": "user TEXT, window_end TIMESTAMP, n BIGINT, mine TEXT DEFAULT 'x' NOT NULL",
    "postgres": '"user" VARCHAR(9), window_end TIMESTAMPTZ, n NUMERIC, own BIGSERIAL PRIMARY KEY, mine TEXT',
}
UNIQUE = 'CREATE UNIQUE INDEX told_apart ON t ("user", window_end)'


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_that_fits_is_used_and_need_not_have_the_columns_of_panes(
    kind: str, urls: Callable[[str], str]
) -> None:
    url = anew(urls(kind))
    execute(url, f"CREATE TABLE t ({FITS[kind]})", *([] if kind == "plain" else [UNIQUE]))
    sink = table(url)
    for n in (1, 2):
        sink.write(batch([("a", n, n, False)]), Part("q", n))
    (row,) = rows_of(url, "t")
    assert (row["user"], row["n"]) == ("a", 2)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ("n BIGINT", r"it has no column 'window_end' \(.*\); it has no column 'user' \(TEXT\)"),
        ('"user" BIGINT, window_end {time}, n BIGINT', "column 'user' is BIGINT, not TEXT"),
        ('"user" TEXT, window_end {time}, n TEXT', "column 'n' is TEXT, not BIGINT"),
        (
            '"user" TEXT, window_end {time}, n BIGINT, mine TEXT NOT NULL',
            "its column 'mine' must not be null and has no default, and no such column is written",
        ),
        (
            '"user" TEXT, window_end {time}, n BIGINT',
            r"no unique constraint on \(user, window_end\), by which",
        ),
    ],
)
def test_a_table_that_does_not_fit_is_refused_with_the_difference(columns: str, says: str, url: str) -> None:
    anew(url)
    execute(
        url, f"CREATE TABLE t ({columns.format(time='TIMESTAMPTZ' if 'postgres' in url else 'TIMESTAMP')})"
    )
    if url.startswith("plain") and "unique" in says:
        table(url).check()  # rows are removed and put in, with or without a constraint
        return
    with pytest.raises(
        PlanError, match=f"step 'out': the table 't' does not fit this sink: .*{says}"
    ) as caught:
        table(url).check()
    assert "hunter2" not in str(caught.value)


def test_times_without_a_zone_do_not_hold_those_with_one(urls: Callable[[str], str]) -> None:
    url = anew(urls("postgres"))
    execute(url, 'CREATE TABLE t ("user" TEXT, window_end TIMESTAMP, n BIGINT)', UNIQUE)
    with pytest.raises(
        PlanError, match="'window_end' is TIMESTAMP WITHOUT TIME ZONE, not TIMESTAMP WITH TIME ZONE"
    ):
        table(url).check()
