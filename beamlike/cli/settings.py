"""Converts text of the command line to arguments of a function, according to its annotations and defaults."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import date, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from beamlike.errors import PlanError, listed, nearest
from windowing.time import microseconds

_SEVERAL = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_BOOLS = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}


class SettingError(PlanError):
    """A parameter cannot be set: it is unknown, missing, or of another type."""


def bound(function: Callable[..., Any], settings: Iterable[str]) -> inspect.BoundArguments:
    """Parses `key=value` texts, and returns the arguments of the function that they set.

    Raises `SettingError` if a key is unknown or set twice, a parameter without a default is not set, or a value has
    another type.
    """
    signature, hints = inspect.signature(function), _hints(function)
    given = signature.bind_partial()
    free = next((name for name, one in signature.parameters.items() if one.kind is one.VAR_KEYWORD), None)
    settable = {name: one for name, one in signature.parameters.items() if one.kind not in _SEVERAL}
    others: dict[str, Any] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key:
            raise SettingError(f"{setting!r}: write --set KEY=VALUE")
        if key in given.arguments or key in others:
            raise SettingError(f"{key} is set twice")
        if key in settable:
            given.arguments[key] = _value(key, text, _kind(settable[key], hints))
        elif free is not None:
            others[key] = _value(key, text, hints.get(free, str))
        else:
            name = function.__name__
            hint = nearest(key, settable)
            raise SettingError(f"{name} has no parameter {key!r}; it has {listed(settable)}{hint}")
    if others:
        given.arguments[str(free)] = others
    _require_all(function.__name__, settable, given, hints)
    # In the order of the signature, since `BoundArguments` depends on it for positional arguments.
    given.arguments = {
        name: given.arguments[name] for name in signature.parameters if name in given.arguments
    }
    return given


def duration(text: str) -> int:
    """Returns a duration in microseconds; a number without a unit is in seconds. Raises `ValueError` for other text."""
    return microseconds(float(text) if _is_number(text) else text)


def _require_all(
    name: str, settable: dict[str, inspect.Parameter], given: inspect.BoundArguments, hints: dict[str, Any]
) -> None:
    missing = [
        key for key, one in settable.items() if one.default is one.empty and key not in given.arguments
    ]
    if missing:
        how = " ".join(f"--set {key}={_name(_kind(settable[key], hints)).upper()}" for key in missing)
        raise SettingError(f"{name} cannot be called: it needs {listed(missing)}; give {how}")


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Returns the annotations of the parameters; none if one of them has a name that exists only for type checkers."""
    with suppress(NameError, AttributeError, TypeError):
        return typing.get_type_hints(function, include_extras=True)
    return {}


def _kind(parameter: inspect.Parameter, hints: dict[str, Any]) -> Any:
    if parameter.name in hints:
        return hints[parameter.name]
    default = parameter.default
    return str if default is parameter.empty or default is None else type(default)


def _value(key: str, text: str, kind: Any) -> Any:
    try:
        return _read(text, kind)
    except (ValueError, TypeError):
        raise SettingError(f"{key}={text}: expected {_name(kind)}{_near(text, kind)}") from None


def _read(text: str, kind: Any) -> Any:
    """Converts the text to this type. Raises `ValueError` if it is no such value."""
    if get_origin(kind) is Annotated:
        return _read(text, get_args(kind)[0])
    if get_origin(kind) in (Union, types.UnionType):
        return _first(text, get_args(kind))
    if get_origin(kind) is Literal:
        return (
            {str(choice): choice for choice in get_args(kind)}[text] if text in _choices(kind) else _refuse()
        )
    if kind is types.NoneType:
        return None if text.lower() in ("", "none", "null") else _refuse()
    if kind is bool:
        return _BOOLS[text.lower()] if text.lower() in _BOOLS else _refuse()
    if kind is timedelta:
        return timedelta(microseconds=duration(text))
    if kind in (date, datetime):
        return kind.fromisoformat(text)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return (
            kind[text] if text in kind.__members__ else _first(text, [type(one.value) for one in kind], kind)
        )
    if kind in (int, float, str, Path):
        return kind(text)
    return text if kind in (Any, object) else _refuse()


def _first(text: str, kinds: Iterable[Any], then: Callable[[Any], Any] = lambda value: value) -> Any:
    """Converts the text to the first type that accepts it; `str`, which accepts any text, is tried last."""
    for kind in sorted(kinds, key=lambda kind: kind is str):
        with suppress(ValueError, TypeError):
            return then(_read(text, kind))
    return _refuse()


def _refuse() -> typing.NoReturn:
    raise ValueError("it is none")


def _is_number(text: str) -> bool:
    with suppress(ValueError):
        return bool(float(text)) or True
    return False


def _choices(kind: Any) -> list[str]:
    if get_origin(kind) is Literal:
        return [str(choice) for choice in get_args(kind)]
    return list(kind.__members__) if isinstance(kind, type) and issubclass(kind, Enum) else []


def _near(text: str, kind: Any) -> str:
    return nearest(text, _choices(kind))


def _name(kind: Any) -> str:
    """Describes the accepted values in words."""
    if choices := _choices(kind):
        return f"one of {listed(choices)}"
    if get_origin(kind) in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_name(one) for one in get_args(kind)))
    if get_origin(kind) is Annotated:
        return _name(get_args(kind)[0])
    words = {timedelta: "duration", types.NoneType: "none", bool: "true or false"}
    return str(words.get(kind) or getattr(kind, "__name__", kind))
