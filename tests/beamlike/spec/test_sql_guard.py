"""No part of a query is ignored: it is translated with DuckDB's meaning, or it is refused."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import duckdb
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import exp

import beamlike as bl
from beamlike.errors import BadQuery
from beamlike.spec import sql_aggregates, sql_expressions
from beamlike.spec.sql_arguments import READ
from tests.beamlike.spec.test_sql import tables

REFUSED = {
    # Clauses
    "SELECT user FROM plays UNION ALL SELECT user FROM plays ORDER BY user": "ORDER BY: a stream has no end",
    "SELECT user FROM plays UNION ALL SELECT user FROM plays LIMIT 3": "LIMIT: a stream has no first rows",
    "SELECT user FROM (SELECT user FROM plays LIMIT 3)": "LIMIT",
    "(SELECT user FROM plays) LIMIT 3": "LIMIT",
    "SELECT user FROM plays HAVING points > 3": "HAVING needs a GROUP BY",
    "SELECT DISTINCT ON (user) user, points FROM plays": "DISTINCT ON: write ROW_NUMBER()",
    "SELECT user FROM plays TABLESAMPLE (10 PERCENT)": "TABLESAMPLE",
    "SELECT * FROM plays PIVOT (SUM(points) FOR user IN ('ada'))": "PIVOT",
    "SELECT user FROM plays FOR SYSTEM_TIME AS OF at": "write it after JOIN",
    "SELECT a FROM plays AS t(a, b, c)": "names of columns in brackets",
    "WITH t(a) AS (SELECT user FROM plays) SELECT a FROM t": "names of columns in brackets",
    "WITH RECURSIVE t AS (SELECT user FROM plays) SELECT user FROM t": "RECURSIVE",
    "SELECT user FROM plays START WITH points = 1 CONNECT BY points = points": "CONNECT",
    "SELECT user, COUNT(*) AS n FROM plays GROUP BY user WITH ROLLUP": "ROLLUP",
    "SELECT user, COUNT(*) AS n FROM plays GROUP BY ROLLUP (user)": "ROLLUP",
    "SELECT user, COUNT(*) AS n FROM plays GROUP BY CUBE (user)": "CUBE",
    "SELECT user, COUNT(*) AS n FROM plays GROUP BY GROUPING SETS ((user), ())": "GROUPING SETS",
    "SELECT a.user FROM plays a ASOF JOIN plays b ON a.user = b.user AND a.at >= b.at": "METHOD",
    "SELECT a.user FROM plays a NATURAL JOIN plays b": "METHOD",
    "SELECT user FROM other.plays": "tables have one name",
    "SELECT * EXCEPT (user) FROM plays": "EXCEPT",
    "SELECT COUNT(*) AS n FROM plays GROUP BY TUMBLE(at, INTERVAL '1' MINUTE), TUMBLE(at, INTERVAL '2' MINUTE)": (
        "a grouping has one window"
    ),
    "SELECT user FROM plays EMIT EARLY EVERY 10 ROWS": "EMIT needs a GROUP BY",
    "SELECT COUNT(*) AS n FROM plays UNION ALL SELECT COUNT(*) AS n FROM plays EMIT EARLY EVERY 1 ROWS": (
        "write it after each query of UNION ALL"
    ),
    "SELECT user FROM plays WHERE points IN (SELECT age FROM ages)": "SEMI JOIN",
    # Joins
    "SELECT a.user FROM plays a JOIN plays b ON a.user = b.user AND a.window_start = b.window_end": "must be equal",
    "SELECT a.user FROM TABLE(TUMBLE(TABLE plays, DESCRIPTOR(at), INTERVAL '1' MINUTE)) a JOIN "
    "TABLE(TUMBLE(TABLE plays, DESCRIPTOR(at), INTERVAL '1' MINUTE)) b ON a.user = b.user": "of the same window",
    "SELECT a.user FROM plays a JOIN plays FOR SYSTEM_TIME AS OF a.points AS b ON a.user = b.user": (
        "takes the event time of the left rows, at"
    ),
    "SELECT a.user FROM plays a JOIN plays b ON a.user = b.user AND b.at BETWEEN a.at AND a.at + INTERVAL '1' HOUR "
    "AND b.at <= a.at + INTERVAL '5' MINUTE": "one lower and one upper bound",
    "SELECT a.user FROM plays a JOIN plays FOR SYSTEM_TIME AS OF a.at AS b ON a.user = b.user "
    "AND b.at >= a.at - INTERVAL '1' HOUR AND b.at <= a.at": "no bounds of time",
    "SELECT user FROM plays a JOIN ages b USING (user, age)": "both tables need a column 'age'",
    # The event time
    "SELECT COUNT(*) AS n FROM (SELECT points AS at FROM plays) GROUP BY TUMBLE(at, INTERVAL '1' MINUTE)": (
        "'at' is not the event time"
    ),
    "SELECT COUNT(*) AS c FROM (SELECT at, COUNT(*) AS n FROM plays GROUP BY at, TUMBLE(at, INTERVAL '1' MINUTE)) "
    "GROUP BY TUMBLE(at, INTERVAL '1' HOUR)": "'at' is not the event time of the rows",
    # Expressions
    "SELECT user FROM plays WHERE user LIKE user": "must be a text",
    "SELECT STARTS_WITH(user, user) AS x FROM plays": "must be a text",
    "SELECT REPLACE(user, user, 'x') AS x FROM plays": "must be a text",
    "SELECT SPLIT_PART(user, user, 1) AS x FROM plays": "must be a text",
    "SELECT SPLIT_PART(user, 'd', 0) AS x FROM plays": "a whole number from 1 on",
    "SELECT ROUND(points, -1) AS x FROM plays": "a whole number from 0 on",
    "SELECT SUBSTRING(user, -2) AS x FROM plays": "a whole number from 1 on",
    "SELECT CONCAT_WS('-', user, user) AS x FROM plays": "no counterpart",
    "SELECT TRIM('a' FROM user) AS x FROM plays": "TRIM",
    "SELECT TRIM(LEADING FROM user) AS x FROM plays": "TRIM",
    "SELECT CEIL(points, 2) AS x FROM plays": "CEIL",
    "SELECT user FROM plays WHERE points BETWEEN SYMMETRIC 5 AND 3": "BETWEEN SYMMETRIC",
    "SELECT MAX(points, 3) AS x FROM plays": "MAX",
    "SELECT ARG_MAX(user, points, 2) AS x FROM plays": "no counterpart",
    "SELECT TRY_CAST(user AS INT) AS x FROM plays": "no counterpart",
    "SELECT SUM(DISTINCT points) AS x FROM plays": "no counterpart",
    "SELECT COUNT(DISTINCT user, points) AS x FROM plays": "no counterpart",
    "SELECT DATE_FORMAT(event_time, 'EEEE') AS x FROM plays": "'EEEE' has no counterpart",
    "SELECT -'a' AS x FROM plays": "- needs a number",
    "SELECT -9223372036854775809 AS x FROM plays": "-9223372036854775809 does not fit into 64 bits",
    "SELECT 9223372036854775808 AS x FROM plays": "9223372036854775808 does not fit into 64 bits",
    "SELECT user DIV 2 AS x FROM plays": "DIV needs a number, not String; write CAST",
    "SELECT user % 2 AS x FROM plays": "% needs a number, not String; write CAST",
    "SELECT SPLIT_PART(points, 'a', 1) AS x FROM plays": "SPLIT_PART needs a text, not Int64; write CAST",
    "SELECT user + user AS x FROM plays": "for texts, write ||",
    "SELECT points AND TRUE AS x FROM plays": "AND needs a condition, not Int64; write a comparison",
    "SELECT user FROM plays WHERE points": "needs a condition, not Int64",
    "SELECT user FROM plays WHERE event_time > 5": "cannot be compared with Int64",
    "SELECT COALESCE(points, user) AS x FROM plays": "Int64 and String have no common type",
    "SELECT REPLACE(user, '', 'x') AS x FROM plays": "not empty",
    "SELECT SPLIT_PART(user, '', 2) AS x FROM plays": "not empty",
    "SELECT CAST(points AS DECIMAL(60, 2)) AS x FROM plays": "1 to 38 digits",
    "SELECT CAST(user AS VARCHAR(3)) AS x FROM plays": "there is no type VARCHAR(3)",
    "SELECT APPROX_QUANTILE(points, points) AS x FROM plays": "a number from 0 to 1",
    # Ranks
    **{
        f"SELECT user FROM (SELECT {what}, ROW_NUMBER() OVER (ORDER BY user{nulls}) AS n FROM plays) "
        f"WHERE {limit}": said
        for what, nulls, limit, said in [
            ("user", "", "n <= 3 AND n <= 1", "one limit"),
            ("user", "", "n <= 1.5", "a whole number"),
            ("user", "", "n < 1", "a whole number"),
            ("user", " NULLS LAST, points NULLS FIRST", "n <= 1", "NULLS FIRST or NULLS LAST"),
            ("DISTINCT user", "", "n <= 1", "SELECT DISTINCT with a rank"),
        ]
    },
}


@pytest.mark.parametrize("query", REFUSED)
def test_a_part_that_is_not_translated_is_refused(query: str) -> None:
    with pytest.raises(BadQuery) as caught:
        bl.sql(query, **tables(bl.Pipeline("p")))
    assert REFUSED[query] in str(caught.value)
    assert str(caught.value).startswith("line 1, column ")


def test_every_kind_of_node_that_is_translated_has_its_arguments() -> None:
    translated = {*sql_expressions.BINARY, *sql_expressions.METHODS, *sql_aggregates._ONE}
    assert translated <= {*READ}
    for kind, names in READ.items():
        assert {*names} <= {*kind.arg_types}, kind
    # Every argument that a user can write and that is not read has been looked at: a kind that gets a new one in
    # another version of sqlglot is refused if it is set.
    assert [kind for kind in READ if not issubclass(kind, exp.Expr)] == []


ROWS = [
    {"user": "ada", "points": 3, "half": 2.5, "flag": True, "at": 10},
    {"user": "bob", "points": -7, "half": -0.5, "flag": False, "at": 40},
    {"user": None, "points": None, "half": None, "flag": None, "at": 50},
    {"user": " b c ", "points": 0, "half": 3.25, "flag": True, "at": 80},
    {"user": "ada", "points": 8, "half": -1.5, "flag": None, "at": 90},
]
SCHEMA = {"user": str, "points": int, "half": float, "flag": bool, "at": int}


AGES = [{"user": "ada", "age": 36}, {"user": "eve", "age": 7}]


def rows_of(query: str) -> list[Any]:
    """Returns the rows of a query, sorted."""
    p = bl.Pipeline("p")
    rows = bl.Rows(ROWS, SCHEMA)
    plays = p.read("plays", rows, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    made = bl.sql(query, plays=plays, ages=p.read("ages", bl.Rows(AGES)))
    return sorted(map(rounded, made.collect().select(made.schema.names()).rows()), key=repr)


def theirs_of(query: str) -> list[Any]:
    """Returns the rows of the query in DuckDB, sorted."""
    with duckdb.connect() as db:
        db.execute("SET error_on_division_by_zero = false")
        db.register("plays", pl.DataFrame(ROWS, SCHEMA).to_arrow())
        db.register("ages", pl.DataFrame(AGES).to_arrow())
        return sorted(map(rounded, db.execute(query).fetchall()), key=repr)


def rounded(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(round(float(value), 9) + 0.0 if isinstance(value, float) else value for value in row)


SAME = [
    "SELECT user FROM (SELECT user, ROW_NUMBER() OVER (ORDER BY user DESC) AS n FROM plays WHERE points > 0) "
    "WHERE n <= 1",
    "SELECT a.user AS x, b.user AS y, b.age FROM plays a LEFT JOIN ages b ON a.user = b.user",
    "SELECT a.user AS x, b.user AS y, b.points AS p FROM plays a LEFT JOIN plays b ON a.user = b.user AND "
    "b.at BETWEEN a.at + 1 AND a.at + 100",
    "SELECT points % 3 AS r, points // 2 AS q FROM plays",
    "SELECT ROUND(half) AS r, ROUND(half, 1) AS s, ROUND(points) AS t FROM plays",
    "SELECT user FROM plays WHERE points IN (3, NULL)",
    "SELECT user FROM plays WHERE points NOT IN (3, NULL)",
    "SELECT user FROM plays WHERE points NOT IN (3, 8)",
    "SELECT points IN (points, 4) AS x FROM plays",
    "SELECT TRIM(user) AS x, SUBSTRING(user, 2, 2) AS y, SPLIT_PART(user, 'd', 1) AS z FROM plays",
    "SELECT CASE WHEN points > 2 THEN 'big' END AS x, COALESCE(points, -1) AS y FROM plays",
    "SELECT points + half AS x, -points AS y, ABS(half) AS z FROM plays",
    "SELECT half / 4 AS x, points / 4 AS y, POWER(7, points) AS p, SPLIT_PART(user, 'd', 9) AS z FROM plays",
    "SELECT ROUND(half * 0.1, 1) AS x FROM plays",
]


@pytest.mark.parametrize("query", SAME)
def test_a_query_means_what_it_means_in_duckdb(query: str) -> None:
    query_here = query.replace("//", "DIV").replace("a.at + 100", "a.at + INTERVAL '100' SECOND")
    query_here = query_here.replace("a.at + 1 ", "a.at + INTERVAL '1' SECOND ")
    ours, theirs = rows_of(query_here), theirs_of(query)
    assert ours == theirs


numbers = st.recursive(
    st.sampled_from(["points", "half", "0", "1", "2.5", "7", "CAST(NULL AS DOUBLE)"]),
    lambda inner: st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from(["+", "-", "*"]), inner),
        st.builds("-{}".format, inner.map(lambda one: f"({one})")),
        st.builds("ABS({})".format, inner),
        st.builds("COALESCE({}, {})".format, inner, inner),
        st.builds("CASE WHEN {} > {} THEN {} ELSE {} END".format, inner, inner, inner, inner),
        st.builds("ROUND({})".format, inner),
    ),
    max_leaves=5,
)
conditions = st.recursive(
    st.one_of(
        st.builds("{} {} {}".format, numbers, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), numbers),
        st.builds("{} IS NULL".format, numbers),
        st.builds("{} BETWEEN {} AND {}".format, numbers, numbers, numbers),
        st.builds("{} IN ({}, {})".format, numbers, numbers, numbers),
        st.sampled_from(["flag", "user LIKE 'a%'", "user = 'bob'", "user IN ('ada', NULL)", "NULL = points"]),
    ),
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("NOT ({})".format, inner),
    ),
    max_leaves=4,
)


@given(conditions, numbers)
def test_an_expression_means_what_it_means_in_duckdb(condition: str, number: str) -> None:
    query = f'SELECT "at", {number} AS x FROM plays WHERE {condition}'
    ours, theirs = rows_of(query), theirs_of(query)
    assert ours == theirs


def test_a_division_by_zero_is_null() -> None:
    """Spark returns null, too; DuckDB's results depend on the types."""
    query = "SELECT half / points AS a, points / 0 AS b, points % 0 AS c, points DIV 0 AS d FROM plays WHERE points = 0"
    assert rows_of(query) == [(None, None, None, None)]


def test_decimals_are_divided_as_floats_and_by_zero_to_null() -> None:
    rows = [{"price": Decimal("2.00"), "share": 2.5, "none": Decimal("0.00")}]
    priced = bl.Pipeline("p").read("priced", bl.Rows(rows), watermark=bl.IngressTimestamps())
    query = (
        "SELECT price / 3 AS a, 3 / price AS b, price DIV 3 AS c, price % none AS d, price DIV none AS e, "
        "share % 0 AS f, share DIV 0 AS g FROM priced"
    )
    assert bl.sql(query, priced=priced).select(*"abcdefg").collect()[[*"abcdefg"]].rows() == [
        (2 / 3, 1.5, Decimal(0), None, None, None, None)
    ]
