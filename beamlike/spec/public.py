"""The public names of the package, which a file and a query may use."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def public(name: str) -> Any:
    """Returns what `beamlike.NAME` is. The module of a connector is imported on first use."""
    return getattr(import_module("beamlike"), name)


def public_names() -> tuple[str, ...]:
    """Returns the public names of the package."""
    return tuple(import_module("beamlike").__all__)
