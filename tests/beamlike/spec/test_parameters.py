"""Parameters are values in expressions and queries, whatever their text."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import beamlike as bl
from beamlike.errors import BadFile
from beamlike.spec.files import read

NAMES = ["ada", "x' OR '1'='1", 'b"; --', "/* c */", "${x}", "$${x}", "a\\' OR TRUE --", "''"]


def users(body: str, kind: str, value: Any, names: list[str]) -> list[str]:
    """Returns the users of the rows that a collection keeps, with the parameter `x`."""
    p = bl.Pipeline("p")
    p.read("plays", bl.Rows([{"user": name, "n": number} for number, name in enumerate(names)]))
    text = p.to_yaml() + f"  kept:\n    {body}\nparameters: {{x: {kind}}}\n"
    made = read(text, "p.yaml", {"x": value})
    return list(bl.Collection(made, made.calls[-1].made).collect()["user"].to_list())


BODIES = [
    "sql: SELECT user FROM plays WHERE user = ${x}",
    "sql: SELECT user FROM plays WHERE user = '${x}'",
    "sql: SELECT user FROM plays WHERE concat('a ', user) = 'a ${x}'",
    "{from: plays, steps: [{filter: 'user == ${x}'}]}",
    """{from: plays, steps: [{filter: 'user == "${x}"'}]}""",
]


@pytest.mark.parametrize("body", BODIES)
@given(text=st.one_of(st.sampled_from(NAMES), st.text(st.characters(exclude_categories=["Cs", "Cc"]))))
def test_text_selects_the_rows_that_are_equal_to_it(body: str, text: str) -> None:
    names = ["someone else", *({text} - {"someone else"})]
    assert users(body, "str", text, names) == [text]


@pytest.mark.parametrize("name", NAMES)
def test_a_parameter_names_no_table_or_column(name: str) -> None:
    for query in ("SELECT user FROM ${x}", 'SELECT "${x}" FROM plays', "${x}"):
        with pytest.raises(BadFile):
            users(f"sql: |-\n      {query}", "str", name, ["ada"])


@pytest.mark.parametrize(
    ("kind", "value", "condition"),
    [
        ("int", "-1", "n + ${x} = 0 AND 5 -${x} = 6"),
        ("float", "1.5", "n < ${x} AND n > 0"),
        ("float", "1e-7", "n > ${x}"),
        ("bool", "true", "n = 1 AND ${x}"),
        ("date", "2026-01-02", "DATE '2026-01-02' = ${x} AND n = 1"),
        ("datetime", "2026-01-02T00:00:00+00:00", "TIMESTAMPTZ '2026-01-02T00:00:00+00:00' = ${x} AND n = 1"),
        ("datetime", "2026-01-02T00:00:00", "TIMESTAMP '2026-01-02T00:00:00' = ${x} AND n = 1"),
    ],
)
def test_a_value_of_another_type_is_a_literal(kind: str, value: str, condition: str) -> None:
    assert users(f"sql: SELECT user FROM plays WHERE {condition}", kind, value, ["a", "b"]) == ["b"]


@pytest.mark.parametrize(
    ("kind", "value", "given"), [("duration", "1m", "${x}"), ("int", "1", "INTERVAL ${x} MINUTE")]
)
def test_a_parameter_may_be_the_length_of_a_window(kind: str, value: str, given: str) -> None:
    text = f"""\
pipeline: p
parameters: {{x: {kind}}}
collections:
  plays:
    read:
      source: {{Rows: [{{at: 0}}, {{at: 70}}]}}
      timestamp: at
      timestamp_unit: s
      watermark: MonotonousTimestamps
  totals:
    sql: SELECT COUNT(*) AS n, window_start FROM TUMBLE(TABLE plays, DESCRIPTOR(at), {given}) GROUP BY window_start
"""
    p = read(text, "p.yaml", {"x": value})
    assert bl.Collection(p, p.calls[-1].made).collect()["n"].to_list() == [1, 1]


def test_a_number_that_is_none_in_sql_is_refused() -> None:
    with pytest.raises(BadFile, match=r"the parameter 'x' is nan, which a query cannot have"):
        users("sql: SELECT user FROM plays WHERE n = ${x}", "float", "nan", ["a"])


def test_an_error_after_a_parameter_has_its_place_in_the_query() -> None:
    with pytest.raises(BadFile, match="line 1, column 45: there is no column 'm'"):
        users("sql: SELECT user FROM plays WHERE user = ${x} OR m > 1", "str", "a long text", ["a"])


def test_an_unknown_parameter_of_a_query_has_the_place_of_the_query() -> None:
    with pytest.raises(BadFile, match=r"there is no parameter 'y'; declare it under 'parameters:'"):
        users("sql: SELECT user FROM plays WHERE user = ${y}", "str", "a", ["a"])
