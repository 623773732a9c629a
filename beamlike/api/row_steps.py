"""Steps of a collection that call a function or a condition for rows."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Self

import attrs
import narwhals as nw
import polars as pl

from beamlike.api.handle import Handle, IntoColumn
from beamlike.api.sides import SideInput, looked_at, require_takes
from beamlike.errors import PlanError, WrongType
from beamlike.expressions.describe import function_name
from beamlike.logical.sides import called
from beamlike.rows.dtypes import SchemaLike, as_schema
from beamlike.steps.base import Filter, Row
from beamlike.steps.calls import CallBatches, Calls
from beamlike.steps.infer import batches_schema, parse, predicates
from beamlike.steps.python import FlatMap, Map, MapBatches, PythonStep
from beamlike.steps.sides import Keep
from windowing.columns import PANE_COLUMNS


@attrs.frozen(eq=False, repr=False)
class RowSteps(Handle):
    """The steps of a collection that call a function or a condition for rows."""

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

    def _beside(self, step: PythonStep, side: Mapping[str, SideInput], base: str) -> Self:
        """After a step whose function looks at sides."""
        looked = looked_at(side, self.pipeline, step.name)
        require_takes(step.fn, looked, step.name)
        return self._made_beside(called(self.node, step, looked, base, self.pipeline.free))

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
