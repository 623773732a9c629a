"""The control of a live run, shared by its threads: the phase of the run, and whether its batch may have written."""

from __future__ import annotations

import threading
from collections.abc import Callable

import attrs

from beamlike.runtime.loop.journal import Journal
from beamlike.runtime.run.options import Phase


@attrs.frozen
class BatchHooks:
    """Functions of a run that its executor calls in each batch.

    `between_parts` is called between two parts of a batch, and may raise to abandon the batch. `before_writing` is
    called before the sinks receive anything: it waits until the input of the batch is on disk. If `observed`, others
    learn of each batch, so it is also called if no sink receives anything.
    """

    between_parts: Callable[[], object] = lambda: None
    before_writing: Callable[[], object] = lambda: None
    observed: bool = False


class GivenUp(Exception):
    """Raised between two parts of a batch, to abandon it."""


@attrs.define(eq=False)
class RunControl:
    """The phase of a live run. `writing` is True from when sinks may have received output of the current batch."""

    phase: Phase = attrs.field(default=Phase.GOING, init=False)
    stopping: threading.Event = attrs.field(factory=threading.Event, init=False)
    writing: bool = attrs.field(default=False, init=False)

    def go_to(self, phase: Phase) -> None:
        """Moves the run forward to a phase. If the run is already past that phase, nothing changes."""
        self.phase = max(self.phase, phase)

    def require_wanted(self) -> None:
        """Raises `GivenUp` if the current batch must be abandoned."""
        if self.phase is Phase.GIVEN_UP:
            raise GivenUp

    def hooks(self, journal: Journal, *, observed: bool) -> BatchHooks:
        """Returns the hooks of an engine whose batches are logged in this journal. `observed`: the user's code learns
        of each batch.
        """

        def before_writing() -> None:
            journal.settle()
            self.writing = True  # From now on, only a replay of the same batch may follow.

        return BatchHooks(self.require_wanted, before_writing, observed)
