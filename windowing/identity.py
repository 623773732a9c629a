"""Identities: declarations converted to plain data, which checkpoints store and later runs compare.

Two declarations are the same if their identities are equal. Attributes with their default value are left out, so a new
attribute in a later version does not change identities. Text for people is never compared.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path, PurePath
from typing import Any, Final

import attrs
import polars as pl

from windowing.time import Microseconds, format_duration

BARE: Final = "bare"
"""The metadata of an attribute that is shown without its name although it has a default."""
_OURS: Final = ("windowing", "stages", "beamlike")
_LONGEST: Final = 1_000
"""The maximum length of a function's bound values as text (characters). Instead of longer text, a digest is stored."""

_FIXED: Final = (type(None), bool, int, float, str, bytes, Enum, date, time, timedelta, Decimal)
"""Immutable types, whose values can be part of an identity."""


class Declared:
    """The base class of declarations, with their identity as plain data."""

    __slots__ = ()

    def identity(self) -> Any:
        """Returns the kind of the declaration, and its attributes that differ from their defaults."""
        return fields_of(self)

    def __repr__(self) -> str:
        """Returns the call that creates the declaration, without arguments that have their default."""
        kind: Any = type(self)
        if not attrs.has(kind):
            return object.__repr__(self)
        fields = [field for field in attrs.fields(kind) if field.init and field.repr]
        given = [
            (field, getattr(self, field.name)) for field in sorted(fields, key=lambda field: field.kw_only)
        ]
        arguments = [_argument(field, value) for field, value in given if value != _default(field.default)]
        return f"{kind.__name__}({', '.join(arguments)})"


def _argument(field: attrs.Attribute[Any], value: Any) -> str:
    text = _text(value, field.repr)
    bare = field.default is attrs.NOTHING or BARE in field.metadata
    return text if bare else f"{field.alias}={text}"


def _text(value: Any, shown: Any) -> str:
    if isinstance(value, Microseconds):
        return f'"{format_duration(value)}"'
    if callable(shown):
        return str(shown(value))
    return repr(value.value) if isinstance(value, Enum) else repr(value)


def identity_of(value: Any) -> Any:
    """Converts a value to plain data: numbers, text, lists, and dicts with a `kind`. An unknown object becomes a
    dict with its `kind` only.
    """
    if isinstance(value, Declared):
        return value.identity()
    if isinstance(value, Enum):
        return identity_of(value.value)
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(name): identity_of(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [identity_of(each) for each in value]
    if isinstance(value, set | frozenset):
        return sorted(map(identity_of, value), key=as_text)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    if isinstance(value, date | time | Decimal | PurePath | pl.DataType):
        return str(value)
    if isinstance(value, partial) or (callable(value) and hasattr(value, "__qualname__")):
        return function_of(value)
    if attrs.has(type(value)) or is_dataclass(value):
        return fields_of(value)
    return {"kind": kind_of(type(value))}


def fields_of(value: Any, *, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """Returns the kind of an object, and its attributes by name that differ from their defaults and are not in
    `without`.
    """
    found = {name: identity_of(each) for name, each in _attributes(value) if name not in without}
    if "kind" in found:
        found["its kind"] = found.pop("kind")
    return {"kind": kind_of(type(value)), **found}


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    known = set[str]()
    if attrs.has(type(value)):
        known = {field.name for field in attrs.fields(type(value))}
        for field in attrs.fields(type(value)):
            given = getattr(value, field.name, None)
            if field.init and not _equal(given, _default(field.default)):
                yield (field.alias or field.name).lstrip("_"), given
    elif is_dataclass(value):
        known = {each.name for each in fields(value)}
        for each in fields(value):
            usual = each.default if each.default_factory is MISSING else each.default_factory()
            if each.init and not _equal(getattr(value, each.name, None), usual):
                yield each.name, getattr(value, each.name)
    # A user's plain class has attributes that are no fields. Only immutable values count, as others may change in use.
    for name, given in getattr(value, "__dict__", {}).items():
        if name not in known and _is_fixed(given) and not _is_cached(value, name):
            yield name, given


def _is_cached(value: Any, name: str) -> bool:
    return isinstance(getattr(type(value), name, None), cached_property)


def _default(default: Any) -> Any:
    """Returns the default value of an attrs field; calls its factory if it has one."""
    made = getattr(default, "factory", None)  # if it is an `attrs.Factory`
    return default if made is None or default.takes_self else made()


def _equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except Exception:  # a user's class may define == in any way
        return False


def kind_of(kind: type) -> str:
    """Returns the kind of a class: its name without the module, so that a user's class may move to another module."""
    return kind.__name__ if _is_ours(kind.__module__) else kind.__qualname__


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] in _OURS


def function_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Returns the identity of a function: its module and name, bound arguments, defaults, and variables of its closure.

    The code is not part of it, so it may change. Of defaults and variables, only those with immutable values count.
    """
    if isinstance(function, partial):
        given = {"arguments": identity_of(function.args), "named": identity_of(function.keywords)}
        return {**function_of(function.func), **{name: each for name, each in given.items() if each}}
    if not hasattr(function, "__qualname__"):
        return fields_of(function)
    found: dict[str, Any] = {"function": f"{_module(function.__module__)}.{function.__qualname__}"}
    owner = getattr(function, "__self__", None)
    if owner is not None and not isinstance(owner, type) and type(owner).__module__ != "builtins":
        found["of"] = identity_of(owner)
    given = {name: identity_of(each) for name, each in _given(function) if _is_fixed(each)}
    if len(text := as_text(given)) > _LONGEST:
        given = {"sha256": sha256(text.encode()).hexdigest()}
    return {**found, "given": given} if given else found


def _given(function: Any) -> Iterator[tuple[str, Any]]:
    """Yields the closure variables and the defaults of a function, as (name, value)."""
    code = getattr(function, "__code__", None)
    for name, cell in zip(
        getattr(code, "co_freevars", ()), getattr(function, "__closure__", None) or (), strict=False
    ):
        try:
            yield name, cell.cell_contents
        except ValueError:  # the variable is not set yet
            continue
    defaults = getattr(function, "__defaults__", None) or ()
    names = code.co_varnames[: code.co_argcount] if code is not None else ()
    yield from zip(names[len(names) - len(defaults) :], defaults, strict=False)
    yield from (getattr(function, "__kwdefaults__", None) or {}).items()


def _is_fixed(value: Any) -> bool:
    if isinstance(value, tuple | frozenset):
        return all(map(_is_fixed, value))
    return isinstance(value, _FIXED)


def _module(name: str | None) -> str:
    """Returns the name of a module. For `__main__`, it is the name that the script would have if it were imported."""
    if name != "__main__":
        return name or ""
    main = sys.modules.get("__main__")
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    return spec.name if spec is not None else Path(file).stem if file else "__main__"


def as_text(identity: Any) -> str:
    """Converts an identity to text. Equal identities have equal texts."""
    return json.dumps(identity, sort_keys=True, ensure_ascii=False)
