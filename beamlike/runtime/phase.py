"""How far a run that can be continued is."""

from __future__ import annotations

from enum import IntEnum

from beamlike.records.lines import Ending


class Phase(IntEnum):
    """It only goes forward."""

    GOING = 0
    """Batch follows batch."""

    STOPPING = 1
    """The batch in hand is finished, and no other is begun; the next run goes on there."""

    DRAINED = 2
    """All input was taken, all windows are closed, and the run is over."""

    GIVEN_UP = 3
    """The batch in hand is not finished either; the next run does it again."""

    @property
    def ending(self) -> Ending:
        """How a run ends in it that has not failed."""
        return "ended" if self in (Phase.GOING, Phase.DRAINED) else "stopped"


KEPT_BATCHES = 10_000
"""Of so many batches a run has the records in memory."""
