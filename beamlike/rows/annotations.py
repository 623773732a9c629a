"""Type annotations of rows: the type in an annotation, and the column type for its values."""

from __future__ import annotations

from collections import abc
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from enum import Enum
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NewType,
    Union,
    get_args,
    get_origin,
)
from uuid import UUID

import attrs
import polars as pl

from beamlike.rows.models import dtype_of_special, is_special
from beamlike.rows.row_classes import fields_of_class, is_row_class

_LISTS: Final = (list, set, frozenset, abc.Sequence, abc.Set, abc.Iterable, abc.Collection)
_MAPPINGS: Final = (dict, abc.Mapping, abc.MutableMapping)
PLAIN: Final = (str, bool, int, float, bytes)
"""Types of Python whose subclasses are stored like them."""

DECIMAL_DIGITS: Final = (38, 18)
"""The precision and scale of a Decimal without bounds, as in Spark."""

_HINT: Final = (
    "write int, float, str, bool, bytes, datetime, list[str] and such, or Annotated[..., a polars dtype]"
)


@attrs.frozen
class Unwrapped:
    """The parts of an annotation: its type `kind`; `optional`, if the value may be None; and the `metadata` of each
    `Annotated`.
    """

    kind: Any
    optional: bool = False
    metadata: tuple[Any, ...] = ()


def unwrapped(annotation: Any) -> Unwrapped:
    """Divides an annotation into its parts: removes `Annotated`, `Optional`, None among literals, `NewType` and type
    aliases.
    """
    optional, metadata = False, ()
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            annotation, *found = get_args(annotation)
            metadata = (*found, *metadata)
        elif origin in (Union, UnionType) and NoneType in get_args(annotation):
            optional = True
            rest = tuple(one for one in get_args(annotation) if one is not NoneType)
            annotation = Union[rest]  # noqa: UP007  of a tuple
        elif origin is Literal and len(get_args(annotation)) > 1 and None in get_args(annotation):
            optional = True
            annotation = Literal[tuple(one for one in get_args(annotation) if one is not None)]
        elif isinstance(annotation, NewType):
            annotation = annotation.__supertype__
        elif type(annotation).__name__ == "TypeAliasType":  # in `typing` from Python 3.12 on
            annotation = annotation.__value__
        else:
            return Unwrapped(annotation, optional, metadata)


def item_of(kind: Any) -> Any:
    """Returns the annotation of the items of a list, set or tuple of any length; None for another type."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in _LISTS and len(args) == 1:
        return args[0]
    if origin is tuple and len(args) == 2 and args[1] is ...:
        return args[0]
    return None


def annotated_dtype(annotation: Any) -> pl.DataType:
    """Returns the polars dtype for values with this annotation. Any column may have nulls.

    A class of rows becomes a struct. An enum or `Literal` has the type of its values, and a `datetime` is in
    microseconds UTC. Raises `TypeError` for a type that no column can have.
    """
    return _dtype(annotation, ())


def class_schema(kind: type) -> dict[str, pl.DataType]:
    """Returns the columns of a user's class. Raises `TypeError` for a field that no column can have."""
    return dict(_columns(kind, ()))


def _columns(kind: type, within: tuple[type, ...]) -> Iterator[tuple[str, pl.DataType]]:
    if kind in within:
        raise TypeError(f"{kind.__name__} contains itself, so its structs would have no end")
    for field in fields_of_class(kind):
        try:
            yield field.column, _dtype(field.annotation, (*within, kind))
        except TypeError as error:
            raise TypeError(f"{kind.__name__}.{field.name}: {error}") from None


def _dtype(annotation: Any, within: tuple[type, ...]) -> pl.DataType:
    one = unwrapped(annotation)
    kind = one.kind
    for given in one.metadata:
        if isinstance(given, pl.DataType):
            return given
        if isinstance(given, type) and issubclass(given, pl.DataType):
            return given()
    if is_row_class(kind):
        return pl.Struct(dict(_columns(kind, within)))
    if (item := item_of(kind)) is not None:
        return pl.List(_dtype(item, within))
    if get_origin(kind) is Literal:
        return _of_values(kind, get_args(kind))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _of_values(kind, [member.value for member in kind])
    return _leaf(kind, one.metadata)


def _leaf(kind: Any, metadata: tuple[Any, ...]) -> pl.DataType:
    if kind is datetime:
        return pl.Datetime("us", "UTC")
    if kind is UUID:
        return pl.String()
    if kind is Decimal:
        return _decimal(metadata)
    if is_special(kind):
        return dtype_of_special(kind)
    plain = next((base for base in PLAIN if isinstance(kind, type) and issubclass(kind, base)), kind)
    try:
        found = pl.DataType.from_python(plain)
        made = found() if isinstance(found, type) else found
    except (TypeError, ValueError, pl.exceptions.PolarsError):
        made = pl.Object()
    if isinstance(made, pl.Object | pl.Null | pl.Unknown | pl.List):
        raise TypeError(f"{_shown(kind)} has no column type; {_hint(kind)}") from None
    return made


def _of_values(kind: Any, values: Any) -> pl.DataType:
    """Returns the type of an enum's values, which must be text only, or whole numbers only."""
    found = [value.value if isinstance(value, Enum) else value for value in values]
    for base, dtype in ((str, pl.String()), (bool, pl.Boolean()), (int, pl.Int64())):
        if found and all(isinstance(value, base) for value in found):
            return dtype
    raise TypeError(f"the values of {_shown(kind)} are neither all text nor all whole numbers")


def _decimal(metadata: tuple[Any, ...]) -> pl.DataType:
    """Returns a Decimal with the precision and scale that pydantic's `Field` declares in the metadata, or the
    default ones.
    """
    found: dict[str, int] = {}
    for given in metadata:
        for name in ("max_digits", "decimal_places"):
            if isinstance(value := getattr(given, name, None), int):
                found[name] = value
    digits, places = DECIMAL_DIGITS
    return pl.Decimal(found.get("max_digits", digits), found.get("decimal_places", places))


def _hint(kind: Any) -> str:
    if (get_origin(kind) or kind) in _MAPPINGS:
        return "write a class with its fields, or a list of a class with a key and a value"
    if kind in (list, tuple, set, frozenset):
        return f"write the type of its values, such as {kind.__name__}[str]"
    if get_origin(kind) is tuple:
        return "write a NamedTuple, which has names, or a list"
    if get_origin(kind) in (Union, UnionType):
        return "a column has values of one type"
    return _HINT


def _shown(kind: Any) -> str:
    return (
        kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind).replace("typing.", "")
    )
