"""The step after a source that is read repeatedly. It turns each reading into rows."""

from __future__ import annotations

from typing import ClassVar

import attrs
import polars as pl

from beamlike.io.refreshed import CONTENT
from beamlike.steps.base import Step
from windowing.columns import EVENT_TIME


@attrs.frozen
class RowsOfReadings(Step):
    """A step that emits the rows of each reading, with the time of the reading."""

    kind: ClassVar[str] = "rows"
    inferred: ClassVar[tuple[str, ...]] = ("columns",)
    columns: tuple[str, ...]

    @property
    def keeps_rows(self) -> bool:
        return False

    def apply(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        row = pl.col(CONTENT)
        exploded = frame.select(CONTENT, EVENT_TIME).explode(CONTENT).filter(row.is_not_null())
        return exploded.select(*(row.struct.field(name) for name in self.columns), EVENT_TIME)

    def needs(self, wanted: frozenset[str]) -> frozenset[str]:
        return frozenset({CONTENT, EVENT_TIME})

    def narrowed(self, wanted: frozenset[str]) -> RowsOfReadings:
        return attrs.evolve(self, columns=tuple(name for name in self.columns if name in wanted))

    def detail(self) -> str:
        return ", ".join(self.columns)
