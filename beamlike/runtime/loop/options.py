"""The options of a run that its loop must have."""

from __future__ import annotations

from typing import Protocol

from beamlike.io.refreshed import Clock
from beamlike.runtime.run.options import RunOptions


class LoopOptions(RunOptions, Protocol):
    """The options of a run whose batches are those of the loop."""

    @property
    def chunk_rows(self) -> int: ...

    @property
    def clock(self) -> Clock: ...
