"""Conversion of state fields. A field has values of one type in every batch, whether a batch has set them or they
were loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from enum import Enum
from functools import partial
from typing import Any, Final, Literal, get_args, get_origin
from uuid import UUID

from beamlike.rows.annotations import item_of, unwrapped
from beamlike.rows.converter import Hook, is_derived
from beamlike.rows.objects import as_dict, is_plain_dict, maker
from beamlike.rows.row_class import RowClass
from beamlike.rows.row_classes import is_row_class

_GATHERED: Final[Mapping[Any, Callable[[Any], Any]]] = {
    set: set,
    Set: set,
    frozenset: frozenset,
    tuple: tuple,
}


def conversions(annotation: Any) -> tuple[Hook, Hook] | None:
    """Returns a pair of functions: one converts values of a column to values of the annotation, the other converts them
    back. None if no conversion is needed.

    Both raise for a value that does not fit.
    """
    kind = unwrapped(annotation).kind
    if is_row_class(kind):
        row = RowClass(kind)
        return None if is_plain_dict(kind) else (partial(_loaded, row), partial(_stored, row))
    if get_origin(kind) is Literal:
        members = {one.value: one for one in get_args(kind) if isinstance(one, Enum)}
        return None if not members else (partial(_member, members), partial(_value_of, Enum, _raw))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return partial(_some, kind), partial(_value_of, kind, _raw)
    if kind is UUID:
        return partial(_some, UUID), partial(_value_of, UUID, str)
    if is_derived(kind):
        return partial(_some, kind), partial(_value_of, kind, _same)
    return _of_items(kind)


def _of_items(kind: Any) -> tuple[Hook, Hook] | None:
    if (item := item_of(kind)) is None:
        return None
    gather, found = _GATHERED.get(get_origin(kind), list), conversions(item)
    if found is None and gather is list:
        return None
    load, store = found or (_same, _same)
    return partial(_each, gather, load), partial(_listed, store)


def _loaded(row: RowClass, raw: dict[str, Any]) -> Any:
    return maker(row.kind)(raw)


def _stored(row: RowClass, value: Any) -> dict[str, Any]:
    found = as_dict(row.kind, value)
    if not isinstance(found, Mapping):
        raise TypeError(f"expected an object of {row.kind.__name__}, got {value!r}")
    return dict(found)


def _each(gather: Callable[[Any], Any], convert: Hook, values: Any) -> Any:
    return None if values is None else gather(map(convert, values))


def _listed(convert: Hook, values: Any) -> Any:
    if isinstance(values, set | frozenset):
        return sorted(map(convert, values), key=repr)  # a repeated batch writes the same
    return None if values is None else list(map(convert, values))


def _same(value: Any) -> Any:
    return value


def _raw(value: Any) -> Any:
    return value.value


def _some(kind: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else kind(value)


def _member(members: Mapping[Any, Any], value: Any) -> Any:
    return members.get(value, value)


def _value_of(kind: type, convert: Hook, value: Any) -> Any:
    if value is not None and not isinstance(value, kind):
        raise TypeError(f"expected an object of {kind.__name__}, got {value!r}")
    return None if value is None else convert(value)
