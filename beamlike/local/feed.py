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
from beamlike.local.begun import Begun
from beamlike.local.bundle import Bundle, Clock, ahead, read_whole, step_bundle
from beamlike.local.read_ahead import (
    Ahead,
    ingest_all,
    may_be_read_ahead,
    not_certain,
    read_ahead,
    threads_for,
)
from beamlike.local.whole import FullReader
from beamlike.plan.model import Plan
from beamlike.plan.stepped import steps_of
from beamlike.runtime.ingest import Chunk
from beamlike.system.in_hand import at
from beamlike.system.threads import Started, Threads
from stages.progress.inputs import Inputs
from stages.strategies.validators import SourceFile

STEPS: Final = "@steps"
"""Under this name is noted how many steps of test streams were played."""


@attrs.frozen
class Next:
    """What the next batch takes; with `more`, another one can follow at once. With `ended`, all sources are over."""

    taken: Mapping[str, PlannedBatch]
    waiting: tuple[str, ...] = ()
    more: bool = False
    ended: bool = False

    @property
    def has_input(self) -> bool:
        """Whether there is anything to read, and not just a watermark that has moved."""
        return any(taken.input is not None for taken in self.taken.values())


class Feed(Protocol):
    """The input of a run."""

    def next(self, inputs: Mapping[str, Inputs]) -> Next:
        """What is there now, given what is known of the sources so far."""

    def bundle(self, batch: Begun, *, again: bool = False) -> Bundle:
        """What comes in a batch. Raises `CheckpointError` where one is done `again` whose input is not there."""

    @property
    def tells(self) -> bool:
        """Whether a source wants to know which batches are done."""

    def committed(self, batch: Begun) -> None:
        """The batch is done, and on disk, as sources are told that want to know."""

    def changed(self) -> Mapping[str, Mapping[str, str]]:
        """Returns, by source, the files that changed since the last call, as in `SourceRecord`."""


def feed_of(
    plan: Plan,
    rows: int,
    clock: Clock,
    position: Callable[[str], Position],
    threads: Threads,
    held: ExitStack,
) -> Feed:
    """That of a plan, in batches of about `rows` rows of each source, from these positions."""
    if (steps := steps_of(plan)) is not None:
        return StepFeed(plan, steps, clock, position(STEPS).get("step", 0))
    return SourceFeed.of(plan, rows, clock, position, threads, held)


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
class _Next:
    """What the next batch takes of a source, read ahead."""

    taken: PlannedBatch
    ahead: Ahead


@attrs.define(eq=False)
class SourceFeed:
    """Takes of each source what is new. Of files, the next batch is read beside the one in hand if it is there already.

    What was read ahead is noted in the journal like the rest, when the batch that takes it begins.
    """

    plan: Plan
    clock: Clock
    readers: Mapping[str, Reader | FullReader]
    threads: Threads
    _worth: Threads = attrs.field(init=False)
    _early: frozenset[str] = attrs.field(init=False)
    _started: dict[str, Started[_Next]] = attrs.field(factory=dict, init=False)
    _ahead: dict[str, _Next] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self._worth, self._early = self.threads, may_be_read_ahead(self.plan)

    @classmethod
    def of(
        cls,
        plan: Plan,
        rows: int,
        clock: Clock,
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

    def next(self, inputs: Mapping[str, Inputs]) -> Next:
        """Of the sources that are not too far ahead."""
        there = dict[str, PlannedBatch]()
        for name, reader in self.readers.items():
            with at("source", name), naming_source(name):
                if (started := self._started.pop(name, None)) is not None:
                    self._ahead[name] = started.result()
                taken = self._ahead[name].taken if name in self._ahead else reader.new()
                if taken is not None:
                    there[name] = PlannedBatch(*taken)
        waiting = ahead(self.plan, there, inputs)
        going = {name: taken for name, taken in there.items() if name not in waiting}
        more = bool(waiting) or any(taken.more for taken in going.values())
        return Next(going, tuple(sorted(waiting)), more)

    def bundle(self, batch: Begun, *, again: bool = False) -> Bundle:
        """Reads, and makes elements of it."""
        began = self.clock()
        chunks = dict[str, Chunk | Ahead]()
        for name, taken in batch.taken.items():
            with at("source", name), naming_source(name):
                try:
                    found = self._ahead.pop(name, None)
                    chunks[name] = self.readers[name].read(taken) if found is None else found.ahead
                except (LookupError, FileNotFoundError) as error:
                    if not again:
                        raise
                    raise _gone(batch.number, name, error) from error
        ingested = ingest_all(self.plan, chunks, batch.now, self._worth)
        self._worth, self._early = threads_for(ingested, self.threads), self._early - not_certain(chunks)
        for name in [name for name, taken in batch.taken.items() if taken.more and name in self._early]:
            if (started := read_ahead(self._worth, partial(self._next, name, batch.now))) is not None:
                self._started[name] = started
        times = dict.fromkeys(self.plan.sources, batch.now)
        over = read_whole(self.plan)
        changed = self.changed()
        waiting = frozenset(batch.waiting)
        return Bundle(ingested, times, began, batch.ended, waiting, batch.started, over, changed)

    @property
    def tells(self) -> bool:
        """Of sources such as queues."""
        return any(isinstance(reader, AcceptsCommits) for reader in self.readers.values())

    def committed(self, batch: Begun) -> None:
        """Of sources such as queues, which can let go of it."""
        for name, taken in batch.taken.items():
            # A savepoint has a batch of another run.
            reader: object = self.readers.get(name)
            if isinstance(reader, AcceptsCommits):
                with at("source", name), naming_source(name):
                    reader.committed(taken)

    def changed(self) -> Mapping[str, Mapping[str, str]]:
        files = {name: one for name, one in self.readers.items() if isinstance(one, FileReader)}
        return {name: found for name, reader in files.items() if (found := reader.changed())}

    def _next(self, name: str, now: int) -> _Next:
        """What a source gives next, of which there is more."""
        taken = self.readers[name].new()
        assert taken is not None
        return _Next(taken, Ahead.of(self.plan.sources[name], self.readers[name].read(taken), now))


@attrs.define
class StepFeed:
    """Plays a step of all test streams in each batch, and at last their end."""

    plan: Plan
    steps: int
    clock: Clock
    step: int

    def next(self, inputs: Mapping[str, Inputs]) -> Next:
        """The next step; nothing after the last."""
        if self.step > self.steps:
            return Next({})
        taken = PlannedBatch(self.step, {"step": self.step + 1})
        return Next({STEPS: taken}, more=True, ended=self.step == self.steps)

    def bundle(self, batch: Begun, *, again: bool = False) -> Bundle:
        """The step."""
        number = batch.taken[STEPS].input
        self.step = number + 1
        return step_bundle(self.plan, number, self.steps, self.clock)

    @property
    def tells(self) -> bool:
        """A test stream does not want to know."""
        return False

    def committed(self, batch: Begun) -> None:
        """Nor is it told."""

    def changed(self) -> Mapping[str, Mapping[str, str]]:
        return {}


def _gone(batch: int, source: str, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"batch {batch} cannot be done again, as source {source!r} does not have its input any more: "
        f"{error.args[0] if error.args else error!r}; put that back"
    )
