"""Queries: SELECT, its clauses, and UNION ALL, each as steps of collections."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import narwhals as nw
from sqlglot import exp

from beamlike.api.flatten import flatten
from beamlike.api.pipeline import Collection
from beamlike.errors import nearest
from beamlike.spec.sql_advice import aggregate_name
from beamlike.spec.sql_aggregates import Computed, aggregates_in
from beamlike.spec.sql_arguments import require_read
from beamlike.spec.sql_expressions import SYSTEM, Scope, fault
from beamlike.spec.sql_joins import SIDE_KEY, Join
from beamlike.spec.sql_parameters import QueryParameters
from beamlike.spec.sql_parser import parse
from beamlike.spec.sql_top import TopN
from beamlike.spec.sql_windows import BOUNDS, emit_choices, is_window, require_time, windows_of


@attrs.frozen
class Query:
    """A query with its tables by name."""

    text: str
    tables: Mapping[str, Collection]
    parameters: QueryParameters | None = None

    def result(self) -> Collection:
        """Declares the steps of the query, and returns their result."""
        parsed = parse(self.text, self.parameters)
        require_read(parsed, self.text)
        return self.compiled(parsed)

    def compiled(self, node: exp.Expr, emit: exp.Expr | None = None) -> Collection:
        """Declares the steps of a query or subquery. Its grouping emits as `emit` says, unless it has its own EMIT."""
        query = self._with_ctes(node)
        if isinstance(node, exp.Subquery):
            return query.compiled(node.this, emit)
        if type(node) is exp.Union and not node.args.get("distinct"):
            return query._union(node, emit)
        if not isinstance(node, exp.Select):
            what = f"{node.key.upper()}: write UNION ALL, and SELECT DISTINCT around it"
            raise fault(self.text, node, f"{what} to remove repeated rows")
        own = node.args.get("prewhere")
        if own is not None and not query._emits(node):
            raise fault(self.text, own, "EMIT needs a GROUP BY or an aggregate, whose panes it emits")
        return query._select(node, own or emit)

    def _with_ctes(self, node: exp.Expr) -> Query:
        query = self
        for cte in getattr(node, "ctes", ()):
            query = attrs.evolve(query, tables={**query.tables, cte.alias: query.compiled(cte.this)})
        return query

    def _union(self, node: exp.Union, emit: exp.Expr | None) -> Collection:
        if _last(node.right).args.get("prewhere") and not _last(node.left).args.get("prewhere"):
            raise fault(self.text, node.right, "EMIT: write it after each query of UNION ALL, or in brackets")
        left, right = self.compiled(node.left, emit), self.compiled(node.right, emit)
        if len(left.schema) != len(right.schema):
            counts = f"{len(left.schema)} and {len(right.schema)} columns"
            raise fault(self.text, node.right, f"UNION ALL: the queries have {counts}")
        names = {old: new for old, new in zip(right.schema, left.schema, strict=True) if old != new}
        return flatten(
            left,
            right.select(**{new: nw.col(old) for old, new in zip(right.schema, left.schema, strict=True)})
            if names
            else right,
        )

    def _emits(self, node: exp.Expr) -> bool:
        """True if an EMIT after a query has a grouping for which it is."""
        if isinstance(node, exp.Subquery):
            return self._emits(node.this)
        if isinstance(node, exp.Union):
            return self._emits(node.left) or self._emits(node.right)
        if not isinstance(node, exp.Select):
            return False
        source = node.args.get("from_")
        tables = [source.this] if source is not None else []
        tables += [join.this for join in node.args.get("joins") or ()]
        return _is_grouped(node) or TopN.of(node, self.text) is not None or any(map(self._emits, tables))

    def _select(self, select: exp.Select, emit: exp.Expr | None) -> Collection:
        top = TopN.of(select, self.text)
        grouped = _is_grouped(select)
        if select.args.get("having") and not grouped:
            raise fault(
                self.text, select.args["having"], "HAVING needs a GROUP BY or an aggregate; write WHERE"
            )
        if top is not None:
            base = self.compiled(top.base(), None)
            made, scope = top.declared(base, {} if grouped else emit_choices(emit, self.text))
            conditions = top.others
        else:
            made, scope = self._from(select, None if grouped else emit)
            where = select.args.get("where")
            conditions = [where.this] if where else []
        for condition in conditions:
            made = made.filter(scope.condition(condition))
        made = self._grouped(select, made, scope, emit) if grouped else self._projected(select, made, scope)
        return made.distinct() if select.args.get("distinct") else made

    def _from(self, select: exp.Select, emit: exp.Expr | None) -> tuple[Collection, Scope]:
        source = select.args.get("from_")
        if source is None:
            raise fault(self.text, select, "a query needs FROM with the name of a table")
        if source.this.args.get("version"):
            raise fault(self.text, source.this, "FOR SYSTEM_TIME AS OF: write it after JOIN and its table")
        made, alias = self._table(source.this, emit)
        scope = Scope(self.text, {alias: {name: name for name in made.schema}}, types=made.schema)
        for join in select.args.get("joins") or ():
            right, other = self._table(join.this, emit)
            if other in scope.tables:
                raise fault(
                    self.text, join, f"two tables are called {other!r}; write an alias, such as {other} AS b"
                )
            made, scope = Join(self.text, select, join, made, scope, right, other).joined()
        return made, scope

    def _table(self, node: exp.Expr, emit: exp.Expr | None) -> tuple[Collection, str]:
        if isinstance(node, exp.Subquery):
            return self.compiled(node, emit), node.alias or "_"
        if not isinstance(node, exp.Table):
            raise fault(self.text, node, "FROM takes tables, subqueries, and windows such as TUMBLE(...)")
        if is_window(node.this):
            made = self._windowed_table(node.this)
            return made, node.alias or node.this.expressions[0].name
        return self._named(node), node.alias or node.name

    def _named(self, node: exp.Expr) -> Collection:
        if node.name not in self.tables:
            hint = nearest(node.name, self.tables) or f"; there are {', '.join(self.tables)}"
            raise fault(self.text, node, f"there is no table {node.name!r}{hint}")
        return self.tables[node.name]

    def _windowed_table(self, node: exp.Expr) -> Collection:
        if len(node.expressions) < 2 or node.expressions[1].name.upper() != "DESCRIPTOR":
            what = f"{node.name.upper()}(TABLE plays, DESCRIPTOR(at), INTERVAL '1' MINUTE)"
            raise fault(self.text, node, f"write the windows of a table as {what}")
        table, descriptor, *lengths = node.expressions
        made = self._named(table)
        if len(descriptor.expressions) != 1:
            raise fault(self.text, node, "DESCRIPTOR takes one column, that of the event time")
        require_time(descriptor.expressions[0], made.node, self.text)
        return made.window_into(windows_of(node, lengths, self.text))

    def _grouped(
        self, select: exp.Select, made: Collection, scope: Scope, emit: exp.Expr | None
    ) -> Collection:
        group = select.args.get("group")
        computed = Computed(scope)
        choices = emit_choices(emit, self.text)
        keys: dict[exp.Expr, str] = {}
        for node in group.expressions if group else ():
            if is_window(node):
                time, *lengths = node.expressions
                require_time(time, made.node, self.text)
                if "windows" in choices:
                    raise fault(self.text, node, "a grouping has one window; write a query for each")
                choices["windows"] = windows_of(node, lengths, self.text)
            elif not self._is_bound(node, scope):
                one = self._aliased(node, select, scope)
                keys[one] = computed.column(one)
        having = select.args.get("having")
        wanted = [
            found
            for one in (*select.expressions, *([having.this] if having else []))
            for found in aggregates_in(one)
        ]
        if not wanted:
            raise fault(self.text, select, "GROUP BY needs an aggregate; without one, write SELECT DISTINCT")
        names = self._names(select, wanted, {*keys.values()})
        aggregates = {name: computed.aggregate(node) for node, name in names.items()}
        counts = {name: count for node, name in names.items() if (count := computed.counts(node)) is not None}
        aggregates |= {f"sql_count_{name}": count for name, count in counts.items()}
        if computed.columns:
            made = made.with_columns(**computed.columns)
        if choices:
            made = made.window_into(**choices)
        made = made.group_by(*keys.values()).aggregate(**aggregates) if keys else made.aggregate(**aggregates)
        kept = {
            alias: {name: place for name, place in columns.items() if place in keys.values()}
            for alias, columns in scope.tables.items()
        }
        if counts:
            some = {name: nw.when(nw.col(f"sql_count_{name}") > 0).then(nw.col(name)) for name in counts}
            made = made.with_columns(**some)
        before = frozenset(name for columns in scope.tables.values() for name in columns)
        after = Scope(self.text, kept, {**names, **keys}, made.schema, before)
        if having:
            made = made.filter(after.condition(having.this))
        return self._projected(select, made, after)

    def _is_bound(self, node: exp.Expr, scope: Scope) -> bool:
        """True for `window_start` and `window_end`, which are always keys, unless a column has this name."""
        is_name = isinstance(node, exp.Column) and node.name in BOUNDS
        return is_name and not any(node.name in columns for columns in scope.tables.values())

    def _aliased(self, node: exp.Expr, select: exp.Select, scope: Scope) -> exp.Expr:
        """Returns the expression that a name in GROUP BY stands for."""
        if isinstance(node, exp.Column) and not node.table and scope.place(node.name, "", node) is None:
            found = [
                one.this
                for one in select.expressions
                if isinstance(one, exp.Alias) and one.alias == node.name
            ]
            return found[0] if found else node
        if isinstance(node, exp.Literal):
            raise fault(self.text, node, "GROUP BY takes columns, not their numbers")
        return node

    def _names(self, select: exp.Select, wanted: list[exp.Expr], taken: set[str]) -> dict[exp.Expr, str]:
        """Returns a column for each aggregate: by its alias, or with a name that is free."""
        given = {one.this: one.alias for one in select.expressions if isinstance(one, exp.Alias)}
        names: dict[exp.Expr, str] = {}
        for node in wanted:
            name = given.get(node, "")
            if not name or name in names.values() or name in taken:
                plain = aggregate_name(node)
                used = {*taken, *names.values(), *given.values()}
                free = (
                    f"{plain}{end}" for end in ("", *(f"_{number}" for number in range(2, len(used) + 3)))
                )
                name = next(one for one in free if one not in used)
            names.setdefault(node, name)
        return names

    def _projected(self, select: exp.Select, made: Collection, scope: Scope) -> Collection:
        columns: dict[str, nw.Expr] = {}
        for node in select.expressions:
            for name, one in self._projection(node, made, scope).items():
                if name in columns:
                    raise fault(
                        self.text, node, f"the result has two columns {name!r}; write AS and another name"
                    )
                columns[name] = one
        if not columns:
            raise fault(
                self.text, select, "the query selects no column; event time and window are there anyway"
            )
        plain = [name for name, one in columns.items() if str(one) == str(nw.col(name))]
        if plain == [*columns] == [*made.schema]:
            return made
        return made.select(**columns)

    def _projection(self, node: exp.Expr, made: Collection, scope: Scope) -> dict[str, nw.Expr]:
        star = node if isinstance(node, exp.Star) else node.this if isinstance(node, exp.Column) else None
        if isinstance(star, exp.Star):
            if scope.replaced:
                raise fault(self.text, node, "* in a query with GROUP BY: write the columns")
            return self._all_columns(node, made, scope)
        if isinstance(node, exp.Column) and self._is_implicit(node, scope):
            return {}
        if (
            node.alias_or_name
            and not isinstance(node, exp.Literal)
            and isinstance(node, exp.Alias | exp.Column)
        ):
            plain = node.unalias()
            if isinstance(plain, exp.Column) and plain not in scope.replaced:
                return {node.alias_or_name: scope.column(plain)}
            return {node.alias_or_name: scope.expression(node)}
        if node in scope.replaced:
            name = scope.replaced[node]
            return {name: nw.col(name)}
        raise fault(self.text, node, f"give {node.sql()} a name: {node.sql()} AS name")

    def _all_columns(self, node: exp.Expr, made: Collection, scope: Scope) -> dict[str, nw.Expr]:
        if isinstance(node, exp.Column) and node.table:
            if node.table not in scope.tables:
                raise fault(
                    self.text, node, f"there is no table {node.table!r}{nearest(node.table, scope.tables)}"
                )
            return {name: nw.col(place) for name, place in scope.tables[node.table].items()}
        return {name: nw.col(name) for name in made.schema if not name.startswith(SIDE_KEY)}

    def _is_implicit(self, node: exp.Column, scope: Scope) -> bool:
        """True for a value that each row has anyway, such as `window_start`, unless a column has this name."""
        return node.name in SYSTEM and not any(node.name in columns for columns in scope.tables.values())


def _is_grouped(select: exp.Select) -> bool:
    return bool(select.args.get("group")) or any(map(aggregates_in, select.expressions))


def _last(node: exp.Expr) -> exp.Expr:
    """Returns the last query of a union."""
    return _last(node.right) if isinstance(node, exp.Union) else node
