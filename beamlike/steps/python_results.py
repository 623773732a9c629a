"""Converts results of a user's function to columns of the declared types, with the reasons why some do not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import starmap
from typing import Any

import polars as pl

from beamlike.errors import listed, nearest
from beamlike.rows.dead_letters import error_text, reason
from beamlike.rows.dtypes import type_name
from beamlike.rows.objects import as_dict, as_values
from beamlike.rows.row_class import RowClass
from beamlike.rows.row_classes import columns_of_class
from beamlike.rows.taken import Taken
from stages.process.columns import MISFITS, require_leaves, strict_series


def as_columns(
    results: Sequence[Any], schema: pl.Schema, kind: RowClass | None = None
) -> tuple[pl.DataFrame, dict[int, str]]:
    """Converts dicts to rows with exactly the declared names and types. A dict that does not fit becomes a row of
    nulls.

    Results may also be objects of the class `kind`. Also returns, by row number, why results do not fit. Only rows near
    an error are examined one by one.
    """
    values, wrong = _values(results, schema) if kind is None else _of_objects(results, schema, kind.kind)
    columns = [
        _column(name, dtype, found, 0, wrong)
        for (name, dtype), found in zip(schema.items(), values, strict=True)
    ]
    return pl.DataFrame(columns), wrong


def _values(
    results: Sequence[Any], schema: pl.Schema, kind: type | None = None
) -> tuple[list[list[Any]], dict[int, str]]:
    """Returns the values of each column, and reasons for results that are no dict with exactly these keys."""
    kinds: set[type] = {dict, Taken}
    if set(map(type, results)) <= kinds and set(map(len, results)) <= {len(schema)}:
        try:
            return [[result[name] for result in results] for name in schema], {}
        except KeyError:
            pass  # the right number of keys, but other keys
    wrong = {
        index: _misfit(result, schema, kind)
        for index, result in enumerate(results)
        if not isinstance(result, Mapping) or result.keys() != schema.keys()
    }
    values = [
        [None if index in wrong else result[name] for index, result in enumerate(results)] for name in schema
    ]
    return values, wrong


def _of_objects(
    results: Sequence[Any], schema: pl.Schema, kind: type
) -> tuple[list[list[Any]], dict[int, str]]:
    """Like `_values`, for objects of the class, and dicts among them."""
    if all(kind in one.__mro__ for one in set(map(type, results))):
        try:
            columns = dict(zip(columns_of_class(kind), as_values(kind, results), strict=True))
            return [columns[name] for name in schema], {}
        except Exception:  # the values of a field may be of any type, and are examined one by one
            pass
    failed: dict[int, str] = {}

    def converted(index: int, result: Any) -> Any:
        try:
            return result if type(result) is Taken else as_dict(kind, result)
        except Exception as error:
            failed[index] = f"{kind.__name__} cannot be a row: {error_text(error)}"
            return dict.fromkeys(schema)

    values, wrong = _values(list(starmap(converted, enumerate(results))), schema, kind)
    return values, {**wrong, **failed}


def _column(name: str, dtype: pl.DataType, values: list[Any], first: int, wrong: dict[int, str]) -> pl.Series:
    """Returns the values as a column. Values that do not fit become null, and their reason is added to `wrong`."""
    try:
        require_leaves(values, dtype)
        return strict_series(name, values, dtype)
    except MISFITS as error:
        if not values:  # of a type that no column can have
            raise
        if len(values) == 1:
            wrong.setdefault(first, f"column {name!r} was declared {type_name(dtype)}: {reason(error)}")
            return pl.Series(name, [None], dtype=dtype)
    half = len(values) // 2
    halves = [
        _column(name, dtype, values[:half], first, wrong),
        _column(name, dtype, values[half:], first + half, wrong),
    ]
    return pl.concat(halves, rechunk=True)


def _misfit(result: object, schema: pl.Schema, kind: type | None) -> str:
    """Returns the reason why a result is not the expected dict or object."""
    a_dict = f"a dict with the keys {listed(schema)}"
    expected = f"expected {a_dict if kind is None else f'an object of {kind.__name__}, or {a_dict}'}"
    if not isinstance(result, Mapping):
        return f"{expected}, got {result!r}"
    missing = [name for name in schema if name not in result]
    if missing:
        return f"{expected}; the key {missing[0]!r} is missing{nearest(missing[0], map(str, result))}"
    extra = next(name for name in result if name not in schema)
    return f"{expected}; the key {extra!r} is not declared, add it to schema={nearest(extra, schema)}"
