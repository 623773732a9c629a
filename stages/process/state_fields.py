"""The state fields that a user's process declares."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any, ClassVar, Final, TypeVar, overload

import attrs

from stages.aggregates.base import Aggregate
from stages.process.attribute_types import Assignable, Attribute
from stages.process.choices import Domain, kind_of, one_of
from stages.process.combining import CombinedRows
from stages.process.ordered import Ordered
from windowing.time import Duration, format_duration, microseconds

NO_TYPE: Final = "no type"
"""The default of a field's type. A field must declare its type, so the step `process` raises if it finds this value."""


def _lifetime(ttl: Duration | None) -> int | None:
    return None if ttl is None else int(microseconds(ttl))


def _positive(owner: object, attribute: attrs.Attribute[Any], value: int | None) -> None:
    if value is not None and value <= 0:
        raise ValueError(f"ttl must be longer than 0s, not {format_duration(value)!r}")


_Plain = TypeVar("_Plain", bound=int | float | str | bytes | date | time | timedelta | Decimal | list[Any])
"""A Python type whose values are plain in a column. Of other types, such as those of polars, values are `Any`."""

_Value = TypeVar("_Value")
_Key = TypeVar("_Key")
_PlainKey = TypeVar("_PlainKey", bound=int | float | str | bytes | date | time | timedelta | Decimal)


@attrs.frozen(eq=False)
class Field:
    """A state field of a `Process`: a value for each key and window that is stored between rows and batches."""

    kind: ClassVar[str]


@attrs.frozen(eq=False)
class _FieldWithTtl(Field):
    """A field that may expire. `ttl` is the time to live after the last write (us), in event or processing time."""

    # The time of the last write is a column of its own, so that a field without `ttl` costs nothing.

    ttl: int | None = attrs.field(default=None, converter=_lifetime, validator=_positive, kw_only=True)
    by: Domain = attrs.field(default="event", validator=one_of("event", "processing"), kw_only=True)


@attrs.frozen(eq=False, init=False)
class Value(_FieldWithTtl, Assignable[_Value]):
    """A state field with one value: `count = bl.Value(int, default=0)`.

    A `Value(object)` may be anything that pickle can store. Anyone who can write to the checkpoint can then run code in
    the pipeline that reads it.

    Args:
        type: The type as in a schema: a Python type such as `int`, `str`, `datetime` or `list[str]`, or a polars dtype.
        default: The value before the first write, and after expiry.
        ttl: The time after which a written value expires, such as "1h"; by default it does not expire.
        by: "event" if `ttl` is measured in event time, that of the row that reads the value; "processing" for
            processing time.

    Example:
        >>> class Last(bl.Process):
        ...     points = bl.Value(int, default=0, ttl="1d")
    """

    kind: ClassVar[str] = "Value"
    type: Any = attrs.field(default=NO_TYPE)
    default: Any = attrs.field(default=None, kw_only=True)

    @overload
    def __init__(
        self: Value[_Plain | None],
        type: builtins.type[_Plain],
        *,
        default: None = None,
        ttl: Duration | None = None,
        by: Domain = "event",
    ) -> None: ...

    @overload
    def __init__(
        self: Value[_Plain],
        type: builtins.type[_Plain],
        *,
        default: _Plain,
        ttl: Duration | None = None,
        by: Domain = "event",
    ) -> None: ...

    @overload
    def __init__(
        self: Value[dict[str, Any] | None],
        type: Mapping[str, Any],
        *,
        default: None = None,
        ttl: Duration | None = None,
        by: Domain = "event",
    ) -> None: ...

    @overload
    def __init__(
        self: Value[Any],
        type: Any,
        *,
        default: Any = None,
        ttl: Duration | None = None,
        by: Domain = "event",
    ) -> None: ...

    def __init__(
        self, type: Any = NO_TYPE, *, default: Any = None, ttl: Duration | None = None, by: Domain = "event"
    ) -> None:
        self.__attrs_init__(type, default=default, ttl=ttl, by=by)


@attrs.frozen(eq=False, init=False)
class List(_FieldWithTtl, Assignable[list[_Value]]):
    """A state field with a plain Python list, to which `self.items.append(value)` adds.

    Args:
        type: The type of an item, as for `Value`.
        ttl: The time after which the list expires if it is not written; by default it does not expire.
        by: "event" or "processing", as for `Value`.

    Example:
        >>> class Batch(bl.Process):
        ...     rows = bl.List({"user": str, "points": int})
    """

    kind: ClassVar[str] = "List"
    type: Any = attrs.field(default=NO_TYPE)

    @overload
    def __init__(
        self: List[_Plain],
        type: builtins.type[_Plain],
        *,
        ttl: Duration | None = None,
        by: Domain = "event",
    ) -> None: ...

    @overload
    def __init__(
        self: List[dict[str, Any]],
        type: Mapping[str, Any],
        *,
        ttl: Duration | None = None,
        by: Domain = "event",
    ) -> None: ...

    @overload
    def __init__(
        self: List[Any], type: Any, *, ttl: Duration | None = None, by: Domain = "event"
    ) -> None: ...

    def __init__(self, type: Any = NO_TYPE, *, ttl: Duration | None = None, by: Domain = "event") -> None:
        self.__attrs_init__(type, ttl=ttl, by=by)


