"""Identities: declarations as plain data that JSON can hold, by which a later run recognizes them.

Two declarations are the same if their identities are equal. An attribute at its default is left out, so an attribute
that a later version adds changes no identity. Text for people is made elsewhere and is never compared.
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

_OURS: Final = ("windowing", "stages", "beamlike")
_LONGEST: Final = 1_000
"""Characters of the values that a function was made with; of longer ones the digest is stored."""

_FIXED: Final = (type(None), bool, int, float, str, bytes, Enum, date, time, timedelta, Decimal)
"""Types of values that cannot change after an object or a function was made with them."""


class Declared:
    """A declaration that describes itself as plain data."""

    __slots__ = ()

    def identity(self) -> Any:
        """The kind and the attributes that are not at their default."""
        return fields_of(self)


def identity_of(value: Any) -> Any:
    """The value as plain data: numbers, text, lists and dicts with a `kind`. An unknown object has only its kind."""
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
    """The kind of a declaration, and its attributes by name that are not at their default, nor in `without`."""
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
    # A plain class of the user's has attributes that are no fields; some change while it is used.
    for name, given in getattr(value, "__dict__", {}).items():
        if name not in known and _is_fixed(given) and not _is_cached(value, name):
            yield name, given


def _is_cached(value: Any, name: str) -> bool:
    return isinstance(getattr(type(value), name, None), cached_property)


def _default(default: Any) -> Any:
    """The value of an attribute that is not set."""
    made = getattr(default, "factory", None)  # of what `attrs.Factory` gives
    return default if made is None or default.takes_self else made()


def _equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except Exception:  # values of a user's may compare in any way
        return False


def kind_of(kind: type) -> str:
    """The name of a class. A user's class may move to another module and keep its kind."""
    return kind.__name__ if _is_ours(kind.__module__) else kind.__qualname__


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] in _OURS


def function_of(function: Callable[..., Any]) -> dict[str, Any]:
    """A function by module and name, and the values that it was made with.

    Its code is left out, so that it may be changed. Defaults and variables around a nested function count if they are
    of plain types that cannot change.
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
    """The values of the variables around a function, and its defaults."""
    code = getattr(function, "__code__", None)
    for name, cell in zip(
        getattr(code, "co_freevars", ()), getattr(function, "__closure__", None) or (), strict=False
    ):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not filled yet
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
    """The module of a function: a script has the name that it would have if it were imported."""
    if name != "__main__":
        return name or ""
    main = sys.modules.get("__main__")
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    return spec.name if spec is not None else Path(file).stem if file else "__main__"


def as_text(identity: Any) -> str:
    """An identity as text, equal for equal ones."""
    return json.dumps(identity, sort_keys=True, ensure_ascii=False)
