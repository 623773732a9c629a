"""Aggregates that cannot subtract, over elements that may be retracted: the state has all values, and each result is
computed from those that remain.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, Final

import attrs
import polars as pl

from stages.aggregates.base import Aggregate, Part, Schema, without_sign
from stages.aggregates.lists import GROUP, merged
from stages.aggregates.multisets import COUNT, VALUE, added
from windowing.columns import EVENT_TIME

VALUES: Final = "standing"
"""The suffix of the accumulator column: a sorted list of the values, each with the number of times that it is there."""

RESULT: Final = "__result"
_COUNT: Final = pl.element().struct.field(COUNT)


class Refoldable(Aggregate):
    """The base class of aggregates that cannot subtract. If elements may be retracted, `Standing` keeps all their
    values.
    """

    def for_retractions(self) -> Aggregate:
        return Standing.of(self)

    def of_values(self, values: pl.DataFrame, schema: Schema) -> pl.DataFrame:
        """Computes the result of each group from all of its values. Returns a row with GROUP and RESULT for each group.

        `values` have the columns GROUP, with the number of a group, VALUE, the accumulators of an element, and COUNT,
        how often it is there. They are sorted by group and accumulators, nulls first.
        """
        if not self.idempotent and (values[COUNT] > 1).any():
            values = values.select(pl.all().repeat_by(COUNT).explode())
        acc = {part: pl.col(part) for part in self.parts(schema)}
        rows = values.select(GROUP, VALUE).unnest(VALUE)
        folded = rows.group_by(GROUP, maintain_order=True).agg(**self.merge(acc))
        return folded.select(GROUP, self.extract(acc, schema).alias(RESULT))


@attrs.frozen
class Standing(Aggregate):
    """The aggregate `inner` over the elements that are not retracted. The state has a sorted list of values with their
    counts.

    A value is the accumulators of one element. Elements with equal values are not distinguished. If `inner` depends on
    the order of arrival, the order of the values is used instead.
    """

    subtractable: ClassVar[bool] = True

    inner: Refoldable

    @classmethod
    def of(cls, inner: Refoldable) -> Standing:
        """Wraps an aggregate, with its condition."""
        return cls(inner, where=inner.where)

    @property
    def kind(self) -> str:
        return self.inner.kind

    def identity(self) -> Any:
        return self.inner.identity()

    @property
    def reads(self) -> tuple[str, ...]:
        return self.inner.reads

    def dtype(self, schema: Schema) -> pl.DataType:
        return self.inner.dtype(schema)

    def parts(self, schema: Schema) -> dict[str, Part]:
        return {VALUES: Part(self._list(schema), ())}

    def _value(self, schema: Schema) -> pl.Struct:
        return pl.Struct({name: part.dtype for name, part in self.inner.parts(schema).items()})

    def _list(self, schema: Schema) -> pl.List:
        return pl.List(pl.Struct({VALUE: self._value(schema), COUNT: pl.Int64()}))

    def lift(self, schema: Schema) -> dict[str, pl.Expr]:
        # Equal values are counted together, so they have equal bits.
        types = self.inner.parts(schema)
        lifted = self.inner.lift(schema).items()
        parts = [without_sign(value, types[name].dtype).alias(name) for name, value in lifted]
        value = pl.struct(parts).cast(self._value(schema))
        return {VALUES: pl.concat_list(pl.struct(value.alias(VALUE), pl.lit(1, pl.Int64).alias(COUNT)))}

    def negated(self, lifted: dict[str, pl.Expr], schema: Schema) -> dict[str, pl.Expr]:
        value = pl.element().struct.field(VALUE)
        return {VALUES: lifted[VALUES].list.eval(pl.struct(value, -_COUNT))}

    def merge(self, acc: dict[str, pl.Expr]) -> dict[str, pl.Expr]:
        return {VALUES: merged(acc[VALUES], added)}

    def extract(self, acc: dict[str, pl.Expr], schema: Schema) -> pl.Expr:
        dtype = self.dtype(schema)
        anew = partial(self._anew, schema)
        return acc[VALUES].map_batches(anew, return_dtype=dtype, is_elementwise=True)

    def _anew(self, schema: Schema, lists: pl.Series) -> pl.Series:
        """Computes the result for each list of values."""
        dtype = self.dtype(schema)
        numbered = lists.alias(VALUES).to_frame().with_row_index(GROUP)
        items = numbered.explode(VALUES, empty_as_null=False, keep_nulls=False).unnest(VALUES)
        there = items.filter(pl.col(COUNT) > 0)
        results = self.inner.of_values(there, schema).select(GROUP, pl.col(RESULT).cast(dtype))
        found = numbered.select(GROUP).join(results, on=GROUP, how="left", maintain_order="left")[RESULT]
        # Of no elements, a list is empty.
        return found.fill_null(pl.Series([[]], dtype=dtype)) if isinstance(dtype, pl.List) else found


@attrs.frozen
class InOrder(Refoldable):
    """The values of a column in a list, sorted by event time. Values of equal event times are sorted by value, nulls
    first.
    """

    column: str

    @property
    def kind(self) -> str:
        return "collect"

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.column,)

    def dtype(self, schema: Schema) -> pl.DataType:
        return pl.List(schema[self.column])

    def parts(self, schema: Schema) -> dict[str, Part]:
        return {"time": Part(pl.Int64()), "value": Part(schema[self.column])}

    def lift(self, schema: Schema) -> dict[str, pl.Expr]:
        return {"time": pl.col(EVENT_TIME), "value": pl.col(self.column)}

    def merge(self, acc: dict[str, pl.Expr]) -> dict[str, pl.Expr]:
        return acc  # in the order in which `Standing` has them

    def extract(self, acc: dict[str, pl.Expr], schema: Schema) -> pl.Expr:
        return acc["value"]
