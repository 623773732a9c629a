"""Pipeline files: their content, their parameters, and the places of errors in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner

import beamlike as bl
from beamlike.cli.main import main
from beamlike.errors import BadFile
from beamlike.expressions.grammar import BadExpression, expression_from_text
from beamlike.spec.files import read
from beamlike.spec.schema import PATH, schema, schema_text
from tests.beamlike.spec.test_round_trip import everything
from tests.support.round_trip import require_same_from_file

FILE = """\
pipeline: scores
parameters:
  least: {type: int, default: 3}
  day: date
collections:
  plays:
    read:
      source: {JSONLines: {path: "plays/${day}", schema: {user: str, points: int, at: datetime}}}
      timestamp: at
      watermark: {BoundedOutOfOrderness: 10s}
    steps:
    - filter: points >= ${least} and user != 'of ${day}'
  totals:
    from: plays
    steps:
    - window_into: {FixedWindows: 1m}
    - group_by: user
      aggregate: {points: sum(points), n: count()}
    - named: sums
    - write: {name: totals, sink: {Parquet: out/totals}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pipeline file, with plays of a day beside it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plays/2026-01-01").mkdir(parents=True)
    lines = [{"user": user, "points": points, "at": f"2026-01-01T12:00:0{points}Z"} for user, points in PLAYS]
    (tmp_path / "plays/2026-01-01/a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "scores.yaml").write_text(FILE)
    return tmp_path


PLAYS = [("ada", 3), ("bob", 1), ("ada", 5), ("of 2026-01-01", 9)]


def run(*arguments: str) -> str:
    """Returns the output of a command."""
    return CliRunner().invoke(main, arguments, env={"COLUMNS": "120"}).output


def test_a_file_runs_with_the_parameters_that_are_set(folder: Path) -> None:
    assert "1 on time" in run("run", "scores.yaml", "--set", "day=2026-01-01")
    assert [*Path("out/totals").rglob("*.parquet")]
    p = bl.from_yaml("scores.yaml", day="2026-01-01", least=1)
    (sums,) = [call for call in p.calls if call.name == "named"]
    found = bl.Collection(p, sums.made).collect().select("user", "points", "n").sort("user").rows()
    assert found == [("ada", 8, 2), ("bob", 1, 1)]


def test_check_and_explain_read_a_file(folder: Path) -> None:
    assert run("check", "scores.yaml", "--set", "day=2026-01-01") == "scores: 1 source, 1 stage, 1 sink\n"
    assert "sums  <- plays" in run("explain", "scores.yaml", "--set", "day=2026-01-01")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "the parameter 'day' is not set; give --set day=DATE"),
        ({"dya": "1"}, "the file has no parameter 'dya'; did you mean 'day'?"),
        ({"day": "1st"}, "day=1st: expected date"),
        ({"day": "2026-01-01", "least": "x"}, "least=x: expected int"),
    ],
)
def test_a_wrong_setting_is_told(settings: dict[str, str], message: str) -> None:
    with pytest.raises(bl.PlanError) as caught:
        read(FILE, "scores.yaml", settings)
    assert str(caught.value) == message


WRONG = [
    (
        "sum(points)",
        "sum(pionts)",
        "18:27: step 'plays.aggregate': there is no column 'pionts'; the columns are",
    ),
    ("sum(points)", "sun(points)", "18:27: there is no aggregate 'sun'; did you mean 'sum'?"),
    ("sum(points)", "5", "18:27: an aggregate is text such as sum(points), not 5"),
    ("{FixedWindows", "{FixedWindow", "16:21: there is no 'FixedWindow'; did you mean 'FixedWindows'?"),
    ("Windows: 1m", "Windows: 1 mx", "16:35: FixedWindows: not a duration: '1 mx'"),
    ("filter: points", "filter: pints", "12:15: step 'plays.filter': there is no column 'pints'"),
    ("group_by: user", "group_by: usr", "17:17: step 'plays.aggregate': there is no column 'usr'"),
    ("window_into", "window_in", "16:7: there is no step 'window_in'; did you mean 'window_into'?"),
    ("{least}", "{lest}", "12:15: there is no parameter 'lest'; did you mean 'least'?"),
    ("from: plays", "from: plys", "14:11: there is no collection 'plys'; did you mean 'plays'?"),
    ("from: plays", "form: plays", "14:5: the collection 'totals' has no 'form'; did you mean 'from'?"),
    ("int, at", "itn, at", "8:78: there is no type 'itn'; did you mean 'int'?"),
    ("timestamp:", "timestmp:", "9:7: read has no 'timestmp'; did you mean 'timestamp'?"),
    ("pipeline:", "pipline:", "1:1: a pipeline has no 'pipline'; did you mean 'pipeline'?"),
    ("Parquet:", "Parqet:", "20:36: there is no 'Parqet'; did you mean 'Parquet'?"),
    ("points >= ${least} and", "points >> ${least} and", "12:15: 'points >> ${least}' has an operator that"),
    (
        "filter: points >= ${least} and",
        "filter: points.strt() and",
        "12:15: there is no method 'strt' of points",
    ),
    ("- named: sums", "- map: json:dumpz", "19:12: json has no 'dumpz'; did you mean 'dump'?"),
    ("- named: sums", "- map: nomod:f", "19:12: there is no module 'nomod' here or installed"),
    ("- named: sums", "- named: plays", "19:14: step 'plays': the name is taken in pipeline 'scores'"),
    ("10s}", "[1}", "10:44: this is no YAML (expected ',' or ']', but got '}')"),
    ("  totals:", "  plays:", "13:3: 'plays' is there twice"),
    ("    - named: sums", "\t- named: sums", "19:1: a tab; YAML is indented with spaces"),
    ("from: plays", "from: totals", "14:11: the collection 'totals' is declared below; move it above"),
    ("- named: sums", "- flatten: plays", "19:7: 'flatten' begins a collection, and is no step"),
    ("      aggregate:", "    - aggregate:", "17:7: group_by is in one step with a method, such as"),
    ("from: plays", "read:", "14:10: read has no source; write one such as"),
    ("points: sum", "&a points: sum", None),
    ("{FixedWindows: 1m}", "&a [*a]", "16:20: aliases make this too large, or contain themselves"),
]


