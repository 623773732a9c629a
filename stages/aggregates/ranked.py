"""Aggregates that choose rows: those with the greatest or the least of something, or at random."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import attrs
import polars as pl

from stages.aggregates.base import COMPARABLE, Aggregate, Part, Schema, alike, is_comparable
from stages.aggregates.lists import GROUP, merged, only
from stages.keys import key_hash
from stages.sorting import in_order
from windowing.columns import EVENT_TIME

_ROWS: Final = "rows"
_BY: Final = "by"
_VALUE: Final = "value"
_MOST: Final = 2**32


Columns = str | tuple[str, ...]


def _one_or_several(given: Any) -> Any:
    return tuple(given) if isinstance(given, list | tuple) else given


def _each(columns: Columns) -> tuple[str, ...]:
    return columns if isinstance(columns, tuple) else (columns,)


def _is_some(owner: Aggregate, attribute: attrs.Attribute[Any], value: object) -> None:
    """Requires at least one column, each named once."""
    if isinstance(value, tuple) and (not value or len(set(map(repr, value))) < len(value)):
        raise ValueError(
            f"{owner.kind}: {attribute.name} must be a column, or several, each once, not {list(value)}"
        )


def _is_number_of_rows(owner: Aggregate, attribute: attrs.Attribute[Any], value: object) -> None:
    what = f"{owner.kind}: n must be a whole number of at least 1"
    if type(value) is not int:
        raise TypeError(f"{what}, not {value!r}")
    if value < 1:
        raise ValueError(f"{what}, not {value}")
    if value > _MOST:
        raise ValueError(f"{owner.kind}: n must be at most {_MOST:,}, not {value:,}")


@attrs.frozen
class _Chosen(Aggregate):
    """The values of a column of chosen rows, or structs of several columns."""

    column: Columns = attrs.field(converter=_one_or_several, validator=_is_some)

    @property
    def values(self) -> tuple[str, ...]:
        """The columns of its result."""
        return _each(self.column)

    @property
    def reads(self) -> tuple[str, ...]:
        return self.values

    def value(self, schema: Schema) -> pl.Expr:
        """The value of each row in the result."""
        values = [alike(column, schema[column]) for column in self.values]
        return pl.struct(values) if isinstance(self.column, tuple) else values[0]

    @property
    def ranks(self) -> Columns:
        """The columns by which rows are ranked: by the first, of equals by the next."""
        return ()

    def order(self, rank: pl.Expr, value: pl.Expr, greatest: bool) -> tuple[list[pl.Expr], list[bool]]:
        """The expressions to sort rows by, nulls last, and flags for descending: by rank, of equals by their values."""
        ranks, ties = _parts(rank, self.ranks), _parts(value, self.column)
        return [*ranks, *ties], [*[greatest] * len(ranks), *[False] * len(ties)]

    def value_type(self, schema: Schema) -> pl.DataType:
        """The type of that value.

        Raises `TypeError` for a column whose values have no order, by which ties are decided.
        """
        for column in self.reads:
            if not is_comparable(schema[column]):
                raise TypeError(
                    f"{self.kind}({column!r}) needs {COMPARABLE}, but the column is {schema[column]}"
                )
        if isinstance(self.column, tuple):
            return pl.Struct({column: schema[column] for column in self.values})
        return schema[self.column]


def _parts(value: pl.Expr, columns: Columns) -> list[pl.Expr]:
    """A value, or the fields of the struct that contains several columns."""
    return (
        [value.struct.field(column) for column in columns]
        if isinstance(columns, tuple) and columns
        else [value]
    )


def _rank(by: Columns, schema: Schema) -> tuple[pl.Expr, pl.DataType]:
    """The rank of rows and its type. A row with null or NaN in any of the columns has none."""
    each = [
        alike(column, schema[column]).fill_nan(None) if schema[column].is_float() else pl.col(column)
        for column in _each(by)
    ]
    if not isinstance(by, tuple):
        return each[0], schema[by]
    there = pl.all_horizontal(rank.is_not_null() for rank in each)
    return pl.when(there).then(pl.struct(each)), pl.Struct({column: schema[column] for column in by})


# Several rows


class _Several(_Chosen):
    """`n` rows: the first of all when sorted by rank and then by value."""

    n: int
    greatest: ClassVar[bool] = False

    def rank(self, schema: Schema) -> tuple[pl.Expr, pl.DataType]:
        """The rank of rows, and its type. Rows with a null rank are left out."""
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
        return self._sorted(items).group_by(GROUP, maintain_order=True).head(self.n)

    def _sorted(self, items: pl.DataFrame) -> pl.DataFrame:
        order, descending = self.order(pl.col(_BY), pl.col(_VALUE), self.greatest)
        return in_order(items, [pl.col(GROUP), *order], [False, *descending])

    def extract(self, acc: dict[str, pl.Expr], schema: Schema) -> pl.Expr:
        return acc[_ROWS].list.eval(pl.element().struct.field(_VALUE))


@attrs.frozen
class _Ranked(_Several):
    n: int = attrs.field(validator=_is_number_of_rows)
    by: Columns | None = attrs.field(
        default=None, kw_only=True, converter=_one_or_several, validator=_is_some
    )
    ties: bool = attrs.field(default=False, kw_only=True)

    @property
    def ranks(self) -> Columns:
        return self.values[0] if self.by is None else self.by

    @property
    def reads(self) -> tuple[str, ...]:
        return self.values if self.by is None else (*self.values, *_each(self.by))

    def rank(self, schema: Schema) -> tuple[pl.Expr, pl.DataType]:
        return _rank(self.ranks, schema)

    def _first(self, items: pl.DataFrame) -> pl.DataFrame:
        if not self.ties:
            return super()._first(items)
        place = pl.int_range(pl.len()).over(GROUP)
        last = pl.col(_BY).get(self.n - 1, null_on_oob=True).over(GROUP)
        return self._sorted(items).filter((place < self.n) | (pl.col(_BY) == last))

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
    """The values of `n` random rows, chosen by a hash of event time and values: the same in any order of arrival."""

    n: int = attrs.field(validator=_is_number_of_rows)

    def rank(self, schema: Schema) -> tuple[pl.Expr, pl.DataType]:
        return key_hash((EVENT_TIME, *self.values)), pl.UInt64()


# One row


class _Best(_Chosen):
    """The value of one row; of those with equal `by` the least, and null only if all are null."""

    idempotent: ClassVar[bool] = True
    greatest: ClassVar[bool]
    by: Columns

    @property
    def ranks(self) -> Columns:
        return self.by

    @property
    def reads(self) -> tuple[str, ...]:
        return (*self.values, *_each(self.by))

    def dtype(self, schema: Schema) -> pl.DataType:
        return self.value_type(schema)

    @property
    def _says_rank(self) -> bool:
        """True if the value contains all columns by which rows are ranked, so that the rank need not be kept."""
        return set(_each(self.by)) <= set(self.values)

    def parts(self, schema: Schema) -> dict[str, Part]:
        value = {_VALUE: Part(self.value_type(schema))}
        return value if self._says_rank else {_BY: Part(_rank(self.by, schema)[1])} | value

    def lift(self, schema: Schema) -> dict[str, pl.Expr]:
        rank, _ = _rank(self.by, schema)
        value: dict[str, pl.Expr] = {_VALUE: pl.when(rank.is_not_null()).then(self.value(schema))}
        return value if self._says_rank else {_BY: rank} | value

    def merge(self, acc: dict[str, pl.Expr]) -> dict[str, pl.Expr]:
        order, descending = self._order(acc)
        best = {
            part: each.sort_by(order, descending=descending, nulls_last=True) for part, each in acc.items()
        }
        return {part: each.first() for part, each in best.items()}

    def _order(self, acc: dict[str, pl.Expr]) -> tuple[list[pl.Expr], list[bool]]:
        value = acc[_VALUE]
        if not self._says_rank:
            return self.order(acc[_BY], value, self.greatest)
        columns = dict(zip(self.values, _parts(value, self.column), strict=True))
        ranks = [columns.pop(column) for column in _each(self.by)]
        return [*ranks, *columns.values()], [*[self.greatest] * len(ranks), *[False] * len(columns)]

    def extract(self, acc: dict[str, pl.Expr], schema: Schema) -> pl.Expr:
        return acc[_VALUE]


@attrs.frozen
class ArgMax(_Best):
    """The value of the row with the greatest `by`."""

    greatest: ClassVar[bool] = True
    by: Columns = attrs.field(kw_only=True, converter=_one_or_several, validator=_is_some)


@attrs.frozen
class ArgMin(_Best):
    """The value of the row with the least `by`."""

    greatest: ClassVar[bool] = False
    by: Columns = attrs.field(kw_only=True, converter=_one_or_several, validator=_is_some)
