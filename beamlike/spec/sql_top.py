"""The first n rows of each group: `ROW_NUMBER() OVER (PARTITION BY ... ORDER BY ...) AS n`, and `WHERE n <= 10`."""

from __future__ import annotations

from typing import Any, Final

import attrs
from sqlglot import exp

from beamlike.api.pipeline import Collection
from beamlike.errors import nearest
from beamlike.expressions.aggregates import bottom, top
from beamlike.spec.sql_expressions import Scope, fault, literal
from beamlike.spec.sql_joins import conjuncts
from beamlike.spec.sql_windows import BOUNDS
from stages.aggregates.ranked import Nulls

_ROWS: Final = "sql_rows"


@attrs.frozen
class TopN:
    """A query over a subquery with a rank, of which it wants the first rows."""

    query: str
    select: exp.Select
    inner: exp.Select
    ranked: exp.Alias
    count: int
    others: list[exp.Expr]
    """The further conditions of the query."""

    @classmethod
    def of(cls, select: exp.Select, query: str) -> TopN | None:
        """Returns the top n of a query; None for a query without a rank. Raises `BadQuery` for another use of OVER."""
        source = select.args.get("from_")
        inner = source.this.this if source is not None and isinstance(source.this, exp.Subquery) else None
        for one in select.expressions:
            if (over := one.find(exp.Window)) is not None and over.find_ancestor(exp.Select) is select:
                name = over.this.sql()
                raise fault(
                    query,
                    over,
                    f"{name} OVER: write ROW_NUMBER() or RANK() AS n in a subquery, and WHERE n <= 10 around it; "
                    "for sums so far, use group_by(...).running(...)",
                )
        if not isinstance(inner, exp.Select) or select.args.get("joins"):
            return None
        ranks = [
            one
            for one in inner.expressions
            if isinstance(one, exp.Alias) and isinstance(one.this, exp.Window)
        ]
        if not ranks:
            return None
        (ranked, *_) = ranks
        if not isinstance(ranked.this.this, exp.RowNumber | exp.Rank) or len(ranks) > 1:
            raise fault(
                query,
                ranked,
                f"{ranked.this.this.sql()} OVER has no counterpart; write ROW_NUMBER() or RANK()",
            )
        return cls._limited(select, inner, ranked, query)

    @classmethod
    def _limited(cls, select: exp.Select, inner: exp.Select, ranked: exp.Alias, query: str) -> TopN:
        if inner.args.get("distinct"):
            raise fault(
                query, inner, "SELECT DISTINCT with a rank: write a subquery with DISTINCT, and rank its rows"
            )
        where = select.args.get("where")
        others: list[exp.Expr] = []
        count: int | None = None
        for one in conjuncts(where.this if where else None):
            if cls._is_limit(one, ranked):
                limit = literal(one.args["expression"])
                if not isinstance(limit, int) or count is not None or limit <= isinstance(one, exp.LT):
                    raise fault(
                        query, one, f"a rank has one limit, a whole number such as {ranked.alias} <= 10"
                    )
                count = limit - isinstance(one, exp.LT)
                if isinstance(one, exp.EQ) and count != 1:
                    raise fault(
                        query, one, f"write {ranked.alias} <= {count}; only the first row can be chosen by ="
                    )
            else:
                others.append(one)
        if count is None:
            raise fault(
                query, ranked, f"a rank needs a limit: write WHERE {ranked.alias} <= 10 around the subquery"
            )
        return cls(query, select, inner, ranked, count, others)

    @staticmethod
    def _is_limit(one: exp.Expr, ranked: exp.Alias) -> bool:
        if not isinstance(one, exp.LTE | exp.LT | exp.EQ):
            return False
        is_rank = isinstance(one.left, exp.Column) and one.left.name == ranked.alias
        return is_rank and isinstance(one.right, exp.Literal)

    def base(self) -> exp.Select:
        """Returns the subquery without the rank."""
        copied = self.inner.copy()
        copied.set("expressions", [one for one in copied.expressions if one.alias != self.ranked.alias])
        return copied

    def declared(self, base: Collection, choices: dict[str, Any]) -> tuple[Collection, Scope]:
        """Declares the top n of the rows of the subquery, and returns it with its columns."""
        window = self.ranked.this
        partition = [one for one in window.args.get("partition_by") or () if one.name not in BOUNDS]
        keys = [self._column(one, base) for one in partition]
        by, descending, nulls = self._order(window.args.get("order"), base)
        ties = isinstance(window.this, exp.Rank)
        rest = [name for name in base.schema if name not in keys]
        chosen = (top if descending else bottom)(rest, self.count, by=by, ties=ties, nulls=nulls)
        if choices:
            base = base.window_into(**choices)
        grouped = (
            base.group_by(*keys).aggregate(**{_ROWS: chosen}) if keys else base.aggregate(**{_ROWS: chosen})
        )
        number = None if ties or not self._reads_number() else self.ranked.alias
        rows = grouped.explode(_ROWS, number=number)
        made = rows.unnest(_ROWS)
        order = [*base.schema, *([number] if number else [])]
        made = made if [*made.schema] == order else made.select(*order)
        source: Any = self.select.args["from_"]
        tables = {source.this.alias or "_": {name: name for name in made.schema}}
        return made, Scope(self.query, tables, types=made.schema)

    def _reads_number(self) -> bool:
        """True if the query selects the rank."""
        name = self.ranked.alias
        star = any(isinstance(one, exp.Star) for one in self.select.expressions)
        named = [
            one for part in self.select.expressions for one in part.find_all(exp.Column) if one.name == name
        ]
        if (star or named) and isinstance(self.ranked.this.this, exp.Rank):
            raise fault(self.query, self.ranked, "RANK() gives no number here; write the columns without it")
        return star or bool(named)

    def _order(self, order: exp.Order | None, base: Collection) -> tuple[list[str], bool, Nulls]:
        """Returns the columns of the order, True if it is descending, and the place of nulls in it."""
        if order is None:
            raise fault(self.query, self.ranked, "a rank needs ORDER BY in OVER (...)")
        directions = {bool(one.args.get("desc")) for one in order.expressions}
        if len(directions) > 1:
            raise fault(
                self.query, order, "ORDER BY in OVER (...) must have one direction: all DESC, or none"
            )
        nulls = {bool(one.args["nulls_first"]) != bool(one.args.get("desc")) for one in order.expressions}
        if len(nulls) > 1:
            raise fault(
                self.query, order, "ORDER BY in OVER (...): write NULLS FIRST or NULLS LAST for all columns"
            )
        columns = [self._column(one.this, base) for one in order.expressions]
        return columns, directions.pop(), "least" if nulls.pop() else "greatest"

    def _column(self, node: exp.Expr, base: Collection) -> str:
        if not isinstance(node, exp.Column) or node.name not in base.schema:
            hint = nearest(node.name, base.schema) or f"; there are {', '.join(base.schema)}"
            raise fault(
                self.query, node, f"OVER needs columns that the subquery selects, not {node.sql()}{hint}"
            )
        return node.name
