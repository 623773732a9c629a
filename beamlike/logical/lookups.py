"""Lookups of side columns in expressions. A column to look up has a special name, which contains its lookup request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import attrs
import narwhals as nw
import polars as pl

from beamlike.errors import WrongType, unknown_column
from beamlike.expressions.tree import columns_read, with_names
from beamlike.logical.grouping import require_keys
from beamlike.logical.node import Node
from beamlike.logical.registry import Registry
from beamlike.logical.sides import NodeWithParts, SideFeeds, SideUse, require_owner
from beamlike.rows.dtypes import type_name
from beamlike.steps.infer import without_wildcards
from stages.sides.lookup import LookedUp, Lookup

LOOKUP: Final = ".lookup"
"""The suffix of a lookup stage's name. It follows the name of the step whose expressions need the lookup."""


@attrs.frozen(eq=False)
class LookupRequest:
    """A request for the row of a side in which the columns `theirs` equal the columns `own` of a row.

    Attributes:
        owner: The pipeline of the side.
        own: The key columns of the rows. Without keys, the side must have a single row, which is the result.
        default: Values by column if the side has no such row.
        limit: The greatest size of the side that a shard may store, in bytes.
        growing: True if its rows are read as they arrive.
    """

    owner: Registry
    side: Node
    own: tuple[str, ...]
    theirs: tuple[str, ...]
    default: Mapping[str, Any]
    limit: int
    growing: bool = False

    @property
    def use(self) -> SideUse:
        """The side as a step reads it."""
        return SideUse(self.side, self.limit, self.growing, self.theirs)


class LookupColumn(str):
    """The name of a looked-up column. Without `column`, its value is True if the lookup has found a row."""

    request: LookupRequest
    column: str | None
    note: ClassVar[str] = (
        "; what is looked up is a column of with_columns(...), select(...) and filter(...) only"
    )

    @classmethod
    def at(cls, request: LookupRequest, column: str | None) -> LookupColumn:
        """Creates the name of a column, such as `ages.age`, from the name of the side."""
        made = cls(f"{request.side.base}.{column or 'found'}")
        made.request, made.column = request, column
        return made


@attrs.frozen
class WithLookups:
    """A node that adds all looked-up columns to rows, and expressions that read these columns.

    `hidden` has the names of the looked-up columns.
    """

    made: NodeWithParts
    expressions: list[nw.Expr]
    hidden: tuple[str, ...]


def looked_up(
    before: Node, expressions: Sequence[nw.Expr], step: str, pipeline: Registry
) -> WithLookups | None:
    """Adds a stage for the lookups that expressions contain. Returns None if there are no lookups."""
    if not any(isinstance(name, LookupColumn) for one in expressions for name in columns_read(one)):
        return None
    whole = [without_wildcards(before.shape, one, step) for one in expressions]
    wanted = [name for one in whole for name in columns_read(one) if isinstance(name, LookupColumn)]
    # A request and column that several expressions use is looked up once, into one column.
    names: dict[tuple[LookupRequest, str | None], str] = {}
    for one in wanted:
        names.setdefault((one.request, one.column), _free_name(one, {*before.schema, *names.values()}))
    requests = list(dict.fromkeys(request for request, _ in names))
    for request in requests:
        require_owner(request.side, request.owner, pipeline, step)
        _require_request(before, request, step)
    types = {name: _type(request, column) for (request, column), name in names.items()}
    fed = SideFeeds.of(before, [request.use for request in requests], step, pipeline.free)
    lookups = tuple(_lookup(request, fed.names[request.side], names) for request in requests)
    use = LookedUp(before.schema, lookups, pl.Schema(types))
    made = fed.looking_up(use, pipeline.free(f"{step}{LOOKUP}"), before.base)

    def plain(name: str) -> str:
        return names[name.request, name.column] if isinstance(name, LookupColumn) else name

    return WithLookups(made, [with_names(one, plain) for one in whole], tuple(types))


def _free_name(wanted: LookupColumn, taken: set[str]) -> str:
    name, number = str(wanted), 2
    while name in taken:
        name, number = f"{wanted}_{number}", number + 1
    return name


def _type(request: LookupRequest, column: str | None) -> pl.DataType:
    return pl.Boolean() if column is None else request.side.schema[column]


def _lookup(
    request: LookupRequest, side: str, names: Mapping[tuple[LookupRequest, str | None], str]
) -> Lookup:
    mine = {column: name for (where, column), name in names.items() if where is request}
    columns = {name: column for column, name in mine.items() if column is not None}
    return Lookup(side, request.own, request.theirs, columns, mine.get(None), request.default)


def _require_request(before: Node, request: LookupRequest, step: str) -> None:
    """Raises `PlanError` unless rows have the key columns of the lookup, with the types of the side's keys."""
    if request.own:
        require_keys(before.schema, request.own, step)
    for own, theirs in zip(request.own, request.theirs, strict=True):
        ours, dtype = before.schema[own], request.side.schema[theirs]
        if ours != dtype:
            raise WrongType(
                f"the key {own!r} is {type_name(ours)}, and {theirs!r} of side {request.side.name!r} is "
                f"{type_name(dtype)}; cast one of them before, as with cast({{{theirs!r}: ...}})",
                step=step,
            )


def require_column(side: Node, column: str) -> None:
    """Raises `UnknownColumn` if the side lacks the column."""
    if column not in side.schema:
        raise unknown_column(column, side.schema, f"lookup in {side.name}")


def require_default(side: Node, default: Mapping[str, Any]) -> None:
    """Raises `UnknownColumn` or `WrongType` unless each column in `default` is a column of the side, with a value of
    its type.
    """
    for column, value in default.items():
        require_column(side, column)
        try:
            pl.Series([value], dtype=side.schema[column], strict=True)
        except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
            raise WrongType(
                f"the default of {column!r} is {value!r}, and the column is {type_name(side.schema[column])}",
                step=f"lookup in {side.name}",
            ) from None
