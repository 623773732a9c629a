"""Checks that the frames returned by a user's function have the declared columns and types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from stages.errors import ResultError


def two_frames(given: Any) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Returns `given`, a tuple of two frames: emitted rows and state. Raises `ResultError` for anything else."""
    match given:
        case tuple((pl.DataFrame() as emitted, pl.DataFrame() as state)):
            return emitted, state
        case tuple() | list():
            got = f"a {type(given).__name__} of {', '.join(_kind(one) for one in given) or 'nothing'}"
        case _:
            got = repr(given) if given is None else _kind(given)
    raise ResultError(
        f"expected a tuple of two polars DataFrames, the emitted rows and the state, got {got}"
        + "; collect() a LazyFrame" * ("LazyFrame" in got)
    )


def fitting(frame: pl.DataFrame, schema: Mapping[str, pl.DataType], what: str) -> pl.DataFrame:
    """Returns a frame with exactly these columns, cast to these types. Raises `ResultError` if this would lose data.

    `what` is the name of the frame in error messages.
    """
    if set(frame.columns) != set(schema):
        expected = ", ".join(schema)
        raise ResultError(
            f"{what} must have the columns {expected}; it has {', '.join(frame.columns) or 'none'}"
        )
    for name, dtype in schema.items():
        if not _becomes(frame.schema[name], dtype):
            raise ResultError(
                f"{what}: column {name!r} is {frame.schema[name]}, and was declared {dtype}; cast it"
            )
    try:
        return frame.select(pl.col(name).cast(dtype, strict=True) for name, dtype in schema.items())
    except pl.exceptions.PolarsError as error:
        raise ResultError(f"{what}: {str(error).partition(chr(10))[0]}") from None


def _becomes(given: Any, wanted: Any) -> bool:
    """True if a cast between these types is allowed: it loses no data, and raises for a value that does not fit."""
    if given == wanted or given == pl.Null:
        return True
    if isinstance(given, pl.Struct) and isinstance(wanted, pl.Struct):
        fields = {field.name: field.dtype for field in given.fields}
        return len(fields) == len(wanted.fields) and all(
            field.name in fields and _becomes(fields[field.name], field.dtype) for field in wanted.fields
        )
    if isinstance(given, pl.List | pl.Array) and isinstance(wanted, pl.List | pl.Array):
        return _becomes(given.inner, wanted.inner)
    if given.is_integer():
        return bool(wanted.is_numeric())
    text = (pl.String, pl.Enum, pl.Categorical)
    return any(
        isinstance(given, kind) and isinstance(wanted, kind)
        for kind in (text, (pl.Float32, pl.Float64), pl.Decimal, pl.Datetime, pl.Duration)
    )


def _kind(value: object) -> str:
    module = type(value).__module__.partition(".")[0]
    return f"{'' if module == 'builtins' else module + ' '}{type(value).__name__}"
