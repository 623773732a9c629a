"""The choices of a windowing that decide when its windows emit, as plain data of a record, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

import windowing
from windowing.identity import identity_of
from windowing.time import Microseconds
from windowing.triggers.base import Trigger
from windowing.windowing import Windowing

_CHOICES: Final = ("accumulation", "timestamp_combiner", "on_time", "closing")


def emission_facts(of: Windowing) -> dict[str, Any]:
    """Returns the trigger, accumulation, timestamp combiner, `on_time` and `closing` as plain data."""
    return {name: identity_of(getattr(of, name)) for name in ("trigger", *_CHOICES)}


def emission(facts: Mapping[str, Any]) -> dict[str, Any] | None:
    """Reads the result of `emission_facts` as arguments of `Windowing`.

    Returns None if an attribute or a class is unknown, such as a combiner that chooses an element by a column.
    """
    try:
        found = {"trigger": _trigger(facts["trigger"]), **{name: facts[name] for name in _CHOICES}}
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    return found if all(isinstance(found[name], str) for name in _CHOICES) else None


def _trigger(facts: Mapping[str, Any]) -> Trigger:
    kind = getattr(windowing, facts["kind"])
    durations = {field.name for field in attrs.fields(kind) if field.converter is not None}
    named = {
        name: _trigger(value)
        if isinstance(value, Mapping)
        else (Microseconds(value) if name in durations else value)
        for name, value in facts.items()
        if name not in ("kind", "triggers")
    }
    made = kind(*map(_trigger, facts.get("triggers", ())), **named)
    if not isinstance(made, Trigger):
        raise TypeError(f"{facts['kind']} is no trigger")
    return made
