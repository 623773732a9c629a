"""Aggregates that users write in Python: the class `CombineFn`, and its adapter to the interface of aggregates."""

from __future__ import annotations

import pickle
import reprlib
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Final

import attrs
import polars as pl
from polars.exceptions import PolarsError

from stages import pickled
from stages.aggregates.base import Aggregate, Part, Schema
from stages.errors import ResultError
from windowing.python_rows import Failed, for_each_value

PICKLE: Final = "pickle"
"""The name of the accumulator of a `CombineFn`, which is stored by pickle."""

_NONE: Final = object()


class CombineFn:
    """A user's aggregate, written as four functions as in Beam. `bl.combine` makes an aggregate of it.

    The result must not depend on how elements are divided over accumulators. Accumulators are stored by pickle, so they
    must be picklable. Anyone who can write to the checkpoint can run code in the pipeline that reads it.
    Recordings and savepoints are refused unless they are trusted.

    If `add_input` raises, its row is a dead letter of the grouping, and is in none of the grouping's aggregates. If
    another function raises, the run fails.

    Example, with the `plays` of `bl.Collection`:
        >>> class Spread(bl.CombineFn):
        ...     def create_accumulator(self):
        ...         return []
        ...
        ...     def add_input(self, accumulator, element):
        ...         return [*accumulator, element]
        ...
        ...     def merge_accumulators(self, accumulators):
        ...         return sum(accumulators, [])
        ...
        ...     def extract_output(self, accumulator):
        ...         return max(accumulator) - min(accumulator)
        >>> days = plays.window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(spread=bl.combine(Spread(), "points", int)).collect()["spread"].item()
        2
    """

    def create_accumulator(self) -> Any:
        """Returns the accumulator of no elements."""
        raise NotImplementedError

    def add_input(self, accumulator: Any, element: Any) -> Any:
        """Returns the accumulator with one more element. May change `accumulator` in place.

        It is called once for each element, with a new accumulator.
        """
        raise NotImplementedError

    def merge_accumulators(self, accumulators: list[Any]) -> Any:
        """Merges several accumulators into one. May change the first in place."""
        raise NotImplementedError

    def extract_output(self, accumulator: Any) -> Any:
        """Returns the result of the aggregate."""
        raise NotImplementedError


def _is_combine_fn(owner: object, attribute: attrs.Attribute[Any], value: object) -> None:
    methods = ("create_accumulator", "add_input", "merge_accumulators", "extract_output")
    missing = [name for name in methods if not callable(getattr(value, name, None))]
    if missing:
        raise TypeError(f"combine: {value!r} is no CombineFn: it lacks {', '.join(missing)}")
    if isinstance(value, type):
        raise TypeError(f"combine: {value.__name__} is a class; make one of it: {value.__name__}()")


@attrs.frozen
class Combine(Aggregate):
    """The aggregate of a column by a user's `CombineFn`, with results of type `result`."""

    ordered: ClassVar[bool] = True
    python: ClassVar[bool] = True

    fn: CombineFn = attrs.field(validator=_is_combine_fn)
    column: str
    result: pl.DataType

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.column,)

    def dtype(self, schema: Schema) -> pl.DataType:
        return self.result

    def parts(self, schema: Schema) -> dict[str, Part]:
        return {PICKLE: Part(pl.Binary())}

    def accumulators(self, rows: pl.DataFrame, failed: Failed) -> pl.Series:
        """Returns the pickled accumulator of each single row; null for rows that `where` excludes.

        If `add_input` raises for a row, calls `failed` and returns null for it. An expression would fail as a whole.
        """
        if self.where is None:
            return self._accumulators(rows, failed)
        accepted = self.accepted(rows).arg_true()
        accumulators = self._accumulators(rows[accepted], lambda row, error: failed(accepted[row], error))
        return pl.repeat(None, len(rows), dtype=pl.Binary, eager=True).scatter(accepted, accumulators)

    def _accumulators(self, rows: pl.DataFrame, failed: Failed) -> pl.Series:
        fn = self.fn
        if len(rows):
            fn.create_accumulator()  # an error here is not caused by a row

        def added(element: Any) -> Any:
            return fn.add_input(fn.create_accumulator(), element)

        accumulators = for_each_value(rows[self.column], added, failed, _NONE)
        pickled = [None if each is _NONE else pickle.dumps(each) for each in accumulators]
        return pl.Series(PICKLE, pickled, pl.Binary)

    def merge(self, acc: dict[str, pl.Expr]) -> dict[str, pl.Expr]:
        # One call merges the lists of all groups; an aggregation in Python would be a call for each group.
        lists = acc[PICKLE].drop_nulls().implode()
        merge = partial(self._merge, what=self._what(acc))
        return {PICKLE: lists.map_batches(merge, return_dtype=pl.Binary, is_elementwise=True)}

    def extract(self, acc: dict[str, pl.Expr], schema: Schema) -> pl.Expr:
        extract = partial(self._extract, what=self._what(acc))
        return acc[PICKLE].map_batches(extract, return_dtype=self.result, is_elementwise=True)

    def _what(self, acc: dict[str, pl.Expr]) -> str:
        """Returns the owner of the accumulators as text, for errors: the name of the aggregate, if known, and the
        class.
        """
        fn = type(self.fn).__name__
        column = acc[PICKLE].meta.output_name()
        if column == PICKLE:
            return f"the CombineFn {fn}"
        return f"aggregate {column.removeprefix('__acc.').removesuffix(f'.{PICKLE}')!r}, the CombineFn {fn},"

    def _merge(self, groups: pl.Series, what: str) -> pl.Series:
        """Merges each list of pickled accumulators. A single one is returned unchanged, null for an empty list."""
        several = groups.list.len() > 1
        merge, dumps, loads = self.fn.merge_accumulators, pickle.dumps, partial(pickled.load, what=what)
        merged = [dumps(merge(list(map(loads, group)))) for group in groups.filter(several).to_list()]
        only = groups.list.first()
        return only.scatter(several.arg_true(), pl.Series(merged, dtype=pl.Binary)) if merged else only

    def _extract(self, column: pl.Series, what: str) -> pl.Series:
        fn = self.fn
        results = [
            fn.extract_output(fn.create_accumulator() if data is None else pickled.load(data, what))
            for data in column.to_list()
        ]
        try:
            return pl.Series(column.name, results, self.result)
        except (TypeError, ValueError, OverflowError, PolarsError) as error:
            raise ResultError(self._unfit(results)) from error

    def _unfit(self, results: list[Any]) -> str:
        """Describes the first result that does not fit the result type, for an error."""
        called = f"extract_output of {type(self.fn).__name__}"
        for value in results:
            try:
                pl.Series([value], dtype=self.result)
            except Exception:  # polars raises errors of many kinds
                given = f"{reprlib.repr(value)}, of type {type(value).__name__},"
                return f"{called} gave {given} for a result of type {self.result}"
        return f"{called} gave values of several types for a result of type {self.result}"


def pickled_of(aggregates: Mapping[str, Aggregate]) -> tuple[str, ...]:
    """Returns descriptions of the aggregates whose accumulators are pickled."""
    return tuple(f"aggregate {name!r}" for name, one in aggregates.items() if isinstance(one, Combine))
