"""The end of a run: no input can follow, and no state waits for processing time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

from beamlike.io.refreshed import Clock, wall_clock
from beamlike.plan.model import Plan
from beamlike.plan.stepped import steps_of
from beamlike.records.model import BatchRecord

_REST: Final = 0.5
"""The longest sleep (s) before a run that waits for processing time finds out that it must stop."""


def is_over(plan: Plan, last: BatchRecord | None) -> bool:
    """True if all sources of a plan are complete, or read as a whole, and were over after this batch."""
    if last is None or not plan.sources:
        return False
    return all(
        name in last.sources and last.sources[name].over and (source.complete or source.whole)
        for name, source in plan.sources.items()
    )


def times_due(
    plan: Plan,
    last: Callable[[], BatchRecord | None],
    goes_on: Callable[[], bool],
    clock: Clock = wall_clock,
) -> Iterator[int]:
    """Yields the processing times (us) at which a run needs a batch after the end of all input, and sleeps until then.

    State can hold a watermark then, since it waits for processing time.

    Args:
        plan: The plan.
        last: Returns the record of the last batch.
        goes_on: Returns False if the run must stop.
        clock: Returns the processing time (us).
    """
    while goes_on() and (due := due_after_end(plan, last())) is not None:
        now = clock()
        if due > now:
            time.sleep(min((due - now) / 1e6, _REST))
        else:
            yield now


def due_after_end(plan: Plan, last: BatchRecord | None) -> int | None:
    """Returns the processing time (us) at which state is due that holds a watermark after the batch `last`.

    None if no state waits. Test streams set the processing time themselves, and the run ends with them.
    """
    if last is None or steps_of(plan) is not None:
        return None
    holders = [stage.window for stage in last.stages.values() if stage.window is not None]
    return min((holder.due for holder in holders if holder.due is not None), default=None)
