"""A run with a checkpoint: batch after batch until it is stopped, or its input ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from functools import partial
from typing import Self

import attrs

from beamlike.plan.manifest import needs_processing_time
from beamlike.plan.model import Plan
from beamlike.records.model import BatchRecord
from beamlike.records.recent import RecentRecords
from beamlike.runtime.display.summary import Shown, log_open
from beamlike.runtime.loop.checkpoint import LocalCheckpoint
from beamlike.runtime.loop.control import GivenUp, RunControl
from beamlike.runtime.loop.feed import NextBatch
from beamlike.runtime.loop.logged_batch import LoggedBatch
from beamlike.runtime.loop.opened import Opened
from beamlike.runtime.loop.options import LoopOptions
from beamlike.runtime.loop.prefetch import is_small
from beamlike.runtime.run.ends import due_after_end, is_over, times_due
from beamlike.runtime.run.options import AVAILABLE_NOW, Phase, seconds
from beamlike.system.activity import tracked_by
from beamlike.system.garbage import frozen_objects
from beamlike.system.threads import in_one_thread


@attrs.define(repr=False, eq=False)
class LiveRun(Shown):
    """A run in process with a checkpoint: its records, and methods to wait for it and to stop it.

    The run holds the lock of the checkpoint until it ends.
    """

    plan: Plan
    runner: LoopOptions
    checkpoint: LocalCheckpoint
    _opened: Opened = attrs.field(alias="opened")
    _control: RunControl = attrs.field(alias="control")
    _held: ExitStack = attrs.field(alias="held")
    batches: RecentRecords = attrs.field(factory=RecentRecords, init=False)
    _over: threading.Event = attrs.field(factory=threading.Event, init=False)
    _thread: threading.Thread | None = attrs.field(default=None, init=False)
    _within: int | None = attrs.field(default=None, init=False)
    _failure: BaseException | None = attrs.field(default=None, init=False)

    @classmethod
    def begin(
        cls,
        plan: Plan,
        runner: LoopOptions,
        checkpoint: LocalCheckpoint,
        opening: Callable[[RunControl, ExitStack], Opened],
    ) -> Self:
        """Locks the checkpoint, and opens the run by `opening`."""
        control = RunControl()
        with ExitStack() as held:
            held.enter_context(checkpoint.lock(f"the run of {plan.name!r}"))
            opened = opening(control, held)
            run = cls(opened.plan, runner, checkpoint, opened=opened, control=control, held=held.pop_all())
        opened.run.progress.up(checkpoint.path)
        return run

    @property
    def last(self) -> BatchRecord | None:
        return self.batches.last or self._opened.run.records.last

    @property
    def dead_letters(self) -> str:
        return self.checkpoint.dead_letters

    @property
    def changed_files(self) -> Mapping[str, Mapping[str, str]]:
        return self._opened.run.records.changed

    def go(self) -> None:
        """Runs batches in the calling thread until the run ends. Raises the error if the run fails."""
        records, self._within = self._opened.run.records, threading.get_ident()
        try:
            spared = frozen_objects() if self._goes_on else nullcontext()
            with tracked_by(self._opened.run.records.tracker), self._opened.executor, spared:
                self._take_all()
                self._opened.journal.settle()
                self._end()
            log_open(self, goes_on=True)
            self._opened.run.sinks.conclude(records, self._control.phase.ending)
        except GivenUp:
            records.close("stopped")
        except KeyboardInterrupt:
            self._control.go_to(Phase.GIVEN_UP)
            records.close("stopped")
            raise
        except BaseException as error:
            self._opened.run.progress.close(error)
            raise
        finally:
            try:
                self._held.close()
            finally:
                self._over.set()

    def go_in_thread(self) -> None:
        """Runs batches in a new thread."""

        def go() -> None:
            try:
                self.go()
            except BaseException as error:
                self._failure = error

        self._thread = threading.Thread(target=go, name=f"run {self.plan.name}", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Waits until the available input is processed, or the run is stopped. Raises the error if the run failed."""
        self._over.wait()
        if self._thread is not None:
            self._thread.join()
        if self._failure is not None:
            raise self._failure

    def ask_to_stop(self, notice: str = "") -> None:
        """Asks the run to stop after the current batch, without waiting. `notice` is printed now."""
        if notice and not self._over.is_set():
            text = f"{self.plan.name}: stopping after the current batch; {notice}"
            self._opened.run.progress.message(text)
        self._control.go_to(Phase.STOPPING)
        self._control.stopping.set()

    def stop(self, *, now: bool = False) -> None:
        """Stops the run after the current batch, and waits until it has stopped. A call from `on_batch` does not wait.

        With `now`, the current batch is abandoned between two of its parts, and the next run repeats it.
        """
        if now:
            self._control.go_to(Phase.GIVEN_UP)
        self.ask_to_stop()
        if self._within != threading.get_ident():
            self._over.wait()

    def _take_all(self) -> None:
        """Runs batches until there is no more input, or the run must stop."""
        last = self._opened.journal.last
        # An unfinished batch may have written output, so it is replayed before any new input is read.
        if last is not None and not last[1]:
            self._take(last[0], again=True)
        while self._control.phase is Phase.GOING and not self._has_ended():
            due = time.monotonic() + self._interval
            found = self._look()
            if found.taken or self._ticks:
                self._take(self._begun(found))
            if found.more:
                continue
            if not self._goes_on:
                # Input that has arrived since then is left to the next run, unless this run drains.
                if not (self.runner.drain and found.has_input):
                    self._see_to_what_is_due(found)
                    return
            elif is_over(self.plan, self.last):
                self._opened.run.progress.over()
                return
            elif self._control.phase is Phase.GOING:
                self._rest(due)

    def _see_to_what_is_due(self, found: NextBatch) -> None:
        """Runs a batch without input if this run has had no batch: timers can be due, since time has passed after the
        last run.
        """
        last = self._opened.journal.last
        if last is None or last[0].started == self._opened.started or self.runner.drain:
            return
        if needs_processing_time(self.plan):
            self._take(self._begun(found))

    def _rest(self, due: float) -> None:
        """Waits until `due`, the time of the next check for input, or until the run must stop."""
        self._opened.run.records.tracker.end()
        if (left := due - time.monotonic()) > 0:
            # A run that waits for input stores everything that it has done, but does not keep input waiting for that.
            self._opened.journal.settle(within=left)
            self._control.stopping.wait(max(0.0, due - time.monotonic()))

    def _look(self) -> NextBatch:
        """Checks the sources for new input, and counts the time of this as part of the next batch."""
        last = self._opened.journal.last
        self._opened.run.records.tracker.begin(0 if last is None else last[0].number + 1)
        return self._opened.feed.next(self._opened.executor.inputs)

    def _begun(self, found: NextBatch) -> LoggedBatch:
        """Logs and returns the batch with this input. Nothing of the batch may be done before."""
        opened, now = self._opened, self._opened.clock()
        number = 0
        # Processing time must not decrease, even if the clock of the machine is set back.
        if (last := opened.journal.last) is not None:
            number, now = last[0].number + 1, max(now, last[0].now)
        batch = LoggedBatch(
            number, now, opened.started, found.taken, waiting=found.waiting, ended=found.ended
        )
        opened.journal.begin(batch)
        return batch

    def _take(self, batch: LoggedBatch, *, again: bool = False) -> None:
        self._opened.run.records.tracker.begin(batch.number)
        self._control.writing = False
        take = partial(self._opened.executor.run, batch, again=again)
        few = (last := self.batches.last) is not None and is_small(last)
        record = in_one_thread(take) if few else take()
        self.batches.append(record)
        self._opened.finish(batch, record)
        self._opened.run.records.tracker.end()

    def _has_ended(self) -> bool:
        """True if all sources ended with the last batch."""
        last = self._opened.journal.last
        return last is not None and last[0].ended

    def _end(self) -> None:
        """Closes all windows if the run drains, and notifies the observers that the run has ended."""
        opened = self._opened
        if self._control.phase is not Phase.GOING:
            return
        if self.runner.drain and not self._has_ended():
            self._drain()
        if self._has_ended():
            self._await_due()
        if self._control.phase is Phase.GOING:
            opened.run.observers.end()
        if self._has_ended() and due_after_end(self.plan, self.last) is None:
            self._control.go_to(Phase.DRAINED)
            opened.run.note("drained")

    def _await_due(self) -> None:
        """Runs batches after the end of all input while state waits for processing time."""
        clock = self._opened.clock
        for _ in times_due(self.plan, lambda: self.last, lambda: self._control.phase is Phase.GOING, clock):
            self._take(self._begun(NextBatch({}, ended=True)))
            self._opened.journal.settle()

    def _drain(self) -> None:
        """Runs the batch that closes all windows.

        If the batch fails before sinks receive anything, it is removed from the journal. After the code is corrected, a
        run without `drain`, a savepoint or another drain can follow.
        """
        opened = self._opened
        opened.run.note("draining")
        batch = self._begun(NextBatch({}, ended=True))
        try:
            self._take(batch)
        except Exception:
            if not self._control.writing:
                opened.journal.forget(batch)
                opened.run.note("draining", holds=False)
            raise
        opened.journal.settle()

    @property
    def _goes_on(self) -> bool:
        """True if the run waits for more input when it has processed what is available."""
        return self.runner.trigger != AVAILABLE_NOW and not self._opened.plays

    @property
    def _interval(self) -> float:
        return seconds(self.runner.trigger) if self._goes_on else 0.0

    @property
    def _ticks(self) -> bool:
        """True if batches without input are necessary, since something in the plan depends on processing time."""
        return self._goes_on and needs_processing_time(self.plan)
