"""Aggregates that select rows: top, bottom, arg_max, arg_min, and a random sample."""

from __future__ import annotations

from typing import Any, ClassVar, Final, Literal, get_args

import attrs
import polars as pl

from stages.aggregates.base import COMPARABLE, Aggregate, Part, Schema, alike, is_comparable
from stages.aggregates.lists import GROUP, merged, only
from stages.aggregates.multisets import COUNT, VALUE
from stages.aggregates.standing import RESULT, Refoldable, Standing
from stages.frames import in_order
from stages.keys import key_hash
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
    """Validates that there is at least one column, and each is named once."""
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


Nulls = Literal["ignore", "least", "greatest"]
NULLS: Final = get_args(Nulls)


def _is_nulls(owner: Aggregate, attribute: attrs.Attribute[Any], value: object) -> None:
    if value not in NULLS:
        raise ValueError(f"{owner.kind}: nulls must be one of {', '.join(map(repr, NULLS))}, not {value!r}")


@attrs.frozen
class _Chosen(Refoldable):
    """The base class of aggregates that select rows. Results are values of a column, or structs of several columns."""

    column: Columns = attrs.field(converter=_one_or_several, validator=_is_some)

    @property
    def values(self) -> tuple[str, ...]:
        """The columns that the result contains."""
        return _each(self.column)

    @property
    def reads(self) -> tuple[str, ...]:
        return self.values

    def value(self, schema: Schema) -> pl.Expr:
        """Returns an expression for the value of a row in the result."""
        values = [alike(column, schema[column]) for column in self.values]
        return pl.struct(values) if isinstance(self.column, tuple) else values[0]

    @property
    def ranks(self) -> Columns:
        """The columns by which rows are sorted, the most significant first."""
        return ()

    @property
    def null_ranks(self) -> Nulls:
        """The place of rows whose rank is null: none, or before or after those of all values."""
        return "ignore"

    def order(self, rank: pl.Expr, value: pl.Expr, greatest: bool) -> tuple[list[pl.Expr], list[bool]]:
        """Returns the expressions to sort rows by, rank first and then values, and for each a flag for descending
        order.
        """
        # Equal ranks are sorted by value, so that the result does not depend on the order of arrival.
        ranks, ties = _parts(rank, _fields(self.ranks, self.null_ranks)), _parts(value, self.column)
        return [*ranks, *ties], [*[greatest] * len(ranks), *[False] * len(ties)]

    def value_type(self, schema: Schema) -> pl.DataType:
        """Returns the type of a row's value in the result.

        Raises `TypeError` if the values of a column cannot be compared, since they decide between equal ranks.
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
    """Returns the fields of a struct with these columns; the value itself if it is a single column."""
    return (
        [value.struct.field(column) for column in columns]
        if isinstance(columns, tuple) and columns
        else [value]
    )


def _fields(by: Columns, nulls: Nulls) -> Columns:
    """Returns the fields of a rank, the most significant first; the column if the rank is no struct."""
    if nulls == "ignore":
        return by
    return tuple(name for column in _each(by) for name in (f"{column} is null", column))


def _rank(by: Columns, schema: Schema, nulls: Nulls) -> tuple[pl.Expr, pl.DataType]:
    """Returns an expression for the rank of a row, and its type.

    If nulls are ignored, it is null if one of the columns is null or NaN. Otherwise each column has a flag before it,
    which says whether it is null, and NaN is greater than any number.
    """
    values = {column: alike(column, schema[column]) for column in _each(by)}
    if nulls != "ignore":
        flags = [value.is_null() if nulls == "greatest" else value.is_not_null() for value in values.values()]
        pairs = zip(flags, values.values(), strict=True)
        fields = dict(zip(_fields(by, nulls), (one for pair in pairs for one in pair), strict=True))
        dtypes = {name: schema[name] if name in values else pl.Boolean() for name in fields}
        return pl.struct(value.alias(name) for name, value in fields.items()), pl.Struct(dtypes)
    each = [value.fill_nan(None) if schema[name].is_float() else value for name, value in values.items()]
    if not isinstance(by, tuple):
        return each[0], schema[by]
    complete = pl.all_horizontal(rank.is_not_null() for rank in each)
    return pl.when(complete).then(pl.struct(each)), pl.Struct({column: schema[column] for column in by})


# Several rows


class _Several(_Chosen):
    """The base class of aggregates of `n` rows: the first ones when sorted by rank and then by value."""

    n: int
    greatest: ClassVar[bool] = False

    def rank(self, schema: Schema) -> tuple[pl.Expr, pl.DataType]:
        """Returns an expression for the rank of a row, and its type. Rows with a null rank are ignored."""
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
        # The first n of a merge are among the first n of each part, so accumulators keep no more than n rows.
        return self._sorted(items).group_by(GROUP, maintain_order=True).head(self.n)

    def _sorted(self, items: pl.DataFrame) -> pl.DataFrame:
        order, descending = self.order(pl.col(_BY), pl.col(_VALUE), self.greatest)
        return in_order(items, [pl.col(GROUP), *order], [False, *descending])

    def extract(self, acc: dict[str, pl.Expr], schema: Schema) -> pl.Expr:
        return acc[_ROWS].list.eval(pl.element().struct.field(_VALUE))

    def for_retractions(self) -> Aggregate:
        return Standing.of(RowsLeft(self, where=self.where))

    def first_rows(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Returns the selected rows of each group; columns GROUP, _BY and _VALUE."""
        return self._first(rows)


