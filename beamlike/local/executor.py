"""Executes the batches of a run in this process."""

from __future__ import annotations

from types import TracebackType

import attrs

from beamlike.local.engine import Engine
from beamlike.records.model import BatchRecord
from beamlike.runtime.batch.batch_sinks import BatchSinks
from beamlike.runtime.batch.kept_inputs import keep_inputs
from beamlike.runtime.loop.feed import InputFeed
from beamlike.runtime.loop.journal import Journal
from beamlike.runtime.loop.logged_batch import LoggedBatch
from stages.progress.inputs import Inputs


@attrs.frozen(eq=False)
class LocalExecutor:
    """Executes batches by an engine, whose state is in the journal."""

    engine: Engine
    feed: InputFeed
    journal: Journal
    sinks: BatchSinks

    @property
    def inputs(self) -> dict[str, Inputs]:
        return self.engine.inputs

    def __enter__(self) -> object:
        return self.engine.threads.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.engine.threads.__exit__(kind, error, trace)

    def run(self, batch: LoggedBatch, *, again: bool) -> BatchRecord:
        arrived = self.feed.read(batch, again=again)
        record = self.engine.run(arrived, batch.number, self.sinks)
        for name, inputs in self.engine.inputs.items():
            keep_inputs(name, self.journal, inputs)
        return record
