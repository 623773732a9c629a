"""The step that emits a row for each item of a list."""

from __future__ import annotations

from typing import ClassVar

import attrs
import polars as pl

from beamlike.steps.base import Step


@attrs.frozen
class Explode(Step):
    """A step that emits a row for each item of the list in `column`, and none for an empty or null list.

    The column `number` counts items from 1.
    """

    kind: ClassVar[str] = "explode"
    column: str
    number: str | None = None

    @property
    def keeps_rows(self) -> bool:
        return False

    def apply(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        if self.number is None:
            return frame.explode(self.column, empty_as_null=False, keep_nulls=False)
        lengths = pl.col(self.column).list.len()
        numbered = frame.with_columns(pl.int_ranges(1, lengths + 1, dtype=pl.Int64).alias(self.number))
        return numbered.explode(self.column, self.number, empty_as_null=False, keep_nulls=False)

    def needs(self, wanted: frozenset[str]) -> frozenset[str]:
        return (wanted - {self.number}) | {self.column}

    def narrowed(self, wanted: frozenset[str]) -> Explode:
        return self if self.number in wanted else attrs.evolve(self, number=None)

    def detail(self) -> str:
        return self.column if self.number is None else f"{self.column}, numbered as {self.number}"
