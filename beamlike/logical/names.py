"""Checks of the names that users choose for pipelines, sources, steps and sinks."""

from __future__ import annotations

from beamlike.errors import PlanError, ReservedName, WrongType


def require_name(name: object, what: str) -> None:
    """Raises `PlanError` unless the name of a `what`, such as a sink, is one line of text. Names are in plans, metrics
    and keys of state.
    """
    if not isinstance(name, str):
        raise WrongType(f"the name of a {what} must be a string, not {name!r}")
    if not name.strip() or not name.isprintable() or name != name.strip():
        raise PlanError(
            f"{name!r} cannot name a {what}: a name is one line of text that does not begin or end blank"
        )
    if name.startswith("@"):
        raise ReservedName(f"{name!r} cannot name a {what}: names that begin with @ are the engine's own")


def require_named(name: object, given: object, method: str, example: str) -> None:
    """Raises `WrongType` if the name, or the source or sink, is missing, or if that was given in place of the name."""
    if name is None or given is None or (isinstance(given, str) and not isinstance(name, str)):
        raise WrongType(f"{method} takes a name first, then the source or sink: {method}('plays', {example})")
