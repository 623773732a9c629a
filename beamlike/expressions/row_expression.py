"""A narwhals expression with one value per row; watermark strategies and aggregates evaluate such expressions."""

from __future__ import annotations

from typing import Any, Final

import attrs
import narwhals as nw
import polars as pl

from beamlike.expressions.tree import columns_read, expression_identity, expression_text
from windowing.identity import Declared

_VALUE: Final = "__value"


@attrs.frozen
class ExpressionOfRows(Declared):
    """An expression of a user. Expressions with equal text are equal."""

    expression: nw.Expr = attrs.field(eq=expression_text)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns that the expression reads."""
        return tuple(columns_read(self.expression))

    def evaluate(self, frame: pl.DataFrame) -> pl.Series:
        """Evaluates the expression for each row. Raises a `PolarsError` if it fails."""
        # On a lazy frame the errors are those of polars; for eager frames narwhals raises its own.
        valued = nw.from_native(frame.lazy()).with_columns(self.expression.alias(_VALUE))
        return valued.to_native().collect()[_VALUE]

    def identity(self) -> Any:
        return expression_identity(self.expression)

    def __str__(self) -> str:
        return expression_text(self.expression)
