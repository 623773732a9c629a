"""The phase of a run that can be continued."""

from __future__ import annotations

from enum import IntEnum

from beamlike.records.lines import Ending


class Phase(IntEnum):
    """The phase of a run, which only moves forward."""

    GOING = 0
    """Batches follow each other."""

    STOPPING = 1
    """The current batch is finished, and no other begins; the next run continues from there."""

    DRAINED = 2
    """All input was read, all windows are closed, and the run is over."""

    GIVEN_UP = 3
    """The current batch is not finished, and the next run repeats it."""

    @property
    def ending(self) -> Ending:
        """The ending of a run that stops in this phase without an error."""
        return "ended" if self in (Phase.GOING, Phase.DRAINED) else "stopped"


KEPT_BATCHES = 10_000
"""The number of batches whose records a run keeps in memory."""
