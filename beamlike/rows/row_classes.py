"""Users' classes of rows: dataclasses, attrs classes, NamedTuples, TypedDicts and pydantic models, by their fields."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from types import NoneType
from typing import Any, Final, NotRequired, Required, get_args, get_origin, get_type_hints, is_typeddict

import attrs

from beamlike.rows.models import is_model, model_fields

NO_DEFAULT: Final = attrs.NOTHING
COMPUTED: Final = ...
"""The default of a field that the class itself finds for each object."""

_VALUES: Final = (str, bool, int, float, bytes, datetime, date, time, timedelta, Decimal, NoneType)
"""Types of the defaults that can be in a column."""


_MARKS: Final = (Required, NotRequired, Final)
"""Marks of fields around their types."""


def _default(value: Any) -> Any:
    return value if value is NO_DEFAULT or type(value) in _VALUES else COMPUTED


@attrs.frozen
class RowField:
    """A field of a user's class, and the column of its values.

    `argument` is the name of the field in a call of the class, and `by_name` is true if a call must name it.
    """

    name: str
    column: str
    annotation: Any
    default: Any = attrs.field(default=NO_DEFAULT, converter=_default)
    argument: str = ""
    by_name: bool = False

    @property
    def required(self) -> bool:
        """True if the field has no default."""
        return self.default is NO_DEFAULT


_KNOWN: Final[dict[type, tuple[RowField, ...]]] = {}
"""The fields of classes that were found before, or in another process."""


def is_row_class(kind: object) -> bool:
    """True for a class whose fields are columns."""
    return isinstance(kind, type) and (
        dataclasses.is_dataclass(kind)
        or attrs.has(kind)
        or is_typeddict(kind)
        or is_named_tuple(kind)
        or is_model(kind)
    )


def is_named_tuple(kind: object) -> bool:
    """True for a class of named tuples."""
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")


def fields_of_class(kind: type) -> tuple[RowField, ...]:
    """Returns the fields of a row class, in order. Raises `TypeError` if there are none, or one has no type."""
    if kind not in _KNOWN:
        found = [RowField(*one) for one in model_fields(kind)] if is_model(kind) else _declared(kind)
        if not found:
            raise TypeError(f"{kind.__name__} has no fields")
        _KNOWN[kind] = tuple(found)
    return _KNOWN[kind]


def columns_of_class(kind: type) -> list[str]:
    """Returns the names of the columns of a row class, in order."""
    return [field.column for field in fields_of_class(kind)]


def learn(known: Mapping[type, tuple[RowField, ...]]) -> None:
    """Stores fields that another process has found, so that `fields_of_class` returns them."""
    for kind, fields in known.items():
        _KNOWN.setdefault(kind, fields)


def _declared(kind: Any) -> list[RowField]:
    hints = _hints(kind)

    def field(name: str, default: Any, argument: str = "", by_name: bool = False) -> RowField:
        if hints.get(name) is None:
            raise TypeError(f"{kind.__name__}.{name} has no type; annotate it")
        return RowField(name, name, _unmarked(hints[name]), default, argument or name, by_name)

    if is_typeddict(kind):
        return [field(name, COMPUTED if _may_lack(kind, name, hints[name]) else NO_DEFAULT) for name in hints]
    if is_named_tuple(kind):
        return [field(name, kind._field_defaults.get(name, NO_DEFAULT)) for name in kind._fields]
    if attrs.has(kind):
        given = [one for one in attrs.fields(kind) if one.init]
        return [field(one.name, one.default, one.alias or "", one.kw_only) for one in given]
    own = [one for one in dataclasses.fields(kind) if one.init]
    return [field(one.name, _default_of(one), by_name=one.kw_only is True) for one in own]


def _default_of(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return COMPUTED
    return NO_DEFAULT if field.default is dataclasses.MISSING else field.default


def _unmarked(annotation: Any) -> Any:
    while get_origin(annotation) in _MARKS:
        (annotation,) = get_args(annotation)
    return annotation


def _may_lack(kind: Any, name: str, annotation: Any) -> bool:
    """True if the key `name` of a `TypedDict` may be missing."""
    mark = get_origin(annotation)
    return mark is NotRequired or (mark is not Required and name in kind.__optional_keys__)


def _hints(kind: type) -> dict[str, Any]:
    """Returns the types of fields by name: the annotations of a class, and types that are arguments of
    `attrs.field`.
    """
    given = {one.name: one.type for one in attrs.fields(kind)} if attrs.has(kind) else {}
    try:
        return {**given, **get_type_hints(kind, include_extras=True)}
    except NameError as error:
        raise TypeError(
            f"{kind.__name__} has an annotation with a name that its module does not have: {error}; define classes at "
            "the top of a module"
        ) from None
