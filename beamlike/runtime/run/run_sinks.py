"""The sinks of a run from its start to its end, when output is published or withdrawn."""

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
from beamlike.runtime.batch.writing import what_failed, write_part
from beamlike.runtime.run.run_records import RunRecords
from beamlike.runtime.run.sinks import start_sink
from beamlike.system.signals import held_back


@attrs.define
class RunSinks:
    """The sinks of a run: those of its `plan`, and `dead_letters` for dead letters that no collection receives.

    Sinks in `replaced` still have the output of an earlier run with the same name. It is replaced when this run ends.
    """

    plan: Plan
    run: str
    dead_letters: Files
    replaced: Mapping[str, Replacing] = attrs.field(factory=dict)
    _is_over: bool = attrs.field(default=False, init=False)

    @classmethod
    def replacing(cls, plan: Plan, run: str, dead_letters: Files, *, also_dead_letters: bool = False) -> Self:
        """Creates sinks that replace earlier output at the end of the run, if they support it.

        `also_dead_letters`: earlier runs may have written dead letters to the same folder, so it is replaced as well.
        """
        sinks = {
            name: attrs.evolve(sink, sink=sink.sink.beside(run)) if isinstance(sink.sink, Replacing) else sink
            for name, sink in plan.sinks.items()
        }
        replaced: dict[str, Replacing] = {
            name: sink.sink for name, sink in sinks.items() if isinstance(sink.sink, Replacing)
        }
        if also_dead_letters:
            replaced[UNCLAIMED] = dead_letters = dead_letters.beside(run)
        return cls(attrs.evolve(plan, sinks=sinks), run, dead_letters, replaced)

    @property
    def sinks(self) -> dict[str, Sink]:
        """All sinks of the run, by name."""
        return {**{name: sink.sink for name, sink in self.plan.sinks.items()}, UNCLAIMED: self.dead_letters}

    def start(self, *, restored: bool = False) -> None:
        """Starts the sinks, and writes an empty frame to each, so that its columns exist even if no row arrives.

        Sinks of files warn about files of other runs. A run that was `restored` from a savepoint does not warn, because
        it continues the files of the saved run. Raises `SinkError` if a sink cannot start, and the sink's own errors.
        """
        if os.path.isdir(self.dead_letters.folder):
            start_sink(UNCLAIMED, self.dead_letters, self.run)
        for name, sink in self.plan.sinks.items():
            start_sink(name, sink.sink, self.run)
            if isinstance(sink.sink, Files) and not restored:
                sink.sink.warn_of_others(self.run)
        for name, sink in self.plan.sinks.items():
            if not isinstance(sink.sink, WrittenBySpark):
                empty = output_frame(pl.DataFrame(schema=sink.schema))
                write_part(sink.sink, empty, Part(self.run, 0, sink=sink.own_name or name))

    def publish(self) -> None:
        """Replaces the output of an earlier run by the output of this run. Raises `SinkError` if that fails."""
        for name, sink in self._ending().items():
            try:
                sink.publish(self.run)
            except Exception as error:
                raise SinkError(name, f"{describe(sink)} cannot be replaced: {what_failed(error)}") from error

    def conclude(self, records: RunRecords, ending: Ending, *, whole: bool = True) -> None:
        """Ends the run: records how it ended and, if all batches are `whole`, publishes its output first.

        Signals are delayed until this is done.
        """
        with held_back():
            if whole:
                self.publish()
            records.close(ending)

    def withdraw(self) -> None:
        """Removes the unpublished output of a run that failed. Dead letters are kept, because they may explain the
        failure.
        """
        for name, sink in self._ending().items():
            with suppress(OSError):  # the first failure is reported, not this one
                if name == UNCLAIMED and sink.has_beside(self.run):
                    sink.publish(self.run)
                sink.forget(self.run)

    def _ending(self) -> Mapping[str, Replacing]:
        """Returns the sinks that must still be published or withdrawn. Later calls return nothing."""
        ending = {} if self._is_over else self.replaced
        self._is_over = True
        return ending
