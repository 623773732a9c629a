"""A growing source, read by runs in process that are interrupted; records the rows of each batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

import beamlike as bl


class Followed:
    """Runs with one checkpoint; each begins with a new declaration of `source`."""

    def __init__(self, source: Callable[[], Any], folder: Path, column: str = "n") -> None:
        self.source, self.checkpoint, self.column = source, str(folder / "checkpoint"), column
        self.batches: dict[int, list[Any]] = {}

    def run(self, dies_in: int | None = None, rows: int = 1000) -> list[list[Any]]:
        """Runs until the source is empty or batch `dies_in` fails; returns the rows of all batches so far."""

        def take(frame: pl.DataFrame, batch: int) -> None:
            self.batches[batch] = frame[self.column].to_list()
            if batch == dies_in:
                raise InterruptedError("the process is gone")

        p = bl.Pipeline("followed")
        p.read("rows", self.source()).write("out", bl.Callback(take))
        try:
            p.run(bl.LocalRunner(checkpoint=self.checkpoint, chunk_rows=rows))
        except Exception as error:
            if dies_in is None or "the process is gone" not in str(error):
                raise
        return [self.batches[batch] for batch in sorted(self.batches)]