@attrs.frozen
class RowsLeft(Refoldable):
    """The aggregate `rows` over elements that may be retracted. An accumulator is the rank and value of one element."""

    rows: _Several

    @property
    def kind(self) -> str:
        return self.rows.kind

    def identity(self) -> Any:
        return self.rows.identity()

    @property
    def reads(self) -> tuple[str, ...]:
        return self.rows.reads

    def dtype(self, schema: Schema) -> pl.DataType:
        return self.rows.dtype(schema)

    def parts(self, schema: Schema) -> dict[str, Part]:
        return {_BY: Part(self.rows.rank(schema)[1]), _VALUE: Part(self.rows.value_type(schema))}

    def lift(self, schema: Schema) -> dict[str, pl.Expr]:
        rank, _ = self.rows.rank(schema)
        return {_BY: rank, _VALUE: pl.when(rank.is_not_null()).then(self.rows.value(schema))}

    def of_values(self, values: pl.DataFrame, schema: Schema) -> pl.DataFrame:
        ranked = values.unnest(VALUE).filter(pl.col(_BY).is_not_null())
        near = ranked.filter(self._near(ranked))
        rows = near.select(pl.all().repeat_by(COUNT).explode()) if (near[COUNT] > 1).any() else near
        selected = self.rows.first_rows(rows.select(GROUP, _BY, _VALUE))
        return selected.group_by(GROUP, maintain_order=True).agg(pl.col(_VALUE).alias(RESULT))

    def _near(self, ranked: pl.DataFrame) -> pl.Series:
        """Returns a mask of the rows, in order of group and rank, whose rank is among the first `n` rows of their
        group.
        """
        import numpy as np  # slow to import

        group, rank, n = ranked[GROUP].to_numpy(), ranked[_BY], self.rows.n
        new_group = np.append(True, group[1:] != group[:-1])[: len(group)]
        first = np.flatnonzero(new_group)
        end = np.append(first[1:], len(group))[: len(first)]
        ranks = np.cumsum(new_group | rank.ne_missing(rank.shift(1)).to_numpy())
        place = np.maximum(end - n, first) if self.rows.greatest else np.minimum(first + n, end) - 1
        last = np.repeat(ranks[place], end - first)
        return pl.Series(ranks >= last if self.rows.greatest else ranks <= last)


