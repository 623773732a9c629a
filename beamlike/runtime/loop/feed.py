"""The input of a run with a checkpoint: decides what each batch reads, and reads it, in a replay once more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Protocol, Self

import attrs

from beamlike.errors import CheckpointError, PlanError, naming_source
from beamlike.io.complete import CompleteReader, is_over, require_complete
from beamlike.io.files.reader import FileReader
from beamlike.io.in_process import Continued, reader_of
from beamlike.io.planned import PlannedReader
from beamlike.io.refreshed import Clock
from beamlike.io.sources import AcceptsCommits, PlannedBatch, Position, Reader
from beamlike.plan.model import Plan, SourcePlan
from beamlike.plan.stepped import steps_of
from beamlike.runtime.batch.ingested import Chunk
from beamlike.runtime.loop.batch_input import BatchInput, read_whole, step_input, too_far_ahead
from beamlike.runtime.loop.full_read import FullReader
from beamlike.runtime.loop.logged_batch import LoggedBatch
from beamlike.runtime.loop.prefetch import (
    Prefetched,
    ingest_all,
    may_prefetch,
    must_repeat,
    prefetch,
    threads_for,
)
from beamlike.runtime.recorded.batches import STEPS
from beamlike.system.activity import activity
from beamlike.system.threads import StartedTask, Threads
from stages.progress.inputs import Inputs
from stages.strategies.validators import SourceFile


@attrs.frozen
class NextBatch:
    """The planned input of the next batch. `more`: another batch can follow without waiting. `ended`: all sources have
    ended.
    """

    taken: Mapping[str, PlannedBatch]
    waiting: tuple[str, ...] = ()
    more: bool = False
    ended: bool = False

    @property
    def has_input(self) -> bool:
        """True if there are rows to read. A batch can also have only a watermark that has moved."""
        return any(taken.input is not None for taken in self.taken.values())


class InputFeed(Protocol):
    """The input of a run: plans and reads the input of each batch."""

    def next(self, inputs: Mapping[str, Inputs]) -> NextBatch:
        """Plans a batch with all input that is available now. `inputs`: the current inputs of the sources."""

    def read(self, batch: LoggedBatch, *, again: bool = False) -> BatchInput:
        """Reads the input of a batch. Raises `CheckpointError` if the batch is replayed (`again`) and its
        input is lost.
        """

    @property
    def acknowledges(self) -> bool:
        """True if a source must be notified of committed batches, when they are on disk."""

    def committed(self, batch: LoggedBatch) -> None:
        """Notifies each source that accepts commits that the batch is done and stored."""

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
    """Opens the input of a plan. Each batch reads about `rows` rows of each source, from the given positions on.

    What must be closed at the end of the run is added to `held`.
    """
    if (steps := steps_of(plan)) is not None:
        return StepInputFeed(plan, steps, clock, position(STEPS).get("step", 0))
    return SourceInputFeed.of(plan, rows, clock, position=position, threads=threads, held=held)


def require_resumable(plan: Plan) -> None:
    """Raises `PlanError` for a source that cannot continue from a position."""
    for name, source in plan.sources.items():
        if steps_of(plan) is None and not isinstance(source.source, Continued):
            raise PlanError(
                f"{type(source.source).__name__} cannot be read on from a position, since it has no "
                "resume(position, rows); leave out checkpoint=, or run on Spark if that can read it",
                step=name,
            )


@attrs.frozen(eq=False)
class _Prefetched:
    """The input of a source for the next batch, with the rows that were read and ingested in advance."""

    taken: PlannedBatch
    prefetched: Prefetched


@attrs.define(eq=False)
class SourceInputFeed:
    """The input feed of sources: a batch has new rows of each source. Files for the next batch are prefetched while the
    current batch runs.

    Prefetched input is written to the journal like other input, when its batch begins.
    """

    plan: Plan
    clock: Clock
    readers: Mapping[str, Reader | FullReader]
    threads: Threads
    over: set[str] = attrs.field(factory=set)
    """The complete sources whose last batch was read."""
    _worth: Threads = attrs.field(init=False)
    _early: frozenset[str] = attrs.field(init=False)
    _started: dict[str, StartedTask[_Prefetched]] = attrs.field(factory=dict, init=False)
    _ahead: dict[str, _Prefetched] = attrs.field(factory=dict, init=False)
    _acknowledging: dict[str, AcceptsCommits] = attrs.field(init=False)
    """The readers that are notified of committed batches."""
    _changing: dict[str, FileReader | CompleteReader] = attrs.field(init=False)
    """The readers that find changed files."""

    def __attrs_post_init__(self) -> None:
        self._worth, self._early = self.threads, may_prefetch(self.plan)
        # Tests for a protocol are slow, so they are not made for each batch.
        own = {name: self._own_reader(name) for name in self.readers}
        self._acknowledging = {name: one for name, one in own.items() if isinstance(one, AcceptsCommits)}
        self._changing = {
            name: one for name, one in self.readers.items() if isinstance(one, FileReader | CompleteReader)
        }

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
        """Opens the sources at these positions. They are closed with `held`."""
        readers, over = dict[str, Reader | FullReader](), set[str]()
        for name, source in plan.sources.items():
            assert isinstance(source.source, Continued)
            apart = isinstance(source.watermark.per_split, SourceFile)
            opened = partial(reader_of, source.source, rows=rows, apart=apart)
            at_first = position(name)
            require_complete(name, complete=source.complete, over=is_over(at_first))
            with naming_source(name):
                readers[name] = _reader(source, at_first, opened)
            held.callback(readers[name].close)
            over |= {name} if is_over(at_first) else set()
        return cls(plan, clock, readers, threads, over)

    def next(self, inputs: Mapping[str, Inputs]) -> NextBatch:
        there = dict[str, PlannedBatch]()
        for name, reader in self.readers.items():
            with activity("source", name), naming_source(name):
                # The reader is already past the prefetched input, so that must be used first.
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
        self.over |= {name for name, taken in batch.taken.items() if is_over(taken.position)}
        over = read_whole(self.plan) | self.over
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
    def acknowledges(self) -> bool:
        return any(map(_acknowledges, self._acknowledging.values()))

    def committed(self, batch: LoggedBatch) -> None:
        for name, taken in batch.taken.items():
            # The last batch of a restored savepoint is of another run, and can have sources that this plan
            # has not.
            if (reader := self._acknowledging.get(name)) is not None:
                with activity("source", name), naming_source(name):
                    reader.committed(taken)

    def changed(self) -> Mapping[str, Mapping[str, str]]:
        return {name: found for name, reader in self._changing.items() if (found := reader.changed())}

    def _own_reader(self, name: str) -> object:
        """Returns the reader that the source itself has opened; None for a source that the plan does not have."""
        reader = self.readers.get(name)
        return reader.reader if isinstance(reader, CompleteReader) else reader

    def _next(self, name: str, now: int) -> _Prefetched:
        """Reads the next input of a source that is known to have more."""
        taken = self.readers[name].new()
        assert taken is not None
        return _Prefetched(taken, Prefetched.of(self.plan.sources[name], self.readers[name].read(taken), now))


@attrs.define
class StepInputFeed:
    """The input feed of test streams: a batch has one step of all streams, and the last batch their end."""

    plan: Plan
    steps: int
    clock: Clock
    step: int

    def next(self, inputs: Mapping[str, Inputs]) -> NextBatch:
        if self.step > self.steps:
            return NextBatch({})
        taken = PlannedBatch(self.step, {"step": self.step + 1})
        return NextBatch({STEPS: taken}, more=True, ended=self.step == self.steps)

    def read(self, batch: LoggedBatch, *, again: bool = False) -> BatchInput:
        number = batch.taken[STEPS].input
        self.step = number + 1
        return step_input(self.plan, number, self.steps, self.clock)

    @property
    def acknowledges(self) -> bool:
        return False

    def committed(self, batch: LoggedBatch) -> None: ...

    def changed(self) -> Mapping[str, Mapping[str, str]]:
        return {}


def _reader(
    source: SourcePlan, position: Position, opened: Callable[[Position], Reader]
) -> Reader | FullReader:
    """Opens the reader of a source at a position."""
    if source.complete:
        return CompleteReader.of(source.name, position, opened)
    return FullReader.of(position, opened) if source.whole else opened(position)


def _gone(batch: int, source: str, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"batch {batch} cannot be replayed, because source {source!r} no longer has its input: "
        f"{error.args[0] if error.args else error!r}; restore it"
    )


def _acknowledges(reader: AcceptsCommits) -> bool:
    return reader.acknowledges if isinstance(reader, PlannedReader) else True
