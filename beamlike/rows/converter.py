"""Conversion of columns' values to objects of users' classes and back, by cattrs, and by pydantic for its models."""

from __future__ import annotations

from collections.abc import Callable, Set
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import cache, partial
from operator import is_
from typing import Any, Final, NotRequired, Required, TypedDict, is_typeddict
from uuid import UUID

import attrs
from cattrs import ClassValidationError, Converter, transform_error
from cattrs.fns import identity
from cattrs.gen import make_dict_structure_fn_from_attrs, make_dict_unstructure_fn, override, typeddicts

from beamlike.rows.annotations import PLAIN, unwrapped
from beamlike.rows.models import is_model, is_special, validation_text
from beamlike.rows.row_classes import fields_of_class, is_row_class

Hook = Callable[[Any], Any]

AS_THEY_ARE: Final = (*PLAIN, datetime, date, time, timedelta, Decimal)
"""Types whose values are the same in a column and in an object."""


def is_as_it_is(annotation: Any) -> bool:
    """True if values of a column and of a field with this annotation have the same Python type, so that no conversion
    is needed.
    """
    return unwrapped(annotation).kind in AS_THEY_ARE


def to_object(kind: type) -> Hook:
    """Returns a function that makes an object of the class `kind` from a dict of columns.

    The function raises the error of the class itself, or `ValueError`, with the name of the field, for a value of a
    wrong type.
    """
    if is_model(kind):
        return kind.model_validate  # type: ignore[attr-defined, no-any-return]
    make = _converter(careful=False).get_structure_hook(kind)

    def made(row: dict[str, Any]) -> Any:
        try:
            return make(row, kind)
        except Exception:
            _raise_where(kind, row)
            raise

    return made


def _raise_where(kind: type, row: dict[str, Any]) -> None:
    """Raises `ValueError` with the path of the wrong field of `row`. Returns if the error was raised by the class
    itself.
    """
    try:
        _converter(careful=True).structure(row, kind)
    except ClassValidationError as errors:
        if all(getattr(error, "__notes__", ()) for error in errors.exceptions):
            raise ValueError("; ".join(transform_error(errors, kind.__name__, _error_text))) from None


def _error_text(error: BaseException, _: Any) -> str:
    return validation_text(error) or (f"{error} is missing" if isinstance(error, KeyError) else str(error))


def from_field(annotation: Any) -> Hook | None:
    """Returns a function that converts values of a field to values of its column; None if both are the same."""
    if is_as_it_is(annotation):
        return None
    found = _converter(careful=False).get_unstructure_hook(annotation)
    return None if found is identity else found


@cache
def _converter(*, careful: bool) -> Converter:
    """Returns the converter. If `careful`, it is slower, and its errors have the path of the field."""
    converter = Converter(detailed_validation=careful, unstruct_collection_overrides={Set: _sorted})
    for kind in (*AS_THEY_ARE, Any):
        converter.register_structure_hook_func(partial(is_, kind), _as_it_is)
    converter.register_structure_hook_func(is_derived, lambda value, kind: kind(value))
    converter.register_unstructure_hook(UUID, str)
    converter.register_unstructure_hook_factory(_is_enum, lambda kind: partial(_from_enum, kind))
    converter.register_structure_hook(UUID, lambda value, _: UUID(value))
    converter.register_unstructure_hook_func(is_special, _from_special)
    converter.register_structure_hook_factory(is_row_class, lambda kind: _to_class(kind, converter))
    converter.register_unstructure_hook_factory(is_row_class, lambda kind: _from_class(kind, converter))
    converter.register_structure_hook_factory(is_typeddict, lambda kind: _to_dict(kind, converter))
    converter.register_unstructure_hook_factory(is_typeddict, lambda kind: _from_dict(kind, converter))
    converter.register_structure_hook_func(is_model, lambda value, kind: kind.model_validate(value))
    return converter


def _as_it_is(value: Any, _: Any) -> Any:
    return value


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Enum)


def _from_enum(kind: type[Enum], value: Any) -> Any:
    """Returns the value of a member. `value` may be the value already: a model with `use_enum_values` stores it."""
    return value.value if isinstance(value, Enum) else kind(value).value


def is_derived(kind: Any) -> bool:
    """True for a user's subclass of a Python type, such as `class UserId(str)`."""
    return isinstance(kind, type) and kind not in PLAIN and kind.__bases__[:1] in [(base,) for base in PLAIN]


def _sorted(values: Any) -> list[Any]:
    """Returns the values in an order that is the same in each process, so that a repeated batch is the same."""
    return sorted(values, key=repr)


def _from_special(value: Any) -> Any:
    return value if isinstance(value, AS_THEY_ARE) else str(value)


# cattrs gets classes that are alike, as it cannot find what their annotations mean in a process that received a class.


def _to_class(kind: type, converter: Converter) -> Callable[[Any, Any], Any]:
    fields = [*attrs.fields(_alike(kind))]
    return make_dict_structure_fn_from_attrs(fields, kind, converter, **_renamed(kind))


def _from_class(kind: type, converter: Converter) -> Hook:
    return make_dict_unstructure_fn(_alike(kind), converter, **_renamed(kind))


def _alike(kind: type) -> type[attrs.AttrsInstance]:
    """Makes a class of attrs with the fields of any class of rows."""
    fields = {
        one.name: attrs.field(
            default=attrs.NOTHING if one.required else None,
            type=one.annotation,
            alias=one.argument,
            kw_only=True,
        )
        for one in fields_of_class(kind)
    }
    return attrs.make_class(kind.__name__, fields)


def _renamed(kind: type) -> dict[str, Any]:
    return {one.name: override(rename=one.column) for one in fields_of_class(kind)}


def _to_dict(kind: type, converter: Converter) -> Callable[[Any, Any], Any]:
    return typeddicts.make_dict_structure_fn(_dict_alike(kind), converter)


def _from_dict(kind: type, converter: Converter) -> Hook:
    return typeddicts.make_dict_unstructure_fn(_dict_alike(kind), converter)


def _dict_alike(kind: type) -> Any:
    """Makes a `TypedDict` with marks on all keys: Python does not see `NotRequired` in annotations that are text."""
    keys = {
        one.column: (Required if one.required else NotRequired)[one.annotation]
        for one in fields_of_class(kind)
    }
    make: Any = TypedDict
    return make(kind.__name__, keys)
