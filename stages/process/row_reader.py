"""Reads the rows of a step, one after the other, as the arguments of a user's method."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any, Final

import polars as pl

from windowing.python_rows import Objects
from windowing.python_values import dicts_of

_FIRST: Final = 128
"""The number of rows that are converted first. Reading begins anew after each cell that fails, so it is small."""
_MOST: Final = 8192
"""The greatest number of rows that are converted at once."""


class RowReader:
    """The rows of a step. They are read as dicts, or as the arguments of `objects.make`."""

    def __init__(self, rows: pl.DataFrame, objects: Objects | None) -> None:
        self.rows, self.objects = rows, objects

    def since(self, begin: int) -> Iterator[Any]:
        """Yields the rows from this position on. They are converted in slices of growing size."""
        return chain.from_iterable(self._slices(begin))

    def between(self, begin: int, end: int) -> Iterator[Any]:
        """Yields the rows from `begin` to `end` (exclusive)."""
        rows = self.rows.slice(begin, end - begin)
        return dicts_of(rows) if self.objects is None else iter(self.objects.raw(rows))

    def _slices(self, begin: int) -> Iterator[Iterator[Any]]:
        size = _FIRST
        while begin < len(self.rows):
            yield self.between(begin, begin + size)
            begin, size = begin + size, min(2 * size, _MOST)
