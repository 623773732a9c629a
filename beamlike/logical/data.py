"""Declared values as plain data for a file: numbers, text, lists and dicts, such as `{"FixedWindows": "1m"}`."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from inspect import Parameter
from pathlib import PurePath
from typing import Any, Final

import attrs
import narwhals as nw
import polars as pl
from narwhals.dtypes import DType

from beamlike.errors import PlanError
from beamlike.expressions.row_expression import ExpressionOfRows
from beamlike.expressions.written import (
    NoText,
    aggregate_as_text,
    expression_as_text,
    name_text,
    value_text,
)
from beamlike.io.kafka.codecs import Json, Plain
from beamlike.io.memory import Rows
from beamlike.io.redis.messages import Typed
from beamlike.io.test_stream.stream import TestStream
from beamlike.logical.lookups import LookupColumn, LookupRequest
from beamlike.logical.node import Node
from beamlike.rows.dtypes import as_dtype, columns_of
from beamlike.rows.row_classes import is_row_class
from beamlike.rows.type_text import dtype_as_text
from beamlike.system.secrets import without_secrets
from beamlike.system.texts import quoted
from stages.aggregates.base import Aggregate
from stages.process.cumulative import Previous
from stages.sides.declarations import LIMIT
from windowing.custom import CustomWindows
from windowing.time import Microseconds, format_duration

_OURS: Final = ("windowing", "stages", "beamlike")
_FUNCTIONS: Final = {
    "Json": "json",
    "Avro": "avro",
    "TimestampOf": "timestamp_of",
    "SourceFile": "source_file",
}
"""The public functions that make objects of classes that are not public."""
_FACTORY: Final[Any] = type(attrs.Factory(list))


@attrs.frozen
class Writer:
    """Converts declared values of a step to plain data.

    Attributes:
        step: The name of the step, for errors.
        collection: Returns the name of a collection in the file.
    """

    step: str
    collection: Callable[[Node], str]

    def data(self, value: Any) -> Any:
        """Returns a value as data. Raises `PlanError` for a value that only Python can express."""
        try:
            return self._data(value)
        except (NoText, TypeError) as error:
            raise PlanError(f"to_yaml: {error}", step=self.step) from None

    def _data(self, value: Any) -> Any:
        if isinstance(value, nw.Expr | ExpressionOfRows):
            return expression_as_text(
                value if isinstance(value, nw.Expr) else value.expression, self._looked_up
            )
        if isinstance(value, Aggregate | Previous):
            return aggregate_as_text(value, self._fn)
        if isinstance(value, Enum):
            return self._data(value.value)
        if isinstance(value, Microseconds | timedelta):
            return format_duration(value if isinstance(value, int) else value // timedelta(microseconds=1))
        if value is None or isinstance(value, bool | int | float | str):
            return str(value) if type(value) is not str and isinstance(value, str) else value
        if isinstance(value, date | time):
            return value.isoformat()
        if isinstance(value, PurePath | Decimal):
            return str(value)
        if isinstance(value, pl.DataType | DType) or (isinstance(value, type) and not is_row_class(value)):
            return dtype_as_text(as_dtype(value))
        if isinstance(value, Mapping):
            return {str(name): self._data(one) for name, one in value.items()}
        if hasattr(value, "__arrow_c_schema__"):
            return self._data(columns_of(value))
        if _is_pairs(value):
            return {name: self._data(one) for name, one in value}
        if isinstance(value, list | tuple | set | frozenset):
            return [self._data(one) for one in value]
        return self._object(value)

    def _object(self, value: Any) -> Any:
        if isinstance(node := getattr(value, "node", None), Node):
            return self.collection(node)
        if hasattr(value, "_as_argument"):
            return self._side(value)
        if isinstance(value, TestStream | pl.DataFrame | pl.LazyFrame):
            raise NoText(f"a {type(value).__name__} is for Python only")
        if isinstance(value, Rows):
            return {"Rows": self._rows(value)}
        if callable(value) and hasattr(value, "__qualname__"):
            return self._reference(value)
        kind = type(value)
        own = {*getattr(value, "__dict__", ())} - {field.name for field in _fields(type(value))}
        if attrs.has(type(value)) and not own:
            return self._constructed(value)
        if own or not inspect.isclass(getattr(sys.modules.get(kind.__module__), kind.__name__, None)):
            raise NoText(
                f"an object of {kind.__name__} cannot be written; make it in a module, or use an attrs class"
            )
        return self._reference(type(value))

    def _constructed(self, value: Any) -> Any:
        kind = type(value)
        if isinstance(value, Plain):
            return "bytes" if value.dtype == pl.Binary() else "str"
        if isinstance(value, Typed):
            return self._data(value.dtype)
        ours = kind.__module__.partition(".")[0] in _OURS and not isinstance(value, CustomWindows)
        name = _FUNCTIONS.get(kind.__name__, kind.__name__) if ours else self._reference(kind)
        found, several = {}, None
        for field in fields_of_files(kind):
            given = getattr(value, field.name)
            if _is_default(field, given):
                continue
            if field.name == "triggers":
                several = [self._data(one) for one in given]
            else:
                found[(field.alias or field.name).lstrip("_")] = self._secretless(field.name, given)
        if name in ("json", "timestamp_of") and len(found) == 1:
            (only,) = found.values()
            return {name: {"columns": only} if name == "json" else only}
        if several is not None:
            return {name: several}
        if not found:
            return name
        first = next((field.alias for field in fields_of_files(kind) if not field.kw_only), None)
        if [*found] == [first] and not isinstance(found[str(first)], Mapping):
            return {name: found[str(first)]}
        return {name: found}

    def _secretless(self, name: str, value: Any) -> Any:
        """Returns the data of an argument. Raises `NoText` if it has a secret, which a file would show."""
        shown = value.render_as_string(hide_password=False) if hasattr(value, "render_as_string") else value
        found = self._data(shown)
        text = " ".join(f"{key}={one}" for key, one in found.items()) if isinstance(found, Mapping) else found
        if isinstance(text, str) and without_secrets(text) != text:
            raise NoText(
                f"{name}= has a secret; write the file by hand, with a parameter such as ${{password}}"
            )
        return found

    def _rows(self, source: Rows) -> Any:
        frame = source.frame
        rows = [json.loads(line) for line in Json(frame.schema).encode(frame)] if frame.width else []
        lines = pl.Series([json.dumps(row).encode() for row in rows], dtype=pl.Binary)
        if not Json(frame.schema).decode(lines, "").frame.equals(frame):
            raise NoText("a file cannot have these rows, as their values change in JSON")
        found = {"rows": rows, "schema": self._data(frame.schema)}
        return found if source.rows_per_batch is None else {**found, "rows_per_batch": source.rows_per_batch}

    def _side(self, side: Any) -> Any:
        view = side._view.keywords
        given = {
            "key" if name == "keys" else name: one
            for name, one in view.items()
            if one is not None and one != ()
        }
        if "default" in given:
            (given["default"],) = given["default"]
        limit = {} if side._limit == LIMIT else {"max_bytes": side._limit}
        growing = {"growing": True} if side._growing else {}
        rest = {name: self._data(one) for name, one in {**given, **growing, **limit}.items()}
        return {f"as_{side._kind}": {"collection": self.collection(side.collection.node), **rest}}

    def _looked_up(self, name: str) -> str | None:
        """Returns the text of a looked-up column, such as `lookup(ages, on='user')['age']`."""
        if not isinstance(name, LookupColumn):
            return None
        return f"{self._table(name.request)}" + (
            ".found()" if name.column is None else f"[{quoted(name.column)}]"
        )

    def _table(self, request: LookupRequest) -> str:
        given = [name_text(self.collection(request.side))]
        if request.own:
            same = request.own == request.theirs
            sides = {"on": request.own} if same else {"left_on": request.own, "right_on": request.theirs}
            given += [
                f"{name}={value_text(columns[0] if len(columns) == 1 else list(columns))}"
                for name, columns in sides.items()
            ]
        if request.default:
            given.append(f"default={value_text(dict(request.default))}")
        if request.growing:
            given.append("growing=True")
        if request.limit != LIMIT:
            given.append(f"max_bytes={request.limit}")
        return f"{'lookup' if request.own else 'as_singleton'}({', '.join(given)})"

    def _fn(self, fn: Any) -> str:
        found = self._object(fn)
        if isinstance(found, str):
            return found
        raise NoText(f"{fn!r} has arguments; make the object in a module")

    def _reference(self, function: Any) -> str:
        """Returns `module:name` of a function or class. Raises `NoText` if it is not found under that name."""
        module, name = _module_name(function), function.__qualname__
        found: Any = sys.modules.get(function.__module__)
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is not function and getattr(found, "__wrapped__", None) is not function:
            what = "a lambda" if "<lambda>" in name else f"{name}"
            raise NoText(f"{what} is in no module; a file names a function as module:name")
        return f"{module}:{name}"


def _fields(kind: type) -> tuple[attrs.Attribute[Any], ...]:
    return attrs.fields(kind) if attrs.has(kind) else ()


def _module_name(function: Any) -> str:
    from windowing.identity import _module

    return _module(function.__module__)


def _is_pairs(value: Any) -> bool:
    """True for the columns of a source: pairs of a name, and a type or format."""
    pairs = isinstance(value, tuple) and all(isinstance(one, tuple) and len(one) == 2 for one in value)
    return (
        pairs
        and bool(value)
        and all(isinstance(name, str) and not isinstance(one, str) for name, one in value)
    )


def fields_of_files(kind: type) -> list[attrs.Attribute[Any]]:
    """Returns the fields of a class that a file can set: without those that only a run sets."""
    fields = attrs.fields(kind) if attrs.has(kind) else ()
    return [one for one in fields if one.init and (one.name == "_schema" or not one.name.startswith("_"))]


def _is_default(field: attrs.Attribute[Any], value: Any) -> bool:
    default: Any = field.default
    if default is attrs.NOTHING:
        return False
    made = default.factory() if isinstance(default, _FACTORY) and not default.takes_self else default
    try:
        return bool(value == made) or value == ()
    except Exception:  # a user's class may define == in any way
        return False


def call_data(
    arguments: Mapping[str, Any], parameters: Mapping[str, Parameter], data: Callable[[Any], Any]
) -> Any:
    """Returns the arguments of a call as data: a value if the first is the only one, otherwise a dict by name."""
    kinds = {name: parameters[name].kind for name in arguments}
    several = next((name for name, kind in kinds.items() if kind is Parameter.VAR_POSITIONAL), None)
    free = next((name for name, kind in kinds.items() if kind is Parameter.VAR_KEYWORD), None)
    plain = {name: data(value) for name, value in arguments.items() if name not in (several, free)}
    named = {name: data(value) for name, value in (arguments[free] if free else {}).items()}
    listed = [data(one) for one in _flat(arguments[several])] if several else []
    if listed and (named or any(one.kind is Parameter.VAR_KEYWORD for one in parameters.values())):
        return [*listed, *([named] if named else [])] if not plain else {**plain, **named}
    if listed and not plain:
        return listed[0] if len(listed) == 1 else listed
    if not listed and not named and len(plain) == 1 and [*plain] == [*parameters][:1]:
        (only,) = plain.values()
        names = isinstance(only, Mapping) and any(name in parameters for name in only)
        if not names and (len(parameters) == 1 or not isinstance(only, Mapping) or _is_constructor(only)):
            return only
    return {**({str(several): listed} if listed else {}), **plain, **named} or None


def _flat(given: Iterable[Any]) -> list[Any]:
    return [item for entry in given for item in (entry if isinstance(entry, list | tuple) else (entry,))]


def _is_constructor(value: Mapping[str, Any]) -> bool:
    """True for a mapping that the reader of files takes for an object: its only key begins with a capital letter."""
    return len(value) == 1 and next(iter(value))[:1].isupper()
