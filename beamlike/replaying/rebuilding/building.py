"""Plays the input of a run through the stages that are built anew and those before them, from empty state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import attrs
import polars as pl

from beamlike.local.engine import Engine
from beamlike.plan.model import Plan
from beamlike.plan.route import addressed
from beamlike.replaying.inputs import input_again
from beamlike.replaying.scratch import NoSinks
from beamlike.runtime.batch.kept_inputs import keep_inputs
from beamlike.runtime.recorded.batches import RecordedBatch
from stages.state.store import DictStore
from windowing.columns import EVENT_TIME

Given = Callable[[str, int, pl.DataFrame], None]
"""Receives rows that a stage built anew has for a sink: the sink, the batch and the rows."""


@attrs.define
class _Engine(Engine):
    """An engine that does not pass rows before `since` on to `stages`, and gives the sink rows of these to `given`."""

    stages: frozenset[str] = attrs.field(kw_only=True)
    given: Given = attrs.field(kw_only=True)
    since: int | None = attrs.field(default=None, kw_only=True)
    batch: int = attrs.field(default=0, init=False)
    before: Counter[str] = attrs.field(factory=Counter, init=False)
    rows: Counter[str] = attrs.field(factory=Counter, init=False)

    def _send(self, producer: str, frames: Mapping[str, pl.DataFrame]) -> None:
        super()._send(
            producer, {where: self._passed(producer, where, rows) for where, rows in frames.items()}
        )

    def _passed(self, producer: str, where: str, rows: pl.DataFrame) -> pl.DataFrame:
        consumer, _ = addressed(where)
        if producer in self.stages:
            if consumer in self.plan.sinks and len(rows):
                self.rows[consumer] += len(rows)
                self.given(consumer, self.batch, rows)
        elif consumer in self.stages and self.since is not None:
            kept = rows.filter(pl.col(EVENT_TIME) >= self.since)
            self.before[consumer] += len(rows) - len(kept)
            return kept
        return rows


@attrs.frozen(eq=False)
class Built:
    """The state of the stages that were built anew, and counts.

    `read`: rows by source, dead letters included. `before`: rows with an earlier event time than `since`, by the stage
    that did not receive them. `rows`: rows for each sink. `dropped`: elements that were too late, by stage.
    """

    state: DictStore
    read: Mapping[str, int]
    before: Mapping[str, int]
    rows: Mapping[str, int]
    dropped: Mapping[str, int]


def build(
    plan: Plan, stages: frozenset[str], batches: Iterable[RecordedBatch], since: int | None, given: Given
) -> Built:
    """Plays the batches through the stages and those before them, which `plan` has alone.

    Raises `InputGone` if a source no longer has the input of a batch.
    """
    now = 0
    drains = plan.drains(asked=False)
    engine = _Engine(plan, lambda: now, drains=drains, stages=stages, since=since, given=given)
    read, dropped = Counter[str](), Counter[str]()
    for batch in batches:
        now, engine.batch = batch.now, batch.number
        record = engine.run(input_again(plan, batch), batch.number, NoSinks())
        read.update(
            {
                name: one.elements + one.dead_letters if one.read is None else one.read
                for name, one in record.sources.items()
            }
        )
        dropped.update({name: sum(record.stages[name].dropped.values()) for name in stages})
    assert isinstance(engine.store, DictStore)
    for name in stages & engine.inputs.keys():
        keep_inputs(name, engine.store, engine.inputs[name])
    state = {key: value for key, value in engine.store.values.items() if key[0] in stages}
    return Built(DictStore(state), read, engine.before, engine.rows, dropped)


def with_stages_after(plan: Plan, stages: Iterable[str]) -> frozenset[str]:
    """Returns these stages, and all that read them, directly or through others."""
    found = {*stages}
    for name in (name for level in plan.levels for name in level):
        if found.intersection(plan.stages[name].inputs):
            found.add(name)
    return frozenset(found)


def only(plan: Plan, stages: Iterable[str]) -> Plan:
    """Returns the plan with these stages and all that they read, and no others."""
    wanted = {*stages}
    for name in (name for level in reversed(plan.levels) for name in level):
        if name in wanted:
            wanted.update(plan.stages[name].hears)
    return attrs.evolve(
        plan,
        sources={name: source for name, source in plan.sources.items() if name in wanted},
        stages={name: stage for name, stage in plan.stages.items() if name in wanted},
        levels=tuple(tuple(name for name in level if name in wanted) for level in plan.levels),
    )
