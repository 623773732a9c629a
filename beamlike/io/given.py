"""Checks of the frames that a source returns: their type, columns and column types."""

from __future__ import annotations

import polars as pl

from beamlike.errors import nearest
from beamlike.io.base import AnyFrame
from beamlike.rows.dtypes import type_name


def frame(rows: object, giver: str) -> AnyFrame:
    """Returns rows. Raises `TypeError`, which names the `giver`, for anything but a polars frame."""
    if isinstance(rows, pl.DataFrame | pl.LazyFrame):
        return rows
    kind = type(rows).__name__
    raise TypeError(f"{giver} must return rows as a DataFrame or LazyFrame of polars, not as {kind}")


def fitting(rows: object, giver: str, schema: pl.Schema) -> AnyFrame:
    """Returns rows with nulls in the declared types. Raises `TypeError`, which names the `giver`, for other columns or
    types.
    """
    given = frame(rows, giver)
    found = given.collect_schema()
    if found == schema:
        return given
    for name, dtype in schema.items():
        if name not in found:
            raise TypeError(
                f"{giver} returned rows without column {name!r} of its schema{nearest(name, found)}"
            )
        if found[name] not in (dtype, pl.Null()):
            was, declared = type_name(found[name]), type_name(dtype)
            raise TypeError(f"{giver} returned column {name!r} as {was}, but its schema says {declared}")
    empty = [pl.col(name).cast(dtype) for name, dtype in schema.items() if found[name] != dtype]
    return given.with_columns(empty) if empty else given
