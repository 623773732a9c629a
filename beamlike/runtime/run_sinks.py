"""The sinks of a run, from their start to their end: what it writes, and what becomes of that."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Self

import attrs
import polars as pl

from beamlike.errors import SinkError
from beamlike.expressions.describe import describe
from beamlike.io.base import Part, Sink, WrittenBySpark, output_frame
from beamlike.io.files.files import Files
from beamlike.io.sinks import Replacing
from beamlike.plan.model import Plan
from beamlike.records.lines import Ending
from beamlike.rows.dead_letters import UNCLAIMED
from beamlike.runtime.outcome import Outcome
from beamlike.runtime.sinks import start_sink, what_failed, write_part
from beamlike.system.signals import held_back


@attrs.define
class RunSinks:
    """What a run of this name writes to: the sinks of its `plan`, and `letters` for dead letters that nobody takes.

    What is written to sinks that are `replaced` lies beside what an earlier run of the name left until this one ends.
    """

    plan: Plan
    run: str
    letters: Files
    replaced: Mapping[str, Replacing] = attrs.field(factory=dict)
    _is_over: bool = attrs.field(default=False, init=False)

    @classmethod
    def replacing(cls, plan: Plan, run: str, letters: Files, *, also_letters: bool = False) -> Self:
        """What can be replaced is, at its end; `also_letters`: earlier runs may have left some in the same place."""
        sinks = {
            name: attrs.evolve(sink, sink=sink.sink.beside(run)) if isinstance(sink.sink, Replacing) else sink
            for name, sink in plan.sinks.items()
        }
        replaced: dict[str, Replacing] = {
            name: sink.sink for name, sink in sinks.items() if isinstance(sink.sink, Replacing)
        }
        if also_letters:
            replaced[UNCLAIMED] = letters = letters.beside(run)
        return cls(attrs.evolve(plan, sinks=sinks), run, letters, replaced)

    @property
    def sinks(self) -> dict[str, Sink]:
        """All that the run writes to, by name."""
        return {**{name: sink.sink for name, sink in self.plan.sinks.items()}, UNCLAIMED: self.letters}

    def start(self, *, restored: bool = False) -> None:
        """Has the sinks make what they write to, and know their columns even if no row ever comes.

        A run that was `restored` from a savepoint continues the files of the saved run; in others, files of other runs
        are told of. Raises `SinkError` where one cannot, and what the sink itself refuses.
        """
        if os.path.isdir(self.letters.folder):
            start_sink(UNCLAIMED, self.letters, self.run)
        for name, sink in self.plan.sinks.items():
            start_sink(name, sink.sink, self.run)
            if isinstance(sink.sink, Files) and not restored:
                sink.sink.warn_of_others(self.run)
        for name, sink in self.plan.sinks.items():
            if not isinstance(sink.sink, WrittenBySpark):
                empty = output_frame(pl.DataFrame(schema=sink.schema))
                write_part(sink.sink, empty, Part(self.run, 0, sink=name))

    def publish(self) -> None:
        """The run has been: what it wrote replaces that of an earlier one. Raises `SinkError` where it cannot."""
        for name, sink in self._ending().items():
            try:
                sink.publish(self.run)
            except Exception as error:
                raise SinkError(name, f"{describe(sink)} cannot be replaced: {what_failed(error)}") from error

    def conclude(self, outcome: Outcome, ending: Ending, *, whole: bool = True) -> None:
        """The end of a run: if all of its batches are `whole`, what it wrote is shown, and records say how it ended.

        Whoever interrupts this does so when all of it is done.
        """
        with held_back():
            if whole:
                self.publish()
            outcome.close(ending)

    def withdraw(self) -> None:
        """The run failed, if it has not been published: what it wrote goes, but for dead letters, which say why."""
        for name, sink in self._ending().items():
            with suppress(OSError):  # what failed before is told
                if name == UNCLAIMED and sink.has_beside(self.run):
                    sink.publish(self.run)
                sink.forget(self.run)

    def _ending(self) -> Mapping[str, Replacing]:
        """Those that end now: each ends once."""
        ending = {} if self._is_over else self.replaced
        self._is_over = True
        return ending
