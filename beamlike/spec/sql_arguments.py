"""The parts of a query that are translated. A query with any other part is refused, so that no part is ignored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from sqlglot import exp

from beamlike.spec.sql_expressions import BINARY, METHODS, fault

_FIRST: Final = "a stream has no first rows; write ROW_NUMBER() OVER (ORDER BY ...) AS n, and WHERE n <= 10"
_ADVICE: Final[Mapping[str, str]] = {
    "order": "ORDER BY: a stream has no end at which to sort; for the first rows write ROW_NUMBER() OVER (...) <= n",
    "limit": f"LIMIT: {_FIRST}",
    "offset": f"OFFSET: {_FIRST}",
    "qualify": "QUALIFY: write a subquery with ROW_NUMBER() OVER (...) AS n, and WHERE n <= 10 around it",
    "laterals": "LATERAL: use flat_map(...) or explode(...) before sql(...)",
    "windows": "WINDOW: write OVER (...) with ROW_NUMBER() or RANK()",
    "match": "MATCH_RECOGNIZE: use group_by(...).process(...)",
    "pivots": "PIVOT: write an aggregate with FILTER (WHERE ...) for each column",
    "sample": "TABLESAMPLE: use the aggregate bl.sample(...)",
    "prewhere": "EMIT: write it after each query of UNION ALL, or in the subquery",
    "on": "DISTINCT ON: write ROW_NUMBER() OVER (PARTITION BY ... ORDER BY ...) AS n, and WHERE n <= 1",
    "columns": "names of columns in brackets: write AS for each column in the query",
    "rollup": "ROLLUP: write a query for each grouping, and UNION ALL",
    "cube": "CUBE: write a query for each grouping, and UNION ALL",
    "grouping_sets": "GROUPING SETS: write a query for each grouping, and UNION ALL",
    "db": "tables have one name, that of the keyword in sql(...)",
    "except_": "* with EXCEPT or REPLACE: write the columns, or use drop(...)",
    "replace": "* with EXCEPT or REPLACE: write the columns, or use drop(...)",
    "rename": "* with RENAME: write the columns, with AS",
    "false": "IF(a, b, c): write CASE WHEN a THEN b ELSE c END",
    "kind": "there is no such type: write BIGINT, DOUBLE, VARCHAR, BOOLEAN, TIMESTAMP or DECIMAL(10, 2)",
    "field": "IN: write a list in brackets, as in IN ('ada', 'bob')",
    "symmetric": "BETWEEN SYMMETRIC: write the lower bound first",
    "recursive": "RECURSIVE: a stream cannot be its own input",
    "query": "IN (SELECT ...): write LEFT SEMI JOIN, or LEFT ANTI JOIN for NOT IN",
    "spec": "ROWS or RANGE: a rank is that of all rows of the window",
}
"""The advice for an unsupported argument, by its name in sqlglot."""

_ONE: Final = ("this",)
_TWO: Final = ("this", "expression")
_SEVERAL: Final = ("expressions",)

READ: Final[Mapping[type[exp.Expr], Iterable[str]]] = {
    # Queries. EMIT is parsed as `prewhere`.
    exp.Select: ("with_", "expressions", "distinct", "from_", "joins", "prewhere", "where", "group", "having"),
    exp.Union: ("with_", "this", "expression", "distinct"),
    exp.Except: ("with_", "this", "expression", "distinct"),  # refused with what to write
    exp.Intersect: ("with_", "this", "expression", "distinct"),  # refused with what to write
    exp.Subquery: ("this", "alias"),
    exp.With: _SEVERAL,
    exp.CTE: ("this", "alias"),
    exp.TableAlias: _ONE,
    exp.Table: ("this", "alias", "version"),
    exp.Version: ("this", "kind", "expression"),
    exp.From: _ONE,
    exp.Join: ("this", "on", "using", "side", "kind"),
    exp.Where: _ONE,
    exp.Group: _SEVERAL,
    exp.Having: _ONE,
    exp.Distinct: _SEVERAL,
    exp.Tuple: _SEVERAL,
    exp.Window: ("this", "partition_by", "order", "over"),
    exp.Order: _SEVERAL,
    exp.Ordered: ("this", "desc", "nulls_first"),
    # Names and values
    exp.Column: ("this", "table"),
    exp.Identifier: ("this", "quoted"),
    exp.Star: (),
    exp.Alias: ("this", "alias"),
    exp.Literal: ("this", "is_string"),
    exp.Boolean: _ONE,
    exp.Null: (),
    exp.Var: _ONE,
    exp.Interval: ("this", "unit"),
    exp.DataType: ("this", "expressions", "nested"),
    exp.DataTypeParam: _ONE,
    # Operators and functions. The parser sets flags such as `safe` by itself.
    **dict.fromkeys(BINARY, _TWO),
    **dict.fromkeys(METHODS, _ONE),
    exp.Div: (*_TWO, "typed", "safe"),
    exp.Pow: _TWO,
    exp.Mod: _TWO,
    exp.IntDiv: _TWO,
    exp.Paren: _ONE,
    exp.Neg: _ONE,
    exp.Not: _ONE,
    exp.Is: _TWO,
    exp.Between: ("this", "low", "high"),
    exp.In: ("this", "expressions"),
    exp.Case: ("this", "ifs", "default"),
    exp.If: ("this", "true"),
    exp.Cast: ("this", "to"),
    exp.Coalesce: ("this", "expressions"),
    exp.DPipe: (*_TWO, "safe"),
    exp.Concat: ("expressions", "safe", "coalesce"),
    exp.Round: ("this", "decimals"),
    exp.Trim: _ONE,
    exp.Like: (*_TWO, "negate"),
    exp.ILike: (*_TWO, "negate"),
    exp.StartsWith: _TWO,
    exp.Replace: (*_TWO, "replacement"),
    exp.Substring: ("this", "start", "length"),
    exp.SplitPart: ("this", "delimiter", "part_index"),
    exp.RegexpExtract: (*_TWO, "group", "position"),
    exp.Extract: _TWO,
    exp.Anonymous: ("this", "expressions"),
    # Aggregates
    exp.Filter: _TWO,
    exp.Count: ("this", "big_int"),
    exp.ArrayAgg: ("this", "nulls_excluded"),
    exp.ArgMax: _TWO,
    exp.ArgMin: _TWO,
    exp.Quantile: ("this", "quantile"),
    exp.ApproxQuantile: ("this", "quantile"),
    exp.RowNumber: (),
    exp.Rank: (),
    **dict.fromkeys(
        (
            exp.Sum, exp.Avg, exp.Min, exp.Max, exp.Stddev, exp.StddevSamp, exp.Variance, exp.ApproxDistinct,
            exp.Median, exp.Mode, exp.First, exp.Last, exp.FirstValue, exp.LastValue, exp.LogicalOr, exp.LogicalAnd,
        ),
        _ONE,
    ),
}  # fmt: skip
"""The arguments of each kind of node that the translation reads."""


def require_read(query: exp.Expr, text: str) -> None:
    """Raises `BadQuery` for a part of a query that the translation would ignore.

    Kinds of nodes that are not in `READ` are refused where they are translated. But a kind that inherits from one in
    `READ`, such as TRY_CAST from CAST, would be taken for that.
    """
    for node in query.walk():
        known = READ.get(type(node))
        if known is None:
            if isinstance(node, tuple(READ)):
                raise fault(text, node, f"{node.key.upper()} has no counterpart")
            continue
        for name, value in node.args.items():
            if name not in known and value not in (None, False, [], ""):
                raise fault(text, _first(value, node), _ADVICE.get(name) or _unknown(node, name))


def _unknown(node: exp.Expr, name: str) -> str:
    words = name.strip("_").replace("_", " ").upper()
    return f"{node.key.upper()} with {words} has no counterpart: {node.sql()}"


def _first(value: Any, node: exp.Expr) -> exp.Expr:
    """Returns the first node of an argument, which has a place; or the node itself."""
    one = value[0] if isinstance(value, list) else value
    has_place = isinstance(one, exp.Expr) and any("start" in part.meta for part in one.walk())
    return one if has_place else node
