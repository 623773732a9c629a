"""Side inputs as users write them: what rows look at of another collection, in functions and in expressions."""

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
from beamlike.logical.lookups import Place, Sought, require_column, require_default
from beamlike.logical.registry import Registry
from beamlike.logical.sides import Looked, require_limit, require_owner
from beamlike.steps.infer import flat
from beamlike.steps.sides import DictView, ListView, SingletonView, View

_NONE: Final[Any] = object()


@attrs.frozen(eq=False, repr=False, slots=False)
class SideInput:
    """What a function looks at of a collection: made by `as_singleton`, `as_list` and `as_dict`.

    Example, with the `plays` of `bl.Collection`:
        >>> bl.as_list(plays, "user")
        <list of 'plays'>
    """

    collection: Handle
    # A singleton has columns as attributes, too, so those of its own have names that columns rarely have.
    _view: Callable[[str], View]
    _kind: str
    _limit: int

    def __repr__(self) -> str:
        return f"<{self._kind} of {self.collection.name!r}>"

    def _looked(self) -> Looked:
        """As steps are told it."""
        node = self.collection.node
        return Looked(node, self._limit, self._view)


@attrs.frozen(eq=False, repr=False, slots=False)
class LookupTable:
    """The row of another collection that a row finds by its key: made by `lookup`. Its columns are expressions.

    `table["amount"]` or `table.amount` is a column of that row, null where there is none; `table.found()` says whether
    there is one. A column that is called as what a table has itself, such as `found`, is `table["found"]`.

    Example, with the `plays` of `bl.Collection`:
        >>> ages = p.read("ages", bl.Rows([{"user": "ada", "age": 36}]))
        >>> table = bl.lookup(ages, on="user")
        >>> plays.with_columns(age=table["age"]).collect()["age"].to_list()
        [36, None, 36]
    """

    _place: Place

    def __getitem__(self, column: str) -> nw.Expr:
        require_column(self._place.side, column)
        return nw.col(Sought.at(self._place, column)).alias(column)

    def __getattr__(self, column: str) -> nw.Expr:
        if column.startswith("__"):
            raise AttributeError(column)
        return self[column]

    def __repr__(self) -> str:
        by = ", ".join(self._place.own)
        return f"<lookup in {self._place.side.name!r}" + (f" by {by}>" if by else ">")

    def found(self) -> nw.Expr:
        """Whether there is a row, as Boolean.

        Example, with the `plays` of `bl.Collection`:
            >>> ages = p.read("ages", bl.Rows([{"user": "ada", "age": 36}]))
            >>> plays.filter(bl.lookup(ages, on="user").found()).collect()["user"].to_list()
            ['ada', 'ada']
        """
        return nw.col(Sought.at(self._place, None)).alias("found")


@attrs.frozen(eq=False, repr=False, slots=False)
class Singleton(SideInput, LookupTable):
    """The only row of a collection, for functions and, by its columns, for expressions: made by `as_singleton`."""

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
    """The only row that a collection has in a window: a dict for a function, or the value of `column` in it.

    In an expression, `as_singleton(limits)["least"]` is a column of that row. `default` is what there is instead where
    the collection has no row; for an expression it is a dict with values for columns, and those without one are null.
    Rows that look at a side with several rows go to `dead_letters()`; so do those for whose function there is no row
    and no default. `max_bytes` is as in `as_dict`.

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
        place=Place(collection.pipeline, node, (), (), columns, limit),
        default=default,
    )


def as_list(collection: Handle, column: str | None = None, *, max_bytes: int | None = None) -> SideInput:
    """All rows that a collection has in a window, for a function: a list of dicts, or of the values of `column`.

    They are in order of event time, and those of one time as they came. `max_bytes` is as in `as_dict`.

    Example, with the `plays` of `bl.Collection`:
        >>> rank = lambda row, all: {"rank": 1 + sum(other > row["points"] for other in all)}
        >>> plays.map(rank, {"rank": int}, side={"all": bl.as_list(plays, "points")}).collect()["rank"].to_list()
        [3, 1, 2]
    """
    node, limit = _collection(collection, "as_list").node, require_limit(max_bytes, "as_list")
    if column is not None:
        require_column(node, column)
    return SideInput(collection, partial(ListView, column=column), "list", limit)


def as_dict(
    collection: Handle, key: str | Sequence[str], column: str | None = None, *, max_bytes: int | None = None
) -> SideInput:
    """The rows that a collection has in a window, by key, for a function: a dict of dicts or of values of `column`.

    `key` is a column, or several whose values are a tuple then. Of rows with one key the newest counts, and of those of
    one event time the one that came last. The function must not change what it is given. Every shard keeps a copy of
    the side; one that takes more than `max_bytes` (256 MB without it) of columns fails the run. For columns of
    expressions, `lookup` is much faster.

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
    return SideInput(collection, partial(DictView, keys=keys, column=column), "dict", limit)


def lookup(
    collection: Handle,
    on: str | Sequence[str] | None = None,
    *,
    left_on: str | Sequence[str] | None = None,
    right_on: str | Sequence[str] | None = None,
    default: Mapping[str, Any] | None = None,
    max_bytes: int | None = None,
) -> LookupTable:
    """The row of another collection with the same key, for expressions in `with_columns`, `select` and `filter`.

    `on` is a column, or several, that rows and the collection have; or `left_on` is that of the rows and `right_on`
    that of the collection. `lookup(prices, on="currency")["amount"]` is a column of what is found; where nothing is, it
    is null, or the value that `default` has for it. Null finds nothing. Of rows with one key the newest counts, and of
    those of one event time the one that came last. `max_bytes` is as in `as_dict`. Raises `PlanError` for a column that
    is not there or cannot be a key.

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
    return LookupTable(Place(collection.pipeline, node, own, theirs, columns, limit))


def _collection(given: Any, what: str) -> Handle:
    if not isinstance(given, Handle):
        raise WrongType(f"{what} takes a collection to look at, not {given!r}", step=what)
    return given


def looked_at(side: object, pipeline: Registry, step: str) -> dict[str, Looked]:
    """What a function is given, by keyword."""
    if not isinstance(side, Mapping) or not side:
        raise WrongType(
            f'side must be a dict such as {{"rules": bl.as_dict(rules, "id")}}, not {side!r}', step=step
        )
    for keyword, one in side.items():
        if not isinstance(keyword, str) or not keyword.isidentifier():
            raise WrongType(f"{keyword!r} cannot be a keyword of a function", step=step)
        if not isinstance(one, SideInput):
            hint = "; say how it is looked at" if isinstance(one, Handle) else ""
            raise WrongType(
                f"side {keyword!r} must be bl.as_dict(...), "
                f"bl.as_list(...) or bl.as_singleton(...), not {one!r}{hint}",
                step=step,
            )
        require_owner(one.collection.node, one.collection.pipeline, pipeline, step)
    return {keyword: one._looked() for keyword, one in side.items()}


def require_takes(function: Callable[..., Any], sides: Mapping[str, Looked], step: str) -> None:
    """It can be called with a row, and each side by its keyword."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some builtins do not tell
        return
    try:
        signature.bind("row", **sides)
    except TypeError as error:
        name, keywords = function_name(function), "".join(f", {keyword}=..." for keyword in sides)
        raise WrongType(f"{name} is called as {name}(row{keywords}): {error}", step=step) from None
