"""The steps of a collection that look at each row for itself: what every row keeps, loses or becomes."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from typing import Any, Self

import attrs
import narwhals as nw
import polars as pl

from beamlike.api.handle import Handle
from beamlike.api.sides import SideInput, looked_at, require_takes
from beamlike.errors import PlanError, WrongType
from beamlike.expressions.describe import function_name
from beamlike.logical.lookups import looked_up
from beamlike.logical.node import Node
from beamlike.logical.origins import Read
from beamlike.logical.side_nodes import made_for
from beamlike.logical.sides import called
from beamlike.rows.dtypes import SchemaLike, as_schema
from beamlike.steps.base import Filter, Row, Select, WithColumns
from beamlike.steps.calls import CallBatches, Calls
from beamlike.steps.columns import casts, renamed, require_lists, unnested, without
from beamlike.steps.infer import batches_schema, expressions, outputs, parse, predicates
from beamlike.steps.lists import Explode
from beamlike.steps.python import FlatMap, Map, MapBatches, PythonStep
from beamlike.steps.sides import Keep
from windowing.columns import PANE_COLUMNS

IntoColumn = str | nw.Expr


@attrs.frozen(eq=False, repr=False)
class RowSteps(Handle):
    """What can be done with the rows of a collection one by one."""

    def named(self, name: str) -> Self:
        """The same collection with this name for its step: names appear in errors, metrics, plans and state.

        What has been made of it before, a sink among that, is made of the step of this name, too. Raises `PlanError`
        where the name is taken, and for a source, whose name is given in `read`.

        Example, with the `plays` of `Collection`:
            >>> plays.select("user").named("users").name
            'users'
        """
        node = self.pipeline.latest(self.node)
        if isinstance(node.origin, Read):
            raise PlanError(
                "the name of a source is given in read(...) or with_watermark(...)", step=self.name
            )
        self.pipeline.new_name(
            name, ""
        )  # if one is called so that nobody has named, even this one, it makes way
        node = self.pipeline.latest(node)
        after: Node = attrs.evolve(node.called(name), base=name)
        self.pipeline.rename(node, after)
        for made in [self.pipeline.latest(made) for made in made_for(node)]:
            rest = made.name.removeprefix(node.name)
            self.pipeline.rename(made, made.called(self.pipeline.free(f"{name}{rest}")))
        return type(self)(self.pipeline, after)

    def filter(
        self,
        *conditions: IntoColumn | Callable[..., bool],
        side: Mapping[str, SideInput] | None = None,
        name: str | None = None,
    ) -> Self:
        """The rows for which all conditions are true; where one is null, the row is left out.

        `conditions` are Boolean columns, by name or as expressions, and `name` is that of the step. Or there is one
        condition, a function that gives True or False for the dict of a row; it may look at a `side`, which is as in
        `map`. Raises `PlanError` for a column that is not there and for a condition that is not Boolean.

        Example, with the `plays` of `Collection`:
            >>> plays.filter(bl.col("points") > 3, bl.col("user") == "ada").collect()["points"].to_list()
            [4]
        """
        name, base = self._new_name("filter", name)
        if side is not None or any(map(_is_function, conditions)):
            step = Keep(name, *self._function(_only(conditions, name), None, name))
            return self._step(step, base) if side is None else self._beside(step, side, base)
        before, given, hidden = self._with_sides(parse(conditions, {}, step=name, plain=False), name)
        passes = Filter(name, predicates(before.node.shape, given, step=name))
        # Who looks at what sort of pane a row is has chosen which to take of those that repeat each other.
        chosen = not passes.needs(frozenset()).isdisjoint(PANE_COLUMNS)
        return before._step(passes, base, hidden=hidden, repeats=self.node.repeats and not chosen)

    def select(self, *columns: IntoColumn, **named: Any) -> Self:
        """Rows of only these columns: names or expressions. A keyword names its column; see also `named`.

        Event time, window and pane stay: they are no columns of the user's. Raises `PlanError` for a column that is
        not there, a name that comes twice, and an expression that looks at more than one row.

        Example, with the `plays` of `Collection`:
            >>> plays.select("user", double=bl.col("points") * 2)
            <Collection 'plays.select': user String, double Int64>
        """
        step, base = self._new_name("select")
        before, given, _ = self._with_sides(parse(columns, named, step=step), step)
        return before._select(expressions(before.node.shape, given, {}, step=step), step, base)

    def drop(self, *columns: str) -> Self:
        """The rows without these columns. Event time, window and pane stay: they are no columns of the user's.

        Raises `PlanError` for a column that is not there, and where none would be left.

        Example, with the `plays` of `Collection`:
            >>> plays.drop("at")
            <Collection 'plays.drop': user String, points Int64>
        """
        step, base = self._new_name("drop")
        left = without(self.schema, columns, step)
        return self._select(expressions(self.node.shape, left, {}, step=step), step, base)

    def rename(self, names: Mapping[str, str]) -> Self:
        """The rows with columns renamed; the others stay, and all keep their places.

        `names` has the new name for each old one. Raises `PlanError` for a column that is not there or a name that is
        taken.

        Example, with the `plays` of `Collection`:
            >>> plays.rename({"points": "score"})
            <Collection 'plays.rename': user String, score Int64, at String>
        """
        step, base = self._new_name("rename")
        chosen = renamed(self.schema, names, step)
        return self._select(expressions(self.node.shape, chosen, {}, step=step), step, base)

    def with_columns(self, *columns: IntoColumn, **named: Any) -> Self:
        """The rows with these columns added or replaced. A keyword names its column; see also `named`.

        Expressions may look at another collection: see `bl.lookup`. Raises `PlanError` for a column that is not there,
        and for an expression that looks at more than one row.

        Example, with the `plays` of `Collection`:
            >>> plays.with_columns(won=bl.col("points") > 3).collect()["won"].to_list()
            [False, True, True]
        """
        step, base = self._new_name("with_columns")
        before, given, hidden = self._with_sides(parse(columns, named, step=step), step)
        chosen = expressions(before.node.shape, given, {}, step=step)
        return before._with_columns(chosen, step, base, hidden)

    def explode(self, column: str, *, number: str | None = None) -> Self:
        """A row for each item of the list in `column`, with the other columns beside it; an empty list gives none.

        `number` names a new column, which counts the items of each list from 1. Raises `PlanError` for a column that
        is not there or has no lists, and for a name that is taken.

        Example, with the `plays` of `Collection`:
            >>> days = plays.window_into(bl.FixedWindows("1d")).aggregate(user=bl.top("user", 2, by="points"))
            >>> days.explode("user", number="rank").collect()[["rank", "user"]].rows()
            [(1, 'bob'), (2, 'ada')]
        """
        name, base = self._new_name("explode")
        require_lists(self.schema, column, number, name)
        return self._step(Explode(name, column, number), base)

    def unnest(self, column: str) -> Self:
        """The rows with a column for each field of the structs in `column`, in its place.

        Raises `PlanError` for a column that is not there or has no structs, and for a field whose name is taken.

        Example, with the `plays` of `Collection`:
            >>> days = plays.window_into(bl.FixedWindows("1d"))
            >>> best = days.aggregate(best=bl.arg_max(["user", "points"], by="points")).unnest("best")
            >>> best.collect()[["user", "points"]].rows()
            [(\'bob\', 5)]
        """
        step, base = self._new_name("unnest")
        return self._select(
            expressions(self.node.shape, unnested(self.schema, column, step), {}, step=step), step, base
        )

    def cast(self, types: SchemaLike) -> Self:
        """The rows with columns of other types, which `types` has by name; see `map` for how types are written.

        A row with a value that its new type cannot hold goes to `dead_letters()`. Raises `PlanError` for a column
        that is not there, and for a type that the column's can never become.

        Example, with the `plays` of `Collection`:
            >>> plays.cast({"points": float})
            <Collection 'plays.cast': user String, points Float64, at String>
        """
        step, base = self._new_name("cast")
        chosen = casts(self.schema, types, step)
        return self._with_columns(expressions(self.node.shape, chosen, {}, step=step), step, base)

    def map(
        self,
        fn: Callable[..., Row],
        schema: SchemaLike | None = None,
        *,
        side: Mapping[str, SideInput] | None = None,
        name: str | None = None,
    ) -> Self:
        """The dicts that `fn` gives, one for the dict of each row; rows keep their event time and window.

        `schema` has the columns and types of the result, where they are others than before. Types are Python's
        (`{"user": str, "score": float}`), polars' or narwhals'. `name` is that of the step. A row that `fn` raises
        on, or for which it gives something else, goes to `dead_letters()`. Raises `PlanError` for a schema without
        columns.

        `side` has other collections that `fn` looks at, by the keyword with which it is given them: see `bl.as_dict`,
        `bl.as_list` and `bl.as_singleton`. A row then waits until the window of the side that it looks at is there, and
        holds the watermark at its time until then.

        Example, with the `plays` of `Collection`:
            >>> shouted = plays.map(lambda row: {"user": row["user"].upper()}, schema={"user": str})
            >>> shouted.collect()["user"].to_list()
            ['ADA', 'BOB', 'ADA']
        """
        name, base = self._new_name("map", name)
        step = Map(name, *self._function(fn, schema, name))
        return self._step(step, base) if side is None else self._beside(step, side, base)

    def flat_map(
        self,
        fn: Callable[..., Iterable[Row]],
        schema: SchemaLike | None = None,
        *,
        side: Mapping[str, SideInput] | None = None,
        name: str | None = None,
    ) -> Self:
        """The dicts that `fn` gives, any number for the dict of each row; they keep its event time and window.

        `schema`, `side` and `name` are as in `map`. A row that `fn` raises on, or for which it gives something else,
        goes to `dead_letters()`, with all its dicts.

        Example, with the `plays` of `Collection`:
            >>> letters = plays.flat_map(lambda row: [{"letter": one} for one in row["user"]], schema={"letter": str})
            >>> "".join(letters.collect()["letter"])
            'adabobada'
        """
        name, base = self._new_name("flat_map", name)
        step = FlatMap(name, *self._function(fn, schema, name))
        return self._step(step, base) if side is None else self._beside(step, side, base)

    def map_batches(
        self,
        fn: Callable[[pl.DataFrame], pl.DataFrame] | Callable[[pl.DataFrame], Awaitable[pl.DataFrame]],
        schema: SchemaLike | None = None,
        *,
        calls: Calls | None = None,
        name: str | None = None,
    ) -> Self:
        """The polars frames that `fn` gives, each for a frame of the same length, row for row.

        `fn` may give an Arrow table as well. Without `schema` (see `map`), it is called with an empty frame to find
        it; `name` is that of the step. Where `fn` raises, or gives something else, all rows of that batch go to
        `dead_letters()`. Where `fn` is a coroutine function (`async def`), such as one that asks a service, `calls`
        says for how many rows it is called, how often at the same time, for how long, and how often again; it needs a
        schema, and only the rows of a call that fails are dead letters. Raises `PlanError` where `fn` fails on the
        empty frame.

        Example, with the `plays` of `Collection`:
            >>> plays.map_batches(lambda frame: frame.select("user")).collect()["user"].to_list()
            ['ada', 'bob', 'ada']
        """
        name, base = self._new_name("map_batches", name)
        if inspect.iscoroutinefunction(fn):
            if schema is None:
                raise PlanError("give schema=, as a service is not called to find it", step=name)
            if not isinstance(calls, Calls | None):
                raise WrongType(f"calls= must be bl.Calls(...), not {calls!r}", step=name)
            called = CallBatches(name, *self._function(fn, schema, name), calls or Calls())
            return self._step(called, base, infer=False)
        if calls is not None:
            raise PlanError(
                f"calls= is for coroutine functions, and {function_name(fn)} is none: write it as async def",
                step=name,
            )
        step = MapBatches(name, *self._function(fn, schema, name))
        if schema is None:
            step = attrs.evolve(step, schema=batches_schema(self.node.shape, step))
        return self._step(step, base, infer=False)

    def _select(self, chosen: tuple[nw.Expr, ...], step: str, base: str) -> Self:
        return self._step(Select(step, chosen, self._names(chosen, step), self.node.shape.system), base)

    def _with_columns(
        self, chosen: tuple[nw.Expr, ...], step: str, base: str, hidden: Container[str] = ()
    ) -> Self:
        return self._step(WithColumns(step, chosen, self._names(chosen, step)), base, hidden=hidden)

    def _with_sides(self, given: list[nw.Expr], step: str) -> tuple[Self, Sequence[nw.Expr], Container[str]]:
        """These rows with all that expressions look up beside them, which is hidden later, and the expressions."""
        found = looked_up(self.node, given, step, self.pipeline)
        if found is None:
            return self, given, ()
        return self._made_beside(found.made), found.expressions, found.hidden

    def _beside(self, step: PythonStep, side: Mapping[str, SideInput], base: str) -> Self:
        """After a step whose function looks at sides."""
        looked = looked_at(side, self.pipeline, step.name)
        require_takes(step.fn, looked, step.name)
        return self._made_beside(called(self.node, step, looked, base, self.pipeline.free))

    def _names(self, chosen: tuple[nw.Expr, ...], step: str) -> tuple[tuple[str, ...], ...]:
        """The columns that each expression gives."""
        return tuple(tuple(schema) for schema in outputs(self.node.shape, chosen, step=step))

    def _function(
        self, fn: Callable[..., Any], schema: SchemaLike | None, step: str
    ) -> tuple[Callable[..., Any], tuple[str, ...], pl.Schema]:
        if not callable(fn):
            raise WrongType(f"expected a function, got {fn!r}", step=step)
        declared = self.schema if schema is None else as_schema(schema, step)
        if not declared:
            raise PlanError("schema= has no columns; give at least one", step=step)
        return fn, tuple(self.schema), declared


def _is_function(condition: object) -> bool:
    return callable(condition) and not isinstance(condition, nw.Expr)


def _only(conditions: Sequence[Any], step: str) -> Any:
    """The function, which is alone."""
    if len(conditions) != 1 or not _is_function(conditions[0]):
        raise PlanError(
            "a function is the only condition of a filter, and with side= there must be one; in an expression, "
            "bl.lookup(...) looks at another collection",
            step=step,
        )
    return conditions[0]
