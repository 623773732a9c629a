"""The step after a join by time: pairs of structs become rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import attrs
import polars as pl

from beamlike.steps.base import Step
from beamlike.steps.joins import LEFT, RIGHT


@attrs.frozen
class Paired(Step):
    """Makes rows of pairs: `left` has the columns of left rows, those in `keys` are taken from the pair itself.

    `right` has the columns that are taken of right rows, by the name that they get.
    """

    kind: ClassVar[str] = "pairs"
    keys: tuple[str, ...]
    left: tuple[str, ...]
    right: Mapping[str, str]
    kept: tuple[str, ...]

    def apply(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        """A row for each; of a side that is null all columns are."""
        left = [name if name in self.keys else pl.col(LEFT).struct.field(name) for name in self.left]
        right = [pl.col(RIGHT).struct.field(of).alias(name) for name, of in self.right.items()]
        return frame.select(*left, *right, *self.kept)

    def needs(self, wanted: frozenset[str]) -> frozenset[str]:
        """Keys and both sides."""
        return wanted.intersection(self.kept) | {*self.keys, LEFT, RIGHT}

    def narrowed(self, wanted: frozenset[str]) -> Paired:
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
