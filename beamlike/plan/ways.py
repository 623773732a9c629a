"""The routes to a stage or lookup table as plain data, called "ways": their producers and the steps after them.

Only the columns that are needed at the end count. So a column that is added for another consumer changes nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from beamlike.plan.model import Plan, SourcePlan
from beamlike.plan.route import Route
from beamlike.steps.base import Step
from beamlike.steps.lookup import TABLE
from windowing.identity import as_text

FROM: Final = "@from"
"""The key for the name of the producer in a way. The key for a lookup table is `TABLE`."""

Way = dict[str, Any]
Name = Callable[[str], str]


def ways_to(plan: Plan, consumer: str, needed: Callable[[str], frozenset[str]]) -> dict[str, list[Way]]:
    """Returns the ways to each input of a consumer, by role. `needed` returns the columns on which an input depends."""
    found: dict[str, list[Way]] = {}
    for producer, route in _routes(plan, consumer):
        found.setdefault(route.role, []).append(_way(producer, route, needed(route.role)))
    return {role: sorted(ways, key=as_text) for role, ways in found.items()}


def texts_to(plan: Plan, consumer: str) -> list[str]:
    """Describes the ways to a consumer as text."""
    return sorted(_text(producer, route) for producer, route in _routes(plan, consumer))


def ways_into(source: SourcePlan) -> list[Any]:
    """Returns the steps of a source before and after its event time, as data."""
    return [_identities(source.steps_before_time), _identities(source.steps_after_time)]


def renamed(identity: Any, name: Name) -> Any:
    """Returns ways in which producers and lookup tables have other names."""
    if isinstance(identity, list):
        return [renamed(each, name) for each in identity]
    if not isinstance(identity, Mapping):
        return identity
    found = {key: renamed(each, name) for key, each in identity.items()}
    return found | {key: name(identity[key]) for key in (FROM, TABLE) if key in identity}


def _routes(plan: Plan, consumer: str) -> Iterator[tuple[str, Route]]:
    for name, producer in plan.producers.items():
        yield from ((name, route) for route in producer.routes if route.consumer == consumer)


def _way(producer: str, route: Route, needed: frozenset[str]) -> Way:
    steps = _narrowed(route.steps, needed)
    found = {
        FROM: producer,
        "steps": _identities(steps),
        "output": route.output,
        "before": _identities(route.before),
    }
    if route.before:
        found["of"] = route.of
    return {name: value for name, value in found.items() if value and value != "main"}


def _narrowed(steps: Iterable[Step], wanted: frozenset[str]) -> list[Step]:
    found: list[Step] = []
    for step in reversed([*steps]):
        found.insert(0, step.narrowed(wanted))
        wanted = step.needs(wanted)
    return found


def _identities(steps: Iterable[Step]) -> list[Any]:
    return [identity for step in steps if (identity := step.identity()) is not None]


def _text(producer: str, route: Route) -> str:
    output = "" if route.output == "main" else f" ({route.output.replace('_', ' ')})"
    return way_text(f"{producer}{output}", (*route.before, *route.steps))


def way_text(producer: str, steps: Iterable[Step]) -> str:
    """Describes the steps after a producer as text."""
    return " -> ".join([producer, *(f"{step.kind} {step.detail()}".rstrip() for step in steps)])
