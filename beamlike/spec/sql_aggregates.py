"""SQL aggregates, and queries with GROUP BY."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs
import narwhals as nw
from sqlglot import exp

from beamlike.expressions import aggregates
from beamlike.spec.sql_expressions import Scope

_ONE: Final[Mapping[type[exp.Expr], Callable[..., Any]]] = {
    exp.Sum: aggregates.sum,
    exp.Avg: aggregates.mean,
    exp.Min: aggregates.min,
    exp.Max: aggregates.max,
    exp.Stddev: aggregates.std,
    exp.StddevSamp: aggregates.std,
    exp.Variance: aggregates.var,
    exp.ApproxDistinct: aggregates.approx_count_distinct,
    exp.ArrayAgg: aggregates.collect,
    exp.Median: aggregates.median,
    exp.Mode: aggregates.mode,
    exp.First: aggregates.first,
    exp.Last: aggregates.last,
    exp.FirstValue: aggregates.first,
    exp.LastValue: aggregates.last,
    exp.LogicalOr: aggregates.any,
    exp.LogicalAnd: aggregates.all,
}


_NULL_WITHOUT_VALUES: Final = (exp.Sum, exp.LogicalOr, exp.LogicalAnd)
"""The aggregates that are NULL in SQL if there are no values; in the DSL they have the result of nothing, such as 0."""


def is_aggregate(node: exp.Expr) -> bool:
    """True for an aggregate, with or without FILTER."""
    return isinstance(node, exp.AggFunc | exp.Filter) and node.find_ancestor(exp.Window) is None


def aggregates_in(node: exp.Expr) -> list[exp.Expr]:
    """Returns the outermost aggregates in an expression."""
    if is_aggregate(node):
        return [node]
    return [found for child in node.iter_expressions() for found in aggregates_in(child)]


@attrs.define
class Computed:
    """Columns that are computed before a grouping, for arguments that are no columns."""

    scope: Scope
    columns: dict[str, nw.Expr] = attrs.field(factory=dict)
    names: dict[exp.Expr, str] = attrs.field(factory=dict)

    def column(self, node: exp.Expr) -> str:
        """Returns the name of the column with the values of an expression."""
        if isinstance(node, exp.Column):
            found = self.scope.place(node.name, node.table, node)
            if found is not None:
                return found
        if node not in self.names:
            self.names[node] = f"sql_{len(self.columns) + 1}"
            self.columns[self.names[node]] = self.scope.expression(node)
        return self.names[node]

    def counts(self, node: exp.Expr) -> Any | None:
        """Returns the aggregate that counts the values of another that is NULL without any; None for all others."""
        inner = node.this if isinstance(node, exp.Filter) else node
        if not isinstance(inner, _NULL_WITHOUT_VALUES):
            return None
        return aggregates.count(self.column(inner.this), **self._options(node))

    def _options(self, node: exp.Expr) -> dict[str, Any]:
        if not isinstance(node, exp.Filter):
            return {}
        return {"where": self.scope.kind(node.expression.this, "boolean", "FILTER (WHERE ...)")}

    def aggregate(self, node: exp.Expr) -> Any:
        """Returns the aggregate of the DSL for one of SQL."""
        options = self._options(node)
        node = node.this if isinstance(node, exp.Filter) else node
        argument = node.this
        match node:
            case exp.Count(this=exp.Distinct(expressions=[one])):
                return aggregates.count_distinct(self.column(one), **options)
            case exp.Count(this=exp.Star()) | exp.Count(this=exp.Literal()):
                return aggregates.count(**options)
            case exp.Count() if argument is not None and not isinstance(argument, exp.Distinct):
                return aggregates.count(self.column(argument), **options)
            case exp.ArgMax() | exp.ArgMin():
                best = aggregates.arg_max if isinstance(node, exp.ArgMax) else aggregates.arg_min
                return best(self.column(argument), by=self.column(node.expression), **options)
            case exp.ApproxQuantile() | exp.Quantile():
                about = isinstance(node, exp.ApproxQuantile)  # which is a kind of Quantile
                made = aggregates.approx_quantile if about else aggregates.quantile
                share = node.args["quantile"]
                if not isinstance(share, exp.Literal) or share.is_string or not 0 <= float(share.name) <= 1:
                    raise self.scope.fault(share, f"a quantile is a number from 0 to 1, not {share.sql()}")
                return made(self.column(argument), float(share.name), **options)
            case exp.ArrayAgg(this=exp.Distinct(expressions=[one])):
                return aggregates.collect_set(self.column(one), **options)
        if type(node) in _ONE and argument is not None and not isinstance(argument, exp.Distinct):
            return _ONE[type(node)](self.column(argument), **options)
        raise self.scope.fault(
            node,
            f"the aggregate {node.sql()} has no counterpart; use group_by(...).aggregate(...) with bl.combine(...)",
        )
