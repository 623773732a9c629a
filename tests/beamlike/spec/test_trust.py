"""What a pipeline file can call, and that its texts and parameters stay texts and values."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import beamlike as bl
from beamlike.api.as_file import dumped
from beamlike.cli.main import main
from beamlike.expressions.grammar import BadExpression, expression_from_text
from beamlike.expressions.tree import expression_text
from beamlike.expressions.written import expression_as_text
from beamlike.spec.document import parse
from beamlike.spec.files import read
from tests.support.round_trip import require_same_from_file

FILE = """
pipeline: p
parameters: {{user: {{type: str, default: ada}}}}
collections:
  rows:
    read: {{source: {source}, timestamp: at, timestamp_unit: s, watermark: MonotonousTimestamps}}
    steps:
    - {step}
"""
ROWS = "{Rows: {rows: [{user: ada, at: 1}], schema: {user: str, at: int}}}"
CALLS = {
    "{'os:system': touch ran}": "os:system is no class",
    "{'subprocess:Popen': {args: [touch, ran]}}": "subprocess:Popen is a class of another kind",
    "{'io:FileIO': {file: ran, mode: w}}": "io:FileIO is a class of another kind",
    "{'functools:partial': ['os:system', touch ran]}": "functools:partial is a class of another kind",
    "{'pathlib:Path.touch': ran}": "is no class",
    "http.server:HTTPServer": "http.server:HTTPServer is a class of another kind",
}


@pytest.mark.parametrize("call", CALLS)
def test_a_file_cannot_call_what_is_not_for_pipelines(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    steps = (
        f"write: {{name: out, sink: {call}}}",
        f"window_into: {call}",
        f"map: {{fn: {call}, schema: {{a: int}}}}",
    )
    for source, step in [(call, "distinct"), *((ROWS, step) for step in steps)]:
        Path("p.yaml").write_text(FILE.format(source=source, step=step))
        result = CliRunner().invoke(main, ["check", "p.yaml"], env={"COLUMNS": "300"})
        assert result.exit_code == 1
        assert CALLS[call] in result.output, result.output
        assert "p.yaml:" in result.output
        assert not Path("ran").exists()


def test_a_parameter_cannot_change_a_query() -> None:
    text = FILE.format(source=ROWS, step="distinct") + (
        "  found:\n    sql: SELECT at FROM rows WHERE user = ${user}\n    steps:\n    - named: found\n"
    )

    def found(user: Any) -> list[Any]:
        p = read(text, "p.yaml", {"user": user})
        (made,) = [call.made for call in p.calls if call.name == "named"]
        return bl.Collection(p, made).collect()["at"].to_list()

    assert found("ada") == [1]
    assert found("x' OR 'a' = 'a") == []
    assert found("O'Neil") == []


def test_names_and_texts_are_written_so_that_they_are_read_again(tmp_path: Path) -> None:
    p = bl.Pipeline("of ${x}")
    source = bl.Rows([{"a-b": 1, "c d": "08", "at": 1, "True": 2, "no": True}])
    rows = p.read("1e3", source, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    chosen = rows.select("a-b", "c d", "True", "no", z="a-b", w=bl.lit("${q} 1e3")).filter("no")
    counts = (
        chosen.window_into(bl.FixedWindows("1m")).group_by("c d").aggregate(n=bl.sum("a-b"), m=bl.max("True"))
    )
    counts.with_columns(**{"x y": bl.col("n") ** 2**3}).write("08", bl.Parquet("out/${y}"))
    assert require_same_from_file(p, p.plan())


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=["Cc", "Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc 1:#-", min_size=1), inner, max_size=3)
    ),
    max_leaves=6,
)
TRICKY = ["08", "1e3", "1_000", "yes", "null", "~", "1:30", "2026-01-01", ".5", "+1", "-", ".inf", "0x1f"]
tricky = st.sampled_from([*TRICKY, ""])


@given(plain | tricky | st.lists(tricky))
def test_values_are_written_so_that_they_are_read_again(value: Any) -> None:
    item = parse(dumped({"key": value}), "p.yaml")
    assert _same(_values(item)["key"], value)


def _values(item: Any) -> Any:
    if isinstance(item.value, dict):
        return {key: _values(one) for key, one in item.value.items()}
    return [_values(one) for one in item.value] if isinstance(item.value, list) else item.value


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return type(one) is type(other) and bool(one == other)


_SIGNS = "- + ** ( ) [ ] , . : = { } * @ ~ ... ; \\\\ f'' \"x\" 1 1j 0b1"
_WORDS = "a b-c in not is None and if else lambda sum col when then"
TOKENS = [*_SIGNS.split(), *_WORDS.split()]


@given(st.lists(st.sampled_from([*TOKENS, "\n"]), max_size=8).map(" ".join))
def test_any_text_is_an_expression_or_a_bad_one(text: str) -> None:
    with contextlib.suppress(BadExpression):
        expression_from_text(text)


numbers = st.recursive(
    st.sampled_from([bl.col("a"), bl.col("b"), bl.lit(2)]),
    lambda inner: st.one_of(
        st.builds(lambda one, other: one**other, inner, inner),
        st.builds(lambda one, other: one - other, inner, inner),
        st.builds(lambda one, other: one * other, inner, inner),
        st.builds(lambda one: -one, inner),
        st.builds(lambda one: 2**one, inner),
        st.builds(lambda one: (-2) ** one, inner),
        st.builds(lambda one: one ** (-2), inner),
    ),
    max_leaves=5,
)


@given(numbers)
def test_an_expression_is_written_so_that_it_is_read_again(expression: Any) -> None:
    again = expression_from_text(
        expression_as_text(expression)
    )  # raises `NoText` if it is another expression
    assert expression_text(again) == expression_text(expression)
