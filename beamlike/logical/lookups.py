"""Looking columns of a side up in expressions: names of columns that say where they are looked up."""

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
from beamlike.logical.sides import Fed, Made, require_owner
from beamlike.rows.dtypes import type_name
from beamlike.steps.infer import without_wildcards
from stages.sides.lookup import LookedUp, Lookup

LOOKUP: Final = ".lookup"
"""How the stage is called that is made for a step of expressions: as the step, and this."""


@attrs.frozen(eq=False)
class Place:
    """Where something is looked up: the row of a side whose keys `theirs` are what rows have in `own`.

    Without keys it is the only row of the side. `default` has values for columns where there is no such row. At most
    `limit` bytes of the side are kept in a shard. `owner` is the pipeline of the side.
    """

    owner: Registry
    side: Node
    own: tuple[str, ...]
    theirs: tuple[str, ...]
    default: Mapping[str, Any]
    limit: int


class Sought(str):
    """The name of a column that is looked up at a place; without a `column`, whether there is something."""

    place: Place
    column: str | None
    note: ClassVar[str] = (
        "; what is looked up is a column of with_columns(...), select(...) and filter(...) only"
    )

    @classmethod
    def at(cls, place: Place, column: str | None) -> Sought:
        """It reads as the side and the column."""
        made = cls(f"{place.side.base}.{column or 'found'}")
        made.place, made.column = place, column
        return made


@attrs.frozen
class Found:
    """Rows beside which everything is that expressions look up, and the expressions, which read it there.

    `hidden` are the names of what was looked up.
    """

    made: Made
    expressions: list[nw.Expr]
    hidden: tuple[str, ...]


def looked_up(before: Node, expressions: Sequence[nw.Expr], step: str, pipeline: Registry) -> Found | None:
    """What the expressions look up; None where that is nothing."""
    if not any(isinstance(name, Sought) for one in expressions for name in columns_read(one)):
        return None
    whole = [without_wildcards(before.shape, one, step) for one in expressions]
    sought = [name for one in whole for name in columns_read(one) if isinstance(name, Sought)]
    names: dict[tuple[Place, str | None], str] = {}
    for one in sought:
        names.setdefault((one.place, one.column), _free_name(one, {*before.schema, *names.values()}))
    places = list(dict.fromkeys(place for place, _ in names))
    for place in places:
        require_owner(place.side, place.owner, pipeline, step)
        _require_place(before, place, step)
    types = {name: _type(place, column) for (place, column), name in names.items()}
    fed = Fed.of(before, [(place.side, place.limit) for place in places], step, pipeline.free)
    lookups = tuple(_lookup(place, fed.names[place.side], names) for place in places)
    use = LookedUp(before.schema, lookups, pl.Schema(types))
    made = fed.looking_up(use, pipeline.free(f"{step}{LOOKUP}"), before.base)

    def plain(name: str) -> str:
        return names[name.place, name.column] if isinstance(name, Sought) else name

    return Found(made, [with_names(one, plain) for one in whole], tuple(types))


def _free_name(sought: Sought, taken: set[str]) -> str:
    name, number = str(sought), 2
    while name in taken:
        name, number = f"{sought}_{number}", number + 1
    return name


def _type(place: Place, column: str | None) -> pl.DataType:
    return pl.Boolean() if column is None else place.side.schema[column]


def _lookup(place: Place, side: str, names: Mapping[tuple[Place, str | None], str]) -> Lookup:
    mine = {column: name for (where, column), name in names.items() if where is place}
    columns = {name: column for column, name in mine.items() if column is not None}
    return Lookup(side, place.own, place.theirs, columns, mine.get(None), place.default)


def _require_place(before: Node, place: Place, step: str) -> None:
    """Rows have the keys that are looked up, of the same types."""
    if place.own:
        require_keys(before.schema, place.own, step)
    for own, theirs in zip(place.own, place.theirs, strict=True):
        ours, dtype = before.schema[own], place.side.schema[theirs]
        if ours != dtype:
            raise WrongType(
                f"the key {own!r} is {type_name(ours)}, and {theirs!r} of side {place.side.name!r} is "
                f"{type_name(dtype)}; cast one of them before, as with cast({{{theirs!r}: ...}})",
                step=step,
            )


def require_column(side: Node, column: str) -> None:
    """A column that is looked up is one of the side's."""
    if column not in side.schema:
        raise unknown_column(column, side.schema, f"lookup in {side.name}")


def require_default(side: Node, default: Mapping[str, Any]) -> None:
    """Its columns are the side's, and its values are of their types."""
    for column, value in default.items():
        require_column(side, column)
        try:
            pl.Series([value], dtype=side.schema[column], strict=True)
        except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
            raise WrongType(
                f"the default of {column!r} is {value!r}, and the column is {type_name(side.schema[column])}",
                step=f"lookup in {side.name}",
            ) from None
