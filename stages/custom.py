"""The base class of operators that users write."""

from __future__ import annotations

from typing import Final, Self

import polars as pl

from stages.operator import Operator
from windowing.clocks import WATERMARK

REQUIRED: Final = ("inputs", "tables", "output", "step")
"""The members that every class of an operator must define."""


class CustomOperator(Operator):
    """The base class of an operator of a user's own. Experimental: later versions may change the protocol.

    A subclass is a frozen attrs class or a frozen dataclass, and defines at least `inputs`, `tables`, `output` and
    `step`. All attributes that it is made with tell a checkpoint which operator it is.
    """

    def fitted(self, rows: pl.Schema) -> Self:
        """Returns the operator for a main input with these user's columns; by default, itself."""
        return self

    @property
    def output(self) -> pl.Schema:
        """The user's columns of the rows that `step` emits, which also have an event time.

        With the two columns of a window among them, rows stay in the windows of the input.
        """
        raise NotImplementedError

    @property
    def clocks(self) -> tuple[str, ...]:
        """The watermark, and the clocks of the tables."""
        return tuple(dict.fromkeys((WATERMARK, *(clock for table in self.tables for clock in table.clocks))))
