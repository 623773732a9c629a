"""Typed SQL expressions, drawn at random, with their text here and in DuckDB."""

# ruff: noqa: E501  a line for each form

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

import attrs

from tests.beamlike.spec.oracle.columns import COLUMNS


@attrs.frozen
class Part:
    """A part of an expression: the name of its function, its kind, its arguments, and the pattern of its text.

    `there` is the pattern in DuckDB if it differs.
    """

    name: str
    kind: str
    arguments: tuple[Part, ...]
    here: str
    there: str | None = None

    def text(self) -> str:
        return self.here.format(*(one.text() for one in self.arguments))

    def in_duckdb(self) -> str:
        return (self.there or self.here).format(*(one.in_duckdb() for one in self.arguments))

    @property
    def signature(self) -> str:
        """The function with the kinds of its arguments."""
        return (
            f"{self.name}({', '.join(one.kind for one in self.arguments)})" if self.arguments else self.name
        )


def _form(
    name: str, kind: str, arguments: str, here: str, there: str | None = None
) -> tuple[str, str, list[str], str, str | None]:
    return name, kind, arguments.split(), here, there


_INTERVALS: Final = ("'1' DAY", "'36' HOUR", "'90' MINUTE", "'1.5' SECOND")
FORMS: Final = [
    # Arithmetic
    *(_form(op, kind, f"{kind} {kind}", f"({{}} {op} {{}})") for op in "+-*" for kind in ("int", "float", "decimal")),
    *(_form(op, "float", "int float", f"({{}} {op} {{}})") for op in "+-*"),
    *(_form(op, "decimal", "decimal int", f"({{}} {op} {{}})") for op in "+-*"),
    *(_form(op, "float", "decimal float", f"({{}} {op} {{}})") for op in "+-*"),
    *(_form("/", "float", f"{one} {other}", "({} / {})") for one in ("int", "float", "decimal") for other in ("int", "float", "decimal")),
    *(_form("%", kind, f"{kind} {kind}", "({} % {})") for kind in ("int", "float", "decimal")),
    _form("DIV", "int", "int int", "({} DIV {})", "({} // {})"),
    *(_form("-", kind, kind, "(-{})") for kind in ("int", "float", "decimal")),
    # Numbers
    *(_form(f, kind, kind, f"{f}({{}})") for f in ("ABS", "CEIL", "FLOOR") for kind in ("int", "float", "decimal")),
    *(_form("ROUND", kind, kind, f"ROUND({{}}, {n})") for n in (0, 1, 3) for kind in ("int", "float", "decimal")),
    *(_form(f, "float", kind, f"{f}({{}})") for f in ("SQRT", "EXP", "LN") for kind in ("int", "float", "decimal")),
    _form("POWER", "float", "float int", "POWER({}, {})"),
    _form("ISNAN", "bool", "float", "ISNAN({})"),
    # Comparisons and conditions
    *(
        _form(op, "bool", f"{kind} {kind}", f"({{}} {op} {{}})")
        for op in ("=", "<>", "<", "<=", ">", ">=")
        for kind in ("int", "float", "decimal", "text", "date", "ts", "tz", "bool", "interval")
    ),
    *(
        _form(op, "bool", kinds, f"({{}} {op} {{}})")
        for op in ("=", "<", ">=")
        for kinds in ("int float", "decimal int", "decimal float", "date ts", "text int", "ts int", "date int",
                      "decimal text", "text float", "ts text", "date text", "ts tz", "interval int", "bool int", "bool text", "text date")
    ),
    *(_form("BETWEEN", "bool", f"{kind} {kind} {kind}", "({} BETWEEN {} AND {})") for kind in ("int", "float", "decimal", "text", "date", "ts")),
    *(_form("IN", "bool", f"{kind} {kind} {kind}", "({} IN ({}, {}))") for kind in ("int", "float", "decimal", "text", "date", "ts")),
    _form("AND", "bool", "bool bool", "({} AND {})"),
    _form("OR", "bool", "bool bool", "({} OR {})"),
    _form("NOT", "bool", "bool", "(NOT {})"),
    *(_form(op, "bool", kinds, f"({{}} {op} {{}})") for op in ("AND", "OR") for kinds in ("int int", "bool int", "text bool")),
    *(_form("NOT", "bool", kind, "(NOT {})") for kind in ("int", "text", "date")),
    *(_form("IS NULL", "bool", kind, "({} IS NULL)") for kind in ("int", "text", "ts", "bool", "interval")),
    # Choices
    *(
        _form("COALESCE", kind, f"{kind} {kind}", "COALESCE({}, {})")
        for kind in ("int", "float", "decimal", "text", "date", "ts", "tz", "bool", "interval")
    ),
    *(_form("COALESCE", kinds.split()[0], kinds, "COALESCE({}, {})") for kinds in ("int float", "decimal int", "ts date", "int text", "date int", "bool int", "text date")),
    *(
        _form("CASE", kind, f"bool {kind} {kind}", "CASE WHEN {} THEN {} ELSE {} END")
        for kind in ("int", "float", "decimal", "text", "date", "ts", "tz", "bool", "interval")
    ),
    _form("CASE", "text", "int text", "CASE WHEN {} THEN {} END"),
    _form("CASE OF", "text", "int int text", "CASE {} WHEN {} THEN {} END"),
    # Texts
    _form("||", "text", "text text", "({} || {})"),
    *(_form("||", "text", f"text {kind}", "({} || {})") for kind in ("int", "date", "ts", "bool", "float", "decimal")),
    _form("CONCAT", "text", "text text", "CONCAT({}, {})"),
    *(_form(f, "text", "text", f"{f}({{}})") for f in ("UPPER", "LOWER", "TRIM")),
    *(_form("SUBSTRING", "text", "text", f"SUBSTRING({{}}, {a}, {b})") for a, b in ((1, 2), (2, 1), (3, 9))),
    _form("REPLACE", "text", "text", "REPLACE({}, 'a', 'xy')"),
    *(_form("SPLIT_PART", "text", "text", f"SPLIT_PART({{}}, 'b', {n})") for n in (1, 2)),
    _form("REGEXP_EXTRACT", "text", "text", "REGEXP_EXTRACT({}, '([a-z])', 1)"),
    _form("LENGTH", "int", "text", "LENGTH({})"),
    *(_form("LIKE", "bool", "text", f"({{}} LIKE '{pattern}')") for pattern in ("a%", "%b", "_", "", "%a_b%", "100\\%")),
    _form("STARTS_WITH", "bool", "text", "STARTS_WITH({}, 'a')"),
    *(_form("LENGTH", "int", kind, "LENGTH({})") for kind in ("int", "date")),
    *(_form("UPPER", "text", kind, "UPPER({})") for kind in ("int", "bool")),
    *(_form("+", "int", kinds, "({} + {})") for kinds in ("text int", "text text", "bool int", "date int", "ts int")),
    # Times
    *(_form(f, "int", kind, f"{f}({{}})") for f in ("YEAR", "MONTH", "DAY") for kind in ("date", "ts", "tz")),
    *(_form(f, "int", kind, f"{f}({{}})") for f in ("HOUR", "MINUTE", "SECOND") for kind in ("ts", "tz", "date")),
    *(_form("EXTRACT", "int", "ts", f"EXTRACT({part} FROM {{}})") for part in ("YEAR", "HOUR", "SECOND")),
    _form("-", "int", "date date", "({} - {})"),
    _form("-", "interval", "ts ts", "({} - {})"),
    _form("-", "interval", "tz tz", "({} - {})"),
    *(
        _form(op, "ts", kind, f"({{}} {op} INTERVAL {length})")
        for op in "+-"
        for kind in ("ts", "date")
        for length in _INTERVALS
    ),
    *(_form("+", "tz", "tz", f"({{}} + INTERVAL {length})") for length in _INTERVALS),
    _form("+", "ts", "ts interval", "({} + {})"),
    _form("DATE_FORMAT", "text", "ts", "DATE_FORMAT({}, '%Y-%m-%d %H:%M')", "STRFTIME({}, '%Y-%m-%d %H:%M')"),
    # Casts
    *(
        _form("CAST INT", "int", kind, f"CAST({{}} AS {target})")
        for target in ("BIGINT", "INT", "SMALLINT")
        for kind in ("int", "float", "decimal", "text", "bool")
    ),
    *(_form("CAST INT", "int", kind, "CAST({} AS BIGINT)") for kind in ("date", "ts")),
    *(_form("CAST FLOAT", "float", kind, "CAST({} AS DOUBLE)") for kind in ("int", "float", "decimal", "text", "bool")),
    *(
        _form("CAST DECIMAL", "decimal", kind, f"CAST({{}} AS DECIMAL({digits}))")
        for digits in ("10,2", "18,1", "5,0")
        for kind in ("int", "float", "decimal", "text")
    ),
    *(_form("CAST BOOL", "bool", kind, "CAST({} AS BOOLEAN)") for kind in ("int", "float", "text", "bool")),
    *(
        _form("CAST TEXT", "text", kind, "CAST({} AS VARCHAR)")
        for kind in ("int", "float", "decimal", "text", "bool", "date", "ts", "tz")
    ),
    *(_form("CAST DATE", "date", kind, "CAST({} AS DATE)") for kind in ("ts", "tz", "text", "date", "int")),
    *(_form("CAST TS", "ts", kind, "CAST({} AS TIMESTAMP)") for kind in ("date", "text", "ts", "tz")),
    *(_form("CAST TZ", "tz", kind, "CAST({} AS TIMESTAMPTZ)") for kind in ("tz", "ts")),
]  # fmt: skip
"""Each function: its name, the kind of its result, those of its arguments, and its text here and in DuckDB."""

