"""A source whose batches are given bundles of rows, from which a run can also be continued."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import attrs
import polars as pl

from beamlike.io.sources import PlannedBatch, Position
from beamlike.system.datasets import Dataset

_BUNDLE: Final = "bundle"


@attrs.frozen(eq=False)
class Bundles:
    """A bounded source each of whose batches is one of the `frames`."""

    frames: tuple[pl.DataFrame, ...]

    bounded = True

    def schema(self) -> pl.Schema:
        """Returns the columns of the rows."""
        return self.frames[0].schema

    def datasets(self) -> list[Dataset]:
        """No dataset, since the rows are part of the program."""
        return []

    def chunks(self, rows: int) -> Iterator[pl.LazyFrame]:
        """Yields the bundles, whatever their number of rows."""
        return (frame.lazy() for frame in self.frames)

    def resume(self, position: Position, rows: int) -> BundlesReader:
        """Returns a reader of the bundles that are not read at this position."""
        return BundlesReader(self, position.get(_BUNDLE, 0))


@attrs.define
class BundlesReader:
    """A reader of bundles from a number on."""

    source: Bundles
    next: int

    def new(self) -> PlannedBatch | None:
        """Returns the next bundle, if there is one."""
        count = len(self.source.frames)
        if self.next >= count:
            return None
        return PlannedBatch(self.next, {_BUNDLE: self.next + 1}, self.next + 1 < count)

    def read(self, batch: PlannedBatch) -> pl.LazyFrame:
        """Returns the rows of a bundle."""
        self.next = batch.input + 1
        frame: pl.DataFrame = self.source.frames[batch.input]
        return frame.lazy()

    def close(self) -> None:
        """Does nothing, as nothing is open."""
