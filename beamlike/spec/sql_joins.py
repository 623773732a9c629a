"""SQL joins: in windows, within bounds of time, as of a time, with a table, or for ever."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

import attrs
import narwhals as nw
from sqlglot import exp

from beamlike.api.pipeline import Collection
from beamlike.api.sides import lookup
from beamlike.errors import BadQuery
from beamlike.spec.sql_expressions import Scope, fault, interval
from beamlike.spec.sql_windows import BOUNDS, times_of
from windowing.columns import EVENT_TIME
from windowing.windows import GlobalWindows

_TICK: Final = timedelta(microseconds=1)
_COMPARED: Final = (exp.GT, exp.GTE, exp.LT, exp.LTE, exp.EQ)
_TURNED: Final[dict[type[exp.Expr], type[exp.Expr]]] = {
    exp.GT: exp.LT, exp.GTE: exp.LTE, exp.LT: exp.GT, exp.LTE: exp.GTE, exp.EQ: exp.EQ,
}  # fmt: skip


@attrs.define
class Conditions:
    """The conditions of a join: pairs of keys, bounds of the right time minus the left time, and others."""

    left: list[str] = attrs.field(factory=list)
    right: list[str] = attrs.field(factory=list)
    low: Any = None
    high: Any = None
    windowed: bool = False
    others: list[exp.Expr] = attrs.field(factory=list)


@attrs.frozen
class Join:
    """A join of a query: its left side so far, and its right side with the alias."""

    query: str
    node: exp.Join
    left: Collection
    scope: Scope
    right: Collection
    alias: str

    def joined(self) -> tuple[Collection, Scope]:
        """Declares the join, and returns its result with the columns that the query may read."""
        how = self._how()
        found = self._conditions()
        version = self.node.this.args.get("version")
        others = found.others
        if not found.left:
            raise self.fault("a join needs a key: write ON with an equality of columns of both tables")
        if how not in ("inner", "semi") and others:
            raise fault(
                self.query,
                others[0],
                "an outer join may have equalities and bounds of time only; filter before",
            )
        options: dict[str, Any] = {"left_on": found.left, "right_on": found.right, "how": how}
        if version is not None:
            made = self.left.join_asof(self.right, **options)
        elif EVENT_TIME not in self.right.node.shape.system:
            return self._looked_up(found, how)
        elif found.low is not None or found.high is not None:
            made = self._within(found, options)
        elif found.windowed or self._windowed() or how != "inner":
            made = self.left.join(self.right, **options)
        else:
            made = self.left.join(self.right, **options, keep_forever=True)
        scope = self.scope if how in ("semi", "anti") else self._scope(found)
        return self._filtered(made, scope, others), scope

    def _filtered(self, made: Collection, scope: Scope, others: list[exp.Expr]) -> Collection:
        return made.filter(*map(scope.expression, others)) if others else made

    def _how(self) -> str:
        side, kind = self.node.side.lower(), self.node.kind.upper()
        if kind in ("SEMI", "ANTI"):
            return kind.lower()
        if kind == "CROSS" or (not self.node.args.get("on") and not self.node.args.get("using")):
            raise self.fault(
                "a join without ON has no counterpart; write JOIN ... ON with an equality of columns"
            )
        return side or "inner"

    def _conditions(self) -> Conditions:
        found = Conditions()
        for column in self.node.args.get("using") or ():
            place = self.scope.place(column.name, "", column)
            if place is None or column.name not in self.right.schema:
                raise fault(self.query, column, f"both tables need a column {column.name!r}")
            found.left.append(place)
            found.right.append(column.name)
        for one in conjuncts(self.node.args.get("on")):
            self._sort(one, found)
        return found

    def _sort(self, one: exp.Expr, found: Conditions) -> None:
        """Adds a condition: as a pair of keys, as bounds of time, or as another condition."""
        if isinstance(one, exp.Between):
            for bound, end in ((exp.GTE, "low"), (exp.LTE, "high")):
                self._sort(bound(this=one.this.copy(), expression=one.args[end].copy()), found)
            return
        if not isinstance(one, _COMPARED):
            found.others.append(one)
            return
        left, right = one.left, one.right
        kind: type[exp.Expr] = type(one)
        if self._is_right(left) and not self._is_right(right):
            left, right, kind = right, left, _TURNED[kind]
        elif not self._is_right(right) or self._is_right(left):
            found.others.append(one)
            return
        # From here on, `left <kind> right`, each of its side.
        if kind is exp.EQ and isinstance(left, exp.Column) and isinstance(right, exp.Column):
            if left.name in BOUNDS and right.name in BOUNDS:
                found.windowed = True
                return
            if not (self._is_time(left, self.left) and self._is_time(right, self.right)):
                self._pair(left, right, found)
                return
        if not self._bound(left, right, kind, found):
            found.others.append(one)

    def _pair(self, left: exp.Column, right: exp.Column, found: Conditions) -> None:
        place = self.scope.place(left.name, left.table, left)
        if place is None or right.name not in self.right.schema:
            missing = left if place is None else right
            raise fault(self.query, missing, f"there is no column {missing.name!r} in that table")
        found.left.append(place)
        found.right.append(right.name)

    def _bound(self, left: exp.Expr, right: exp.Expr, kind: type[exp.Expr], found: Conditions) -> bool:
        """Adds a bound if the right side is the time of its rows. `left <= right` is a bound below."""
        column, shift = _shifted(right, self.query)
        if column is None or not self._is_time(column, self.right):
            return False
        distance = self._distance(left, shift)
        tick = _TICK if kind in (exp.LT, exp.GT) else timedelta()
        if kind in (exp.LT, exp.LTE, exp.EQ):
            found.low = distance + tick
        if kind in (exp.GT, exp.GTE, exp.EQ):
            found.high = distance - tick
        return True

    def _distance(self, left: exp.Expr, shift: timedelta) -> Any:
        """Returns the left side minus the time of its rows, as a duration or as an expression."""
        column, own = _shifted(left, self.query)
        if column is not None and self._is_time(column, self.left):
            return own - shift
        return self.scope.expression(left) - self._left_time() - shift

    def _left_time(self) -> nw.Expr:
        for name in times_of(self.left.node):
            if name in self.left.schema:
                return nw.col(name)
        raise self.fault("select the column of the event time on the left side of this join, too")

    def _within(self, found: Conditions, options: dict[str, Any]) -> Collection:
        if found.low is None or found.high is None:
            raise self.fault(
                "a join by time needs both bounds, such as b.at BETWEEN a.at AND a.at + INTERVAL '1' HOUR"
            )
        if isinstance(found.low, nw.Expr):
            raise self.fault(
                "the lower bound of a join by time must be the left time, plus or minus an INTERVAL"
            )
        return self.left.join(self.right, **options, within=(found.low, found.high))

    def _looked_up(self, found: Conditions, how: str) -> tuple[Collection, Scope]:
        """Declares a lookup in a table without event times."""
        table = lookup(self.right, left_on=found.left, right_on=found.right)
        if how not in ("inner", "left", "semi", "anti"):
            raise self.fault(
                f"a {how} join with a table without event times has no counterpart; write LEFT or INNER"
            )
        made = self.left
        if how in ("inner", "semi"):
            made = made.filter(table.found())
        if how == "anti":
            made = made.filter(~table.found())
        if how in ("semi", "anti"):
            return made, self.scope
        scope = self._scope(found)
        names = {actual: name for name, actual in scope.tables[self.alias].items() if name not in found.right}
        if names:
            made = made.with_columns(**{actual: table[name] for actual, name in names.items()})
        return self._filtered(made, scope, found.others), scope

    def _scope(self, found: Conditions) -> Scope:
        keys = dict(zip(found.right, found.left, strict=True))
        mine = {
            name: keys.get(name) or (f"{name}_right" if name in self.left.schema else name)
            for name in self.right.schema
        }
        return attrs.evolve(self.scope, tables={**self.scope.tables, self.alias: mine})

    def _windowed(self) -> bool:
        sides = (self.left, self.right)
        return any(not isinstance(side.windowing.windows, GlobalWindows) for side in sides)

    def _is_right(self, node: exp.Expr) -> bool:
        """True if all columns of an expression are of the right table, and there are some."""
        columns = [*node.find_all(exp.Column)]
        return bool(columns) and all(self._of_right(one) for one in columns)

    def _of_right(self, column: exp.Column) -> bool:
        if column.table:
            return bool(column.table == self.alias)
        return column.name in self.right.schema and self.scope.place(column.name, "", column) is None

    def _is_time(self, column: exp.Column, side: Collection) -> bool:
        return column.name in {*times_of(side.node), "event_time"}

    def fault(self, message: str) -> BadQuery:
        """Returns an error at the place of the join."""
        return fault(self.query, self.node, message)


def _shifted(node: exp.Expr, query: str) -> tuple[exp.Column | None, timedelta]:
    """Returns the column and the duration of `at + INTERVAL '1' HOUR`; no column for another expression."""
    if isinstance(node, exp.Column):
        return node, timedelta()
    if isinstance(node, exp.Paren):
        return _shifted(node.this, query)
    if isinstance(node, exp.Add | exp.Sub) and isinstance(node.right, exp.Interval):
        column, shift = _shifted(node.left, query)
        more = interval(node.right, query)
        return column, shift + (more if isinstance(node, exp.Add) else -more)
    return None, timedelta()


def conjuncts(node: exp.Expr | None) -> Iterator[exp.Expr]:
    """Yields the conditions that AND connects."""
    if isinstance(node, exp.And):
        yield from conjuncts(node.left)
        yield from conjuncts(node.right)
    elif isinstance(node, exp.Paren):
        yield from conjuncts(node.this)
    elif node is not None:
        yield node