LITERALS: Final[dict[str, list[tuple[str, str | None]]]] = {
    "int": [(text, f"CAST({text} AS BIGINT)") for text in ("0", "1", "2", "7", "255", "60", "1000000", "9223372036854775807")],
    "float": [(text, f"CAST({text} AS DOUBLE)") for text in ("0.5", "2.0", "1e10", "0.1")],
    "decimal": [(f"CAST('{text}' AS DECIMAL(9,2))", None) for text in ("0.10", "2.50", "-3.75")],
    "bool": [("TRUE", None), ("FALSE", None)],
    "text": [("'a'", None), ("''", None), ("'abc'", None), ("'10'", None)],
    "date": [("DATE '2024-02-29'", None), ("DATE '1969-12-31'", None)],
    "ts": [("TIMESTAMP '2024-02-29 10:11:12.345678'", None), ("TIMESTAMP '1970-01-01 00:00:00'", None)],
    "tz": [("TIMESTAMPTZ '2024-02-29 10:11:12+00:00'", None)],
    "interval": [("INTERVAL '1' DAY", None)],
}  # fmt: skip
_BY_KIND: Final = {kind: [form for form in FORMS if form[1] == kind] for kind in LITERALS}


def drawn(rng: random.Random, kind: str, depth: int) -> Part:
    """Returns a random expression of a kind, of at most this depth."""
    if depth == 0 or rng.random() < 0.1:
        names = [name for name, (of, _, _) in COLUMNS.items() if of == kind]
        if rng.random() < 0.7 or kind == "interval":
            name = rng.choice(names)
            return Part(name, kind, (), name)
        here, there = rng.choice(LITERALS[kind])
        return Part("literal", kind, (), here, there)
    return of_form(rng, rng.choice(_BY_KIND[kind]), depth)


def of_form(rng: random.Random, form: Any, depth: int) -> Part:
    """Returns a random expression whose outermost function is given."""
    name, kind, kinds, here, there = form
    return Part(name, kind, tuple(drawn(rng, one, depth - 1) for one in kinds), here, there)


def expressions(seed: int, count: int) -> Callable[[], list[Part]]:
    """Returns a function that draws expressions: each function in turn, of depth 1 to 4."""
    rng = random.Random(seed)
    return lambda: [
        of_form(rng, FORMS[number % len(FORMS)], rng.choice((1, 1, 2, 3, 4))) for number in range(count)
    ]