@attrs.frozen(eq=False, init=False)
class Set(_FieldWithTtl, Assignable[set[_Value]]):
    """A state field with a plain Python set.

    Args:
        type: The type of an item, as for `Value`. It must be hashable in Python.
        ttl: The time after which the set expires if it is not written; by default it does not expire.
        by: "event" or "processing", as for `Value`.

    Example:
        >>> class Seen(bl.Process):
        ...     ids = bl.Set(str, ttl="1h")
    """

    kind: ClassVar[str] = "Set"
    type: Any = attrs.field(default=NO_TYPE)

    @overload
    def __init__(
        self: Set[_PlainKey],
        type: builtins.type[_PlainKey],
        *,
        ttl: Duration | None = None,
        by: Domain = "event",
    ) -> None: ...

    @overload
    def __init__(self: Set[Any], type: Any, *, ttl: Duration | None = None, by: Domain = "event") -> None: ...

    def __init__(self, type: Any = NO_TYPE, *, ttl: Duration | None = None, by: Domain = "event") -> None:
        self.__attrs_init__(type, ttl=ttl, by=by)


@attrs.frozen(eq=False, init=False)
class Map(_FieldWithTtl, Assignable[dict[_Key, _Value]]):
    """A state field with a plain Python dict, which is read and written as a whole.

    Instead of a large map, group by a finer key.

    Args:
        key: The type of a key, as for `Value`. It must be hashable in Python.
        value: The type of a value.
        ttl: The time after which the map expires if it is not written; by default it does not expire.
        by: "event" or "processing", as for `Value`.

    Example:
        >>> class Counts(bl.Process):
        ...     by_page = bl.Map(str, int)
    """

    kind: ClassVar[str] = "Map"
    key: Any = attrs.field(default=NO_TYPE)
    value: Any = attrs.field(default=NO_TYPE)

    @overload
    def __init__(
        self: Map[_PlainKey, _Plain],
        key: builtins.type[_PlainKey],
        value: builtins.type[_Plain],
        *,
        ttl: Duration | None = None,
        by: Domain = "event",
    ) -> None: ...

    @overload
    def __init__(
        self: Map[_PlainKey, Any],
        key: builtins.type[_PlainKey],
        value: Any,
        *,
        ttl: Duration | None = None,
        by: Domain = "event",
    ) -> None: ...

    @overload
    def __init__(
        self: Map[Any, Any],
        key: Any,
        value: Any,
        *,
        ttl: Duration | None = None,
        by: Domain = "event",
    ) -> None: ...

    def __init__(
        self,
        key: Any = NO_TYPE,
        value: Any = NO_TYPE,
        *,
        ttl: Duration | None = None,
        by: Domain = "event",
    ) -> None:
        self.__attrs_init__(key, value, ttl=ttl, by=by)


@attrs.frozen(eq=False, init=False)
class OrderedList(_FieldWithTtl, Attribute[Ordered[_Value]]):
    """A state field with values in the order of their times. Its methods are those of `Ordered`.

    Args:
        type: The type of a value, as for `Value`.
        ttl: The time after which the list expires if it is not written; by default it does not expire.
        by: "event" or "processing", as for `Value`.

    Example:
        >>> class Recent(bl.Process):
        ...     prices = bl.OrderedList(float)
    """

    kind: ClassVar[str] = "OrderedList"
    type: Any = attrs.field(default=NO_TYPE)

    @overload
    def __init__(
        self: OrderedList[_Plain],
        type: builtins.type[_Plain],
        *,
        ttl: Duration | None = None,
        by: Domain = "event",
    ) -> None: ...

    @overload
    def __init__(
        self: OrderedList[dict[str, Any]],
        type: Mapping[str, Any],
        *,
        ttl: Duration | None = None,
        by: Domain = "event",
    ) -> None: ...

    @overload
    def __init__(
        self: OrderedList[Any], type: Any, *, ttl: Duration | None = None, by: Domain = "event"
    ) -> None: ...

    def __init__(self, type: Any = NO_TYPE, *, ttl: Duration | None = None, by: Domain = "event") -> None:
        self.__attrs_init__(type, ttl=ttl, by=by)


@attrs.frozen(eq=False)
class Combining(Field, Attribute[CombinedRows]):
    """A state field with an aggregate of added rows: `total = bl.Combining(bl.sum("amount"))`.

    `self.total.add(row)` adds a row, or any dict with the aggregate's columns. `self.total.read()` returns the result,
    and `self.total.clear()` removes all added rows. Adding is cheap. A read takes a fraction of a millisecond; for a
    result that is read at every row, a `Value` is faster.

    Args:
        aggregate: An aggregate such as `bl.sum("amount")`.

    Example:
        >>> class Total(bl.Process):
        ...     points = bl.Combining(bl.sum("points"))
    """

    kind: ClassVar[str] = "Combining"
    aggregate: Aggregate = attrs.field(validator=kind_of(Aggregate, 'an aggregate such as bl.sum("points")'))
