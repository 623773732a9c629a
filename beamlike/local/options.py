"""The options of a run in process that its runner must have."""

from __future__ import annotations

from typing import Protocol

from beamlike.io.refreshed import Clock
from beamlike.runtime.run.options import RunOptions


class LocalOptions(RunOptions, Protocol):
    """The options of a run in process."""

    @property
    def chunk_rows(self) -> int: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def run_id(self) -> str | None: ...
