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
from beamlike.steps.sides import FilterByFunction
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
        """Keeps the rows for which all conditions are true; a null condition removes the row.

        Args:
            *conditions: Boolean columns, by name or as expressions; or one function that returns True or False for the
                dict of a row.
            side: Side inputs of the function, as in `map`.
            name: The name of the step.

        Raises:
            PlanError: A column does not exist, or a condition is not Boolean.

        Example, with the `plays` of `Collection`:
            >>> plays.filter(bl.col("points") > 3, bl.col("user") == "ada").collect()["points"].to_list()
            [4]
        """
        name, base = self._new_name("filter", name)
        if side is not None or any(map(_is_function, conditions)):
            step = FilterByFunction(name, *self._function(_only(conditions, name), None, name))
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
        """Calls a function for the dict of each row, and emits the dict that it returns.

        Rows keep their event time and window. A row for which `fn` raises an error or returns anything but a fitting
        dict goes to `dead_letters()`.

        Args:
            fn: The function. It receives the row, and each side input by its keyword.
            schema: The columns and types of the result; by default those of the input. Types are Python's (`{"user":
                str, "score": float}`), polars' or narwhals'.
            side: Other collections that `fn` reads, by the keyword under which `fn` receives them: see `bl.as_dict`,
                `bl.as_list` and `bl.as_singleton`. A row waits until the window of the side that it reads is complete,
                and holds the watermark at its time until then.
            name: The name of the step.

        Raises:
            PlanError: The schema has no columns.

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
        """Calls a function for the dict of each row, and emits any number of dicts that it returns.

        The results keep the event time and window of their row. If `fn` raises an error or returns anything but fitting
        dicts, the row goes to `dead_letters()`, and none of its dicts is emitted.

        Args:
            fn: The function. It receives the row, and each side input by its keyword.
            schema: The columns and types of the result, as in `map`.
            side: Side inputs of the function, as in `map`.
            name: The name of the step.

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
        """Calls a function for polars frames, and emits the frames of equal length that it returns, row for row.

        If `fn` raises an error or returns anything else, all rows of the batch go to `dead_letters()`. If `fn` is a
        coroutine function (`async def`), such as a client of a service, only the rows of the failed call do.

        Args:
            fn: The function. It may also return an Arrow table.
            schema: The columns and types of the result, as in `map`. Without it, `fn` is called with an empty frame to
                infer them; a coroutine function needs it.
            calls: For a coroutine function: the number of rows a call, the number of concurrent calls, the timeout and
                the retries.
            name: The name of the step.

        Raises:
            PlanError: `fn` fails on the empty frame.

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
        """Applies a step whose function reads side inputs."""
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
    """The only condition, which must be a function."""
    if len(conditions) != 1 or not _is_function(conditions[0]):
        raise PlanError(
            "a function is the only condition of a filter, and with side= there must be one; in an expression, "
            "bl.lookup(...) looks at another collection",
            step=step,
        )
    return conditions[0]
