"""Steps before and after the grouping of a cogroup or a join: rows become structs, and pairs of structs become rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Final, Literal, Self

import attrs
import polars as pl

from beamlike.steps.base import Select, Step
from stages.joins.base import LEFT, RIGHT

How = Literal["inner", "left", "right", "full", "semi", "anti"]

_PLACE: Final = "__place"


@attrs.frozen
class AsSide(Step):
    """A step that turns a row of one side into its keys and a struct of the whole row, in the column of its side.

    The columns of other sides are null. `keys` has the row's column for each key, and `sides` the columns of each side.
    """

    kind: ClassVar[str] = "side"
    inferred: ClassVar[tuple[str, ...]] = ("sides", "kept")
    keys: Mapping[str, str]
    sides: Mapping[str, pl.Schema]
    side: str
    kept: tuple[str, ...]

    def apply(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        keys = [pl.col(own).alias(key) for key, own in self.keys.items()]
        return frame.select(*keys, *map(self._column, self.sides), *self.kept)

    def _column(self, side: str) -> pl.Expr:
        columns = self.sides[side]
        row = pl.struct(columns.names()) if side == self.side else pl.lit(None, pl.Struct(columns))
        return row.alias(side)

    def needs(self, wanted: frozenset[str]) -> frozenset[str]:
        return wanted.intersection(self.kept) | {*self.sides[self.side]}

    def narrowed(self, wanted: frozenset[str]) -> AsSide:
        return attrs.evolve(self, kept=tuple(column for column in self.kept if column in wanted))

    def detail(self) -> str:
        others = [f"{own} as {key}" for key, own in self.keys.items() if own != key]
        return ", ".join([self.side, *others])


@attrs.frozen
class Paired(Step):
    """A step that turns each pair of structs, `LEFT` and `RIGHT`, into a row. A null struct becomes nulls.

    `left` has the columns of left rows; those that are in `keys` are columns of the pair itself. `right` has the
    columns of right rows by their names in the result. `kept` are the system columns.
    """

    kind: ClassVar[str] = "pairs"
    inferred: ClassVar[tuple[str, ...]] = ("left", "kept")
    keys: tuple[str, ...]
    left: tuple[str, ...]
    right: Mapping[str, str]
    kept: tuple[str, ...]

    def apply(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        return frame.select(*self.flat(), *self.kept)

    def flat(self) -> list[pl.Expr]:
        """Returns the expressions for the columns of a row."""
        left = [pl.col(name) if name in self.keys else pl.col(LEFT).struct.field(name) for name in self.left]
        return left + [pl.col(RIGHT).struct.field(of).alias(name) for name, of in self.right.items()]

    def needs(self, wanted: frozenset[str]) -> frozenset[str]:
        return wanted.intersection(self.kept) | {*self.keys, LEFT, RIGHT}

    def narrowed(self, wanted: frozenset[str]) -> Self:
        return attrs.evolve(
            self,
            left=tuple(name for name in self.left if name in wanted),
            right={name: of for name, of in self.right.items() if name in wanted},
            kept=tuple(column for column in self.kept if column in wanted),
        )

    def detail(self) -> str:
        return f"on {', '.join(self.keys)}"


@attrs.frozen
class Matched(Paired):
    """A step that joins the rows of both sides in each group, which has them as lists of structs, `LEFT` and `RIGHT`.

    A null key matches nothing.
    """

    kind: ClassVar[str] = "join"
    inferred: ClassVar[tuple[str, ...]] = ("left", "kept", "sides")
    how: How
    sides: Mapping[str, pl.Schema]

    @property
    def keeps_rows(self) -> bool:
        return False

    def apply(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        """Returns pairs and unmatched rows, in the order of their groups."""
        parts = [
            part.select(*self.flat(), *self.kept, _PLACE)
            for part in self._parts(frame.with_row_index(_PLACE))
        ]
        return pl.concat(parts).sort(_PLACE, maintain_order=True).drop(_PLACE)

    def _parts(self, groups: pl.LazyFrame) -> Iterator[pl.LazyFrame]:
        """Yields pairs, then unmatched left rows, then unmatched right rows. Each has at most one struct per side."""
        # A grouping has one group per key, and null is such a key. In a join, a null key matches nothing.
        there = {side: pl.col(side).list.len() > 0 for side in (LEFT, RIGHT)}
        match = pl.all_horizontal(*(pl.col(key).is_not_null() for key in self.keys), *there.values())
        if self.how == "semi":
            yield self._alone(groups.filter(match), LEFT)
        elif self.how != "anti":
            yield groups.filter(match).explode(LEFT).explode(RIGHT)
        if self.how in ("left", "full", "anti"):
            yield self._alone(groups.filter(there[LEFT] & ~match), LEFT)
        if self.how in ("right", "full"):
            yield self._alone(groups.filter(there[RIGHT] & ~match), RIGHT)

    def _alone(self, groups: pl.LazyFrame, side: str) -> pl.LazyFrame:
        other = RIGHT if side == LEFT else LEFT
        nothing = pl.lit(None, pl.Struct(self.sides[other])).alias(other)
        return groups.with_columns(nothing).explode(side)

    def detail(self) -> str:
        return f"{self.how} on {', '.join(self.keys)}"


@attrs.frozen
class Newest(Select):
    """A step that returns the columns of the newest row in a group, which is a struct."""

    kind: ClassVar[str] = "latest"
