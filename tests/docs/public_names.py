"""The public names of the package: those of its public modules, its errors, and the methods of its main classes."""

from __future__ import annotations

from collections.abc import Iterator
from types import FunctionType, MethodType
from typing import Any

import beamlike as bl
from beamlike.api.grouped import Grouped

ROOMS = {"bl": bl, "bl.observe": bl.observe, "bl.savepoint": bl.savepoint, "bl.testing": bl.testing}

CLASSES = (bl.Collection, Grouped, bl.Pipeline, bl.LocalRunner, bl.SparkRunner, bl.TestStream)
"""The classes whose methods are public, too."""


def public() -> Iterator[tuple[str, Any]]:
    """Yields the name and the object of everything that is public."""
    for place, room in ROOMS.items():
        yield from ((f"{place}.{name}", getattr(room, name)) for name in room.__all__)
    for name, kind in vars(bl.errors).items():
        if isinstance(kind, type) and issubclass(kind, Exception):
            yield f"bl.errors.{name}", kind
    for owner in CLASSES:
        yield from ((f"{owner.__name__}.{name}", method) for name, method in methods(owner).items())


def methods(owner: type) -> dict[str, Any]:
    """Returns the public methods of one of `CLASSES`, by name."""
    bases = [base for base in owner.__mro__ if base is owner or base.__module__.startswith("beamlike.api")]
    named = dict.fromkeys(name for base in bases for name in vars(base) if not name.startswith("_"))
    found = {name: getattr(owner, name) for name in named}
    return {name: method for name, method in found.items() if isinstance(method, FunctionType | MethodType)}
