"""A narwhals expression that gives one value per row, as watermark strategies evaluate it."""

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

    def identity(self) -> Any:
        """That of the expression."""
        return expression_identity(self.expression)

    def __str__(self) -> str:
        return expression_text(self.expression)
