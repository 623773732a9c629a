"""SQL has the results of the DSL and of Nexmark; unsupported SQL is an error that says what to write instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import beamlike as bl
from beamlike.errors import BadQuery
from beamlike.plan.manifest import describe
from benchmarks.nexmark.answers import answer
from benchmarks.nexmark.check import difference, written
from benchmarks.nexmark.events import KINDS
from benchmarks.nexmark.pipeline import SCHEMAS, measured
from tests.beamlike.spec.nexmark_sql import SQL
from tests.benchmarks.test_nexmark import disorder  # noqa: F401  a fixture

FAST = {2, 3, 5, 8, 13, 18}


@pytest.mark.parametrize(
    "query", [pytest.param(one, marks=() if one in FAST else pytest.mark.slow) for one in SQL]
)
def test_a_query_of_nexmark_gives_what_another_program_finds(
    query: int,
    disorder: Path,  # noqa: F811  the fixture
    tmp_path: Path,
) -> None:
    p = bl.Pipeline("nexmark")
    tables = {
        kind: p.read(
            kind,
            bl.Parquet(disorder / kind, SCHEMAS[kind], order="path"),
            timestamp="at",
            watermark=bl.BoundedOutOfOrderness(measured(disorder / kind)),
            max_future=None,
        )
        for kind in KINDS
    }
    side = p.read("side", bl.Parquet(disorder / "side.parquet", {"key": int, "value": str}))
    bl.sql(SQL[query], **tables, side=side).write("answer", bl.Parquet(tmp_path / "out"))
    p.run(bl.LocalRunner(chunk_rows=700))
    assert difference(query, written(tmp_path / "out"), answer(query, disorder)) is None


SCORES = [
    {"user": "ada", "points": 3, "at": 10},
    {"user": "bob", "points": 5, "at": 40},
    {"user": "ada", "points": 4, "at": 80},
]
MINUTE = bl.FixedWindows("1m")


def tables(p: bl.Pipeline) -> dict[str, bl.Collection]:
    """Reads plays, and a table of ages, which has no times."""
    rows = bl.Rows(SCORES, rows_per_batch=1)
    plays = p.read("plays", rows, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    return {"plays": plays, "ages": p.read("ages", bl.Rows([{"user": "ada", "age": 36}]))}


def plan_of(made: bl.Collection) -> dict[str, Any]:
    """Returns the manifest of a collection that is written."""
    made.named("made").write("out", bl.Memory())
    return describe(made.pipeline.plan(), 1)


SAME: dict[str, Any] = {
    "SELECT user, MAX(points) AS points "
    "FROM plays GROUP BY user, TUMBLE(at, INTERVAL '1' MINUTE)": lambda plays, ages: (
        plays.window_into(MINUTE).group_by("user").aggregate(points=bl.max("points"))
    ),
    "SELECT COUNT(*) AS n FROM TABLE(HOP(TABLE plays, DESCRIPTOR(at), INTERVAL '30' SECONDS, INTERVAL '1' MINUTE)) "
    "GROUP BY window_start, window_end": lambda plays, ages: plays.window_into(
        bl.SlidingWindows("1m", "30s")
    ).aggregate(n=bl.count()),
    "SELECT COUNT(user) AS n FROM plays GROUP BY session_window(at, '5 minutes')": lambda plays, ages: (
        plays.window_into(bl.Sessions("5m")).aggregate(n=bl.count("user"))
    ),
    "SELECT user, COUNT(*) AS n FROM plays GROUP BY user, window(at, '1 minute') "
    "EMIT EARLY EVERY 10 ROWS LATE AFTER INTERVAL '1' MINUTE "
    "WITH LATENESS INTERVAL '1' HOUR RETRACTING": lambda plays, ages: (
        plays.window_into(
            MINUTE,
            trigger=bl.AfterWatermark(early=bl.AfterCount(10), late=bl.AfterProcessingTime("1m")),
            allowed_lateness="1h",
            accumulation="retracting",
        )
        .group_by("user")
        .aggregate(n=bl.count())
    ),
    "SELECT user, points FROM plays WHERE points > 3 AND user IN ('ada', 'bob')": lambda plays, ages: (
        plays.filter((bl.col("points") > 3) & bl.col("user").is_in(["ada", "bob"])).select(
            user=bl.col("user"), points=bl.col("points")
        )
    ),
    "SELECT a.user, b.points AS next FROM plays a JOIN plays b ON a.user = b.user "
    "AND b.at BETWEEN a.at + INTERVAL '1' SECOND AND a.at + INTERVAL '1' HOUR": lambda plays, ages: (
        plays.join(plays, left_on=["user"], right_on=["user"], within=("1s", "1h")).select(
            user=bl.col("user"), next=bl.col("points_right")
        )
    ),
    "SELECT a.* FROM plays a LEFT JOIN plays FOR SYSTEM_TIME AS OF a.at AS b ON a.user = b.user": lambda plays, ages: (
        plays.join_asof(plays, left_on=["user"], right_on=["user"], how="left").select(
            user=bl.col("user"), points=bl.col("points"), at=bl.col("at")
        )
    ),
}


@pytest.mark.parametrize("query", SAME)
def test_a_query_makes_the_plan_of_the_steps_that_it_stands_for(query: str) -> None:
    p, q = bl.Pipeline("p"), bl.Pipeline("p")
    assert plan_of(bl.sql(query, **tables(p))) == plan_of(SAME[query](**tables(q)))


RESULTS = {
    "SELECT user, age FROM (SELECT p.user, age FROM plays p LEFT JOIN ages a ON p.user = a.user) WHERE age IS NULL": [
        ("bob", None)
    ],
    "SELECT user, points, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY user ORDER BY points DESC) AS n "
    "FROM plays) WHERE n <= 1": [("ada", 4, 1), ("bob", 5, 1)],
    "SELECT user, SUM(points * 2) / COUNT(*) AS mean FROM plays GROUP BY user HAVING COUNT(*) > 1": [
        ("ada", 7.0)
    ],
    "SELECT points % 2 AS odd, COUNT(*) AS n FROM plays GROUP BY odd": [(0, 1), (1, 2)],
    "SELECT DISTINCT user FROM plays": [("ada",), ("bob",)],
    "SELECT user FROM plays WHERE points = 5 UNION ALL SELECT UPPER(user) AS who FROM plays WHERE points = 3": [
        ("ADA",),
        ("bob",),
    ],
    "WITH big AS (SELECT * FROM plays WHERE points > 3) SELECT CASE WHEN points > 4 THEN 'big' ELSE 'small' END AS "
    "size, CAST(points AS DOUBLE) AS d, COALESCE(user, 'x') || '!' AS c, EXTRACT(MINUTE FROM event_time) AS m "
    "FROM big": [
        ("big", 5.0, "bob!", 0),
        ("small", 4.0, "ada!", 1),
    ],
    "SELECT COUNT(*) AS n, MAX(points) AS most FROM plays GROUP BY CUMULATE(at, INTERVAL '1' MINUTE, INTERVAL '3' "
    "MINUTES)": [(2, 5), (3, 5), (3, 5)],
    "SELECT user, points FROM plays WHERE user LIKE 'a_a%' AND NOT points = 3": [("ada", 4)],
}


@pytest.mark.parametrize("query", RESULTS)
def test_a_query_gives_its_rows(query: str) -> None:
    made = bl.sql(query, **tables(bl.Pipeline("p")))
    assert sorted(made.collect().select(made.schema.names()).rows(), key=str) == RESULTS[query]


WRONG = {
    "SELECT user, pints FROM plays": "line 1, column 14: there is no column 'pints'; did you mean 'points'?",
    "SELECT user\nFROM play": "line 2, column 6: there is no table 'play'; did you mean 'plays'?",
    "SELECT user FROM plays ORDER BY user": "line 1, column 33: ORDER BY: a stream has no end at which to sort",
    "SELECT user FROM plays LIMIT 3": "LIMIT: a stream has no first rows; write ROW_NUMBER()",
    "SELECT user FROM plays UNION SELECT user FROM plays": "UNION: write UNION ALL, and SELECT DISTINCT around it",
    "SELECT COUNT(*) AS n FROM plays GROUP BY TUMBLE(points, INTERVAL '1' MINUTE)": (
        "line 1, column 49: 'points' is not the event time of the rows; the event time is at or event_time"
    ),
    "SELECT COUNT(*) AS n FROM plays GROUP BY HOP(at, INTERVAL '1' MINUTE)": "HOP takes a slide and a size",
    "SELECT COUNT(*) AS n FROM plays GROUP BY TUMBLE(at, INTERVAL '1' MIMUTE)": "'mimute' is no unit",
    "SELECT SUM(points) OVER (PARTITION BY user) AS s FROM plays": "use group_by(...).running(...)",
    "SELECT user FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY at) AS n FROM plays)": "a rank needs a limit",
    "SELECT a.user FROM plays a CROSS JOIN plays b": "a join without ON has no counterpart",
    "SELECT a.user FROM plays a JOIN plays b ON a.user = b.user AND b.at > a.at": "a join by time needs both bounds",
    "SELECT a.user FROM plays a JOIN plays b ON a.points > b.points": "a join needs a key",
    "SELECT points FROM plays a JOIN plays b ON a.user = b.user AND b.at = a.at": "the column 'points' is in a and b",
    "SELECT points + FROM plays": "line 1, column 17: ",
    "SELECT foo(points) AS x FROM plays": "foo has no counterpart",
    "SELECT points * 2 FROM plays": "give points * 2 a name: points * 2 AS name",
    "SELECT user FROM plays GROUP BY user": "GROUP BY needs an aggregate",
    "SELECT STRING_AGG(user) AS s FROM plays": "has no counterpart",
    "SELECT user FROM plays EMIT SOMETIMES": "expected EARLY, LATE, EVERY, WITH LATENESS or ACCUMULATING",
    "DELETE FROM plays": "DELETE: a query changes no table",
    "SELECT user, points AS user FROM plays": "the result has two columns 'user'",
}


@pytest.mark.parametrize("query", WRONG)
def test_a_query_that_has_no_counterpart_is_refused_with_what_to_write(query: str) -> None:
    with pytest.raises(BadQuery) as caught:
        bl.sql(query, **tables(bl.Pipeline("p")))
    assert WRONG[query] in str(caught.value)
    assert str(caught.value).startswith("line ")


def test_tables_must_be_collections() -> None:
    with pytest.raises(bl.PlanError, match="the table 'plays' must be a collection"):
        bl.sql("SELECT * FROM plays", plays=SCORES)  # type: ignore[arg-type]
    with pytest.raises(bl.PlanError, match="sql needs the tables of the query"):
        bl.sql("SELECT * FROM plays")
