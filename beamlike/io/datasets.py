"""An optional capability of sources and sinks: names of the data that they read or write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from beamlike.system.datasets import Dataset, file_datasets


@runtime_checkable
class HasDatasets(Protocol):
    """A source or sink that names what it reads or writes."""

    def datasets(self) -> Sequence[Dataset] | None:
        """Returns the datasets: an empty list if no data are stored outside of the process, None if they have
        no name.
        """


def datasets_of(thing: object) -> Sequence[Dataset] | None:
    """Returns the datasets of a source or sink; None if they have no name, or its class does not define them."""
    if isinstance(thing, HasDatasets):
        return thing.datasets()
    path = getattr(thing, "path", None)
    return file_datasets([path]) if isinstance(path, str) else None
