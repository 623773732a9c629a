"""Mistakes of strangers, with habits of pandas, polars, Spark, Beam and Flink. Each answer names the place, what was
given and what to write. An entry has the mistake and parts of its answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner

import beamlike as bl
from beamlike.cli.main import main

ROWS = [{"user": "ada", "points": 3, "at": "2026-01-01T12:00:10Z"}]
col: Any = bl.col
a, b, points, user = col("a"), col("b"), col("points"), col("user")
lib: Any = bl


def c() -> Any:
    source, bound = bl.Rows(ROWS), bl.BoundedOutOfOrderness("10s")
    return bl.Pipeline("p").read("r", source, timestamp="at", watermark=bound)


def w() -> Any:
    return c().window_into(bl.FixedWindows("1m"))


def g() -> Any:
    return w().group_by("user")


def branch() -> Any:
    if points > 3:
        return 1
    return 0


def loop() -> Any:
    while points > 3:
        pass


HERE = "test_mistakes.py, line"
Mistake = tuple[Callable[[], Any], list[str]]
PYTHON: dict[str, Mistake] = {
    "and": (
        lambda: c().filter(points > 3 and user == "ada"),
        ["filter(...)", HERE, '(points > 3) & (user == "ada")'],
    ),
    "or": (
        lambda: c().filter(points > 3 or points < 1),
        ["filter(...)", HERE, "(points > 3) | (points < 1)"],
    ),
    "three ands": (lambda: c().filter(a > 1 and b > 1 and points), [HERE, "(a > 1) & (b > 1) & (points)"]),
    "not": (lambda: c().filter(not points > 3), ["'not'", HERE, "~(points > 3)"]),
    "not in a step with a name": (
        lambda: c().with_columns(x=not user.is_null()),
        ["with_columns(...)", "~(user.is_null())"],
    ),
    "in": (lambda: c().filter("ada" in user), [HERE, 'user.is_in(["ada"])', 'user.str.contains("ada")']),
    "not in": (lambda: c().filter("ada" not in user), [HERE, '~user.is_in(["ada"])']),
    "a column in a list": (lambda: c().filter(user in ["ada", "bob"]), [HERE, 'user.is_in(["ada", "bob"])']),
    "a column in a tuple": (lambda: c().filter(user in ("ada", "bob")), [HERE, 'user.is_in(("ada", "bob"))']),
    "a chain": (lambda: c().filter(1 < points < 3), ["a chain", HERE, "(1 < points) & (points < 3)"]),
    "a chain with <=": (lambda: c().filter(1 <= points <= 3), ["(1 <= points) & (points <= 3)"]),
    "& without parentheses": (
        lambda: c().filter(user == "ada" & points > 3),
        ["parentheses around each", HERE, '(user == "ada") & (points > 3)'],
    ),
    "| without parentheses": (lambda: c().filter(points > 3 | points < 1), ["(points > 3) | (points < 1)"]),
    "two & without parentheses": (
        lambda: c().filter(a == 1 & b == 2 & points == 3),
        ["parentheses around each comparison", "& (points == 3)"],
    ),
    "if as an expression": (
        lambda: c().with_columns(x=1 if points > 3 else 0),
        ["with_columns(...)", HERE, "bl.when(points > 3).then(1).otherwise(0)"],
    ),
    "if": (branch, [HERE, "'if' decides once", "bl.when(...).then(...)"]),
    "while": (loop, [HERE, "'while' decides once"]),
    "assert": (lambda: exec("assert points > 3", globals()), ["line 1", "bl.when"]),
    "max": (lambda: c().with_columns(x=max(a, b)), ["max(...)", HERE, "bl.when(a > b)"]),
    "sorted": (lambda: sorted([a, b]), ["sorted(...)", HERE]),
    "any": (lambda: any([a, b]), ["any(...)", HERE]),
    "bool": (lambda: bool(a), ["bool(...)", HERE]),
    "round": (lambda: round(points, 2), [HERE, ".round(2)"]),
    "abs": (lambda: abs(points), [HERE, ".abs()"]),
    "int": (lambda: c().with_columns(x=int(points)), ["with_columns(...)", "cast({'x': int})"]),
    "float": (lambda: float(points), [HERE, "cast("]),
    "len": (lambda: len(user), [HERE, ".str.len_chars()"]),
    "an item": (lambda: user[0], [HERE, ".list.get(0)"]),
    "iteration": (lambda: list(user), [HERE, "cannot be iterated"]),
    "isin": (lambda: user.isin(["a"]), ["'isin'", "is_in([...])"]),
    "isNull": (lambda: user.isNull(), ["'isNull'", "is_null()"]),
    "astype": (lambda: points.astype(float), ["'astype'", "cast("]),
    "like": (lambda: user.like("a%"), ["'like'", "str.contains"]),
    "str.lower": (lambda: user.str.lower(), ["expression.str", "'lower'", "str.to_lowercase()"]),
    "dt.hours": (lambda: col("at").dt.hours(), ["expression.dt", "'hours'", "hour()"]),
    "a misspelled method": (lambda: user.is_nul(), ["'is_nul'", "did you mean 'is_null'?"]),
    "an unknown argument of a method": (
        lambda: points.round(digits=2),
        [HERE, "round has no argument 'digits'", "decimals"],
    ),
    "a type as text": (
        lambda: points.cast("int"),
        [HERE, "cast(...) cannot have these arguments", "collection.cast({'x': int})"],
    ),
    "a comparison before & without parentheses": (
        lambda: c().filter(points > 3 & (user == "a")),
        ["& cannot join Boolean and Int64", "write parentheses around each comparison"],
    ),
    "one & without parentheses": (
        lambda: c().filter((user == "ada") & points > 3),
        ["step 'r.filter'", "write parentheses around each comparison"],
    ),
    "a method of another type": (
        lambda: c().with_columns(x=points.str.to_uppercase()),
        ["step 'r.with_columns'", "points Int64", "cast(...)"],
    ),
    "a broken pattern": (
        lambda: c().filter(user.str.contains("(")),
        ["step 'r.filter'", "change the arguments"],
    ),
    "is_in(text)": (lambda: user.is_in("ada"), [HERE, "is_in(['ada', 'bob'])"]),
    "a number as a column": (lambda: col(3), ["bl.col('user')", "not 3"]),
}
CALLS: dict[str, Mistake] = {
    "dedup without within": (
        lambda: c().dedup("user"),
        ["step 'r.dedup'", "needs within=", 'dedup("user", within="1h")'],
    ),
    "dedup(subset=)": (lambda: c().dedup(subset="user", within="1h"), ["step 'r.dedup'", "'subset'"]),
    "filter(user=)": (lambda: c().filter(user="ada"), ["step 'r.filter'", "'user'", "bl.col("]),
    "filter(text)": (
        lambda: c().filter("points > 3"),
        ["step 'r.filter'", "'points > 3'", "did you mean 'points'?"],
    ),
    "rename(old=new)": (lambda: c().rename(user="u"), ["step 'r.rename'", 'rename({"points": "score"})']),
    "rename(old, new)": (
        lambda: c().rename("user", "u"),
        ["step 'r.rename'", "takes 1 argument", "this has 2"],
    ),
    "cast(x=int)": (lambda: c().cast(points=int), ["step 'r.cast'", "'points'", 'cast({"points": float})']),
    "window_into(text)": (
        lambda: c().window_into("1m"),
        ["step 'r.window_into'", "'1m'", "bl.FixedWindows("],
    ),
    "lateness=": (
        lambda: c().window_into(bl.FixedWindows("1m"), lateness="1m"),
        ["'lateness'", "use allowed_lateness="],
    ),
    "a trigger as text": (
        lambda: w().window_into(trigger="early"),
        ["trigger", "'early'", "bl.AfterWatermark()"],
    ),
    "group_by()": (lambda: w().group_by().aggregate(n=bl.count()), ["step 'r.aggregate'", "needs a key"]),
    "agg({...})": (
        lambda: g().aggregate({"points": "sum"}),
        ["step", "{'points': 'sum'}", "aggregate(plays=bl.count())"],
    ),
    "an aggregate not called": (lambda: g().aggregate(n=bl.count), ["the function itself", "bl.count(...)"]),
    "sum()": (lambda: lib.sum(), ["sum needs column=", 'bl.sum("points")']),
    "top without n": (lambda: lib.top("points"), ["top needs n="]),
    "quantile(95)": (lambda: lib.quantile("points", 95), ["quantile", "95", "0.99"]),
    "len(c)": (lambda: len(c()), ["step 'r'", "bl.count()", "len(collection.collect())"]),
    "iteration": (lambda: list(c()), ["step 'r'", "map(function)"]),
    "an item": (lambda: c()["user"], ["step 'r'", "'user'", "bl.col('user')"]),
    "an assignment": (lambda: c().__setitem__("x", 1), ["with_columns(x=expression)"]),
    "truth": (lambda: bool(c()), ["step 'r'", "collect()"]),
    "x in c": (lambda: "user" in c(), ["step 'r'", "'user'", ".schema"]),
    "c > 1": (lambda: c() > 1, ["step 'r'", "bl.col('x')"]),
    "run(text)": (lambda: c().pipeline.run("spark"), ["'spark'", "bl.SparkRunner("]),
    "c + c": (lambda: c() + c(), ["bl.flatten"]),
    "c | map": (lambda: c() | print, ["map(function"]),
    "len of a grouping": (lambda: len(g()), ["bl.count()"]),
    "an item of a grouping": (lambda: g()["points"], ["'points'"]),
    "two pipelines": (
        lambda: c().join(c(), on="user"),
        ["step 'r.join'", "'p' and 'p'", "the same pipeline"],
    ),
    "join(stamp=)": (
        lambda: (x := w()).join(x, on="user", stamp="later"),
        ["'stamp'", "it is now called event_time="],
    ),
    "join with a frame": (lambda: c().join(pl.DataFrame(ROWS), on="user"), ["a DataFrame", "bl.Rows(...)"]),
    "column": (lambda: lib.column("user"), ["'column'", "did you mean 'col'?"]),
    "TumblingWindows": (lambda: lib.TumblingWindows("1m"), ["bl.FixedWindows"]),
    "SparkRunner(conf=)": (lambda: lib.SparkRunner(conf={}), ["SparkRunner", "'conf'", "use config="]),
    "SparkRunner(checkpointLocation=)": (
        lambda: lib.SparkRunner(checkpointLocation="x"),
        ["use checkpoint="],
    ),
    "LocalRunner(check_point=)": (lambda: lib.LocalRunner(check_point="x"), ["did you mean 'checkpoint'?"]),
    "FixedWindows()": (lambda: lib.FixedWindows(), ["FixedWindows needs size=", 'bl.FixedWindows("1m"']),
    "FixedWindows(duration=)": (lambda: lib.FixedWindows(duration="1m"), ["'duration'", "use size="]),
    "a duration that is none": (lambda: lib.FixedWindows("soon"), ["FixedWindows", "'soon'", "'90s'"]),
    "Sessions(timeout=)": (lambda: lib.Sessions(timeout="1m"), ["'timeout'", "use gap="]),
    "AfterWatermark(early_firings=)": (lambda: lib.AfterWatermark(early_firings=1), ["use early="]),
    "CSV(sep=)": (lambda: lib.CSV("x", sep=";"), ["CSV", "'sep'", "use delimiter="]),
    "Kafka(bootstrap_servers=)": (lambda: lib.Kafka(bootstrap_servers="x"), ["use servers="]),
    "a schema of texts": (
        lambda: lib.JSONLines("d", schema={"a": "int"}),
        ["JSONLines", "'a'", "did you mean int?"],
    ),
    "Table without a table": (lambda: lib.Table("sqlite:///x"), ["Table needs table="]),
    "Pipeline()": (lambda: lib.Pipeline(), ["Pipeline needs name="]),
    "read(time=)": (lambda: lib.Pipeline("p").read("r", bl.Rows(ROWS), time="at"), ["use timestamp="]),
    "run(checkpoint=)": (lambda: c().pipeline.run(checkpoint="x"), ["'checkpoint'", "runner="]),
    "collect(limit=)": (lambda: c().collect(limit=5), ["step 'r.collect'", "use input_rows="]),
    "sql(query, table)": (lambda: lib.sql("SELECT * FROM r", c()), ["sql takes 1 argument", "plays=plays"]),
    "Parquet of text": (
        lambda: bl.Pipeline("p").read("r", bl.Parquet(__file__)),
        ["step 'r'", "test_mistakes.py", "bl.CSV"],
    ),
    "when without then": (
        lambda: c().with_columns(x=bl.when(points > 1)),
        ["step", "end it with .then(...)"],
    ),
    "why(path)": (lambda: lib.observe.why("x"), ["'x'", "History.open"]),
    "a file that is not there": (
        lambda: bl.from_yaml("nowhere.yaml"),
        ["'nowhere.yaml'", "there is no file"],
    ),
}


def sql(query: str) -> Callable[[], Any]:
    return lambda: bl.sql(query, r=c())


HOURS = "GROUP BY TUMBLE(at, INTERVAL '1' HOUR)"
SQL: dict[str, Mistake] = {
    "no GROUP BY": (sql("SELECT user, SUM(points) AS n FROM r"), ["column 8", "'user'", "GROUP BY user"]),
    "DATE_TRUNC": (
        sql("SELECT COUNT(*) AS n FROM r GROUP BY DATE_TRUNC('minute', at)"),
        ["column 38", "GROUP BY TUMBLE(at, INTERVAL '1' MINUTE)"],
    ),
    "double quotes": (sql('SELECT user FROM r WHERE user = "ada"'), ["column 33", "single quotes", "'ada'"]),
    "SELCT": (sql("SELCT user FROM r"), ["column 1", "'SELCT'", "did you mean SELECT?"]),
    "FORM": (sql("SELECT user FORM r"), ["column 13", "did you mean FROM?"]),
    "WHRE": (sql("SELECT user FROM r WHRE points > 3"), ["column 20", "did you mean WHERE?"]),
    "GRUOP BY": (sql("SELECT COUNT(*) AS n FROM r GRUOP BY user"), ["column 29", "did you mean GROUP?"]),
    "&&": (sql("SELECT user FROM r WHERE user = 'ada' && points > 3"), ["column 39", "write AND"]),
    "backticks": (sql("SELECT `user` FROM r"), ["column 8", "double quotes"]),
    "TOP": (sql("SELECT TOP 5 user FROM r"), ["column 8", "ROW_NUMBER()"]),
    "an open text": (sql("SELECT user FROM r WHERE user = 'ada"), ["column 33", "not closed"]),
    "an open bracket": (sql("SELECT COUNT(* AS n FROM r"), ["column 16", "'AS'", ") is missing"]),
    "nothing after WHERE": (sql("SELECT user FROM r WHERE"), ["column 20", "'WHERE'", "missing"]),
    "INSERT": (sql("INSERT INTO x SELECT user FROM r"), ["INSERT", ".write('name', sink)"]),
    "DELETE": (sql("DELETE FROM r"), ["DELETE", "bl.Table"]),
    "two queries": (sql("SELECT user FROM r; SELECT user FROM r"), ["several queries"]),
    "an unknown table": (sql("SELECT user FROM plays"), ["column 18", "'plays'", "there are r"]),
    "an unknown column": (sql("SELECT usr FROM r"), ["column 8", "did you mean 'user'?"]),
    "a column like no other": (sql("SELECT zzz FROM r"), ["'zzz'", "there are user, points, at"]),
    "TUMBLE in SELECT": (sql("SELECT TUMBLE(at, INTERVAL '1' MINUTE) AS w FROM r"), ["column 8", "GROUP BY"]),
    "TUMBLE_START": (
        sql(f"SELECT TUMBLE_START(at) AS s, COUNT(*) AS n FROM r {HOURS}"),
        ["write window_start"],
    ),
    "Spark's window": (sql(f"SELECT window, COUNT(*) AS n FROM r {HOURS}"), ["window_start and window_end"]),
    "NOW()": (sql("SELECT user FROM r WHERE at > NOW()"), ["column 31", "event time"]),
    "a subquery as a value": (sql("SELECT user FROM r WHERE points > (SELECT 1)"), ["subquery", "JOIN"]),
    "EXISTS": (sql("SELECT user FROM r WHERE EXISTS (SELECT 1 FROM r)"), ["LEFT SEMI JOIN"]),
    "IF": (sql("SELECT IF(points > 3, 1, 0) AS x FROM r"), ["CASE WHEN a THEN b ELSE c END"]),
    "TO_DATE": (sql("SELECT TO_DATE(user) AS x FROM r"), ["column 8", "CAST(x AS DATE)"]),
    "a misspelled function": (sql("SELECT UPPR(user) AS x FROM r"), ["column 8", "did you mean 'UPPER'?"]),
    "a misspelled type": (sql("SELECT CAST(points AS STRNG) AS x FROM r"), ["column 13", "VARCHAR"]),
    "COLLECT_LIST": (sql("SELECT COLLECT_LIST(user) AS x FROM r"), ["ARRAY_AGG(x)"]),
    "an aggregate in WHERE": (sql("SELECT user FROM r WHERE COUNT(*) > 3"), ["column 26", "HAVING"]),
    "an alias in WHERE": (sql("SELECT points * 2 AS d FROM r WHERE d > 3"), ["column 37", "'d'", "subquery"]),
    "a parameter": (sql("SELECT user FROM r WHERE points > ?"), ["column 26", "write the value"]),
    "IN without brackets": (
        sql("SELECT user FROM r WHERE user IN 'ada'"),
        ["column 34", "IN ('ada', 'bob')"],
    ),
    "IS with a value": (sql("SELECT user FROM r WHERE user IS 'ada'"), ["column 26", "write ="]),
    "another comment": (sql("# all\nSELECT user FROM r"), ["column 1", "--"]),
    "EMIT CHANGES": (sql(f"SELECT COUNT(*) AS n FROM r {HOURS} EMIT CHANGES"), ["EMIT EARLY EVERY 1 ROWS"]),
    "ORDER BY": (sql("SELECT user FROM r ORDER BY points"), ["column 29", "ROW_NUMBER()"]),
    "another time": (
        sql("SELECT COUNT(*) AS n FROM r GROUP BY TUMBLE(points, INTERVAL '1' DAY)"),
        ["'points'", "at"],
    ),
}

FILE = """pipeline: s
collections:
  r:
    read:
      source: {JSONLines: {path: d, schema: {user: str, points: int, at: datetime}}}
      timestamp: at
      watermark: {BoundedOutOfOrderness: 10s}
    steps:
    - %s
