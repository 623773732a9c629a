"""Side inputs: other collections that functions and expressions read for each row."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import attrs
import narwhals as nw

from beamlike.api.handle import Handle
from beamlike.errors import PlanError, WrongType
from beamlike.expressions.describe import function_name
from beamlike.logical.grouping import require_keys
from beamlike.logical.joins import keys_of, require_some
from beamlike.logical.lookups import LookupColumn, LookupRequest, require_column, require_default
from beamlike.logical.registry import Registry
from beamlike.logical.sides import SideArgument, SideUse, require_limit, require_owner
from beamlike.steps.infer import flat
from beamlike.steps.sides import DictView, ListView, SingletonView, View

_NONE: Final[Any] = object()


@attrs.frozen(eq=False, repr=False, slots=False)
class SideInput:
    """A collection in the form in which a function reads it. Created by `as_singleton`, `as_list` and `as_dict`.

    Example, with the `plays` of `bl.Collection`:
        >>> bl.as_list(plays, "user")
        <list of 'plays'>
    """

    collection: Handle
    # A subclass has the side's columns as attributes, so the other attributes have names that no column is
    # likely to have.
    _view: Callable[[str], View]
    _kind: str
    _limit: int
    _growing: bool = attrs.field(default=False, kw_only=True)
    _keys: tuple[str, ...] = attrs.field(default=(), kw_only=True)

    def __repr__(self) -> str:
        return f"<{self._kind} of {self.collection.name!r}>"

    def _as_argument(self) -> SideArgument:
        """Returns the side input for the declaration of a step."""
        use = SideUse(self.collection.node, self._limit, self._growing, self._keys)
        return SideArgument(use, self._view)


@attrs.frozen(eq=False, repr=False, slots=False)
class LookupTable:
    """The row of another collection that has the same key as a row. Created by `lookup`; its columns are expressions.

    `table["amount"]` or `table.amount` is a column of that row, null if there is no such row; `table.found()` is true
    if there is one. For a column with the name of a method, write `table["found"]`.

    Example, with the `plays` of `bl.Collection`:
        >>> ages = p.read("ages", bl.Rows([{"user": "ada", "age": 36}]))
        >>> table = bl.lookup(ages, on="user")
        >>> plays.with_columns(age=table["age"]).collect()["age"].to_list()
        [36, None, 36]
    """

    _place: LookupRequest

    def __getitem__(self, column: str) -> nw.Expr:
        require_column(self._place.side, column)
        return nw.col(LookupColumn.at(self._place, column)).alias(column)

    def __getattr__(self, column: str) -> nw.Expr:
        if column.startswith("__"):
            raise AttributeError(column)
        return self[column]

    def __repr__(self) -> str:
        by = ", ".join(self._place.own)
        return f"<lookup in {self._place.side.name!r}" + (f" by {by}>" if by else ">")

    def found(self) -> nw.Expr:
        """True if the other collection has a row for the key.

        Example, with the `plays` of `bl.Collection`:
            >>> ages = p.read("ages", bl.Rows([{"user": "ada", "age": 36}]))
            >>> plays.filter(bl.lookup(ages, on="user").found()).collect()["user"].to_list()
            ['ada', 'ada']
        """
        return nw.col(LookupColumn.at(self._place, None)).alias("found")


@attrs.frozen(eq=False, repr=False, slots=False)
class Singleton(SideInput, LookupTable):
    """The only row of a collection: an argument of functions, and columns for expressions. Created by
    `as_singleton`.
    """

    _default: Any

    def __getitem__(self, column: str) -> nw.Expr:
        if self._default is not _NONE and not isinstance(self._default, Mapping):
            raise WrongType(
                f"default={self._default!r} is for functions; for an expression write a dict with values for columns, "
                f"such as default={{{column!r}: ...}}",
                step=f"lookup in {self.collection.name}",
            )
        return super().__getitem__(column)


def as_singleton(
    collection: Handle, column: str | None = None, *, default: Any = _NONE, max_bytes: int | None = None
) -> Singleton:
    """Returns the only row of a collection in a window, as a side input: a dict for a function, columns for
    expressions.

    A row goes to `dead_letters()` if the side has several rows, or if its function finds no row and no default.

    Args:
        collection: The side.
        column: A function receives the value of this column instead of a dict. In an expression, write
            `as_singleton(limits)["least"]`.
        default: Used if the side has no row. For expressions it is a dict of values by column; columns without a value
            are null.
        max_bytes: As in `as_dict`.

    Example, with the `plays` of `bl.Collection`:
        >>> best = plays.aggregate(points=bl.max("points"))
        >>> share = lambda row, best: {"share": row["points"] / best}
        >>> shares = plays.map(share, {"share": float}, side={"best": bl.as_singleton(best, "points")})
        >>> shares.collect()["share"].to_list()
        [0.6, 1.0, 0.8]
        >>> plays.filter(bl.col("points") == bl.as_singleton(best)["points"]).collect()["user"].to_list()
        ['bob']
    """
    node, limit = _collection(collection, "as_singleton").node, require_limit(max_bytes, "as_singleton")
    if column is not None:
        require_column(node, column)
    given = () if default is _NONE else (default,)
    columns = default if isinstance(default, Mapping) else {}
    if column is None:
        require_default(node, columns)
    return Singleton(
        collection=collection,
        view=partial(SingletonView, column=column, default=given),
        kind="singleton",
        limit=limit,
        place=LookupRequest(collection.pipeline, node, own=(), theirs=(), default=columns, limit=limit),
        default=default,
    )


def as_list(
    collection: Handle, column: str | None = None, *, growing: bool = False, max_bytes: int | None = None
) -> SideInput:
    """Returns all rows of a collection in a window, as a side input of a function: a list sorted by event time, then
    arrival.

    Args:
        collection: The side.
        column: The list has the values of this column instead of dicts.
        growing: As in `as_dict`.
        max_bytes: As in `as_dict`.

    Example, with the `plays` of `bl.Collection`:
        >>> rank = lambda row, all: {"rank": 1 + sum(other > row["points"] for other in all)}
        >>> plays.map(rank, {"rank": int}, side={"all": bl.as_list(plays, "points")}).collect()["rank"].to_list()
        [3, 1, 2]
    """
    node, limit = _collection(collection, "as_list").node, require_limit(max_bytes, "as_list")
    if column is not None:
        require_column(node, column)
    return SideInput(collection, partial(ListView, column=column), "list", limit, growing=growing)


def as_dict(
    collection: Handle,
    key: str | Sequence[str],
    column: str | None = None,
    *,
    growing: bool = False,
    max_bytes: int | None = None,
) -> SideInput:
    """Returns the rows of a collection in a window by key, as a side input of a function: a dict of dicts.

    Of several rows with a key, the newest by event time is used; of equal times, the last to arrive. The function must
    not change the dict. `lookup` does the same for expressions, and is much faster.

    Args:
        collection: The side.
        key: The key column, or several, whose values are then a tuple.
        column: The dict has the values of this column instead of dicts.
        growing: True adds the rows of a side in the global window as they arrive. The function reads those that are
            there, and rows wait only for the first one.
        max_bytes: The greatest size of the side's columns in bytes; 256 MB by default. Every shard keeps a copy. A
            larger side fails the run.

    Example, with the `plays` of `bl.Collection`:
        >>> ages = p.read("ages", bl.Rows([{"user": "ada", "age": 36}]))
        >>> aged = lambda row, ages: {"user": row["user"], "age": ages.get(row["user"])}
        >>> known = plays.map(aged, {"user": str, "age": int}, side={"ages": bl.as_dict(ages, "user", "age")})
        >>> known.collect()[["user", "age"]].rows()
        [('ada', 36), ('bob', None), ('ada', 36)]
    """
    node, limit = _collection(collection, "as_dict").node, require_limit(max_bytes, "as_dict")
    keys = tuple(flat([key]))
    require_some(keys, "as_dict")
    require_keys(node.schema, keys, "as_dict")
    if column is not None:
        require_column(node, column)
    view = partial(DictView, keys=keys, column=column)
    return SideInput(collection, view, "dict", limit, growing=growing, keys=keys)


def lookup(
    collection: Handle,
    on: str | Sequence[str] | None = None,
    *,
    left_on: str | Sequence[str] | None = None,
    right_on: str | Sequence[str] | None = None,
    default: Mapping[str, Any] | None = None,
    growing: bool = False,
    max_bytes: int | None = None,
) -> LookupTable:
    """Finds the row of another collection with the same key, for expressions in `with_columns`, `select` and `filter`.

    `lookup(prices, on="currency")["amount"]` is a column of the found row. A null key finds nothing. Of several rows
    with a key, the newest by event time is used; of equal times, the last to arrive.

    Args:
        collection: The other collection.
        on: The key column, or several, of the same name on both sides.
        left_on: The key columns of the rows, if the names differ.
        right_on: The key columns of the other collection, if the names differ.
        default: Values by column for rows that find nothing; null for all other columns.
        growing: As in `as_dict`.
        max_bytes: As in `as_dict`.

    Raises:
        PlanError: A column does not exist or cannot be a key.

    Example, with the `plays` of `bl.Collection`:
        >>> ages = p.read("ages", bl.Rows([{"name": "ada", "age": 36}]))
        >>> age = bl.lookup(ages, left_on="user", right_on="name", default={"age": 0})["age"]
        >>> plays.select("user", age=age).collect()[["user", "age"]].rows()
        [('ada', 36), ('bob', 0), ('ada', 36)]
    """
    node, limit = _collection(collection, "lookup").node, require_limit(max_bytes, "lookup")
    own, theirs = keys_of(on, left_on, right_on, "lookup")
    if not own:
        raise PlanError("give it a column to look up by; as_singleton is for the only row", step="lookup")
    require_keys(node.schema, theirs, "lookup")
    columns = {} if default is None else default
    if not isinstance(columns, Mapping):
        raise WrongType(f"default must be a dict of columns and values, not {default!r}", step="lookup")
    require_default(node, columns)
    return LookupTable(LookupRequest(collection.pipeline, node, own, theirs, columns, limit, growing))


def _collection(given: Any, what: str) -> Handle:
    if not isinstance(given, Handle):
        raise WrongType(f"{what} takes a collection to read, not {given!r}", step=what)
    return given


def side_arguments(side: object, pipeline: Registry, step: str) -> dict[str, SideArgument]:
    """Checks the argument `side` of a step, and returns its side inputs by keyword."""
    if not isinstance(side, Mapping) or not side:
        raise WrongType(
            f'side must be a dict such as {{"rules": bl.as_dict(rules, "id")}}, not {side!r}', step=step
        )
    for keyword, one in side.items():
        if not isinstance(keyword, str) or not keyword.isidentifier():
            raise WrongType(f"{keyword!r} cannot be a keyword of a function", step=step)
        if not isinstance(one, SideInput):
            hint = "; say in which form the function reads it" if isinstance(one, Handle) else ""
            raise WrongType(
                f"side {keyword!r} must be bl.as_dict(...), "
                f"bl.as_list(...) or bl.as_singleton(...), not {one!r}{hint}",
                step=step,
            )
        require_owner(one.collection.node, one.collection.pipeline, pipeline, step)
    return {keyword: one._as_argument() for keyword, one in side.items()}


def require_takes(function: Callable[..., Any], sides: Mapping[str, SideArgument], step: str) -> None:
    """Raises `WrongType` unless the function accepts a row and the keyword of each side input."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some builtin functions have no signature to inspect
        return
    try:
        signature.bind("row", **sides)
    except TypeError as error:
        name, keywords = function_name(function), "".join(f", {keyword}=..." for keyword in sides)
        raise WrongType(f"{name} is called as {name}(row{keywords}): {error}", step=step) from None
