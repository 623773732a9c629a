"""What the batches of a run with a checkpoint take of its sources, and that input once more where one is done again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Final, Protocol, Self

import attrs

from beamlike.errors import CheckpointError, PlanError, naming_source
from beamlike.io.files.reader import FileReader
from beamlike.io.in_process import Continued, reader_of
from beamlike.io.sources import AcceptsCommits, PlannedBatch, Position, Reader
from beamlike.local.batch_input import BatchInput, Clock, read_whole, step_input, too_far_ahead
from beamlike.local.full_read import FullReader
from beamlike.local.logged_batch import LoggedBatch
from beamlike.local.prefetch import (
    Prefetched,
    ingest_all,
    may_prefetch,
    must_repeat,
    prefetch,
    threads_for,
)
from beamlike.plan.model import Plan
from beamlike.plan.stepped import steps_of
from beamlike.runtime.ingested import Chunk
from beamlike.system.activity import activity
from beamlike.system.threads import StartedTask, Threads
from stages.progress.inputs import Inputs
from stages.strategies.validators import SourceFile

STEPS: Final = "@steps"
"""Under this name is noted how many steps of test streams were played."""


@attrs.frozen
class NextBatch:
    """What the next batch takes; with `more`, another one can follow at once. With `ended`, all sources are over."""

    taken: Mapping[str, PlannedBatch]
    waiting: tuple[str, ...] = ()
    more: bool = False
    ended: bool = False

    @property
    def has_input(self) -> bool:
        """Whether there is anything to read, and not just a watermark that has moved."""
        return any(taken.input is not None for taken in self.taken.values())


class InputFeed(Protocol):
    """The input of a run."""

    def next(self, inputs: Mapping[str, Inputs]) -> NextBatch:
        """What is there now, given what is known of the sources so far."""

    def read(self, batch: LoggedBatch, *, again: bool = False) -> BatchInput:
        """What comes in a batch. Raises `CheckpointError` where one is done `again` whose input is not there."""

    @property
    def tells(self) -> bool:
        """Whether a source wants to know which batches are done."""

    def committed(self, batch: LoggedBatch) -> None:
        """The batch is done, and on disk, as sources are told that want to know."""

    def changed(self) -> Mapping[str, Mapping[str, str]]:
        """Returns, by source, the files that changed since the last call, as in `SourceRecord`."""


def open_feed(
    plan: Plan,
    rows: int,
    clock: Clock,
    *,
    position: Callable[[str], Position],
    threads: Threads,
    held: ExitStack,
) -> InputFeed:
    """That of a plan, in batches of about `rows` rows of each source, from these positions."""
    if (steps := steps_of(plan)) is not None:
        return StepInputFeed(plan, steps, clock, position(STEPS).get("step", 0))
    return SourceInputFeed.of(plan, rows, clock, position=position, threads=threads, held=held)


def require_resumable(plan: Plan) -> None:
    """Raises `PlanError` for a source that cannot be read on from where it was."""
    for name, source in plan.sources.items():
        if steps_of(plan) is None and not isinstance(source.source, Continued):
            raise PlanError(
                f"{type(source.source).__name__} cannot be read on from where a run was, as it has no "
                "resume(position, rows); leave out checkpoint=, or run on Spark if that can read it",
                step=name,
            )


@attrs.frozen(eq=False)
class _Prefetched:
    """What the next batch takes of a source, prefetched."""

    taken: PlannedBatch
    prefetched: Prefetched


@attrs.define(eq=False)
class SourceInputFeed:
    """Takes of each source what is new. Of files, the next batch is read beside the one in hand if it is there already.

    What was prefetched is noted in the journal like the rest, when the batch that takes it begins.
    """

    plan: Plan
    clock: Clock
    readers: Mapping[str, Reader | FullReader]
    threads: Threads
    _worth: Threads = attrs.field(init=False)
    _early: frozenset[str] = attrs.field(init=False)
    _started: dict[str, StartedTask[_Prefetched]] = attrs.field(factory=dict, init=False)
    _ahead: dict[str, _Prefetched] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self._worth, self._early = self.threads, may_prefetch(self.plan)

    @classmethod
    def of(
        cls,
        plan: Plan,
        rows: int,
        clock: Clock,
        *,
        position: Callable[[str], Position],
        threads: Threads,
        held: ExitStack,
    ) -> Self:
        """From these positions; what is open is closed with `held`."""
        readers = dict[str, Reader | FullReader]()
        for name, source in plan.sources.items():
            assert isinstance(source.source, Continued)
            apart = isinstance(source.watermark.per_split, SourceFile)
            opened = partial(reader_of, source.source, rows=rows, apart=apart)
            at_first = position(name)
            with naming_source(name):
                readers[name] = FullReader.of(at_first, opened) if source.whole else opened(at_first)
            held.callback(readers[name].close)
        return cls(plan, clock, readers, threads)

    def next(self, inputs: Mapping[str, Inputs]) -> NextBatch:
        """Of the sources that are not too far ahead."""
        there = dict[str, PlannedBatch]()
        for name, reader in self.readers.items():
            with activity("source", name), naming_source(name):
                if (started := self._started.pop(name, None)) is not None:
                    self._ahead[name] = started.result()
                taken = self._ahead[name].taken if name in self._ahead else reader.new()
                if taken is not None:
                    there[name] = PlannedBatch(*taken)
        waiting = too_far_ahead(self.plan, there, inputs)
        going = {name: taken for name, taken in there.items() if name not in waiting}
        more = bool(waiting) or any(taken.more for taken in going.values())
        return NextBatch(going, tuple(sorted(waiting)), more)

    def read(self, batch: LoggedBatch, *, again: bool = False) -> BatchInput:
        """Reads, and makes elements of it."""
        began = self.clock()
        chunks = dict[str, Chunk | Prefetched]()
        for name, taken in batch.taken.items():
            with activity("source", name), naming_source(name):
                try:
                    found = self._ahead.pop(name, None)
                    chunks[name] = self.readers[name].read(taken) if found is None else found.prefetched
                except (LookupError, FileNotFoundError) as error:
                    if not again:
                        raise
                    raise _gone(batch.number, name, error) from error
        ingested = ingest_all(self.plan, chunks, batch.now, self._worth)
        self._worth, self._early = threads_for(ingested, self.threads), self._early - must_repeat(chunks)
        for name in [name for name, taken in batch.taken.items() if taken.more and name in self._early]:
            if (started := prefetch(self._worth, partial(self._next, name, batch.now))) is not None:
                self._started[name] = started
        times = dict.fromkeys(self.plan.sources, batch.now)
        over = read_whole(self.plan)
        return BatchInput(
            ingested,
            times,
            began,
            ended=batch.ended,
            waiting=frozenset(batch.waiting),
            started=batch.started,
            over=over,
            changed=self.changed(),
        )

    @property
    def tells(self) -> bool:
        """Of sources such as queues."""
        return any(isinstance(reader, AcceptsCommits) for reader in self.readers.values())

    def committed(self, batch: LoggedBatch) -> None:
        """Of sources such as queues, which can let go of it."""
        for name, taken in batch.taken.items():
            # A savepoint has a batch of another run.
            reader: object = self.readers.get(name)
            if isinstance(reader, AcceptsCommits):
                with activity("source", name), naming_source(name):
                    reader.committed(taken)

    def changed(self) -> Mapping[str, Mapping[str, str]]:
        files = {name: one for name, one in self.readers.items() if isinstance(one, FileReader)}
        return {name: found for name, reader in files.items() if (found := reader.changed())}

    def _next(self, name: str, now: int) -> _Prefetched:
        """What a source gives next, of which there is more."""
        taken = self.readers[name].new()
        assert taken is not None
        return _Prefetched(taken, Prefetched.of(self.plan.sources[name], self.readers[name].read(taken), now))


@attrs.define
class StepInputFeed:
    """Plays a step of all test streams in each batch, and at last their end."""

    plan: Plan
    steps: int
    clock: Clock
    step: int

    def next(self, inputs: Mapping[str, Inputs]) -> NextBatch:
        """The next step; nothing after the last."""
        if self.step > self.steps:
            return NextBatch({})
        taken = PlannedBatch(self.step, {"step": self.step + 1})
        return NextBatch({STEPS: taken}, more=True, ended=self.step == self.steps)

    def read(self, batch: LoggedBatch, *, again: bool = False) -> BatchInput:
        """The step."""
        number = batch.taken[STEPS].input
        self.step = number + 1
        return step_input(self.plan, number, self.steps, self.clock)

    @property
    def tells(self) -> bool:
        """A test stream does not want to know."""
        return False

    def committed(self, batch: LoggedBatch) -> None:
        """Nor is it told."""

    def changed(self) -> Mapping[str, Mapping[str, str]]:
        return {}


def _gone(batch: int, source: str, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"batch {batch} cannot be done again, as source {source!r} does not have its input any more: "
        f"{error.args[0] if error.args else error!r}; put that back"
    )
