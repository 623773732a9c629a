"""Advice for what a query cannot have: misspelled keywords, and functions of other engines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any, Final

from sqlglot import exp
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from beamlike.errors import nearest

_KEYWORDS: Final = (
    *(
        "SELECT",
        "DISTINCT",
        "FROM",
        "WHERE",
        "GROUP",
        "BY",
        "HAVING",
        "JOIN",
        "LEFT",
        "RIGHT",
        "FULL",
        "SEMI",
        "ANTI",
    ),
    *(
        "ON",
        "USING",
        "UNION",
        "ALL",
        "WITH",
        "AS",
        "AND",
        "OR",
        "NOT",
        "BETWEEN",
        "LIKE",
        "CASE",
        "WHEN",
        "THEN",
    ),
    *(
        "ELSE",
        "END",
        "INTERVAL",
        "EMIT",
        "EARLY",
        "LATE",
        "EVERY",
        "ROWS",
        "OVER",
        "PARTITION",
        "ORDER",
        "FILTER",
    ),
)
_SIGNS: Final = {
    "&": "AND",
    "&&": "AND",
    "!": "NOT",
    "`": 'a name in double quotes, as in "user"',
    "=>": ">=",
    "=<": "<=",
    "TOP": "ROW_NUMBER() OVER (ORDER BY ...) AS n in a subquery, and WHERE n <= 10",
    "#": "-- before a comment",
    "CHANGES": "EMIT EARLY EVERY 1 ROWS",
}
"""Signs and words at which other languages go on, with what to write here."""
_BEGINS: Final = {
    **dict.fromkeys(
        ("INSERT", "CREATE"),
        "write only its SELECT, and give the result a sink: sql(...).write('name', sink)",
    ),
    **dict.fromkeys(
        ("UPDATE", "DELETE", "MERGE"),
        "a query changes no table; bl.Table(...) as a sink replaces rows by key",
    ),
}
_STEP: Final = "compute it by a step after sql(...), such as with_columns(...) or map(...)"
_NOW: Final = "a query has event time only; compute columns of processing time by map(...) before sql(...)"
_INSTEAD: Final = {
    **dict.fromkeys(("TUMBLE_START", "HOP_START", "SESSION_START", "WINDOW_START"), "write window_start"),
    **dict.fromkeys(("TUMBLE_END", "HOP_END", "SESSION_END", "WINDOW_END"), "write window_end"),
    **dict.fromkeys(
        ("TUMBLE", "HOP", "SESSION", "CUMULATE", "SESSION_WINDOW", "TIME_BUCKET"),
        "write windows in GROUP BY, as in GROUP BY TUMBLE(at, INTERVAL '1' MINUTE), and select window_start",
    ),
    **dict.fromkeys(
        ("NOW", "CURRENT_TIMESTAMP", "CURRENT_DATE", "GETDATE", "CURRENTTIMESTAMP", "CURRENTDATE"), _NOW
    ),
    **dict.fromkeys(
        ("PLACEHOLDER", "PARAMETER"),
        "a query has no parameters: write the value into its text, or in a file ${name}",
    ),
    "IS": "write = to compare with a value; IS is for NULL",
    "EXISTS": "write LEFT SEMI JOIN ... ON, or LEFT ANTI JOIN for NOT EXISTS",
    "SUBQUERY": "a subquery cannot be a value; JOIN it, or read it as a side: map(function, side=...)",
    **dict.fromkeys(("COLLECT_LIST", "LIST", "GROUP_CONCAT", "STRING_AGG", "LISTAGG"), "write ARRAY_AGG(x)"),
    "COLLECT_SET": "write ARRAY_AGG(DISTINCT x)",
    **dict.fromkeys(("MAX_BY", "MIN_BY"), "write ARG_MAX(x, y) or ARG_MIN(x, y)"),
    **dict.fromkeys(("LAG", "LEAD"), "use group_by(...).running(before=bl.previous('x')) after sql(...)"),
    **dict.fromkeys(
        ("TO_DATE", "TO_TIMESTAMP", "STR_TO_DATE"), "write CAST(x AS DATE) or CAST(x AS TIMESTAMP)"
    ),
    **dict.fromkeys(("NVL", "ISNULL", "IFNULL"), "write COALESCE(x, 0)"),
    **dict.fromkeys(("SUBSTR",), "write SUBSTRING(x, 1, 3)"),
    **dict.fromkeys(
        ("CONTAINS", "REGEXPLIKE", "REGEXP_LIKE", "RLIKE"),
        "write LIKE '%text%', or REGEXP_EXTRACT(x, '...') <> ''",
    ),
    **dict.fromkeys(
        ("GREATEST", "LEAST", "NULLIF", "IIF", "DECODE"), "write CASE WHEN a > b THEN a ELSE b END"
    ),
    **dict.fromkeys(("DATEADD", "DATE_ADD", "TIMESTAMPADD"), "write at + INTERVAL '1' DAY"),
    **dict.fromkeys(("DATEDIFF", "DATE_DIFF", "TIMESTAMPDIFF"), "write a - b"),
}
_FUNCTIONS: Final = (
    *(
        "ABS",
        "CEIL",
        "COALESCE",
        "CONCAT",
        "DATE_FORMAT",
        "EXP",
        "EXTRACT",
        "FLOOR",
        "HOUR",
        "MINUTE",
        "SECOND",
        "DAY",
    ),
    *(
        "MONTH",
        "YEAR",
        "LENGTH",
        "LN",
        "LOWER",
        "POWER",
        "REGEXP_EXTRACT",
        "REPLACE",
        "ROUND",
        "SPLIT_PART",
        "SQRT",
    ),
    *(
        "SUBSTRING",
        "TRIM",
        "UPPER",
        "COUNT",
        "SUM",
        "AVG",
        "MIN",
        "MAX",
        "STDDEV",
        "VARIANCE",
        "MEDIAN",
        "QUANTILE",
    ),
    *("MODE", "APPROX_COUNT_DISTINCT", "APPROX_QUANTILE", "ARRAY_AGG", "ARG_MAX", "ARG_MIN", "FIRST_VALUE"),
    *("LAST_VALUE", "TUMBLE", "HOP", "CUMULATE"),
)


def at_fault(tokens: Sequence[Token], line: int, column: int, reason: str) -> tuple[Token | None, str]:
    """Returns the token at fault, and what to write, for the place at which the parser stopped (the end of a token)."""
    ends = [number for number, one in enumerate(tokens) if (one.line, one.col) <= (line, column)]
    at = ends[-1] if ends else 0
    for one in [*reversed(tokens[: at + 1]), *tokens[at + 1 :]]:
        if one.token_type is TokenType.VAR and (word := _like_keyword(one.text)):
            return one, f"{one.text!r} is no keyword of SQL; did you mean {word}?"
    if not tokens:
        return None, "the query is empty; write one such as SELECT user FROM plays"
    found = tokens[at]
    for one in tokens[max(at - 2, 0) : at + 2]:
        if one.text.upper() in _SIGNS:
            return one, f"{one.text!r} is not SQL here; write {_SIGNS[one.text.upper()]}"
    if missing := re.match(r"Expecting (\S+)", reason):
        return found, f"the query cannot be read at {found.text!r}: a {missing[1]} is missing before it"
    if "Required keyword" in reason:
        return found, f"the query cannot be read: an expression is missing after {found.text!r}"
    if reason.startswith("expected "):
        return found, reason
    return (
        found,
        f"the query cannot be read at {found.text!r}; a comma, an operator or a keyword is missing before it",
    )


def _like_keyword(word: str) -> str | None:
    """Returns the keyword of which a word is a misspelling."""
    given = word.upper()
    likeness = {one: SequenceMatcher(None, one, given).ratio() for one in _KEYWORDS if len(given) > 2}
    # The same letters in another order, such as FORM for FROM.
    likeness |= {one: 0.9 for one in likeness if sorted(one) == sorted(given)}
    best = max(likeness, key=lambda one: likeness[one], default="")
    return best if best and 0.79 < likeness[best] < 1 else None


def no_query(tokens: Sequence[Token]) -> str:
    """Returns the text of the error for a text that is not one query."""
    first = tokens[0].text.upper() if tokens else ""
    if first in _BEGINS:
        return f"{first}: {_BEGINS[first]}"
    if any(one.token_type is TokenType.SEMICOLON for one in tokens):
        return "these are several queries; write one, and call sql(...) for each"
    found = next((word for one in tokens[:1] if (word := _like_keyword(one.text))), None)
    hint = f"; did you mean {found}?" if found else ""
    return f"write one query, which begins with SELECT or WITH, not with {first or 'nothing'!r}{hint}"


def unclosed(query: str) -> tuple[int, str]:
    """Returns the position of a quote that is not closed, and the text of the error."""
    start, quote = 0, ""
    for at, sign in enumerate(query):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"":
            start, quote = at, sign
    what = "a text" if quote == "'" else "a name"
    return (
        start,
        f"{what} begins with {quote or query[:1]} here, and is not closed; a quote in a text is written twice",
    )


def advice(node: exp.Expr, name: str) -> str:
    """Returns what to write for a function or part without counterpart, as a clause of an error."""
    keys = (
        name.upper(),
        node.key.upper(),
        (node.this.key.upper() if isinstance(node.this, exp.Expr) else ""),
    )
    if isinstance(node, exp.DateTrunc | exp.TimestampTrunc):
        unit = node.args["unit"].name.upper()
        return (
            f"for windows write GROUP BY TUMBLE({node.this.sql()}, INTERVAL '1' {unit}) and select window_start; "
            f"for a value, a step after sql(...), such as with_columns(x=bl.col('x').dt.truncate('1h'))"
        )
    if isinstance(node, exp.AggFunc):
        return "an aggregate of an aggregate needs a subquery, and one in WHERE is written in HAVING, after GROUP BY"
    for key in keys[:2]:
        if key in _INSTEAD:
            return _INSTEAD[key]
    return (nearest(name, _FUNCTIONS).removeprefix("; ") if isinstance(node, exp.Anonymous) else "") or _STEP


def aggregate_name(node: Any) -> str:
    """Returns the column of an aggregate without AS: COUNT(*) is `count`, and SUM(points) is `sum_points`."""
    inner = node.this if isinstance(node, exp.Filter) else node
    word = re.sub(r"\W+", "_", inner.sql_name().lower())
    column = inner.this.name if isinstance(inner.this, exp.Column) else ""
    return f"{word}_{column}" if column else word
