"""Totals of a run: what each source, step, stage and sink has read, emitted and lost over all batches."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import attrs

from beamlike.observe.words import rows
from beamlike.records.history import History
from beamlike.records.model import BatchRecord, StageRecord


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


@attrs.frozen
class Losses:
    """The rows that some batches have lost, each counted once: `dropped` by stages, and `dead_letters` by name.

    A stage drops an element from each of its windows, and stages with the same inputs drop the same elements: of these
    the one that drops most counts. `read` is the number of rows that the sources read.
    """

    read: int
    dropped: Mapping[str, int]
    dead_letters: Mapping[str, int]

    @classmethod
    def of(cls, history: History, batches: Sequence[BatchRecord]) -> Losses:
        """Returns the losses of these batches of a run."""
        by_stage: Counter[str] = Counter()
        dead: Counter[str] = Counter()
        for batch in batches:
            by_stage.update({name: _dropped(stage) for name, stage in batch.stages.items()})
            dead.update(batch.set_aside)
        most: dict[frozenset[str], str] = {}
        for name, stage in history.plan.stages.items():
            other = most.setdefault(frozenset(stage.inputs), name)
            if by_stage[name] > by_stage[other]:
                most[frozenset(stage.inputs)] = name
        read = sum(source.read or source.elements for batch in batches for source in batch.sources.values())
        return cls(read, +Counter({name: by_stage[name] for name in most.values()}), dead)

    @property
    def total(self) -> int:
        """The number of lost rows."""
        return sum(self.dropped.values()) + sum(self.dead_letters.values())

    @property
    def most(self) -> str:
        """The source, step or stage that has lost most of them."""
        both = Counter(self.dropped) + Counter(self.dead_letters)
        return f"`{both.most_common(1)[0][0]}`"

    def __str__(self) -> str:
        dropped, dead = sum(self.dropped.values()), sum(self.dead_letters.values())
        texts = [
            text for text, count in ((rows(dropped), dropped), (rows(dead, "dead letter"), dead)) if count
        ]
        return f"{' and '.join(texts)} {'was' if self.total == 1 else 'were'}"


def _dropped(stage: StageRecord) -> int:
    """Returns the number of elements that a stage has dropped: from all their windows, or the same number of drops."""
    dropped = sum(stage.dropped.values())
    return -(-dropped * stage.elements // stage.placed) if stage.placed else dropped
