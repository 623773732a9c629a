"""A narwhals expression that gives one value per row, as watermark strategies evaluate it."""

from __future__ import annotations

from typing import Final

import attrs
import narwhals as nw
import polars as pl

from beamlike.expressions.tree import columns_read, expression_text

_VALUE: Final = "__value"


@attrs.frozen
class ExpressionOfRows:
    """An expression of the user's; two with the same text are the same."""

    expression: nw.Expr = attrs.field(eq=expression_text)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it names."""
        return tuple(columns_read(self.expression))

    def evaluate(self, frame: pl.DataFrame) -> pl.Series:
        """Its value for each row. Raises a `PolarsError` where it fails."""
        # Lazy, as narwhals has errors of its own for frames.
        valued = nw.from_native(frame.lazy()).with_columns(self.expression.alias(_VALUE))
        return valued.to_native().collect()[_VALUE]

    def __str__(self) -> str:
        return expression_text(self.expression)
