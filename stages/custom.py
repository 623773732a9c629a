"""The base class of operators that users write."""

from __future__ import annotations

from typing import Final, Self

import polars as pl

from stages.operator import Operator
from windowing.clocks import WATERMARK

REQUIRED: Final = ("inputs", "tables", "output", "step")
"""The members that every class of an operator must define."""


class CustomOperator(Operator):
    """The base class of an operator that a user writes. Experimental: later versions may change the protocol.

    A subclass must be a frozen attrs class or a frozen dataclass, and define at least `inputs`, `tables`, `output` and
    `step`. A checkpoint stores all of its attributes, and refuses an operator with other values.
    """

    def fitted(self, rows: pl.Schema) -> Self:
        """Returns the operator for a main input with the user's columns `rows`; by default, returns itself."""
        return self

    @property
    def output(self) -> pl.Schema:
        """The user's columns of the rows that `step` emits. Each row also has an event time.

        If the two columns of a window are among them, rows stay in the windows of the input.
        """
        raise NotImplementedError

    @property
    def clocks(self) -> tuple[str, ...]:
        """The names of the clocks that the operator depends on: the watermark, and the clocks of its tables."""
        return tuple(dict.fromkeys((WATERMARK, *(clock for table in self.tables for clock in table.clocks))))
