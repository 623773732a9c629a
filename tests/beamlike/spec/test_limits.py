"""Deep nesting, long lists and long chains in SQL, YAML, expressions and JSON: a sentence soon, or a result soon."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import beamlike as bl
from beamlike.errors import BadFile, BadQuery, CheckpointError, PlanError
from beamlike.expressions.grammar import BadExpression, aggregate_from_text, expression_from_text
from beamlike.plan import manifest

SIZES: Final = (300, 10_000)
SECONDS: Final = 20  # CPU time; a hundred times more is what it took


@pytest.fixture(autouse=True)
def soon() -> Iterator[None]:
    begun = time.process_time()
    yield
    assert time.process_time() - begun < SECONDS


def _rows() -> bl.Collection:
    return bl.Pipeline("p").read("r", bl.Rows([{"a": 1, "b": "x"}]))


EXPRESSIONS: Final[dict[str, Callable[[int], str]]] = {
    "brackets": lambda n: "(" * n + "a" + ")" * n,
    "signs": lambda n: "-" * n + "a",
    "negations": lambda n: "not " * n + "a",
    "sums": lambda n: "+".join(["a"] * n),
    "conditions": lambda n: " and ".join(["a == 1"] * n),
    "alternatives": lambda n: " | ".join(["(a == 1)"] * n),
    "calls": lambda n: "abs(" * n + "a" + ")" * n,
    "methods": lambda n: "a" + ".abs()" * n,
    "attributes": lambda n: "a" + ".b" * n,
    "items": lambda n: "a" + "[0]" * n,
    "powers": lambda n: "**".join(["a"] * n),
    "comparisons": lambda n: " < ".join(["a"] * n),
    "choices": lambda n: "a if a else " * n + "a",
    "lists": lambda n: "[" * n + "]" * n,
    "open brackets": lambda n: "(" * n,
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", EXPRESSIONS)
def test_a_deep_expression_is_refused_with_the_limit(kind: str, size: int) -> None:
    text = EXPRESSIONS[kind](size)
    for read in (expression_from_text, lambda text: aggregate_from_text(f"sum({text})")):
        with pytest.raises(BadExpression) as caught:
            read(text)
        assert "200 levels are allowed" in str(caught.value) or kind == "open brackets"
        assert len(str(caught.value)) < 600 or kind == "open brackets"


QUERIES: Final[dict[str, Callable[[int], str]]] = {
    "brackets": lambda n: f"SELECT {'(' * n}a{')' * n} AS c FROM r",
    "sums": lambda n: f"SELECT {'+'.join(['a'] * n)} AS c FROM r",
    "conditions": lambda n: f"SELECT a FROM r WHERE {' AND '.join(['a=1'] * n)}",
    "alternatives": lambda n: f"SELECT a FROM r WHERE {' OR '.join(['a=1'] * n)}",
    "queries": lambda n: f"SELECT a FROM {'(SELECT a FROM ' * n}r{')' * n}",
    "cases": lambda n: f"SELECT {'CASE WHEN a=1 THEN 1 ELSE ' * n}0{' END' * n} AS c FROM r",
    "negations": lambda n: f"SELECT a FROM r WHERE {'NOT ' * n}a=1",
    "signs": lambda n: f"SELECT {'- ' * n}a AS c FROM r",
    "calls": lambda n: f"SELECT {'ABS(' * n}a{')' * n} AS c FROM r",
    "casts": lambda n: f"SELECT {'CAST(' * n}a{' AS INT)' * n} AS c FROM r",
    "texts": lambda n: f"SELECT {'||'.join(['b'] * n)} AS c FROM r",
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", QUERIES)
def test_a_deep_query_is_refused_with_the_limit(kind: str, size: int) -> None:
    with pytest.raises(BadQuery, match=r"line 1, column 1: it is nested too deeply.*200 levels are allowed"):
        bl.sql(QUERIES[kind](size), r=_rows())


def test_what_is_too_long_is_refused_with_the_limit(tmp_path: Path) -> None:
    numbers = ",".join(map(str, range(200_000)))
    with pytest.raises(BadQuery, match="more than 1,000,000 characters"):
        bl.sql(f"SELECT a FROM r WHERE a IN ({numbers})", r=_rows())
    with pytest.raises(BadExpression, match="more than 1,000,000 characters"):
        expression_from_text(f"a.is_in([{numbers}])")
    (tmp_path / "p.yaml").write_text(f"a: [{numbers}]")
    with pytest.raises(BadFile, match="more than 1,000,000 characters"):
        bl.from_yaml(tmp_path / "p.yaml")


def test_what_is_within_the_limits_is_computed() -> None:
    numbers = ",".join(map(str, range(5_000)))
    chain = " OR ".join(["a = 2"] * 60 + ["a = 1"])
    columns = ", ".join(f"a + {n} AS c{n}" for n in range(100))
    brackets = "(" * 20 + "a" + ")" * 20
    for query in (
        f"SELECT a FROM r WHERE a IN ({numbers})",
        f"SELECT a FROM r WHERE {chain}",
        f"SELECT {columns} FROM r",
        f"SELECT {brackets} AS c FROM r",
        f"SELECT {'+'.join(['a'] * 60)} AS c FROM r",
    ):
        assert len(bl.sql(query, r=_rows()).collect()) == 1
    assert len(_rows().filter(expression_from_text(" and ".join(["a == 1"] * 150))).collect()) == 1


FILES: Final[dict[str, Callable[[int], str]]] = {
    "lists": lambda n: "[" * n,
    "closed lists": lambda n: "[" * n + "]" * n,
    "mappings": lambda n: "{a: " * n,
    "closed mappings": lambda n: "{a: " * n + "1" + "}" * n,
    "blocks": lambda n: "\n".join(" " * depth + "a:" for depth in range(min(n, 1_000))),
    "dashes": lambda n: "- " * n + "a",
    "questions": lambda n: "? " * n + "a",
    "a value": lambda n: "pipeline: p\ncollections: " + "[" * n + "]" * n,
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", FILES)
def test_a_deep_file_is_refused_with_the_limit(kind: str, size: int, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(FILES[kind](size))
    with pytest.raises(BadFile, match=r"p.yaml:\d+:\d+: ") as caught:
        bl.from_yaml(tmp_path / "p.yaml")
    if size == SIZES[-1] or "closed" in kind or kind == "dashes":
        assert "lists and mappings are nested more than 50 levels deep" in str(caught.value)


def test_aliases_that_multiply_are_refused(tmp_path: Path) -> None:
    lines = ["a: &a [x,x,x,x,x,x,x,x,x]"]
    for before, name in zip("abcdefgh", "bcdefghi", strict=True):
        lines.append(f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]")
    (tmp_path / "p.yaml").write_text("\n".join(lines))
    with pytest.raises(BadFile, match="aliases make this too large"):
        bl.from_yaml(tmp_path / "p.yaml")


ROWS: Final[dict[str, Callable[[int], str]]] = {
    "lists": lambda n: '{"a":' + "[" * n + "]" * n + "}",
    "open lists": lambda n: '{"a":' + "[" * n,
    "objects": lambda n: '{"a":' * n + "1" + "}" * n,
    "digits": lambda n: '{"a":' + "9" * n + "}",
    "an exponent": lambda n: '{"a":1e' + "9" * n + "}",
    "brackets alone": lambda n: "[" * n,
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("declared", [True, False])
def test_a_deep_line_is_a_dead_letter(declared: bool, kind: str, size: int, tmp_path: Path) -> None:
    (tmp_path / "1.jsonl").write_text('{"a": 7}\n' + ROWS[kind](size) + "\n")
    schema: Any = {"a": int} if declared else None
    read = bl.Pipeline("p").read("r", bl.JSONLines(tmp_path, schema))
    read.write("o", out := bl.Memory())
    read.dead_letters().write("d", dead := bl.Memory())
    read.pipeline.run(bl.LocalRunner(quiet=True))
    assert {len(out.rows()), len(dead.rows())} <= {1, 2}
    assert len(out.rows()) + len(dead.rows()) == 2


@pytest.mark.parametrize("read", [lambda text: manifest.parse(text, "it"), expression_from_text, bl.sql])
def test_deep_json_in_other_places_is_a_sentence(read: Callable[[str], Any]) -> None:
    with pytest.raises((CheckpointError, BadExpression, PlanError)):
        read('{"a":' + "[" * 100_000)