@attrs.frozen
class _Ranked(_Several):
    n: int = attrs.field(validator=_is_number_of_rows)
    by: Columns | None = attrs.field(
        default=None, kw_only=True, converter=_one_or_several, validator=_is_some
    )
    ties: bool = attrs.field(default=False, kw_only=True)
    nulls: Nulls = attrs.field(default="ignore", kw_only=True, validator=_is_nulls)

    @property
    def null_ranks(self) -> Nulls:
        return self.nulls

    @property
    def ranks(self) -> Columns:
        return self.values[0] if self.by is None else self.by

    @property
    def reads(self) -> tuple[str, ...]:
        return self.values if self.by is None else (*self.values, *_each(self.by))

    def rank(self, schema: Schema) -> tuple[pl.Expr, pl.DataType]:
        return _rank(self.ranks, schema, self.nulls)

    def _first(self, items: pl.DataFrame) -> pl.DataFrame:
        # With `ties`, further rows are selected whose rank equals that of the n-th row.
        if not self.ties:
            return super()._first(items)
        place = pl.int_range(pl.len()).over(GROUP)
        # A group with fewer rows has no such row, and all of its rows are among the first n.
        last = pl.col(_BY).get(self.n - 1, null_on_oob=True).over(GROUP)
        return self._sorted(items).filter((place < self.n) | pl.col(_BY).eq_missing(last))

    def value_type(self, schema: Schema) -> pl.DataType:
        if self.by is None and isinstance(self.column, tuple):
            raise TypeError(f"{self.kind} of several columns needs by=, the column that says which rows")
        return super().value_type(schema)


@attrs.frozen
class Top(_Ranked):
    """The values of the `n` rows with the greatest `by`, greatest first. Rows with equal `by` are sorted by value."""

    greatest: ClassVar[bool] = True


@attrs.frozen
class Bottom(_Ranked):
    """The values of the `n` rows with the least `by`, least first. Rows with equal `by` are sorted by value."""


@attrs.frozen
class Sample(_Several):
    """The values of `n` random rows. A hash of event time and values selects them, in whatever order they arrive."""

    n: int = attrs.field(validator=_is_number_of_rows)

    def rank(self, schema: Schema) -> tuple[pl.Expr, pl.DataType]:
        return key_hash((EVENT_TIME, *self.values)), pl.UInt64()


# One row


class _Best(_Chosen):
    """The base class of aggregates of the value of one row. Of rows with equal `by`, it is the least non-null value."""

    idempotent: ClassVar[bool] = True
    greatest: ClassVar[bool]
    by: Columns
    nulls: Nulls

    @property
    def null_ranks(self) -> Nulls:
        return self.nulls

    @property
    def ranks(self) -> Columns:
        return self.by

    @property
    def reads(self) -> tuple[str, ...]:
        return (*self.values, *_each(self.by))

    def dtype(self, schema: Schema) -> pl.DataType:
        return self.value_type(schema)

    @property
    def _has_rank(self) -> bool:
        """True if results contain all columns of `by`, so that the rank need not be stored in addition."""
        return self.nulls == "ignore" and set(_each(self.by)) <= set(self.values)

    def parts(self, schema: Schema) -> dict[str, Part]:
        value = {_VALUE: Part(self.value_type(schema))}
        return value if self._has_rank else {_BY: Part(_rank(self.by, schema, self.nulls)[1])} | value

    def lift(self, schema: Schema) -> dict[str, pl.Expr]:
        rank, _ = _rank(self.by, schema, self.nulls)
        value: dict[str, pl.Expr] = {_VALUE: pl.when(rank.is_not_null()).then(self.value(schema))}
        return value if self._has_rank else {_BY: rank} | value

    def merge(self, acc: dict[str, pl.Expr]) -> dict[str, pl.Expr]:
        order, descending = self._order(acc)
        best = {
            part: each.sort_by(order, descending=descending, nulls_last=True) for part, each in acc.items()
        }
        return {part: each.first() for part, each in best.items()}

    def _order(self, acc: dict[str, pl.Expr]) -> tuple[list[pl.Expr], list[bool]]:
        value = acc[_VALUE]
        if not self._has_rank:
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
    nulls: Nulls = attrs.field(default="ignore", kw_only=True, validator=_is_nulls)


@attrs.frozen
class ArgMin(_Best):
    """The value of the row with the least `by`."""

    greatest: ClassVar[bool] = False
    by: Columns = attrs.field(kw_only=True, converter=_one_or_several, validator=_is_some)
    nulls: Nulls = attrs.field(default="ignore", kw_only=True, validator=_is_nulls)
