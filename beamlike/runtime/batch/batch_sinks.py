"""Writes a batch to the sinks. When a batch is replayed, output that only the earlier attempt wrote is removed."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from typing import Any

import attrs
import polars as pl

from beamlike.io.base import Part, Sink, output_frame
from beamlike.io.sinks import HasTakeBack, TwoPhase
from beamlike.plan.model import Plan, SinkPlan
from beamlike.runtime.batch.writing import write_part, written
from beamlike.system.activity import activity
from beamlike.system.threads import ALONE, Threads


@attrs.define
class Leftovers:
    """The publisher of the files of two-phase sinks: shows the files that the tasks of a batch report, and removes
    files of other attempts.

    Only the driver, which publishes files, knows which attempt of a task counts. Other attempts may still write much
    later, for example one that was replaced by a faster copy, or one whose executor no longer answers.

    Listing a folder is slow. It is done only if an earlier attempt may have left files with unknown names: in the first
    batch of a run, which may be a replay, and with `again`.
    """

    sinks: Mapping[str, Sink]
    run: str
    is_first: bool = attrs.field(default=True, init=False)
    _two_phase: dict[str, TwoPhase] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._two_phase = {name: sink for name, sink in self.sinks.items() if isinstance(sink, TwoPhase)}

    @property
    def hides(self) -> bool:
        """True if all sinks are two-phase, so that readers see no output of a batch before `settle`."""
        return len(self._two_phase) == len(self.sinks)

    def settle(self, batch: int, parts: Mapping[str, Mapping[str, str]], *, again: bool = False) -> None:
        """Publishes the files of a batch, which are `parts`: for each sink, the result of `prepare`. `again`: an
        earlier attempt at the batch may have left files.
        """
        for name, sink in self._two_phase.items():
            with activity("sink", name):
                written(sink, name, batch, partial(self._settle, sink, batch, parts.get(name, {}), again))
        self.is_first = False

    def _settle(
        self, sink: TwoPhase, batch: int, parts: Mapping[str, str], again: bool, repeated: bool
    ) -> None:
        sink.settle(self.run, batch, parts, again=again or repeated or self.is_first)


def take_back(
    sink: SinkPlan, part: Part, *, may_replay: bool, given: Callable[[Sink, pl.DataFrame], Any] | None = None
) -> None:
    """Removes rows that an earlier attempt at a batch may have written to a sink, if the sink can and the batch may be
    a replay. This attempt has no rows for the sink. `given` converts an empty frame to the frame that the sink
    receives.
    """
    if may_replay and isinstance(sink.sink, HasTakeBack):
        target, empty = sink.sink, output_frame(pl.DataFrame(schema=sink.schema))
        with activity("sink", sink.name):
            rows = given(target, empty) if given else empty
            written(target, sink.name, part.batch, lambda repeated: target.take_back(rows, part))


@attrs.define
class BatchSinks:
    """All sinks of a run in this process, including the sink for dead letters that no collection receives.

    `may_replay`: an earlier run may already have begun the first batch.
    """

    plan: Plan
    sinks: Mapping[str, Sink]
    run: str
    may_replay: bool = False
    _leftovers: Leftovers = attrs.field(init=False)
    _own_names: Mapping[str, str] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._leftovers = Leftovers(self.sinks, self.run)
        self._own_names = self.plan.own_names()

    def _part(self, name: str, batch: int) -> Part:
        return Part(self.run, batch, sink=self._own_names.get(name, name))

    def may_change(self, arrived: Container[str]) -> bool:
        """True if `write` may change a sink: if some has arrived rows, or files of an earlier attempt."""
        return self.may_replay or self._leftovers.is_first or any(name in arrived for name in self.sinks)

    def write(
        self, batch: int, arrived: Mapping[str, Sequence[pl.DataFrame]], threads: Threads = ALONE
    ) -> dict[str, int]:
        """Writes the rows of a batch to each sink. Returns the number of rows of each sink that received some.

        Output of two-phase sinks is written first, on `threads`. It is published when all other sinks have the batch.
        """
        rows = {name: frames for name in self.sinks if (frames := arrived.get(name))}
        parts = self._prepare(batch, rows, threads)
        for name, sink in self.sinks.items():
            part = self._part(name, batch)
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
        """Writes the batch to the two-phase sinks, unpublished. Returns the files of each sink."""
        tasks = {
            name: partial(_prepared, sink, rows[name], self._part(name, batch))
            for name, sink in self.sinks.items()
            if name in rows and isinstance(sink, TwoPhase)
        }
        if threads.count == 1 or len(tasks) < 2:
            # Polars already writes a single part with all of its threads.
            return {name: task() for name, task in tasks.items()}
        return threads.each(tasks)


def _prepared(sink: TwoPhase, frames: Sequence[pl.DataFrame], part: Part) -> Mapping[str, str]:
    with activity("sink", part.sink):
        rows = _together(frames)
        return written(sink, part.sink, part.batch, lambda repeated: sink.prepare(rows, part))


def _together(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    return output_frame(pl.concat(frames))
