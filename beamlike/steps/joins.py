"""Steps before and after a grouping that make it a cogroup or a join: rows become structs, and structs rows again."""

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
    """Gives the keys of a row, and the row itself as a struct in the column of its side; other sides are null.

    `keys` has the row's own column for each key, `sides` the columns of the rows of each side.
    """

    kind: ClassVar[str] = "side"
    inferred: ClassVar[tuple[str, ...]] = ("sides", "kept")
    keys: Mapping[str, str]
    sides: Mapping[str, pl.Schema]
    side: str
    kept: tuple[str, ...]

    def apply(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        """Keys, sides, and the system columns `kept`."""
        keys = [pl.col(own).alias(key) for key, own in self.keys.items()]
        return frame.select(*keys, *map(self._column, self.sides), *self.kept)

    def _column(self, side: str) -> pl.Expr:
        columns = self.sides[side]
        row = pl.struct(columns.names()) if side == self.side else pl.lit(None, pl.Struct(columns))
        return row.alias(side)

    def needs(self, wanted: frozenset[str]) -> frozenset[str]:
        """Whole rows."""
        return wanted.intersection(self.kept) | {*self.sides[self.side]}

    def narrowed(self, wanted: frozenset[str]) -> AsSide:
        """Without system columns that nobody wants."""
        return attrs.evolve(self, kept=tuple(column for column in self.kept if column in wanted))

    def detail(self) -> str:
        """The side, and its keys where they have other names."""
        others = [f"{own} as {key}" for key, own in self.keys.items() if own != key]
        return ", ".join([self.side, *others])


@attrs.frozen
class Paired(Step):
    """Makes rows of pairs, in which `LEFT` and `RIGHT` are structs; of a side that is null all columns are.

    `left` has the columns of left rows; those that are in `keys` are taken from the pair itself. `right` has the
    columns that are taken of right rows, by the name that they get; `kept` are the system columns.
    """

    kind: ClassVar[str] = "pairs"
    inferred: ClassVar[tuple[str, ...]] = ("left", "kept")
    keys: tuple[str, ...]
    left: tuple[str, ...]
    right: Mapping[str, str]
    kept: tuple[str, ...]

    def apply(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        """A row for each."""
        return frame.select(*self.flat(), *self.kept)

    def flat(self) -> list[pl.Expr]:
        """The columns of a row."""
        left = [pl.col(name) if name in self.keys else pl.col(LEFT).struct.field(name) for name in self.left]
        return left + [pl.col(RIGHT).struct.field(of).alias(name) for name, of in self.right.items()]

    def needs(self, wanted: frozenset[str]) -> frozenset[str]:
        """Keys and both sides."""
        return wanted.intersection(self.kept) | {*self.keys, LEFT, RIGHT}

    def narrowed(self, wanted: frozenset[str]) -> Self:
        """Without columns that nobody wants."""
        return attrs.evolve(
            self,
            left=tuple(name for name in self.left if name in wanted),
            right={name: of for name, of in self.right.items() if name in wanted},
            kept=tuple(column for column in self.kept if column in wanted),
        )

    def detail(self) -> str:
        """By what."""
        return f"on {', '.join(self.keys)}"


@attrs.frozen
class Matched(Paired):
    """Joins the rows of the two sides of a group: `LEFT` and `RIGHT` are lists of structs.

    Where a key is null, nothing matches.
    """

    kind: ClassVar[str] = "join"
    inferred: ClassVar[tuple[str, ...]] = ("left", "kept", "sides")
    how: How
    sides: Mapping[str, pl.Schema]

    @property
    def keeps_rows(self) -> bool:
        """Perhaps no row has a match, or all have."""
        return False

    def apply(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        """Pairs and rows without a match, in the order of their groups."""
        parts = [
            part.select(*self.flat(), *self.kept, _PLACE)
            for part in self._parts(frame.with_row_index(_PLACE))
        ]
        return pl.concat(parts).sort(_PLACE, maintain_order=True).drop(_PLACE)

    def _parts(self, groups: pl.LazyFrame) -> Iterator[pl.LazyFrame]:
        """Rows with one struct of each side: the pairs, then left rows alone, then right rows alone."""
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
        nobody = pl.lit(None, pl.Struct(self.sides[other])).alias(other)
        return groups.with_columns(nobody).explode(side)

    def detail(self) -> str:
        """How, and by what."""
        return f"{self.how} on {', '.join(self.keys)}"


@attrs.frozen
class Newest(Select):
    """The columns of the newest row of a group, which is a struct there."""

    kind: ClassVar[str] = "latest"
