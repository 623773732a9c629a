"""Writes a batch to the sinks. On replay, output of an earlier attempt that is not written again is removed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import attrs
import polars as pl

from beamlike.io.base import Part, Sink, output_frame
from beamlike.io.sinks import HasTakeBack, TwoPhase
from beamlike.plan.model import Plan, SinkPlan
from beamlike.runtime.batch.writing import write_part, writing
from beamlike.system.activity import activity
from beamlike.system.threads import ALONE, Threads


@attrs.define
class Leftovers:
    """Publishes the files that the tasks of a batch report as written, and removes files of other attempts.

    Only the driver, which publishes files, knows which attempt of a task counts. Another attempt may still write long
    afterwards: one that was given up because a copy of it was faster, or because its executor does not answer.

    Folders are listed only if an earlier attempt may have left files that no name reveals: in the first batch of a run,
    which may be a replay, and with `again`.
    """

    sinks: Mapping[str, Sink]
    run: str
    _is_first: bool = attrs.field(default=True, init=False)

    @property
    def hides(self) -> bool:
        """True if no reader can see what tasks have written before it is published here."""
        return all(isinstance(sink, TwoPhase) for sink in self.sinks.values())

    def settle(self, batch: int, parts: Mapping[str, Mapping[str, str]], *, again: bool = False) -> None:
        """Publishes a batch. `parts`: the files of each sink, as `prepare` returned them."""
        for name, sink in self.sinks.items():
            if isinstance(sink, TwoPhase):
                with activity("sink", name), writing(sink, name, batch):
                    sink.settle(self.run, batch, parts.get(name, {}), again=again or self._is_first)
        self._is_first = False


def take_back(sink: SinkPlan, part: Part, *, may_replay: bool) -> None:
    """Informs a sink without rows in this batch, since an earlier attempt may have written some."""
    if may_replay and isinstance(sink.sink, HasTakeBack):
        with activity("sink", sink.name), writing(sink.sink, sink.name, part.batch):
            sink.sink.take_back(output_frame(pl.DataFrame(schema=sink.schema)), part)


@attrs.define
class BatchSinks:
    """All sinks of a run in this process: those of its plan, and the sink for dead letters without a consumer.

    `may_replay`: an earlier run may have begun the first batch.
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
        """Writes the rows that arrived for each sink in a batch; returns the number of rows of each sink that has some.

        Output that can be published afterwards is written first, on `threads`, and published when all other sinks have
        the batch.
        """
        rows = {name: frames for name in self.sinks if (frames := arrived.get(name))}
        parts = self._prepare(batch, rows, threads)
        for name, sink in self.sinks.items():
            part = Part(self.run, batch, sink=name)
            if name not in rows and name in self.plan.sinks:
                take_back(self.plan.sinks[name], part, may_replay=self.may_replay)
            elif name in rows and name not in parts:
                with activity("sink", name):
                    write_part(sink, _together(rows[name]), part)
        self._leftovers.settle(batch, parts)
        self.may_replay = False
        return {name: sum(map(len, frames)) for name, frames in rows.items()}

    def _prepare(
        self, batch: int, rows: Mapping[str, Sequence[pl.DataFrame]], threads: Threads
    ) -> Mapping[str, Mapping[str, str]]:
        """Writes the parts that are published afterwards; returns the files of each sink."""
        tasks = {
            name: partial(_prepared, sink, rows[name], Part(self.run, batch, sink=name))
            for name, sink in self.sinks.items()
            if name in rows and isinstance(sink, TwoPhase)
        }
        if threads.count == 1 or len(tasks) < 2:  # polars writes a single part with all of its threads
            return {name: task() for name, task in tasks.items()}
        return threads.each(tasks)


def _prepared(sink: TwoPhase, frames: Sequence[pl.DataFrame], part: Part) -> Mapping[str, str]:
    with activity("sink", part.sink), writing(sink, part.sink, part.batch):
        return sink.prepare(_together(frames), part)


def _together(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    return output_frame(pl.concat(frames))
