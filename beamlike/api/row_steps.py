"""Steps of a collection that call a function, or evaluate a condition, for rows."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Self

import attrs
import narwhals as nw
import polars as pl

from beamlike.api.handle import Handle, IntoColumn
from beamlike.api.sides import SideInput, require_takes, side_arguments
from beamlike.errors import PlanError, WrongType
from beamlike.expressions.describe import function_name
from beamlike.logical.sides import called
from beamlike.rows.dtypes import SchemaLike, as_schema
from beamlike.rows.objects import class_of_results
from beamlike.rows.row_classes import is_row_class
from beamlike.steps.base import Filter
from beamlike.steps.calls import CallBatches, Calls
from beamlike.steps.class_checks import require_same
from beamlike.steps.declared import given, taken
from beamlike.steps.infer import batches_schema, parse, predicates
from beamlike.steps.python import FlatMap, Map, MapBatches, PythonStep
from beamlike.steps.sides import FilterByFunction
from windowing.columns import PANE_COLUMNS


@attrs.frozen(eq=False, repr=False)
class RowSteps(Handle):
    """The steps of a collection that call a function, or evaluate a condition, for rows."""

    def filter(
        self,
        *conditions: IntoColumn | Callable[..., bool],
        side: Mapping[str, SideInput] | None = None,
        name: str | None = None,
    ) -> Self:
        """Keeps the rows for which all conditions are true; a null condition removes the row.

        Args:
            *conditions: Boolean columns, by name or as expressions; or one function that returns True or False for the
                dict of a row, or for an object, as in `map`.
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
            fn = _only(conditions, name)
            takes = taken(fn, self.schema, name)
            step = FilterByFunction(name, fn, tuple(self.schema), self.schema, takes=takes)
            return self._step(step, base) if side is None else self._step_with_sides(step, side, base)
        before, given, hidden = self._with_sides(parse(conditions, {}, step=name, plain=False), name)
        passes = Filter(name, predicates(before.node.shape, given, step=name))
        # A filter that reads pane columns has chosen one of the panes that repeat earlier content, so its
        # result does not count as repeating.
        chosen = not passes.needs(frozenset()).isdisjoint(PANE_COLUMNS)
        return before._step(passes, base, hidden=hidden, repeats=self.node.repeats and not chosen)

    def map(
        self,
        fn: Callable[..., Any],
        schema: SchemaLike | None = None,
        *,
        side: Mapping[str, SideInput] | None = None,
        name: str | None = None,
    ) -> Self:
        """Calls a function for the dict of each row, and emits the dict that it returns.

        Rows keep their event time and window. A row for which `fn` raises an error or returns anything but a fitting
        dict goes to `dead_letters()`.

        If the annotations of `fn` name classes of rows (a dataclass, attrs class, NamedTuple, TypedDict or pydantic
        model), it receives and returns objects of them. A row that the class refuses goes to `dead_letters()`.

        Args:
            fn: The function. It receives the row, and each side input by its keyword.
            schema: The columns and types of the result, or their class; by default the class in the annotation of the
                result, or the columns of the input. Types are Python's (`{"user": str, "score": float}`), polars' or
                narwhals'.
            side: Other collections that `fn` reads, by the keyword under which `fn` receives them: see `bl.as_dict`,
                `bl.as_list` and `bl.as_singleton`. A row waits until the window of the side that it reads is complete,
                and holds the watermark at its time until then.
            name: The name of the step.

        Raises:
            PlanError: The schema has no columns, or a field of a class does not fit its column.

        Example, with the `plays` of `Collection`:
            >>> shouted = plays.map(lambda row: {"user": row["user"].upper()}, schema={"user": str})
            >>> shouted.collect()["user"].to_list()
            ['ADA', 'BOB', 'ADA']
            >>> from typing import NamedTuple
            >>> Score = NamedTuple("Score", [("user", str), ("points", float)])
            >>> def halved(row: Score) -> Score:
            ...     return Score(row.user, row.points / 2)
            >>> plays.map(halved)
            <Collection 'plays.map_2': user String, points Float64>
        """
        name, base = self._new_name("map", name)
        step = Map(name, **self._by_row(fn, schema, name))
        return self._step(step, base) if side is None else self._step_with_sides(step, side, base)

    def flat_map(
        self,
        fn: Callable[..., Iterable[Any]],
        schema: SchemaLike | None = None,
        *,
        side: Mapping[str, SideInput] | None = None,
        name: str | None = None,
    ) -> Self:
        """Calls a function for the dict of each row, and emits any number of dicts that it returns.

        The results keep the event time and window of their row. If `fn` raises an error or returns anything but fitting
        dicts, the row goes to `dead_letters()`, and none of its dicts is emitted.

        Args:
            fn: The function, as in `map`. Its results are objects if its annotation says so, as in `-> list[Letter]`.
            schema: The columns and types of the result, as in `map`.
            side: Side inputs of the function, as in `map`.
            name: The name of the step.

        Example, with the `plays` of `Collection`:
            >>> letters = plays.flat_map(lambda row: [{"letter": one} for one in row["user"]], schema={"letter": str})
            >>> "".join(letters.collect()["letter"])
            'adabobada'
        """
        name, base = self._new_name("flat_map", name)
        step = FlatMap(name, **self._by_row(fn, schema, name, several=True))
        return self._step(step, base) if side is None else self._step_with_sides(step, side, base)

    def map_batches(
        self,
        fn: Callable[[pl.DataFrame], pl.DataFrame] | Callable[[pl.DataFrame], Awaitable[pl.DataFrame]],
        schema: SchemaLike | None = None,
        *,
        calls: Calls | None = None,
        name: str | None = None,
    ) -> Self:
        """Calls a function for polars frames, and emits the frames that it returns. Row n of the result replaces row n
        of the input.

        If `fn` raises an error, or returns anything but a frame of the same length, all rows of the batch go to
        `dead_letters()`. If `fn` is a coroutine function (`async def`), such as a client of a service, only the rows of
        the failed call do.

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

    def _step_with_sides(self, step: PythonStep, side: Mapping[str, SideInput], base: str) -> Self:
        """Adds a step whose function reads side inputs."""
        looked = side_arguments(side, self.pipeline, step.name)
        require_takes(step.fn, looked, step.name)
        return self._made_with_helpers(called(self.node, step, looked, base, self.pipeline.free))

    def _function(
        self, fn: Callable[..., Any], schema: SchemaLike | None, step: str
    ) -> tuple[Callable[..., Any], tuple[str, ...], pl.Schema]:
        if not callable(fn):
            raise WrongType(f"expected a function, got {fn!r}", step=step)
        declared = self.schema if schema is None else as_schema(schema, step)
        if not declared:
            raise PlanError("schema= has no columns; give at least one", step=step)
        return fn, tuple(self.schema), declared

    def _by_row(
        self, fn: Callable[..., Any], schema: SchemaLike | None, step: str, *, several: bool = False
    ) -> dict[str, Any]:
        """Returns the arguments of a step whose function is called for rows, by its annotations and its schema."""
        function, reads, declared = self._function(fn, schema, step)
        takes, gives = taken(fn, self.schema, step), given(fn, step, several=several)
        if gives is None:
            gives = schema if is_row_class(schema) else None  # type: ignore[assignment]
        elif schema is None:
            declared = as_schema(gives, step)
        else:
            require_same(gives, declared, step)
        kind = class_of_results(gives)
        return {"fn": function, "reads": reads, "schema": declared, "takes": takes, "gives": kind}


def _is_function(condition: object) -> bool:
    return callable(condition) and not isinstance(condition, nw.Expr)


def _only(conditions: Sequence[Any], step: str) -> Any:
    """Returns the only condition. Raises `PlanError` unless there is exactly one, and it is a function."""
    if len(conditions) != 1 or not _is_function(conditions[0]):
        raise PlanError(
            "a function is the only condition of a filter, and with side= there must be one; in an expression, "
            "bl.lookup(...) reads another collection",
            step=step,
        )
    return conditions[0]
