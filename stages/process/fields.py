"""The columns of state fields, and the conversion of field values between Python and columns."""

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
from stages.process.combining import CombinedRows
from stages.process.ordered import Ordered
from stages.process.state_fields import Combining, Field, List, Map, OrderedList, Set, Value
from windowing.columns import EVENT_TIME

AsType = Callable[[Any], pl.DataType]
"""A function from a type as users write it to a polars dtype. Raises `TypeError` for anything else."""

Convert = Callable[[Any], Any]

AsObjects = Callable[[Any], tuple[Convert, Convert] | None]
"""For a type whose values are objects of a class: (their conversion from a column's values, that back); else None."""


@attrs.frozen
class FieldColumn:
    """The column of a state field.

    Attributes:
        name: The name of the field.
        kind: The class of the field, such as "Value".
        dtype: The type of the column.
        load: Converts a value of the column to the value that a method reads.
        store: Converts a value of the field to a value of the column.
        default: The value of a field that was not written.
        plain: True if values need no conversion.
        immutable: True if methods can only replace a value, not change it.
        nested: True if a value contains further values that a method can change.
        ttl: The time to live after the last write (us), if any.
        by_event: True if `ttl` is measured in event time, false for processing time.
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
        """True if values are objects, stored by pickle or as structs."""
        return self.kind == "Value" and not self.plain

    @property
    def unpickled(self) -> bool:
        """True if values are stored by pickle."""
        return self.pickled and self.dtype == pl.Binary

    @property
    def column(self) -> str:
        """The name of the state column with the values of the field."""
        return f"__s.{self.name}"

    @property
    def written(self) -> str:
        """The name of the column with the time of the last write (us); it exists only if there is a `ttl`."""
        return f"__w.{self.name}"


def _none(kind: Any) -> None:
    return None


def field_column(
    name: str, field: Field, as_type: AsType, schema: pl.Schema, as_objects: AsObjects = _none
) -> FieldColumn:
    """Returns the column of a field. Raises `TypeError` for an unknown type. `schema` is that of arriving rows."""
    if isinstance(field, Combining):
        return _combining(name, field, schema)
    dtype, load, store = _stored(name, field, as_type, as_objects)
    plain = isinstance(field, Value) and field.type is not object and as_objects(field.type) is None
    default = _default(field, dtype) if isinstance(field, Value) and plain else None
    expiring: Any = field
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
        expiring.ttl,
        expiring.by == "event",
    )


def _is_nested(field: Field, as_type: AsType) -> bool:
    kind = _type_of_values(field)
    return kind is not object and as_type(kind).is_nested()


def _hashable(what: str, kind: Any, as_type: AsType) -> pl.DataType:
    dtype = as_type(kind)
    if dtype.is_nested():
        raise TypeError(f"{what} cannot be {dtype}: such values of Python are not hashable; use a bl.List")
    return dtype


def _stored(
    name: str, field: Field, as_type: AsType, as_objects: AsObjects
) -> tuple[pl.DataType, Convert, Convert]:
    dtype, load, store = _conversions(name, field, as_type)
    require_kept(dtype)
    keys = as_objects(field.key) if isinstance(field, Map) else None
    found = as_objects(_type_of_values(field))
    if keys is None and found is None:
        return dtype, load, store
    same = (_same, _same)
    return (dtype, *_of_objects(field, load, store, found or same, keys or same))


def _type_of_values(field: Field) -> Any:
    match field:
        case Value(type=kind) | List(type=kind) | Set(type=kind) | OrderedList(type=kind) | Map(value=kind):
            return kind
    return None


def _of_objects(
    field: Field,
    load: Convert,
    store: Convert,
    values: tuple[Convert, Convert],
    keys: tuple[Convert, Convert],
) -> tuple[Convert, Convert]:
    """Returns the conversions of a field with objects in place of dicts, or of other values that a column does not
    have.
    """
    load_one, store_one = values
    load_key, store_key = keys

    def loaded(raw: Any) -> Any:
        if isinstance(field, Value):
            return deepcopy(field.default) if raw is None else load_one(raw)
        found = load(raw)
        if isinstance(field, Map):
            return {load_key(key): load_one(value) for key, value in found.items()}
        if isinstance(field, OrderedList):
            return Ordered(found.times, list(map(load_one, found.values)))
        return type(found)(map(load_one, found))

    def stored(value: Any) -> Any:
        if isinstance(field, Value):
            return None if value is None or value == field.default else store_one(value)
        if isinstance(field, Map):
            return store({store_key(key): store_one(one) for key, one in _expected(value, dict).items()})
        if isinstance(field, OrderedList):
            _expected(value, Ordered)
            return store(Ordered(value.times, list(map(store_one, value.values))))
        kinds = (set, frozenset, list) if isinstance(field, Set) else (list, tuple)
        return store(list(map(store_one, _expected(value, *kinds))))

    if isinstance(field, Value) and field.default is not None:
        store_one(field.default)
    return loaded, stored


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
            f"{type(field.aggregate).__name__.lower()} reads event times, which added rows do not have; keep "
            "it in a bl.Value or a bl.OrderedList"
        )
    # Each field is one column of state, so the accumulators of an aggregate are the fields of a struct.
    parts = field.aggregate.parts(schema)
    dtype = pl.Struct({part: spec.dtype for part, spec in parts.items()})
    return FieldColumn(
        name, field.kind, dtype, lambda raw: CombinedRows(field.aggregate, schema, raw), _accumulators
    )


def _default(field: Value[Any], dtype: pl.DataType) -> Any:
    """Returns the default of a field after conversion to its type. Raises `TypeError` if it does not fit."""
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
    """Returns a `store` function that pickles a value, and writes null for a value equal to the default."""
    # Pickled bytes are compared, since a user's class may define no equality.
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
    """Returns the items of a set in an order that is the same in every process."""
    # A replayed batch must write the same bytes.
    return sorted(_expected(value, set, frozenset, list), key=repr) or None


def _dict(raw: list[dict[str, Any]] | None) -> dict[Any, Any]:
    return {entry["key"]: entry["value"] for entry in raw or ()}


def _entries(value: dict[Any, Any]) -> list[dict[str, Any]] | None:
    return [{"key": key, "value": one} for key, one in _expected(value, dict).items()] or None


def _ordered(raw: list[dict[str, Any]] | None) -> Ordered[Any]:
    return Ordered([entry["time"] for entry in raw or ()], [entry["value"] for entry in raw or ()])


def _timed(value: Ordered[Any]) -> list[dict[str, Any]] | None:
    _expected(value, Ordered)
    return [{"time": time, "value": one} for time, one in zip(value.times, value.values, strict=True)] or None


def _accumulators(value: CombinedRows) -> Any:
    return _expected(value, CombinedRows).stored()


def _expected(value: Any, *kinds: type) -> Any:
    if not isinstance(value, kinds):
        raise TypeError(f"it was set to {value!r}; change what it holds, or empty it by clear()")
    return value
