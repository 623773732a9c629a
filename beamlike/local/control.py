"""The control of a live run, shared by its threads: its phase, and the progress of the current batch."""

from __future__ import annotations

import threading

import attrs

from beamlike.local.engine import EngineHooks
from beamlike.local.journal import Journal
from beamlike.runtime.run.options import Phase


class GivenUp(Exception):
    """Raised between two parts of a batch that is not finished."""


@attrs.define(eq=False)
class RunControl:
    """The control of a live run. `writing`: True from when sinks may have received something of the current batch."""

    phase: Phase = attrs.field(default=Phase.GOING, init=False)
    stopping: threading.Event = attrs.field(factory=threading.Event, init=False)
    writing: bool = attrs.field(default=False, init=False)

    def go_to(self, phase: Phase) -> None:
        """Moves the run forward to a phase; an earlier one changes nothing."""
        self.phase = max(self.phase, phase)

    def require_wanted(self) -> None:
        """Raises `GivenUp` if the current batch must not be finished."""
        if self.phase is Phase.GIVEN_UP:
            raise GivenUp

    def hooks(self, journal: Journal) -> EngineHooks:
        """The hooks of an engine whose batches the journal logs."""

        def before_writing() -> None:
            journal.settle()
            self.writing = True  # from now on, only the same batch may follow

        return EngineHooks(self.require_wanted, before_writing)
