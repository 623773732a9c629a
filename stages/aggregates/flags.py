"""Aggregates of Boolean columns: any and all."""

from __future__ import annotations

from typing import ClassVar

import attrs
import polars as pl

from stages.aggregates.base import OfColumn, Part, Schema


class _Flag(OfColumn):
    """The base class of `Any` and `All`. The accumulator counts the values that decide the result."""

    idempotent: ClassVar[bool] = True
    subtractable: ClassVar[bool] = True
    wants: ClassVar[str] = "a Boolean column"

    def accepts(self, dtype: pl.DataType) -> bool:
        return dtype == pl.Boolean

    def deciding(self) -> pl.Expr:
        """Returns an expression that is true for values that decide the result: true values for any, false ones for
        all.
        """
        raise NotImplementedError

    def parts(self, schema: Schema) -> dict[str, Part]:
        return {"count": Part(pl.Int64(), 0)}

    def lift(self, schema: Schema) -> dict[str, pl.Expr]:
        return {"count": self.deciding().fill_null(False).cast(pl.Int64)}

    def merge(self, acc: dict[str, pl.Expr]) -> dict[str, pl.Expr]:
        return {"count": acc["count"].sum()}


@attrs.frozen
class Any(_Flag):
    """True if at least one value is true. Nulls are ignored; false if there are no values."""

    def deciding(self) -> pl.Expr:
        return pl.col(self.column)

    def extract(self, acc: dict[str, pl.Expr], schema: Schema) -> pl.Expr:
        return acc["count"] > 0


@attrs.frozen
class All(_Flag):
    """True if no value is false. Nulls are ignored; true if there are no values."""

    def deciding(self) -> pl.Expr:
        return ~pl.col(self.column)

    def extract(self, acc: dict[str, pl.Expr], schema: Schema) -> pl.Expr:
        return acc["count"] <= 0
