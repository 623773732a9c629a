"""The column types of open table formats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import polars as pl

if TYPE_CHECKING:
    from polars._typing import PolarsDataType

_WIDER: Final[Mapping[pl.DataType, pl.DataType]] = {
    pl.Int8(): pl.Int32(),
    pl.Int16(): pl.Int32(),
    pl.UInt8(): pl.Int32(),
    pl.UInt16(): pl.Int32(),
    pl.UInt32(): pl.Int64(),
    pl.UInt64(): pl.Decimal(20, 0),
    pl.Int128(): pl.Decimal(38, 0),
    pl.Duration(): pl.Int64(),
    pl.Time(): pl.String(),
    pl.Null(): pl.String(),
}


def storable(dtype: pl.DataType) -> pl.DataType:
    """Returns the type in which a table stores values of a type. Raises `TypeError` if there is none.

    Times are in UTC with whole microseconds. Durations are whole numbers of microseconds.
    """
    if isinstance(dtype, pl.Datetime):
        return pl.Datetime("us", "UTC")
    if isinstance(dtype, pl.List | pl.Array):
        return pl.List(storable(_instance(dtype.inner)))
    if isinstance(dtype, pl.Struct):
        return pl.Struct({field.name: storable(_instance(field.dtype)) for field in dtype.fields})
    if isinstance(dtype, pl.Categorical | pl.Enum):
        return pl.String()
    if dtype == pl.Object:
        raise TypeError("no table holds values of Object")
    return _WIDER.get(pl.Duration() if isinstance(dtype, pl.Duration) else dtype, dtype)


def _instance(dtype: PolarsDataType) -> pl.DataType:
    return dtype() if isinstance(dtype, type) else dtype


def stored(frame: pl.DataFrame) -> pl.DataFrame:
    """Converts columns to types that tables can store."""
    durations = [name for name, dtype in frame.schema.items() if isinstance(dtype, pl.Duration)]
    frame = frame.with_columns(pl.col(durations).cast(pl.Duration("us")))
    wanted = {name: storable(dtype) for name, dtype in frame.schema.items()}
    return frame.cast({name: dtype for name, dtype in wanted.items() if dtype != frame.schema[name]})
