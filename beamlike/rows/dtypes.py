"""Column types as users write them (Python, polars, narwhals), as polars dtypes, and as text."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Protocol, TypeAlias

import narwhals as nw
import polars as pl
from narwhals.dtypes import DType as NarwhalsDType

from beamlike.errors import PlanError, ReservedName, WrongType
from beamlike.rows.annotations import DECIMAL_DIGITS, annotated_dtype, class_schema
from beamlike.rows.row_classes import is_row_class
from windowing.columns import (
    PANE_CAUSE,
    PANE_COMPLETE,
    PANE_DRAINED,
    PANE_FIRST,
    PANE_LAST,
    PANE_RETRACTED,
    PANE_TIMING,
    RESERVED_PREFIX,
)

DTypeLike = Any
"""A Python type (`int`, `float`, `str`, `bool`, `datetime`, `bytes`, `list[str]`), a dict of such types or a class of
rows, which is a struct, or a polars or narwhals dtype.
"""


class ArrowSchema(Protocol):
    """A schema of any library, such as `pyarrow.Schema`, that can be exported to Arrow."""

    def __arrow_c_schema__(self) -> object: ...


Columns: TypeAlias = Mapping[str, DTypeLike]
"""Column names and types."""

SchemaLike: TypeAlias = Columns | type[Any] | ArrowSchema
"""Column names and types: a dict, a polars or Arrow schema, or a class of rows such as a dataclass."""

_SYSTEM_TYPES = {
    PANE_TIMING: pl.String(),
    PANE_FIRST: pl.Boolean(),
    PANE_LAST: pl.Boolean(),
    PANE_RETRACTED: pl.Boolean(),
    PANE_DRAINED: pl.Boolean(),
    PANE_CAUSE: pl.String(),
    PANE_COMPLETE: pl.Float64(),
}

_ADVICE = "write int, float, str, bool, bytes, datetime, date, list[str] and such, or a polars dtype"
_POLARS = "Int8 Int16 Int32 Int64 UInt8 UInt16 UInt32 UInt64 Float32 Float64 Boolean String Binary Decimal"
_PYTHON = "int float str bool bytes datetime date"
_SPELLINGS = {
    **{name.lower(): f"pl.{name}" for name in _POLARS.split()},
    **{name: name for name in _PYTHON.split()},
    "list": "list[str]",
}
"""The spelling in a schema for names of types that users may write by mistake."""


def as_dtype(dtype: DTypeLike) -> pl.DataType:
    """Returns the polars dtype; a `datetime` is in microseconds UTC. Raises `TypeError` for an invalid type."""
    if dtype is datetime:
        return pl.Datetime("us", "UTC")
    if isinstance(dtype, pl.DataType):
        return dtype
    if isinstance(dtype, type) and issubclass(dtype, pl.DataType):
        return dtype()
    if isinstance(dtype, dict) and dtype:
        return pl.Struct({name: as_dtype(inner) for name, inner in dtype.items()})
    if is_row_class(dtype):
        return annotated_dtype(dtype)
    if isinstance(dtype, NarwhalsDType) or (isinstance(dtype, type) and issubclass(dtype, NarwhalsDType)):
        return _from_narwhals(dtype)
    return _from_python(dtype)


def column_dtype(name: str, dtype: DTypeLike) -> pl.DataType:
    """Returns the polars dtype of a column in a schema. Raises `TypeError` with the name of the column."""
    try:
        return as_dtype(dtype)
    except TypeError as error:
        raise TypeError(f"schema of column {name!r}: {error}") from None


def _from_narwhals(dtype: Any) -> pl.DataType:
    native: pl.DataType = nw.new_series("", [], dtype, backend="polars").to_native().dtype
    return native


def as_narwhals(dtype: pl.DataType) -> NarwhalsDType | None:
    """Returns the narwhals dtype; None if narwhals has none that is equivalent."""
    found = nw.from_native(pl.Series(dtype=dtype), series_only=True).dtype
    try:
        return found if _from_narwhals(found) == dtype else None
    except Exception:  # narwhals cannot construct some types that it can read; the errors are of many kinds
        return None


def _from_python(dtype: object) -> pl.DataType:
    try:
        parsed = pl.DataType.from_python(dtype)  # type: ignore[arg-type]
        return _with_digits_and_zone(parsed)
    except (TypeError, ValueError, pl.exceptions.PolarsError):
        if (found := _of_annotation(dtype)) is not None:
            return found
        kind = "text, not a type" if isinstance(dtype, str) else "no column type"
        raise TypeError(f"{dtype!r} is {kind}; {_meant(dtype) or _ADVICE}") from None


def _with_digits_and_zone(parsed: Any) -> pl.DataType:
    """Returns a type that polars made of an annotation, with digits after the point of decimals, and times in UTC."""
    made: pl.DataType = parsed() if isinstance(parsed, type) else parsed
    if isinstance(made, pl.List):
        return pl.List(_with_digits_and_zone(made.inner))
    if isinstance(made, pl.Datetime):
        return pl.Datetime("us", "UTC")
    return pl.Decimal(*DECIMAL_DIGITS) if isinstance(made, pl.Decimal) else made


def _of_annotation(dtype: object) -> pl.DataType | None:
    """Returns the type of an annotation that polars does not know, such as `Literal["a", "b"]`; None for no type."""
    try:
        return annotated_dtype(dtype)
    except TypeError:
        return None


def _meant(dtype: object) -> str:
    """Returns a hint to the known type with a similar name, for text or for a numpy, pandas or Arrow type."""
    word = str(dtype.__name__ if isinstance(dtype, type) else dtype).lower()
    near = get_close_matches(word, _SPELLINGS, n=1, cutoff=0.75)
    return f"did you mean {_SPELLINGS[near[0]]}?" if near else ""


def has_values_of(actual: pl.DataType, wanted: pl.DataType) -> bool:
    """True if all values of type `actual` are values of `wanted`, such as Int32 and Int64, but not text and numbers."""
    if isinstance(actual, pl.List | pl.Array) and isinstance(wanted, pl.List | pl.Array):
        return has_values_of(as_dtype(actual.inner), as_dtype(wanted.inner))
    if isinstance(actual, pl.Struct) and isinstance(wanted, pl.Struct):
        inner, named = dict(actual), dict(wanted)
        return inner.keys() == named.keys() and all(
            has_values_of(as_dtype(inner[name]), as_dtype(named[name])) for name in named
        )
    if actual.is_numeric() and wanted.is_numeric():
        return actual.is_integer() or not wanted.is_integer()
    if isinstance(wanted, pl.String):
        return isinstance(actual, pl.String | pl.Categorical | pl.Enum | pl.Null)
    return isinstance(actual, type(wanted) | pl.Null)


def is_schema(given: object) -> bool:
    """True for a dict, a class of rows, or a schema of polars or Arrow."""
    return isinstance(given, Mapping) or is_row_class(given) or hasattr(given, "__arrow_c_schema__")


def columns_of(schema: object) -> Mapping[Any, DTypeLike]:
    """Returns the columns of a schema in any form, unchecked. Raises `TypeError` if it is none."""
    if isinstance(schema, Mapping):
        return schema
    if is_row_class(schema):
        return class_schema(schema)  # type: ignore[arg-type]
    if hasattr(schema, "__arrow_c_schema__"):
        return _of_arrow(schema)
    if isinstance(schema, type):
        raise TypeError(
            f"schema= must be a class with fields that are columns, and {schema.__name__} is none; make it a dataclass"
        )
    raise TypeError(
        'schema= must be a dict such as {"user": str}, a polars or Arrow schema, or a dataclass and such, '
        f"not {schema!r}"
    )


def _of_arrow(schema: Any) -> Mapping[str, pl.DataType]:
    try:
        return pl.Schema(schema)
    except (ValueError, pl.exceptions.PolarsError) as error:  # such as a type that is no struct
        raise TypeError(f"schema= cannot be read from Arrow: {error}") from None


def as_schema(schema: SchemaLike, step: str) -> pl.Schema:
    """Returns the polars schema of user columns that a step declares. Raises `PlanError` if it is invalid."""
    checked = {}
    try:
        columns = columns_of(schema)
    except TypeError as error:
        raise WrongType(str(error), step=step) from None
    for name, dtype in columns.items():
        require_column_name(name, step)
        try:
            checked[name] = column_dtype(name, dtype)
        except TypeError as error:
            raise WrongType(str(error), step=step) from None
    return pl.Schema(checked)


def require_column_name(name: object, step: str | None) -> None:
    """Raises `PlanError` for a name that is not text, is a pattern, or begins like the engine's own columns."""
    if not isinstance(name, str):
        raise WrongType(f"a column is named by a string, not by {name!r}", step=step)
    if name == "*" or (name.startswith("^") and name.endswith("$")):
        raise PlanError(f"column {name!r}: this is a pattern for several columns; rename it", step=step)
    if name.startswith(RESERVED_PREFIX):
        raise ReservedName(
            f"column {name!r}: names that begin with two underscores are the engine's own; choose another",
            step=step,
        )


def system_schema(columns: tuple[str, ...]) -> pl.Schema:
    """Returns the types of system columns: String for the timing of a pane, Boolean for its flags, else Int64."""
    return pl.Schema({name: _SYSTEM_TYPES.get(name, pl.Int64()) for name in columns})


def type_name(dtype: pl.DataType) -> str:
    """Returns the type as text, with `Datetime(us, UTC)` in place of polars' longer form."""
    if isinstance(dtype, pl.Datetime):
        return (
            f"Datetime({dtype.time_unit}, {dtype.time_zone})"
            if dtype.time_zone
            else f"Datetime({dtype.time_unit})"
        )
    if isinstance(dtype, pl.List):
        return f"List({type_name(dtype.inner)})"  # type: ignore[arg-type]
    if isinstance(dtype, pl.Duration):
        return f"Duration({dtype.time_unit})"
    return str(dtype)


def schema_text(schema: Mapping[str, pl.DataType]) -> str:
    """Returns the columns as text such as `user String, length Float64`."""
    return ", ".join(f"{name} {type_name(dtype)}" for name, dtype in schema.items()) or "no columns"
