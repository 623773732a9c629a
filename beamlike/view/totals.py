"""What each source and stage of a run took in, gave and dropped, over all its batches."""

from __future__ import annotations

from collections import Counter, defaultdict

import attrs

from beamlike.view.history import History


@attrs.define
class Total:
    """Counts of a source or stage since the run's beginning."""

    elements: int = 0
    dead_letters: int = 0
    panes: Counter[str] = attrs.field(factory=Counter)
    dropped: Counter[str] = attrs.field(factory=Counter)


def totals(history: History) -> defaultdict[str, Total]:
    """By name; nothing of what no batch knows."""
    found: defaultdict[str, Total] = defaultdict(Total)
    for batch in history.batches:
        for name, source in batch.sources.items():
            found[name].elements += source.elements
            found[name].dead_letters += source.dead_letters
        for name, stage in batch.stages.items():
            found[name].elements += stage.elements
            found[name].panes.update(stage.panes)
            found[name].dropped.update(stage.dropped)
    return found
