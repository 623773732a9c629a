"""Column types as text, such as `List(Int64)` or `Datetime('us', 'UTC')`, which is read without being evaluated."""

from __future__ import annotations

import ast
from typing import Any, Final

import polars as pl

from beamlike.errors import listed, nearest
from beamlike.rows.dtypes import as_dtype

_SIMPLE: Final = (
    "Int8", "Int16", "Int32", "Int64", "Int128", "UInt8", "UInt16", "UInt32", "UInt64", "Float32", "Float64",
    "Boolean", "String", "Binary", "Date", "Time", "Null", "Categorical",
)  # fmt: skip
_PYTHON: Final = {
    "int": pl.Int64(), "float": pl.Float64(), "str": pl.String(), "bool": pl.Boolean(), "bytes": pl.Binary(),
    "date": pl.Date(), "datetime": pl.Datetime("us", "UTC"), "time": pl.Time(), "timedelta": pl.Duration("us"),
}  # fmt: skip
_WITH_ARGUMENTS: Final = ("Array", "Datetime", "Decimal", "Duration", "Enum", "List", "Struct")

TYPE_NAMES: Final = (*_SIMPLE, *_PYTHON, *_WITH_ARGUMENTS)
"""The names with which the text of a type begins."""


class BadType(ValueError):
    """Raised if text is no column type. `column` is the position of the fault in the text."""

    def __init__(self, message: str, column: int = 0) -> None:
        super().__init__(message)
        self.column = column


def dtype_from_text(text: str) -> pl.DataType:
    """Returns the type that a text names: `Int64`, `int`, `List(str)`, `Struct({'x': Int64})`. Raises `BadType`."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise BadType(f"{text!r} is no type; write one such as Int64, str or List(Int64)") from None
    return dtype_of_tree(tree.body)


def dtype_of_tree(node: ast.expr) -> pl.DataType:
    """Returns the type for the parsed text of a type. Raises `BadType`."""
    match node:
        case ast.Name(name) if name in _PYTHON:
            return _PYTHON[name]
        case ast.Name(name) if name in TYPE_NAMES:
            return _made(node, name, [], {})
        case ast.Call(ast.Name(name), arguments, keywords) if name in _WITH_ARGUMENTS:
            return _made(node, name, arguments, {str(one.arg): one.value for one in keywords})
        case ast.Subscript(ast.Name("list" | "List"), item):
            return pl.List(dtype_of_tree(item))
        case ast.Name(name) | ast.Call(ast.Name(name)):
            hint = nearest(name, TYPE_NAMES) or f"; there are {listed(TYPE_NAMES)}"
            raise BadType(f"there is no type {name!r}{hint}", node.col_offset)
    raise BadType(
        f"{ast.unparse(node)!r} is no type; write one such as Int64 or List(Int64)", node.col_offset
    )


def _made(node: ast.expr, name: str, arguments: list[ast.expr], named: dict[str, ast.expr]) -> pl.DataType:
    kind: Any = getattr(pl, name)
    try:
        given = [_argument(each) for each in arguments]
        options = {key: _argument(each) for key, each in named.items()}
        return as_dtype(kind(*given, **options))
    except BadType:
        raise
    except Exception as error:  # polars raises errors of many kinds for wrong arguments
        raise BadType(f"{ast.unparse(node)!r} is no type: {error}", node.col_offset) from None


def _argument(node: ast.expr) -> Any:
    match node:
        case ast.Constant(str() | int() | None as value):
            return value
        case ast.List(items):
            return [_argument(item) for item in items]
        case ast.Dict(keys, values) if None not in keys:
            pairs = zip(keys, values, strict=True)
            return {ast.literal_eval(key): dtype_of_tree(value) for key, value in pairs if key is not None}
    return dtype_of_tree(node)


def dtype_as_text(dtype: pl.DataType) -> str:
    """Formats a type so that `dtype_from_text` returns an equal one. Raises `ValueError` for other types."""
    text = _text(dtype)
    if dtype_from_text(text) != dtype:
        raise ValueError(f"the type {dtype} has no text")
    return text


def dtype_as_python(dtype: pl.DataType) -> str:
    """Formats a type as Python code, with `pl` for polars: `pl.List(pl.Int64)`."""
    return _text(dtype, "pl.")


def _text(dtype: pl.DataType, of: str = "") -> str:
    """Formats a type. The names of types begin with `of`."""

    def inside(inner: Any) -> str:
        return _text(as_dtype(inner), of)

    given = ""
    if isinstance(dtype, pl.List):
        given = f"({inside(dtype.inner)})"
    elif isinstance(dtype, pl.Array):
        given = f"({inside(dtype.inner)}, {dtype.size})"
    elif isinstance(dtype, pl.Struct):
        given = f"({{{', '.join(f'{name!r}: {inside(one)}' for name, one in dict(dtype).items())}}})"
    elif isinstance(dtype, pl.Datetime):
        given = f"({dtype.time_unit!r}{f', {dtype.time_zone!r}' if dtype.time_zone else ''})"
    elif isinstance(dtype, pl.Duration):
        given = f"({dtype.time_unit!r})"
    elif isinstance(dtype, pl.Decimal):
        given = f"({dtype.precision}, {dtype.scale})"
    elif isinstance(dtype, pl.Enum):
        given = f"({dtype.categories.to_list()!r})"
    return f"{of}{type(dtype).__name__}{given}"
