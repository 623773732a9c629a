"""What becomes of the rows of a batch at the sinks, also where it is done again: then what it has not is removed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import attrs
import polars as pl

from beamlike.io.base import Part, Sink, output_frame
from beamlike.io.sinks import HasTakeBack, TwoPhase
from beamlike.plan.model import Plan, SinkPlan
from beamlike.runtime.sinks import write_part, writing
from beamlike.system.in_hand import at
from beamlike.system.threads import ALONE, Threads


@attrs.define
class Leftovers:
    """Shows, when a batch is written, the files that its tasks say they have written, and removes others.

    Who shows them alone knows which attempt counts. Another may go on, and write, long after that: one that was given
    up, because a copy of it was faster or its executor does not answer.

    Folders are listed only where an attempt before may have left what no name tells: in the first batch of a run,
    which may be a replay, and where `again` says so.
    """

    sinks: Mapping[str, Sink]
    run: str
    _is_first: bool = attrs.field(default=True, init=False)

    @property
    def hides(self) -> bool:
        """True if nothing that tasks have written is seen before this shows it."""
        return all(isinstance(sink, TwoPhase) for sink in self.sinks.values())

    def settle(self, batch: int, parts: Mapping[str, Mapping[str, str]], *, again: bool = False) -> None:
        """`parts`: of each sink the files, as `prepare` gave them."""
        for name, sink in self.sinks.items():
            if isinstance(sink, TwoPhase):
                with at("sink", name), writing(sink, name, batch):
                    sink.settle(self.run, batch, parts.get(name, {}), again=again or self._is_first)
        self._is_first = False


def take_back(sink: SinkPlan, part: Part, *, may_replay: bool) -> None:
    """There are no rows, and an attempt at the batch before may have had some: the sink is told."""
    if may_replay and isinstance(sink.sink, HasTakeBack):
        with at("sink", sink.name), writing(sink.sink, sink.name, part.batch):
            sink.sink.take_back(output_frame(pl.DataFrame(schema=sink.schema)), part)


@attrs.define
class BatchSinks:
    """All that a run in this process writes to: the sinks of its plan, and `letters` for dead letters nobody takes.

    `may_replay`: the first batch may have been begun by an earlier run.
    """

    plan: Plan
    sinks: Mapping[str, Sink]
    run: str
    may_replay: bool = False
    _leftovers: Leftovers = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._leftovers = Leftovers(self.sinks, self.run)

    def write(
        self, batch: int, arrived: Mapping[str, Sequence[pl.DataFrame]], threads: Threads = ALONE
    ) -> dict[str, int]:
        """What has come for each sink in this batch; how many rows that is, where it is any.

        What can be shown afterwards is written first, on these threads, and shown when all others have the batch.
        """
        come = {name: frames for name in self.sinks if (frames := arrived.get(name))}
        parts = self._prepare(batch, come, threads)
        for name, sink in self.sinks.items():
            part = Part(self.run, batch, sink=name)
            if name not in come and name in self.plan.sinks:
                take_back(self.plan.sinks[name], part, may_replay=self.may_replay)
            elif name in come and name not in parts:
                with at("sink", name):
                    write_part(sink, _together(come[name]), part)
        self._leftovers.settle(batch, parts)
        self.may_replay = False
        return {name: sum(map(len, frames)) for name, frames in come.items()}

    def _prepare(
        self, batch: int, come: Mapping[str, Sequence[pl.DataFrame]], threads: Threads
    ) -> Mapping[str, Mapping[str, str]]:
        """Has the parts written that are shown afterwards; of each sink the files."""
        tasks = {
            name: partial(_prepared, sink, come[name], Part(self.run, batch, sink=name))
            for name, sink in self.sinks.items()
            if name in come and isinstance(sink, TwoPhase)
        }
        if threads.count == 1 or len(tasks) < 2:  # all threads of polars write one
            return {name: task() for name, task in tasks.items()}
        return threads.each(tasks)


def _prepared(sink: TwoPhase, frames: Sequence[pl.DataFrame], part: Part) -> Mapping[str, str]:
    with at("sink", part.sink), writing(sink, part.sink, part.batch):
        return sink.prepare(_together(frames), part)


def _together(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    return output_frame(pl.concat(frames))
