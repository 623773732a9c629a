"""The columns of state fields, and the conversion of values between Python and these columns."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import attrs
import polars as pl

from stages import pickled
from stages.aggregates.combine_fn import Combine
from stages.process.columns import MISFITS, as_column, require_kept
from stages.process.combining import Combined
from stages.process.declarations import Combining, Field, List, Map, OrderedList, Set, Value
from stages.process.ordered import Ordered
from windowing.columns import EVENT_TIME

AsType = Callable[[Any], pl.DataType]
"""The polars dtype of a type as users write it; raises `TypeError` for anything else."""


@attrs.frozen
class FieldColumn:
    """A field as a column.

    `load` converts a value of the column to the one that a method reads, `store` converts it back. `plain`: both are
    the same, so values are loaded without conversion. `immutable`: no method can change such a value. `nested`: the
    value contains others that a method can change. `ttl` is in microseconds, of event or processing time.
    """

    name: str
    kind: str
    dtype: pl.DataType
    load: Callable[[Any], Any]
    store: Callable[[Any], Any]
    default: Any = None
    plain: bool = False
    immutable: bool = False
    nested: bool = False
    ttl: int | None = None
    by_event: bool = True

    @property
    def pickled(self) -> bool:
        """True if values are arbitrary objects, stored by pickle."""
        return self.kind == "Value" and not self.plain

    @property
    def column(self) -> str:
        """The column of its values."""
        return f"__s.{self.name}"

    @property
    def written(self) -> str:
        """The column with the time of the last write (us), of a field that expires."""
        return f"__w.{self.name}"


def field_column(name: str, field: Field, as_type: AsType, schema: pl.Schema) -> FieldColumn:
    """Returns the column of a field; `schema` contains the columns of rows. Raises `TypeError` for an unknown type."""
    if isinstance(field, Combining):
        return _combining(name, field, schema)
    dtype, load, store = _stored(name, field, as_type)
    default = _default(field, dtype) if isinstance(field, Value) else None
    plain = isinstance(field, Value) and field.type is not object
    lasting: Any = field
    return FieldColumn(
        name,
        field.kind,
        dtype,
        load,
        store,
        default,
        plain,
        plain and not dtype.is_nested(),
        _is_nested(field, as_type),
        lasting.ttl,
        lasting.by == "event",
    )


def _is_nested(field: Field, as_type: AsType) -> bool:
    match field:
        case Value(type=kind) | List(type=kind) | Set(type=kind) | OrderedList(type=kind) | Map(value=kind):
            return kind is not object and as_type(kind).is_nested()
    return False


def _hashable(what: str, kind: Any, as_type: AsType) -> pl.DataType:
    dtype = as_type(kind)
    if dtype.is_nested():
        raise TypeError(f"{what} cannot be {dtype}: such values of Python are not hashable; use a bl.List")
    return dtype


def _stored(
    name: str, field: Field, as_type: AsType
) -> tuple[pl.DataType, Callable[[Any], Any], Callable[[Any], Any]]:
    dtype, load, store = _conversions(name, field, as_type)
    require_kept(dtype)
    return dtype, load, store


def _conversions(
    name: str, field: Field, as_type: AsType
) -> tuple[pl.DataType, Callable[[Any], Any], Callable[[Any], Any]]:
    match field:
        case Value(type=kind) if kind is object:
            return pl.Binary(), _unpickled(name, field.default), _pickled(field.default)
        case Value():
            return as_type(field.type), _same, _same
        case List():
            return pl.List(as_type(field.type)), _list, _or_nothing
        case Set():
            return pl.List(_hashable("values of a Set", field.type, as_type)), _set, _sorted
        case Map():
            key = _hashable("keys of a Map", field.key, as_type)
            entry = pl.Struct({"key": key, "value": as_type(field.value)})
            return pl.List(entry), _dict, _entries
        case OrderedList():
            entry = pl.Struct({"time": pl.Int64(), "value": as_type(field.type)})
            return pl.List(entry), _ordered, _timed
    raise TypeError(f"{field!r} is no state field that is known")


def _combining(name: str, field: Combining, schema: pl.Schema) -> FieldColumn:
    for column in field.aggregate.columns:
        if column not in schema:
            raise TypeError(f"{name} reads the column {column!r}, which the rows do not have")
    field.aggregate.dtype(schema)
    if isinstance(field.aggregate, Combine):
        raise TypeError(
            f"a CombineFn such as {type(field.aggregate.fn).__name__} is for groupings; keep its accumulator in a "
            "bl.Value(object), and call its functions in the methods"
        )
    if any(EVENT_TIME in part.meta.root_names() for part in field.aggregate.lift(schema).values()):
        raise TypeError(
            f"{type(field.aggregate).__name__.lower()} looks at event times, which what is added does not have; keep "
            "it in a bl.Value or a bl.OrderedList"
        )
    parts = field.aggregate.parts(schema)
    dtype = pl.Struct({part: spec.dtype for part, spec in parts.items()})
    return FieldColumn(
        name, field.kind, dtype, lambda raw: Combined(field.aggregate, schema, raw), _accumulators
    )


def _default(field: Value, dtype: pl.DataType) -> Any:
    """The default as the column returns it. Raises `TypeError` if the column cannot hold it."""
    if field.default is None:
        return None
    if field.type is object:
        pickle.dumps(field.default)
        return field.default
    try:
        return as_column("default", [field.default], dtype).to_list()[0]
    except MISFITS as error:
        why = str(error).partition("\n")[0]
        raise TypeError(f"the default {field.default!r} is no {dtype}: {why}") from None


def _same(value: Any) -> Any:
    return value


def _unpickled(name: str, default: Any) -> Callable[[Any], Any]:
    return lambda raw: deepcopy(default) if raw is None else pickled.load(raw, f"field {name!r}")


def _pickled(default: Any) -> Callable[[Any], Any]:
    """Returns a `store` that writes null for a value equal to the default."""
    nothing = pickle.dumps(default)

    def store(value: Any) -> bytes | None:
        raw = pickle.dumps(value)
        return None if raw == nothing else raw

    return store


def _list(raw: list[Any] | None) -> list[Any]:
    return raw or []


def _or_nothing(value: list[Any]) -> list[Any] | None:
    return list(_expected(value, list, tuple)) or None


def _set(raw: list[Any] | None) -> set[Any]:
    return set(raw or ())


def _sorted(value: set[Any]) -> list[Any] | None:
    """The values in an order that is the same in each process, which that of a set is not."""
    return sorted(_expected(value, set, frozenset, list), key=repr) or None


def _dict(raw: list[dict[str, Any]] | None) -> dict[Any, Any]:
    return {entry["key"]: entry["value"] for entry in raw or ()}


def _entries(value: dict[Any, Any]) -> list[dict[str, Any]] | None:
    return [{"key": key, "value": one} for key, one in _expected(value, dict).items()] or None


def _ordered(raw: list[dict[str, Any]] | None) -> Ordered:
    return Ordered([entry["time"] for entry in raw or ()], [entry["value"] for entry in raw or ()])


def _timed(value: Ordered) -> list[dict[str, Any]] | None:
    _expected(value, Ordered)
    return [{"time": time, "value": one} for time, one in zip(value.times, value.values, strict=True)] or None


def _accumulators(value: Combined) -> Any:
    return _expected(value, Combined).stored()


def _expected(value: Any, *kinds: type) -> Any:
    if not isinstance(value, kinds):
        raise TypeError(f"it was set to {value!r}; change what it holds, or empty it by clear()")
    return value
