"""Copies of the rows that a user's function emits, made at once, because the function may change a row afterwards.

A method of a `Process` may emit what its state contains, or the same dict again and again. Results are converted to
columns for a whole batch, so without a copy they would depend on the division of rows into batches.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from copy import deepcopy
from functools import partial
from operator import attrgetter
from typing import Any, Final, is_typeddict

import attrs
import polars as pl

from beamlike.rows.converter import Hook, is_as_it_is
from beamlike.rows.objects import as_dict, written
from beamlike.rows.row_class import RowClass
from beamlike.rows.row_classes import fields_of_class, is_named_tuple


class Taken(dict[str, Any]):
    """The converted values of an object of a row class, by column."""

    __slots__ = ()


@attrs.frozen
class Taking:
    """The declaration of a function that copies an emitted row: a dict or, if there is a `row_class`, also an object of
    that class.

    The function returns any other value unchanged, as well as a row that it cannot convert. The conversion to columns
    then reports the error.
    """

    schema: pl.Schema
    row_class: RowClass | None = None

    def __call__(self) -> Hook:
        """Creates the function, which is called with each emitted row."""
        copied = _of_dict(self.schema)
        return copied if self.row_class is None else _of_object(self.row_class.kind, copied)


def _of_dict(schema: pl.Schema) -> Hook:
    nested = {name: copy for name, dtype in schema.items() if (copy := _copying(dtype)) is not None}
    if not nested:
        return _shallow

    def take(row: Any) -> Any:
        if not isinstance(row, Mapping):
            return row
        found = dict(row)
        for name, copy in nested.items():
            if name in found:
                found[name] = copy(found[name])
        return found

    return take


def _shallow(row: Any) -> Any:
    if type(row) is dict:
        return row.copy()
    return dict(row) if isinstance(row, Mapping) else row


def _of_object(kind: Any, copied: Hook) -> Hook:
    if is_typeddict(kind):
        return partial(_of_typed_dict, kind)
    if _is_fixed(kind):
        return lambda row: row if isinstance(row, kind) else copied(row)
    fields = fields_of_class(kind)
    columns = [field.column for field in fields]
    names = [field.name for field in fields]
    read = attrgetter(*names) if len(names) > 1 else lambda row: (getattr(row, names[0]),)
    converted = [(name, convert) for name, convert in written(kind).items() if convert is not None]

    def take(row: Any) -> Any:
        if not isinstance(row, kind):
            return copied(row)
        try:
            found = Taken(zip(columns, read(row)))  # noqa: B905  as `strict` costs more than the rest
            for name, convert in converted:
                if (value := found[name]) is not None:
                    found[name] = convert(value)
        except Exception:  # of any class; the conversion to columns reports it
            return row
        return found

    return take


def _of_typed_dict(kind: Any, row: Any) -> Any:
    try:
        return Taken(as_dict(kind, row))
    except Exception:
        return row


def _is_fixed(kind: Any) -> bool:
    """True for a class whose objects and their values cannot be changed."""
    if not all(is_as_it_is(field.annotation) for field in fields_of_class(kind)):
        return False
    if dataclasses.is_dataclass(kind):
        return bool(getattr(kind, "__dataclass_params__").frozen)  # noqa: B009  mypy does not know the attribute
    return is_named_tuple(kind) or (attrs.has(kind) and attrs.inspect(kind).is_frozen)


_FIXED: Final = (str, bytes, int, float, frozenset, type(None))


def _copying(dtype: Any) -> Hook | None:
    """Returns a function that copies the values of a nested column at each depth; None for values without parts."""
    if isinstance(dtype, pl.List | pl.Array):
        inner = _copying(dtype.inner)
        return _copied if inner is None else lambda value: _each(value, inner)
    if isinstance(dtype, pl.Struct):
        parts = {part.name: copy for part in dtype.fields if (copy := _copying(part.dtype)) is not None}
        return _copied if not parts else lambda value: _parts(value, parts)
    return deepcopy if isinstance(dtype, pl.Object) else None


def _copied(value: Any) -> Any:
    if type(value) in (list, dict, set):
        return value.copy()
    return value if isinstance(value, _FIXED) else deepcopy(value)


def _each(value: Any, copy: Hook) -> Any:
    return [copy(one) for one in value] if type(value) in (list, tuple) else _copied(value)


def _parts(value: Any, parts: Mapping[str, Hook]) -> Any:
    if type(value) is not dict:
        return _copied(value)
    return {name: parts[name](one) if name in parts else one for name, one in value.items()}
