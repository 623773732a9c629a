"""Aggregates that choose rows: those with the greatest or the least of something, or at random."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import attrs
import polars as pl

from stages.aggregates.base import COMPARABLE, Aggregate, Part, Schema, alike, is_comparable
from stages.aggregates.lists import GROUP, merged, only
from stages.keys import key_hash
from windowing.columns import EVENT_TIME

_ROWS: Final = "rows"
_BY: Final = "by"
_VALUE: Final = "value"


def _one_or_several(given: Any) -> Any:
    return tuple(given) if isinstance(given, list | tuple) else given


def _is_number_of_rows(owner: Aggregate, attribute: attrs.Attribute[Any], value: object) -> None:
    what = f"{owner.kind}: n must be a whole number of at least 1"
    if type(value) is not int:
        raise TypeError(f"{what}, not {value!r}")
    if value < 1:
        raise ValueError(f"{what}, not {value}")


@attrs.frozen
class _Chosen(Aggregate):
    """The values of a column of chosen rows, or structs of several columns."""

    column: str | tuple[str, ...] = attrs.field(converter=_one_or_several)

    @property
    def values(self) -> tuple[str, ...]:
        """The columns whose values it gives."""
        return self.column if isinstance(self.column, tuple) else (self.column,)

    @property
    def reads(self) -> tuple[str, ...]:
        return self.values

    def value(self, schema: Schema) -> pl.Expr:
        """Of each row what it gives."""
        values = [alike(column, schema[column]) for column in self.values]
        return pl.struct(values) if isinstance(self.column, tuple) else values[0]

    def order(self, rank: pl.Expr, value: pl.Expr, greatest: bool) -> tuple[list[pl.Expr], list[bool]]:
        """By what rows are sorted, nulls last, and whether descending: by rank, and of equals by their values."""
        several = isinstance(self.column, tuple)
        ties = [value.struct.field(column) for column in self.values] if several else [value]
        return [rank, *ties], [greatest, *[False] * len(ties)]

    def value_type(self, schema: Schema) -> pl.DataType:
        """The type of that; `TypeError` where a column has values without an order, by which ties are decided."""
        if not self.values:
            raise TypeError(f"{self.kind} needs a column, or several such as ['price', 'bidder']")
        for column in self.reads:
            if not is_comparable(schema[column]):
                raise TypeError(
                    f"{self.kind}({column!r}) needs {COMPARABLE}, but the column is {schema[column]}"
                )
        if isinstance(self.column, tuple):
            return pl.Struct({column: schema[column] for column in self.values})
        return schema[self.column]


def _rank(column: str, dtype: pl.DataType) -> pl.Expr:
    """By what rows are ranked: what is no number has no rank, like null."""
    return alike(column, dtype).fill_nan(None) if dtype.is_float() else pl.col(column)


# Several rows


class _Several(_Chosen):
    """`n` rows: the first of all when sorted by rank and then by value."""

    n: int
    greatest: ClassVar[bool] = False

    def rank(self, schema: Schema) -> tuple[pl.Expr, pl.DataType]:
        """By what rows are sorted, and its type. Those where it is null are left out."""
        raise NotImplementedError

    def dtype(self, schema: Schema) -> pl.DataType:
        return pl.List(self.value_type(schema))

    def parts(self, schema: Schema) -> dict[str, Part]:
        return {_ROWS: Part(self._list(schema), ())}

    def _list(self, schema: Schema) -> pl.List:
        return pl.List(pl.Struct({_BY: self.rank(schema)[1], _VALUE: self.value_type(schema)}))

    def lift(self, schema: Schema) -> dict[str, pl.Expr]:
        rank, _ = self.rank(schema)
        item = pl.struct(rank.alias(_BY), self.value(schema).alias(_VALUE))
        return {_ROWS: only(item, rank.is_not_null(), self._list(schema))}

    def merge(self, acc: dict[str, pl.Expr]) -> dict[str, pl.Expr]:
        return {_ROWS: merged(acc[_ROWS], self._first)}

    def _first(self, items: pl.DataFrame) -> pl.DataFrame:
        order, descending = self.order(pl.col(_BY), pl.col(_VALUE), self.greatest)
        in_order = items.sort(GROUP, *order, descending=[False, *descending], nulls_last=True)
        return in_order.group_by(GROUP, maintain_order=True).head(self.n)

    def extract(self, acc: dict[str, pl.Expr], schema: Schema) -> pl.Expr:
        return acc[_ROWS].list.eval(pl.element().struct.field(_VALUE))


@attrs.frozen
class _Ranked(_Several):
    n: int = attrs.field(validator=_is_number_of_rows)
    by: str | None = attrs.field(default=None, kw_only=True)

    @property
    def reads(self) -> tuple[str, ...]:
        return self.values if self.by is None else (*self.values, self.by)

    def rank(self, schema: Schema) -> tuple[pl.Expr, pl.DataType]:
        by = self.values[0] if self.by is None else self.by
        return _rank(by, schema[by]), schema[by]

    def value_type(self, schema: Schema) -> pl.DataType:
        if self.by is None and isinstance(self.column, tuple):
            raise TypeError(f"{self.kind} of several columns needs by=, the column that says which rows")
        return super().value_type(schema)


@attrs.frozen
class Top(_Ranked):
    """The values of the `n` rows with the greatest `by`, greatest first; of equals, the lesser values."""

    greatest: ClassVar[bool] = True


@attrs.frozen
class Bottom(_Ranked):
    """The values of the `n` rows with the least `by`, least first; of equals, the lesser values."""


@attrs.frozen
class Sample(_Several):
    """The values of `n` rows by chance, that is by a hash of event time and values: the same whenever they come."""

    n: int = attrs.field(validator=_is_number_of_rows)

    def rank(self, schema: Schema) -> tuple[pl.Expr, pl.DataType]:
        return key_hash((EVENT_TIME, *self.values)), pl.UInt64()


# One row


class _Best(_Chosen):
    """The value of one row; of those with equal `by` the least, and null only where all are null."""

    idempotent: ClassVar[bool] = True
    greatest: ClassVar[bool]
    by: str

    @property
    def reads(self) -> tuple[str, ...]:
        return (*self.values, self.by)

    def dtype(self, schema: Schema) -> pl.DataType:
        return self.value_type(schema)

    def parts(self, schema: Schema) -> dict[str, Part]:
        return {_BY: Part(schema[self.by]), _VALUE: Part(self.value_type(schema))}

    def lift(self, schema: Schema) -> dict[str, pl.Expr]:
        rank = _rank(self.by, schema[self.by])
        return {_BY: rank, _VALUE: pl.when(rank.is_not_null()).then(self.value(schema))}

    def merge(self, acc: dict[str, pl.Expr]) -> dict[str, pl.Expr]:
        rank, value = acc[_BY], acc[_VALUE]
        order, descending = self.order(rank, value, self.greatest)
        best = {
            part: each.sort_by(order, descending=descending, nulls_last=True) for part, each in acc.items()
        }
        return {part: each.first() for part, each in best.items()}

    def extract(self, acc: dict[str, pl.Expr], schema: Schema) -> pl.Expr:
        return acc[_VALUE]


@attrs.frozen
class ArgMax(_Best):
    """The value of the row with the greatest `by`."""

    greatest: ClassVar[bool] = True
    by: str = attrs.field(kw_only=True)


@attrs.frozen
class ArgMin(_Best):
    """The value of the row with the least `by`."""

    greatest: ClassVar[bool] = False
    by: str = attrs.field(kw_only=True)
