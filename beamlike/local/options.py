"""The options of a run in process that its runner must have."""

from __future__ import annotations

from typing import Protocol

from beamlike.runtime.loop.options import LoopOptions


class LocalOptions(LoopOptions, Protocol):
    """The options of a run in process."""

    @property
    def run_id(self) -> str | None: ...
