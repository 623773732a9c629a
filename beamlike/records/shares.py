"""The completeness that a stage stated for its windows in a batch, and how its promise was kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final

import attrs

MOST_WINDOWS: Final = 20
"""The greatest number of windows of a stage in the record of a batch."""

KEPT, INCOMPLETE, DELAYED = "kept", "incomplete", "delayed"
"""The states of a promise for an on-time pane: it is kept, the share is too small, or the pane is too late."""


@attrs.frozen
class WindowShare:
    """The panes of a window in a batch: the bounds (us), the timing, the stated share, and the number of panes.

    The share is None if nothing had been learned; 1.0 is proved. All keys of a window have the same share.
    """

    start: int
    end: int
    timing: str
    share: float | None = None
    panes: int = 1

    @property
    def identity(self) -> tuple[int, int, str, float]:
        """The attributes that all panes of the window with this timing and share have."""
        return self.start, self.end, self.timing, -1.0 if self.share is None else self.share


def merged_shares(*parts: Iterable[WindowShare]) -> tuple[WindowShare, ...]:
    """Merges the windows of shards. Of more than `MOST_WINDOWS`, those with the most panes are kept."""
    found: dict[tuple[int, int, str, float], WindowShare] = {}
    for part in parts:
        for one in part:
            before = found.get(one.identity)
            found[one.identity] = one if before is None else attrs.evolve(one, panes=one.panes + before.panes)
    by_panes = sorted(found.values(), key=lambda one: (-one.panes, one.identity))
    return tuple(sorted(islice(by_panes, MOST_WINDOWS), key=lambda one: one.identity))


def misses(promised: Mapping[str, int]) -> int:
    """Returns the number of panes that did not keep the promise."""
    return promised.get(INCOMPLETE, 0) + promised.get(DELAYED, 0)
