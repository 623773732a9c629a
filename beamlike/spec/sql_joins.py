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
from windowing.windows import FixedWindows, GlobalWindows, SlidingWindows

_TICK: Final = timedelta(microseconds=1)
_COMPARED: Final = (exp.GT, exp.GTE, exp.LT, exp.LTE, exp.EQ)
_TURNED: Final[dict[type[exp.Expr], type[exp.Expr]]] = {
    exp.GT: exp.LT, exp.GTE: exp.LTE, exp.LT: exp.GT, exp.LTE: exp.GTE, exp.EQ: exp.EQ,
}  # fmt: skip


SIDE_KEY: Final = "sql_key_"
"""The prefix of columns with the key of one side of an outer join, which is NULL where this side is missing."""


@attrs.define
class Conditions:
    """The conditions of a join: pairs of keys, bounds of the right time minus the left time, and others.

    `windowed` has the bounds of windows that must be equal. `using` is true if the keys of both sides are one column.
    """

    left: list[str] = attrs.field(factory=list)
    right: list[str] = attrs.field(factory=list)
    low: Any = None
    high: Any = None
    windowed: set[str] = attrs.field(factory=set)
    using: bool = False
    others: list[exp.Expr] = attrs.field(factory=list)


@attrs.frozen
class Join:
    """A join of a query `select`: its left side so far, and its right side with the alias."""

    query: str
    select: exp.Select
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
        timed = found.low is not None or found.high is not None
        if not found.left:
            raise self.fault("a join needs a key: write ON with an equality of columns of both tables")
        if how not in ("inner", "semi") and others:
            raise fault(
                self.query,
                others[0],
                "an outer join may have equalities and bounds of time only; filter before",
            )
        if EVENT_TIME not in self.right.node.shape.system:
            if version is not None or timed or found.windowed:
                raise self.fault("a table without event times has no versions, bounds of time or windows")
            return self._looked_up(found, how)
        if version is not None and (timed or found.windowed):
            raise self.fault("FOR SYSTEM_TIME AS OF: a join has no bounds of time and no windows beside it")
        self._require_windows(found)
        own = self._side_keys(found, how)
        left, right = self._with_keys(own)
        options: dict[str, Any] = {"left_on": found.left, "right_on": found.right, "how": how}
        if version is not None:
            self._require_version(version)
            made = left.join_asof(right, **options)
        elif timed:
            made = self._within(left, right, found, options)
        elif found.windowed or how != "inner":
            made = left.join(right, **options)
        else:
            made = left.join(right, **options, keep_forever=True)
        scope = self.scope if how in ("semi", "anti") else self._scope(found, own)
        return self._filtered(made, scope, others)

    def _require_version(self, version: exp.Version) -> None:
        """Raises `BadQuery` unless the version of the right side is that of the left row's event time."""
        column = version.args.get("expression")
        if (
            version.args["kind"] != "AS OF"
            or not isinstance(column, exp.Column)
            or not self._is_left_time(column)
        ):
            what = " or ".join(sorted(self._left_times())) or "event_time"
            raise fault(
                self.query, version, f"FOR SYSTEM_TIME AS OF takes the event time of the left rows, {what}"
            )

    def _require_windows(self, found: Conditions) -> None:
        """Raises `BadQuery` if rows of one window would be joined with those of others, or the other way round."""
        windows = [side.windowing.windows for side in (self.left, self.right)]
        timed = (
            found.low is not None or found.high is not None or self.node.this.args.get("version") is not None
        )
        if timed or all(isinstance(one, GlobalWindows) for one in windows):
            return
        enough = 1 if all(isinstance(one, FixedWindows | SlidingWindows) for one in windows) else 2
        if len(found.windowed) < enough:
            both = "a.window_start = b.window_start AND a.window_end = b.window_end"
            raise self.fault(f"rows in windows are joined with those of the same window: write AND {both}")

    def _side_keys(self, found: Conditions, how: str) -> dict[tuple[str, str], str]:
        """Returns the columns for keys of a side that may be missing, by side ("left" or "right") and key column."""
        if found.using:
            return {}
        missing = {"left": ("right",), "right": ("left",), "full": ("left", "right")}.get(how, ())
        keys = {"left": found.left, "right": found.right}
        places = [(side, key) for side in missing for key in keys[side] if self._is_read(side, key)]
        number = sum(name.startswith(SIDE_KEY) for name in self.left.schema)
        return {place: f"{SIDE_KEY}{number + at}" for at, place in enumerate(places)}

    def _is_read(self, side: str, key: str) -> bool:
        """True if the query may read the key of a side, other than in the conditions of this join."""
        inside = {id(one) for one in self.node.walk()}
        names = {
            key,
            *(name for columns in self.scope.tables.values() for name, at in columns.items() if at == key),
        }
        return any(
            one.name in names and (side == "left") == (one.table != self.alias)
            for one in self.select.find_all(exp.Column)
            if id(one) not in inside and not isinstance(one.this, exp.Star)
        )

    def _with_keys(self, own: dict[tuple[str, str], str]) -> tuple[Collection, Collection]:
        """Adds the columns `own` to both sides."""
        made = []
        for name, side in (("left", self.left), ("right", self.right)):
            columns = {column: nw.col(key) for (of, key), column in own.items() if of == name}
            made.append(side.with_columns(**columns) if columns else side)
        left, right = made
        return left, right

    def _filtered(self, made: Collection, scope: Scope, others: list[exp.Expr]) -> tuple[Collection, Scope]:
        """Returns the rows for which the other conditions are true, with their columns."""
        scope = attrs.evolve(scope, types=made.schema)
        return made.filter(*map(scope.condition, others)) if others else made, scope

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
        found = Conditions(using=bool(self.node.args.get("using")))
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
            if self._is_window_bound(left) and self._is_window_bound(right):
                self._same_window(left, right, found)
                return
            if not (self._is_left_time(left) and self._is_right_time(right)):
                self._pair(left, right, found)
                return
        if not self._bound(left, right, kind, found):
            found.others.append(one)

    def _is_window_bound(self, column: exp.Column) -> bool:
        """True for `window_start` and `window_end`, unless a column of that side has this name."""
        if column.name not in BOUNDS:
            return False
        return column.name not in self.right.schema and self.scope.place(column.name, "", column) is None

    def _same_window(self, left: exp.Column, right: exp.Column, found: Conditions) -> None:
        if left.name != right.name:
            raise fault(self.query, left, "the windows of a join must be equal: compare starts, and ends")
        found.windowed.add(left.name)

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
        if column is None or not self._is_right_time(column):
            return False
        distance = self._distance(left, shift)
        tick = _TICK if kind in (exp.LT, exp.GT) else timedelta()
        is_low, is_high = kind in (exp.LT, exp.LTE, exp.EQ), kind in (exp.GT, exp.GTE, exp.EQ)
        if (is_low and found.low is not None) or (is_high and found.high is not None):
            raise fault(self.query, left, "a join by time has one lower and one upper bound")
        if is_low:
            found.low = distance + tick
        if is_high:
            found.high = distance - tick
        return True

    def _distance(self, left: exp.Expr, shift: timedelta) -> Any:
        """Returns the left side minus the time of its rows, as a duration or as an expression."""
        column, own = _shifted(left, self.query)
        if column is not None and self._is_left_time(column):
            return own - shift
        return self.scope.expression(left) - self._left_time() - shift

    def _left_time(self) -> nw.Expr:
        for name in sorted(times_of(self.left.node)):
            return nw.col(name)
        raise self.fault("select the column of the event time on the left side of this join, too")

    def _within(
        self, left: Collection, right: Collection, found: Conditions, options: dict[str, Any]
    ) -> Collection:
        if found.low is None or found.high is None:
            raise self.fault(
                "a join by time needs both bounds, such as b.at BETWEEN a.at AND a.at + INTERVAL '1' HOUR"
            )
        if isinstance(found.low, nw.Expr):
            raise self.fault(
                "the lower bound of a join by time must be the left time, plus or minus an INTERVAL"
            )
        return left.join(right, **options, within=(found.low, found.high))

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
        scope = self._scope(found, {})
        names = {actual: name for name, actual in scope.tables[self.alias].items() if name not in found.right}
        if names:
            made = made.with_columns(**{actual: table[name] for actual, name in names.items()})
        if how == "left":
            made, scope = self._looked_up_keys(made, scope, found, table)
        return self._filtered(made, scope, found.others)

    def _looked_up_keys(
        self, made: Collection, scope: Scope, found: Conditions, table: Any
    ) -> tuple[Collection, Scope]:
        """Adds the keys of a table that the query reads: NULL where the table has no row."""
        own = self._side_keys(found, "left")
        keys = dict(zip(found.right, found.left, strict=True))
        columns = {column: nw.when(table.found()).then(nw.col(keys[key])) for (_, key), column in own.items()}
        if not columns:
            return made, scope
        return made.with_columns(**columns), self._scope(found, own)

    def _scope(self, found: Conditions, own: dict[tuple[str, str], str]) -> Scope:
        keys = dict(zip(found.right, found.left, strict=True))
        mine = {
            name: own.get(("right", name))
            or keys.get(name)
            or (f"{name}_right" if name in self.left.schema else name)
            for name in self.right.schema
        }
        before = {
            alias: {name: own.get(("left", place), place) for name, place in columns.items()}
            for alias, columns in self.scope.tables.items()
        }
        return attrs.evolve(self.scope, tables={**before, self.alias: mine})

    def _is_right(self, node: exp.Expr) -> bool:
        """True if all columns of an expression are of the right table, and there are some."""
        columns = [*node.find_all(exp.Column)]
        return bool(columns) and all(self._of_right(one) for one in columns)

    def _of_right(self, column: exp.Column) -> bool:
        if column.table:
            return bool(column.table == self.alias)
        return column.name in self.right.schema and self.scope.place(column.name, "", column) is None

    def _is_left_time(self, column: exp.Column) -> bool:
        place = self.scope.place(column.name, column.table, column)
        return column.name == "event_time" if place is None else place in times_of(self.left.node)

    def _is_right_time(self, column: exp.Column) -> bool:
        own = column.name in self.right.schema
        return column.name in times_of(self.right.node) if own else column.name == "event_time"

    def _left_times(self) -> frozenset[str]:
        return times_of(self.left.node)

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