@pytest.mark.parametrize(("before", "after", "message"), WRONG)
def test_an_error_has_the_line_the_column_and_the_nearest_match(
    before: str, after: str, message: str | None
) -> None:
    assert before in FILE
    text, settings = FILE.replace(before, after, 1), {"day": "2026-01-01"}
    if message is None:
        read(text, "scores.yaml", settings)
        return
    with pytest.raises(BadFile) as caught:
        read(text, "scores.yaml", settings)
    assert str(caught.value).startswith(f"scores.yaml:{message}")


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "a.map_batches(print)",
        "a.pipe(print)",
        "a.__class__",
        "(lambda: 1)()",
        "[x for x in a]",
        "9**9**9",
        "f'{a}'",
        "a if b else c",
        "a.str.__init__()",
        "col(*x)",
    ],
)
def test_what_is_not_in_the_grammar_is_not_evaluated(text: str) -> None:
    with pytest.raises(BadExpression):
        expression_from_text(text)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("1 < a <= 3 and not b", "(a > 1) & (a <= 3) & ~b"),
        ("a not in [1]", "~a.is_in([1])"),
        ("a is not None or a is None", "~a.is_null() | a.is_null()"),
        ("when(a > 1).then('x').otherwise('y')", 'when(a > 1).then(lit("x")).otherwise(lit("y"))'),
    ],
)
def test_words_of_python_are_operators_of_columns(text: str, same: str) -> None:
    assert str(expression_from_text(text)) == str(expression_from_text(same))


def test_words_that_older_yaml_reads_as_booleans_are_text() -> None:
    rows = "{Rows: {rows: [{on: yes, n: 1}], schema: {on: str, n: int}}}"
    text = f"pipeline: p\ncollections:\n  a:\n    read: {rows}\n    steps:\n    - filter: on == 'yes'\n"
    p = read(text, "p.yaml", {})
    assert bl.Collection(p, p.calls[-1].made).collect()["on"].to_list() == ["yes"]


# --- the schema ---


def test_the_schema_in_the_package_is_that_of_the_code() -> None:
    assert PATH.read_text() == schema_text(), "write it anew: python -m beamlike.spec.schema"
    assert run("schema") == schema_text()


def errors(text: str) -> list[Any]:
    """Returns the violations of the schema in a file."""
    return [*jsonschema.Draft7Validator(schema()).iter_errors(yaml.safe_load(text))]


def test_the_schema_allows_what_a_file_may_have_and_no_more() -> None:
    jsonschema.Draft7Validator.check_schema(schema())
    assert errors(FILE) == []
    assert errors(everything().to_yaml()) == []
    for before, after in (
        ("window_into", "window_in"),
        ("{FixedWindows", "{FixedWindow"),
        ("timestamp:", "timestmp:"),
        ("from: plays", "form: plays"),
        ("FixedWindows: 1m", "FixedWindows: {siz: 1m}"),
    ):
        assert errors(FILE.replace(before, after, 1)), after


# --- SQL ---

QUERY = """\
pipeline: p
parameters: {least: int}
collections:
  plays:
    read:
      source: {Rows: {rows: [{user: ada, points: 3, at: 0}, {user: bob, points: 5, at: 1}]}}
      timestamp: at
      timestamp_unit: s
      watermark: MonotonousTimestamps
  best:
    sql: SELECT user, MAX(points) AS most FROM plays WHERE points > ${least} GROUP BY user
    steps:
    - write: {name: best, sink: Console}
"""


def test_a_collection_may_be_a_query_over_those_above() -> None:
    p = read(QUERY, "p.yaml", {"least": "3"})
    best = bl.Collection(p, p.calls[-1].made).collect()
    assert best.select("user", "most").rows() == [("bob", 5)]
    assert require_same_from_file(p, p.plan())
    assert errors(QUERY) == []


def test_an_error_of_a_query_has_its_place_in_the_file() -> None:
    with pytest.raises(BadFile) as caught:
        read(QUERY.replace("MAX(points)", "MAX(pints)"), "p.yaml", {"least": "3"})
    message = "p.yaml:11:10: line 1, column 18: there is no column 'pints'; did you mean 'points'?"
    assert str(caught.value) == message
