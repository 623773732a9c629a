"""Checks that the methods of a user's source or sink have the signatures that the engine calls."""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Iterator, Mapping
from inspect import Parameter
from typing import Any, Final, Protocol

from beamlike.errors import WrongType
from beamlike.io import sinks, sources
from beamlike.io.base import Source, WrittenBySpark, WrittenInFrames
from beamlike.io.datasets import HasDatasets
from beamlike.io.options import Role

_PROTOCOLS: Final[Mapping[Role, tuple[type, ...]]] = {
    "source": (
        Source,
        sources.ReadInChunks,
        sources.ReadBySpark,
        sources.Resumable,
        sources.ReadAsPlanned,
        sources.ReadInParts,
        sources.Openable,
        sources.InfersSchema,
        sources.AcceptsCommits,
        sources.MayBeComplete,
        sources.Closeable,
        sources.HasSparkOffsets,
        sources.HasSpans,
        sources.HasPast,
        sources.ReadFromMemory,
        sources.ReadInFiles,
        sources.ReadInSteps,
        sources.HasDecode,
        sources.InSplits,
        sources.AcceptsEventTime,
        sources.AcceptsTimeUnit,
        sources.SchemaFromSpark,
        HasDatasets,
    ),
    "sink": (
        WrittenInFrames,
        WrittenBySpark,
        sinks.Distributed,
        sinks.HasLocation,
        sinks.AcceptsSchema,
        sinks.PerRun,
        sinks.HasCheck,
        sinks.Lockable,
        sinks.HasStart,
        sinks.RecordsBatches,
        sinks.Replacing,
        sinks.HasTakeBack,
        sinks.TwoPhase,
        HasDatasets,
    ),
}
"""The protocols that the engine uses. An object that lacks one name of a protocol may use the other names freely."""

_VALUES: Final = {"bool": (bool, "True or False"), "str": (str, "text")}
_POSITIONAL: Final = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def require_signatures(thing: object, role: Role, step: str) -> None:
    """Raises `WrongType` if an attribute with a name that the engine uses has another signature or type."""
    for name, what in _misfits(thing, role):
        raise WrongType(
            f"{type(thing).__name__}: the name {name!r} is taken: a runner asks a {role} for {what}, and this one has "
            f"{_shown(thing, name)}; rename that, or change it to {what}",
            step=step,
        )


def _misfits(thing: object, role: Role) -> Iterator[tuple[str, str]]:
    """Yields each name that does not fit, with the expected form."""
    for protocol in _PROTOCOLS[role]:
        for name, member in _members(protocol) if isinstance(thing, protocol) else ():
            given = getattr(thing, name)
            if isinstance(member, property):
                kind, shown = _value_of(member)
                if not isinstance(given, kind):
                    yield name, f"{name} as {shown}"
            elif not callable(given) or not _takes(given, member):
                yield name, _call(name, list(inspect.signature(member).parameters.values())[1:])


def _value_of(member: property) -> tuple[type, str]:
    """Returns the expected type of a property, and its description; `object` if users' classes never define the
    property.
    """
    return _VALUES.get(inspect.get_annotations(member.fget).get("return", ""), (object, ""))  # type: ignore[arg-type]


def _members(protocol: type) -> Iterator[tuple[str, Any]]:
    """Yields the methods and properties of a protocol, including inherited ones."""
    for kind in protocol.__mro__:
        if Protocol in kind.__bases__:
            yield from ((name, member) for name, member in vars(kind).items() if not name.startswith("_"))


def _takes(method: Any, member: Any) -> bool:
    """True if a method accepts the arguments of the protocol's method.

    Arguments are passed by position. So an optional parameter counts only if it has the name of the protocol's
    parameter.
    """
    if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
        return False
    try:
        given = inspect.signature(method)
    except (TypeError, ValueError):  # implemented in C
        return True
    asked = list(inspect.signature(member).parameters.values())[1:]
    named = {one.name: None for one in asked if one.kind is Parameter.KEYWORD_ONLY}
    placed = [one for one in asked if one.name not in named]
    try:
        given.bind(*placed, **named)
    except TypeError:
        return False
    places = [one for one in given.parameters.values() if one.kind in _POSITIONAL]
    return all(
        mine.default is Parameter.empty or mine.name == theirs.name
        for mine, theirs in zip(places, placed, strict=False)
    )


def _shown(thing: object, name: str) -> str:
    given = getattr(thing, name)
    if not callable(given):
        return f"{name}={reprlib.repr(given)}"
    asynchronous = "async " if inspect.iscoroutinefunction(given) or inspect.isasyncgenfunction(given) else ""
    try:
        return asynchronous + _call(name, inspect.signature(given).parameters.values())
    except (TypeError, ValueError):
        return f"{name}=..."


def _call(name: str, parameters: Any) -> str:
    shown = (str(one.replace(annotation=Parameter.empty)) for one in parameters)
    return f"{name}({', '.join(shown)})"
