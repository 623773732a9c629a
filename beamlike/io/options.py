"""The role, source or sink, of each option of classes that are both."""

from __future__ import annotations

from typing import Any, Final, Literal

import attrs

from beamlike.errors import PlanError, listed

Role = Literal["source", "sink"]

_ROLE: Final = "beamlike_role"
FOR_SOURCES: Final = {_ROLE: "source"}
"""Metadata of a field that only a source uses."""
FOR_SINKS: Final = {_ROLE: "sink"}
"""Metadata of a field that only a sink uses."""

_ELSEWHERE: Final = {
    "source": "write(...), and give {} to the {} that p.read(...) reads",
    "sink": "p.read(...), and give {} to the {} that write(...) writes to",
}


def require_options(given: object, role: Role, step: str) -> None:
    """Raises `PlanError` for options of the other role, which would have no effect."""
    if not attrs.has(type(given)):
        return
    for other in ("source", "sink"):
        if other != role and (names := _chosen(given, other)):
            kind, them = type(given).__name__, "it" if len(names) == 1 else "them"
            verb = "is" if len(names) == 1 else "are"
            raise PlanError(
                f"{kind}: {listed(names)} {verb} for a {other}, and would have no effect in a {role}; leave {them} out "
                f"of {_ELSEWHERE[other].format(them, kind)}",
                step=step,
            )


def _chosen(given: Any, role: str) -> list[str]:
    """Returns the options of a role that differ from their defaults."""
    return [
        f"{field.alias}="
        for field in attrs.fields(type(given))
        if field.metadata.get(_ROLE) == role and getattr(given, field.name) != field.default
    ]