"""


def step(text: str) -> Callable[[], Any]:
    def read() -> Any:
        Path("m.yaml").write_text(FILE % text)
        return bl.from_yaml("m.yaml")

    return read


YAML: dict[str, Mistake] = {
    "& without parentheses": (step("filter: user == 'a' & points > 3"), ["m.yaml:9:15", "parentheses"]),
    "a time that is none": (step("filter: at > datetime('soon')"), ["m.yaml:9", "2026-01-31T12:00:00"]),
    "TumblingWindows": (
        step("window_into: {TumblingWindows: 1m}"),
        ["m.yaml:9:21", "did you mean 'FixedWindows'?"],
    ),
    "a call for windows": (step("window_into: FixedWindows(1m)"), ["m.yaml:9", "{FixedWindows: 1m}"]),
    "windows as text": (step("window_into: 1m"), ["'1m'", "{FixedWindows: 2m}"]),
    "an unknown argument": (step("window_into: {FixedWindows: {length: 1m}}"), ["'length'", "use size"]),
    "&&": (step("filter: user == 'a' && points > 3"), ["m.yaml:9", "write and"]),
    "||": (step("filter: user == 'a' || points > 3"), ["m.yaml:9", "write or"]),
    "!": (step("filter: '!points > 3'"), ["m.yaml:9", "write not"]),
    "AND": (step("filter: user == 'a' AND points > 3"), ["m.yaml:9", "write and"]),
    "=": (step("filter: user = 'a'"), ["m.yaml:9", "write =="]),
    "<>": (step("filter: user <> 'a'"), ["m.yaml:9", "write !="]),
    "LIKE": (step("filter: user LIKE 'a%'"), ["m.yaml:9", ".str.contains("]),
    "IS NULL": (step("filter: user IS NULL"), ["m.yaml:9", "is None"]),
    "a text without quotes": (step("filter: user == ada"), ["m.yaml:9:15", "'ada'", "in quotes"]),
    "true": (step("filter: points == true"), ["m.yaml:9", "write True"]),
    "null": (step("filter: points == null"), ["m.yaml:9", "write None"]),
    "bl.col": (step("filter: bl.col('user') == 'a'"), ["m.yaml:9", "leave out 'bl.'"]),
    "if": (step("with_columns: {x: 1 if points > 3 else 0}"), ["m.yaml:9", "when(condition)"]),
    "a method of pandas": (
        step("with_columns: {x: user.str.lower()}"),
        ["m.yaml:9:25", "str.to_lowercase()"],
    ),
    "a function of SQL": (step("with_columns: {x: lower(user)}"), ["m.yaml:9:25", "str.to_lowercase()"]),
    "count(*)": (step("{group_by: user, aggregate: {n: count(*)}}"), ["m.yaml:9", "count()"]),
    "avg": (step("{group_by: user, aggregate: {n: avg(points)}}"), ["m.yaml:9:39", "did you mean 'mean'?"]),
    "sum()": (step("{group_by: user, aggregate: {n: sum()}}"), ["m.yaml:9:39", "needs column="]),
    "an aggregate without a name": (
        step("{group_by: user, aggregate: count()}"),
        ["aggregate: {plays: count()}"],
    ),
    "write without a name": (step("write: {sink: {JSONLines: out}}"), ["m.yaml:9:14", "write: {name:"]),
    "write with a sink alone": (step("write: {JSONLines: out}"), ["m.yaml:9", "write: {name: plays, sink:"]),
    "dedup without within": (step("dedup: user"), ["m.yaml:9:14", "no 'within'", "dedup: {within: ..."]),
    "where": (step("where: points > 3"), ["m.yaml:9:7", "did you mean 'filter'?"]),
    "withColumn": (step("withColumn: {x: points}"), ["m.yaml:9:7", "did you mean 'with_columns'?"]),
    "a colon in a text": (step("filter: user == 'a: b'"), ["m.yaml:9", "no YAML", "in quotes"]),
    "a percent sign": (step("filter: %points > 3"), ["m.yaml:9:15", "no YAML", "in quotes"]),
}
ALL: Mapping[str, Mistake] = {
    f"{kind}: {name}": one
    for kind, mistakes in {"python": PYTHON, "call": CALLS, "sql": SQL, "yaml": YAML}.items()
    for name, one in mistakes.items()
}
ALIEN = (
    "narwhals.expr",
    "nw.",
    "sqlglot",
    "py4j",
    "unexpected keyword",
    "positional argument",
    "polars.exceptions",
)


@pytest.mark.parametrize("name", ALL)
def test_a_mistake_is_answered_with_its_place_and_what_to_write(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    mistake, parts = ALL[name]
    with pytest.raises((ValueError, AttributeError)) as caught:
        mistake()
    text = str(caught.value)
    assert [part for part in parts if part not in text] == [], text
    assert [word for word in ALIEN if word in text] == [], text


COMMANDS = {
    "check m.yaml": ["m.yaml:9", "did you mean 'filter'?"],
    "run m.yaml": ["m.yaml:9", "did you mean 'filter'?"],
    "explain nowhere.yaml": ["nowhere.yaml"],
    "rum m.yaml": ["No such command 'rum'"],
    "run nowhere:p": ["no module 'nowhere'"],
    "run app.py": ["app.py", "write app:PIPELINE"],
    "why nowhere": ["nowhere"],
    "run m.yaml --checkpont x": ["--checkpont", "--checkpoint"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_mistake_in_a_command_is_answered_without_a_traceback(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m.yaml").write_text(FILE % "where: points > 3")
    ended = CliRunner().invoke(main, command.split())
    assert ended.exit_code in (1, 2)
    assert isinstance(ended.exception, SystemExit), ended.exception
    assert [part for part in COMMANDS[command] if part not in ended.output] == [], ended.output
