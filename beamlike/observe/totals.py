"""Totals of a run: what each source, step, stage and sink has read, emitted and lost over all batches."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

import attrs

from beamlike.records.history import History


@attrs.define
class Total:
    """Counts since the start of the run.

    - Source: `read` = `elements` + `dead_letters` + `filtered`.
    - Stage, where an element counts in each of its windows: `placed` = `emitted` + `dropped` + `pending`;
    `dead_letters` are not elements.
    - Other step: `dead_letters`. Sink: `written` rows.
    """

    read: int = 0
    elements: int = 0
    dead_letters: int = 0
    filtered: int = 0
    placed: int = 0
    emitted: int = 0
    fired: int = 0
    pending: int = 0
    written: int = 0
    panes: Counter[str] = attrs.field(factory=Counter)
    dropped: Counter[str] = attrs.field(factory=Counter)

    @property
    def lost(self) -> dict[str, int]:
        """The number of removed rows, by reason."""
        return {"dead letters": self.dead_letters, "left out by steps": self.filtered, **self.dropped}


def totals(history: History) -> defaultdict[str, Total]:
    """Returns the totals by name. Old records without row counts have no `read` and `placed`."""
    found: defaultdict[str, Total] = defaultdict(Total)
    for batch in history.batches:
        for name, source in batch.sources.items():
            found[name].read += source.read or 0
            found[name].elements += source.elements
            found[name].dead_letters += source.dead_letters
            found[name].filtered += source.filtered or 0
        for name, stage in batch.stages.items():
            total = found[name]
            total.elements += stage.elements
            total.placed += stage.placed or 0
            total.emitted += stage.emitted or 0
            total.fired += stage.fired
            total.pending = stage.pending or 0
            total.panes.update(stage.panes)
            total.dropped.update(stage.dropped)
        for name, count in batch.dead_letters.items():
            found[name].dead_letters += count
        for name, count in batch.sinks.items():
            if name in history.plan.sinks:
                found[name].written += count
    return found


def others(history: History, total: Mapping[str, Total]) -> list[str]:
    """Returns the names of steps with dead letters that are neither source, stage nor sink, sorted."""
    known = {*history.plan.sources, *history.plan.stages, *history.plan.sinks}
    return sorted(name for name in total if name not in known)
