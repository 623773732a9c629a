"""Records the calls that declare a pipeline: methods that return a collection, and functions such as `flatten`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from typing import Any, Final, TypeVar

from beamlike.api.handle import Handle
from beamlike.logical.calls import Call
from beamlike.system.arguments import answered

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
KindT = TypeVar("KindT", bound=type)

_INSIDE: Final = ContextVar("inside a recorded call", default=False)
_COLLECTIONS: Final = ("Self", "Collection", "CollectionT")
"""The annotations of results that are collections."""


def declares(function: object) -> bool:
    """True for a function that returns a collection, by its annotation."""
    return inspect.isfunction(function) and function.__annotations__.get("return") in _COLLECTIONS


def recorded(function: FunctionT) -> FunctionT:
    """Records the calls of a function that returns a collection. Calls that it makes itself are not recorded."""

    function = answered(function)

    @wraps(function)
    def call(*positional: Any, **named: Any) -> Any:
        __tracebackhide__ = True  # read by IPython
        if _INSIDE.get():
            return function(*positional, **named)
        token = _INSIDE.set(True)
        try:
            made = function(*positional, **named)
        finally:
            _INSIDE.reset(token)
        if isinstance(made, Handle):
            made.pipeline.calls.append(Call(function, positional, named, made.node))
        return made

    return call  # type: ignore[return-value]


def records(kind: KindT) -> KindT:
    """Records the calls of each public method of a class that returns a collection, also of inherited ones."""
    for name, method in inspect.getmembers(kind, declares):
        if not name.startswith("_"):
            setattr(kind, name, recorded(method))
    return kind
