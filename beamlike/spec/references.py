"""Functions and classes that a file names as `module:name`. A file can call a class of the kind that fits its place."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Any, Final

from beamlike.api.sides import SideInput
from beamlike.errors import nearest
from beamlike.io.kafka.codecs import Codec
from beamlike.spec.document import Item
from beamlike.steps.calls import Calls
from stages.aggregates.combine_fn import CombineFn
from stages.custom import CustomOperator
from stages.process.declarations import Process
from stages.process.timer_fields import Timer
from stages.strategies.base import WatermarkStrategy
from stages.strategies.validators import SourceFile
from windowing.timestamp_combiners import TimestampOf
from windowing.triggers.base import Trigger
from windowing.windows import WindowFn

REFERENCE: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
"""The text `module:name`."""
FUNCTION: Final = "function"


def _has_methods(*names: str) -> Callable[[type], bool]:
    return lambda kind: all(callable(getattr(kind, name, None)) for name in names)


def _is_source(kind: type) -> bool:
    members = {*dir(kind), *getattr(kind, "__annotations__", ()), *getattr(kind, "__match_args__", ())}
    return callable(getattr(kind, "schema", None)) and "bounded" in members


def _is_sink(kind: type) -> bool:
    """True for a class whose `write` needs two arguments, unlike that of files."""
    return any(_needs_two(getattr(kind, name, None)) for name in ("write", "write_by_spark"))


def _needs_two(method: Any) -> bool:
    try:
        parameters = inspect.signature(method).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return sum(one.kind in positional and one.default is one.empty for one in parameters) == 3


def _has_call(kind: type) -> bool:
    """True for a class whose objects can be called as functions."""
    return any("__call__" in one.__dict__ for one in kind.__mro__)


def _subclass_of(base: type) -> Callable[[type], bool]:
    return lambda kind: issubclass(kind, base)


_PLACES: Final[Mapping[str, Callable[[type], bool]]] = {
    **{
        base.__name__: _subclass_of(base)
        for base in (
            *(Calls, CustomOperator, Process, SideInput, SourceFile, Timer, TimestampOf, Trigger),
            *(WatermarkStrategy, WindowFn),
        )
    },
    "CombineFn": _has_methods(*(name for name in vars(CombineFn) if not name.startswith("_"))),
    "Codec": _has_methods(*(name for name in vars(Codec) if not name.startswith("_"))),
    "Source": _is_source,
    "Sink": _is_sink,
    FUNCTION: _has_call,
}
"""The condition on classes that a file may call, by the kind of object that an argument expects."""


def place_of(owner: str, parameter: Parameter) -> str:
    """Returns the kind of object that an argument of `owner` expects: the name of a base class, or `FUNCTION`."""
    if owner == "Refreshed":
        return "Source"
    if owner in ("Kafka", "KafkaSink", "Redis"):
        return "Codec"
    words = re.findall(r"\w+", str(parameter.annotation))
    return next((word for word in words if word in _PLACES), FUNCTION)


def imported(text: str, item: Item) -> Any:
    """Imports what `module:name` names. Raises `BadFile` at the item if there is no such thing."""
    if not REFERENCE.fullmatch(text):
        raise item.fault(f"{text!r}: write module:name")
    module_name, _, name = text.partition(":")
    found = _module(module_name, item)
    for part in name.split("."):
        if not hasattr(found, part):
            raise item.fault(f"{module_name} has no {name!r}{nearest(part, vars(found))}")
        found = getattr(found, part)
    return found


def _module(name: str, item: Item) -> Any:
    # Makes modules in the current folder importable, as `python -m` does.
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise item.fault(f"the module {name!r} cannot be imported: {error}") from error
        raise item.fault(f"there is no module {error.name!r} here or installed") from None
    except Exception as error:  # the code of the module may raise any error
        raise item.fault(f"the module {name!r} cannot be imported: {error}") from error


def class_at(text: str, item: Item, place: str) -> type[Any]:
    """Imports the class `module:name`. Raises `BadFile` for one that a file may not call at this place."""
    found = imported(text, item)
    if not _is_class(found):
        what = "a function" if inspect.isroutine(found) else "an object"
        raise item.fault(f"{text} is {what}, which a file cannot call; only a class has arguments")
    return _fitting(found, text, item, place)


def object_at(text: str, item: Item, place: str) -> Any:
    """Imports `module:name`, and creates an object of a class. Raises `BadFile` if it does not fit the place."""
    found = imported(text, item)
    if not _is_class(found):
        if inspect.isroutine(found) and place != FUNCTION:
            raise item.fault(f"{text} is a function; expected {_named(place)}")
        return found
    kind = _fitting(found, text, item, place)
    try:
        return kind()
    except (TypeError, ValueError) as error:
        raise item.fault(f"{text} cannot be made: {error}; write {{{text}: arguments}}") from error


def _is_class(found: Any) -> bool:
    return isinstance(found, type) and not hasattr(found, "__supertype__")


def _fitting(kind: type[Any], text: str, item: Item, place: str) -> type[Any]:
    if _PLACES[place](kind):
        return kind
    needs = " with a method __call__" if place == FUNCTION else ""
    raise item.fault(f"{text} is a class, but no {place}{needs}, so this file cannot call it here")


def _named(place: str) -> str:
    return f"an object of a class that is a {place}"
