"""Laws: values that a pipeline writes to its file are read from it as the same values."""

from __future__ import annotations

import math
from datetime import UTC, timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import beamlike as bl
from beamlike.api.as_file import text_of
from beamlike.errors import BadFile
from beamlike.expressions.grammar import expression_from_text
from beamlike.expressions.written import value_text
from beamlike.spec.document import parse
from beamlike.spec.files import read
from beamlike.spec.parameters import Parameters
from beamlike.spec.values import Values, in_words_of_files
from tests.support.round_trip import require_same_from_file

TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.text("0123456789.eE+-_:oxnulf~ ${}'\"#&*[]\\\n\t", max_size=6),
    st.sampled_from(
        [
            "08",
            "1e3",
            "1_000",
            "yes",
            "null",
            "~",
            "1:30",
            "0x1F",
            ".inf",
            "-.INF",
            ".NaN",
            "2026-01-31",
            "true",
            "No",
            "on",
            "=",
            "<<",
        ]
    ),
    st.sampled_from(["", "- a", "a: b", "${x}", "$${x}", "$$${", "${", "a\u2028b", "\x85", "\ufeff"]),
    st.integers().map(str),
    st.floats().map(str),
    st.dates().map(str),
)
NUMBERS = st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False))
PLAIN = st.recursive(
    st.one_of(TEXTS, NUMBERS, st.booleans(), st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=6,
)


def again(p: bl.Pipeline) -> bl.Pipeline:
    """Returns the pipeline as read from its file."""
    return read(p.to_yaml(), "p.yaml", {})


@given(PLAIN)
@example("08")
@example("1e3")
@example("${x}")
@example(math.inf)
def test_a_plain_value_is_the_same_in_the_file(value: Any) -> None:
    found = Values(Parameters(), {}).plain(parse(text_of({"value": value}), "p.yaml").mapping("x")["value"])
    assert found == value
    assert repr(found) == repr(value)  # so True is not 1, and 1 not 1.0


@given(st.lists(TEXTS, min_size=1, max_size=3))
def test_rows_of_text_are_the_same_from_the_file(texts: list[str]) -> None:
    p = bl.Pipeline("p")
    p.read("rows", bl.Rows([{"a": text} for text in texts]))
    made = again(p)
    assert bl.Collection(made, made.calls[-1].made).collect()["a"].to_list() == texts


LITERALS = st.recursive(
    st.one_of(
        TEXTS,
        NUMBERS,
        st.booleans(),
        st.none(),
        st.dates(),
        st.times().map(lambda one: one.replace(fold=0)),
        st.datetimes().map(lambda one: one.replace(fold=0)),
        st.datetimes().map(lambda one: one.replace(fold=0, tzinfo=UTC)),
        st.timedeltas(timedelta(days=-9_000_000), timedelta(days=9_000_000)),
        st.decimals(allow_nan=False),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=5,
)


@given(LITERALS)
@example(math.inf)
@example(-0.0)
@example(timedelta(microseconds=-1))
def test_a_literal_in_an_expression_reads_as_the_same(value: Any) -> None:
    found = expression_from_text(value_text(value))
    assert repr(found) == repr(value)


@given(st.timedeltas(timedelta(microseconds=1), timedelta(days=9000)))
def test_a_duration_of_a_step_is_the_same_from_the_file(size: timedelta) -> None:
    p = bl.Pipeline("p")
    rows, watermark = bl.Rows([{"at": 0}]), bl.MonotonousTimestamps()
    plays = p.read("plays", rows, timestamp="at", timestamp_unit="s", watermark=watermark)
    plays.window_into(bl.FixedWindows(size)).write("out", bl.Memory())
    assert require_same_from_file(p, p.plan())


@pytest.mark.parametrize("text", ["${", "${day", "${ day }", "a ${x-1}"])
def test_a_reference_that_is_no_name_is_an_error(text: str) -> None:
    with pytest.raises(BadFile, match=r"p\.yaml:2:12: \$\{ begins the name of a parameter"):
        read(f"pipeline: p\non_error: '{text}'\ncollections: {{}}\n", "p.yaml", {})


def test_a_parameter_whose_name_begins_another_is_not_mistaken_for_it() -> None:
    text = """\
pipeline: p
parameters: {a: str, ab: str, a_b: str}
collections:
  rows:
    read: {Rows: [{user: "1b 2 3 1"}, {user: x}]}
    steps:
    - filter: user == "${a}b ${ab} ${a_b} ${a}"
"""
    p = read(text, "p.yaml", {"a": "1", "ab": "2", "a_b": "3"})
    assert bl.Collection(p, p.calls[-1].made).collect()["user"].to_list() == ["1b 2 3 1"]


def test_only_calls_of_the_package_are_shown_as_in_a_file() -> None:
    assert in_words_of_files("no file 'notbl.jsonl' or x/bl.csv; write bl.FixedWindows('2m')") == (
        "no file 'notbl.jsonl' or x/bl.csv; write {FixedWindows: 2m}"
    )
