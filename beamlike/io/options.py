"""The roles of options: some options of a class that is both a source and a sink have an effect in one role only."""

from __future__ import annotations

from typing import Any, Final, Literal

import attrs

from beamlike.errors import PlanError, listed

Role = Literal["source", "sink"]

_ROLE: Final = "beamlike_role"
FOR_SOURCES: Final = {_ROLE: "source"}
"""Metadata of a field that has an effect only in a source."""
FOR_SINKS: Final = {_ROLE: "sink"}
"""Metadata of a field that has an effect only in a sink."""

_ELSEWHERE: Final = {
    "source": "write(...), and give {} to the {} that p.read(...) reads",
    "sink": "p.read(...), and give {} to the {} that write(...) writes to",
}


def require_options(given: object, role: Role, step: str) -> None:
    """Raises `PlanError` if an option is set that has no effect in this role."""
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
    """Returns the options of a role that are not at their default."""
    return [
        f"{field.alias}="
        for field in attrs.fields(type(given))
        if field.metadata.get(_ROLE) == role and getattr(given, field.name) != field.default
    ]
