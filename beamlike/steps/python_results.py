"""Results of a user's function as columns of the declared types, and the reasons why some do not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from beamlike.errors import listed, nearest
from beamlike.rows.dead_letters import reason
from beamlike.rows.dtypes import type_name
from stages.process.columns import require_leaves

_MISFITS = (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError)


def as_columns(results: Sequence[Any], schema: pl.Schema) -> tuple[pl.DataFrame, dict[int, str]]:
    """Dicts as rows of exactly the declared names and types, with null rows for dicts that do not fit.

    Also returns, by row number, the reasons for those. Only rows near an error are examined one by one.
    """
    values, wrong = _values(results, schema)
    columns = [
        _column(name, dtype, found, 0, wrong)
        for (name, dtype), found in zip(schema.items(), values, strict=True)
    ]
    return pl.DataFrame(columns), wrong


def _values(results: Sequence[Any], schema: pl.Schema) -> tuple[list[list[Any]], dict[int, str]]:
    """The values of each column, and reasons for results that are no dict with exactly these keys."""
    if set(map(type, results)) <= {dict} and set(map(len, results)) <= {len(schema)}:
        try:
            return [[result[name] for result in results] for name in schema], {}
        except KeyError:
            pass  # so many keys, but not these
    wrong = {
        index: _misfit(result, schema)
        for index, result in enumerate(results)
        if not isinstance(result, Mapping) or result.keys() != schema.keys()
    }
    values = [
        [None if index in wrong else result[name] for index, result in enumerate(results)] for name in schema
    ]
    return values, wrong


def _column(name: str, dtype: pl.DataType, values: list[Any], first: int, wrong: dict[int, str]) -> pl.Series:
    """The values as a column; misfits become null, and their reason is added to `wrong` by row number."""
    try:
        require_leaves(values, dtype)
        return pl.Series(name, values, dtype=dtype, strict=True)
    except _MISFITS as error:
        if len(values) == 1:
            wrong.setdefault(first, f"column {name!r} was declared {type_name(dtype)}: {reason(error)}")
            return pl.Series(name, [None], dtype=dtype)
    half = len(values) // 2
    halves = [
        _column(name, dtype, values[:half], first, wrong),
        _column(name, dtype, values[half:], first + half, wrong),
    ]
    return pl.concat(halves, rechunk=True)


def _misfit(result: object, schema: pl.Schema) -> str:
    """The reason why a result is not the expected dict."""
    expected = f"expected a dict with the keys {listed(schema)}"
    if not isinstance(result, Mapping):
        return f"{expected}, got {result!r}"
    missing = [name for name in schema if name not in result]
    if missing:
        return f"{expected}; the key {missing[0]!r} is missing{nearest(missing[0], map(str, result))}"
    extra = next(name for name in result if name not in schema)
    return f"{expected}; the key {extra!r} is not declared, add it to schema={nearest(extra, schema)}"
