"""A run in process without a checkpoint, from the beginning of its input to the end."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import partial
from signal import SIGINT
from typing import Final

import attrs

from beamlike.io import JSONLines
from beamlike.local.engine import Engine
from beamlike.local.options import LocalOptions
from beamlike.logical.overlaps import require_outside
from beamlike.plan.model import Plan
from beamlike.records.model import BatchRecord
from beamlike.runtime.batch.batch_sinks import BatchSinks
from beamlike.runtime.batch.dead_letter_folder import dead_letter_folder, lock_dead_letters
from beamlike.runtime.display.summary import Shown
from beamlike.runtime.loop.batch_input import BatchInput, batch_inputs
from beamlike.runtime.loop.prefetch import is_small
from beamlike.runtime.run.dead_letter_limit import DeadLetterLimit
from beamlike.runtime.run.ends import times_due
from beamlike.runtime.run.observers import Observers
from beamlike.runtime.run.progress import Progress
from beamlike.runtime.run.run_records import RunRecords
from beamlike.runtime.run.run_sinks import RunSinks
from beamlike.runtime.run.sinks import check_sinks, hold_sinks, require_in_process
from beamlike.system.activity import ActivityTracker, tracked_by
from beamlike.system.signals import Interrupted, signals
from beamlike.system.threads import Threads, in_one_thread
from stages.progress.inputs import Inputs

_TOGETHER: Final = 64
"""The number of small batches that polars runs in one thread before it may use its other threads again."""


@attrs.define(repr=False)
class LocalRun(Shown):
    """A run in process without a checkpoint, and its records."""

    plan: Plan
    runner: LocalOptions
    batches: list[BatchRecord] = attrs.field(factory=list)
    _stopped: bool = False
    dead_letters: str = attrs.field(init=False)
    """The folder for dead letters that no collection of the pipeline receives. It exists only if there are any."""

    def __attrs_post_init__(self) -> None:
        self.dead_letters = dead_letter_folder(self.plan.name)

    @property
    def last(self) -> BatchRecord | None:
        return self.batches[-1] if self.batches else None

    @property
    def changed_files(self) -> Mapping[str, Mapping[str, str]]:
        """Always empty, since the files of a source are listed only once."""
        return {}

    @property
    def run_id(self) -> str:
        """The id of the run for its sinks."""
        return self.runner.run_id or self.plan.name

    def go(self) -> None:
        """Runs batches until all sources have ended."""
        _require_outside(self.plan, self.run_id, self.runner.records)
        records = RunRecords.open(self.runner.records, self.plan, self.runner.clock, fresh=True)
        try:
            self._go_recorded(records)
        except KeyboardInterrupt:
            records.close("stopped")
            raise
        finally:
            records.close("failed")

    def _go_recorded(self, records: RunRecords) -> None:
        inputs, threads = dict[str, Inputs](), Threads()
        # Sources are opened first: if a source cannot be read, the output of an earlier run must not be lost.
        taken = batch_inputs(self.plan, self.runner.chunk_rows, self.runner.clock, inputs, threads)
        check_sinks({name: sink.sink for name, sink in self.plan.sinks.items()})
        with hold_sinks(self.plan, self.run_id) as held, threads:
            self.dead_letters, lock = lock_dead_letters(self.plan.name, self.run_id)
            held.enter_context(lock)
            engine = Engine(
                self.plan,
                self.runner.clock,
                inputs=inputs,
                threads=threads,
                drains=self.plan.drains(asked=False),
                keys=records.keys,
            )
            self._go_alone(taken, engine, records)
        if self._stopped:
            raise Interrupted(self)

    def _go_alone(self, taken: Iterator[BatchInput], engine: Engine, records: RunRecords) -> None:
        """Runs all batches. No other run of this name may write to the same sinks meanwhile."""
        records.followed_by(self.runner.on_batch)
        records.exported_by(self.runner.telemetry, self.plan, self.run_id, spark=False, endless=False)
        with Progress(self.plan.name, quiet=self.runner.quiet) as progress:
            self._write_all(taken, engine, records, progress)

    def _write_all(
        self, taken: Iterator[BatchInput], engine: Engine, records: RunRecords, progress: Progress
    ) -> None:
        """Writes staged output next to the files of an earlier run, and replaces those at the end."""
        letters = JSONLines(self.dead_letters)
        sinks = RunSinks.replacing(self.plan, self.run_id, letters, also_dead_letters=True)
        try:
            sinks.start()
            self._go(taken, engine, BatchSinks(sinks.plan, sinks.sinks, self.run_id), records, progress)
            self._publish(sinks, records)
        finally:
            sinks.withdraw()

    def _publish(self, sinks: RunSinks, records: RunRecords) -> None:
        """Publishes all output. If the user interrupts this, `Interrupted` is raised when it is done."""
        try:
            sinks.conclude(records, "stopped" if self._stopped else "ended")
        except KeyboardInterrupt:
            raise Interrupted(self) from None

    def _go(
        self,
        taken: Iterator[BatchInput],
        engine: Engine,
        sinks: BatchSinks,
        records: RunRecords,
        progress: Progress,
    ) -> None:
        def stop() -> None:
            self._stopped = True
            progress.message(
                f"{self.plan.name}: stopping after the current batch; a second Ctrl-C abandons it"
            )

        with tracked_by(records.tracker), signals(stop, (SIGINT,)):
            self._take_all(taken, engine, sinks, self._observers(records, progress), records.tracker)

    def _observers(self, records: RunRecords, progress: Progress) -> Observers:
        return Observers.of(
            self.plan,
            DeadLetterLimit(self.plan.max_dead_letters),
            records=records,
            progress=progress,
            on_batch=self.runner.on_batch,
            clock=self.runner.clock,
        )

    def _take_all(
        self,
        taken: Iterator[BatchInput],
        engine: Engine,
        sinks: BatchSinks,
        observers: Observers,
        tracker: ActivityTracker,
    ) -> None:
        tracker.begin(0)
        numbered = enumerate(self._until_over(taken))
        going = True
        while going:
            small = is_small(self.last)
            turn = partial(
                self._take_some, numbered, engine, sinks, observers, tracker, most=_TOGETHER if small else 1
            )
            # Small batches are one task together, since each task costs a third of a millisecond.
            going = in_one_thread(turn) if small else turn()
        if not self._stopped:
            observers.end()

    def _until_over(self, taken: Iterator[BatchInput]) -> Iterator[BatchInput]:
        """Iterates over the batches, and over further ones at the end while state waits for processing time."""
        yield from taken
        clock = self.runner.clock
        for now in times_due(self.plan, lambda: self.last, lambda: not self._stopped, clock):
            yield BatchInput({}, dict.fromkeys(self.plan.sources, now), now, ended=True)

    def _take_some(
        self,
        numbered: Iterator[tuple[int, BatchInput]],
        engine: Engine,
        sinks: BatchSinks,
        observers: Observers,
        tracker: ActivityTracker,
        *,
        most: int,
    ) -> bool:
        """Runs at most `most` batches, and none after one that is not small. Returns False at the end of the run."""
        for _ in range(most):
            if (found := next(numbered, None)) is None:
                return False
            number, batch = found
            self.batches.append(engine.run(batch, number, sinks))
            observers.take(self.batches[-1])
            if self._stopped:
                return False
            # The time of the search for more input belongs to the next batch.
            tracker.begin(number + 1)
            if not is_small(self.last):
                return True
        return True


def _require_outside(plan: Plan, run: str, records: str | os.PathLike[str] | None) -> None:
    """Checks that no source reads what a run writes about itself."""
    require_in_process(plan)
    sources = {name: source.source for name, source in plan.sources.items()}
    letters = "the folder for dead letters without a consumer; read another folder, or run in another"
    require_outside(sources, dead_letter_folder(plan.name), (f"part-{run}-000000-000.jsonl",), letters)
    if records is not None:
        require_outside(sources, os.fspath(records), ("",), "the records of the run; name another file")
