"""Finds the step and the variable of a plan that cannot be pickled, and so cannot be sent to workers."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, Final

from pyspark import cloudpickle

from beamlike.errors import WrongType
from beamlike.io.sinks import written_by_tasks
from beamlike.plan.model import Plan

_DEEPEST: Final = 10


def unpicklable(plan: Plan, error: Exception) -> WrongType:
    """Returns the error that names what cannot be pickled. `error` is what pickling the whole plan raised."""
    for name, part in _parts_of(plan):
        if why := _why_not(part):
            return WrongType(_told(list(_way(part)), why), step=name)
    return WrongType(f"the plan of {plan.name!r} cannot be sent to Spark's workers: {error}")


def _told(way: list[tuple[str, Any]], why: str) -> str:
    names = [name for name, _ in way if name]
    kind = type(way[-1][1]).__name__ if names else ""
    what = f"`{'.'.join(names)}`, of type {kind}," if names else "what it is made of"
    return (
        f"{what} cannot be sent to Spark's workers: {why}; make it where it is used, inside of the function"
    )


def _parts_of(plan: Plan) -> Iterator[tuple[str, Any]]:
    """Yields everything that is sent, with the name of its step. Steps come before larger parts that contain them."""
    for source in plan.sources.values():
        yield from ((step.name, step) for step in (*source.steps_before_time, *source.steps_after_time))
    for producer in plan.producers.values():
        for route in producer.routes:
            yield from ((step.name, step) for step in (*route.before, *route.steps))
    for source in plan.sources.values():
        yield from ((source.name, part) for part in (source.source, source.watermark))
    for stage in plan.stages.values():
        yield stage.name, stage.stage.operator
    yield from ((name, sink.sink) for name, sink in plan.sinks.items() if written_by_tasks(sink.sink))


def _why_not(part: Any) -> str | None:
    try:
        cloudpickle.dumps(part)
    except Exception as error:  # pickling a user's objects may raise anything
        return str(error) or type(error).__name__
    return None


def _way(part: Any) -> Iterator[tuple[str, Any]]:
    """Yields the path from a part to the object that cannot be pickled, with names of the user's variables or
    attributes.
    """
    for _ in range(_DEEPEST):
        inner = next(((name, value) for name, value in _inside(part) if _why_not(value)), None)
        if inner is None:
            return
        yield inner
        part = inner[1]


def _inside(part: Any) -> Iterator[tuple[str, Any]]:
    if inspect.ismethod(part):
        yield "self", part.__self__
    elif inspect.isfunction(part):
        used = inspect.getclosurevars(part)
        yield from {**used.nonlocals, **used.globals}.items()
        yield from (("", value) for value in part.__defaults__ or ())
    elif isinstance(part, type):
        own = [item for kind in part.__mro__ for item in vars(kind).items() if not item[0].startswith("__")]
        yield from (("" if inspect.isfunction(value) else name, value) for name, value in own)
    elif isinstance(part, dict):
        yield from (("", value) for value in part.values())
    elif isinstance(part, list | tuple | set):
        yield from (("", value) for value in part)
    else:
        ours = type(part).__module__.partition(".")[0] in ("beamlike", "stages", "windowing")
        yield from (("" if ours else name, value) for name, value in _attributes(part).items())
        if not ours:  # a class that is not in a module is pickled with all its attributes
            yield "", type(part)


def _attributes(part: Any) -> dict[str, Any]:
    slots = {name for kind in type(part).__mro__ for name in getattr(kind, "__slots__", ())}
    found = {name: getattr(part, name) for name in slots if name != "__weakref__" and hasattr(part, name)}
    return {**found, **getattr(part, "__dict__", {})}
