"""An open run: what the loop needs to begin batches, to have them executed, and to end them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Protocol

import attrs

from beamlike.io.refreshed import Clock
from beamlike.plan.model import Plan
from beamlike.plan.stepped import steps_of
from beamlike.records.model import BatchRecord
from beamlike.runtime.loop.feed import InputFeed
from beamlike.runtime.loop.journal import Journal
from beamlike.runtime.loop.logged_batch import LoggedBatch
from beamlike.runtime.run.open_run import OpenRun
from stages.progress.inputs import Inputs


class Executor(AbstractContextManager[object], Protocol):
    """Executes the batches of a run. It is entered before the first batch."""

    @property
    def inputs(self) -> Mapping[str, Inputs]:
        """The inputs of the sources after the last batch, as far as this process knows them."""

    def run(self, batch: LoggedBatch, *, again: bool) -> BatchRecord:
        """Executes a logged batch, and writes its output to the sinks. `again`: the batch is repeated."""


@attrs.frozen(slots=False, eq=False, kw_only=True)
class Opened:
    """An open run: batches can begin. `started` is its start (us) by `clock`."""

    plan: Plan
    clock: Clock
    run: OpenRun
    journal: Journal
    feed: InputFeed
    executor: Executor
    started: int

    @cached_property
    def plays(self) -> bool:
        """True if the plan reads test streams, which end by themselves."""
        return steps_of(self.plan) is not None

    def finish(self, batch: LoggedBatch, record: BatchRecord) -> None:
        """Passes the record of a batch to the observers, and commits the batch."""
        self.run.observers.take(record)
        self.journal.commit(batch)
        if self.feed.acknowledges:
            self.journal.settle()
        self.feed.committed(batch)
