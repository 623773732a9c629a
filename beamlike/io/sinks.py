"""What a sink can do besides writing: each protocol is asked for by name, and a sink without it does without it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Final, Protocol, Self, TypeGuard, runtime_checkable

import attrs
import polars as pl

from beamlike.io.base import Part, Sink, WrittenInFrames

ANY: Final = "\0"
"""Whatever stands there in a name: no real one has it."""


ARE_DOUBLED: Final = "their rows stay, and are written once more"
STAY_UNTIL_REPLACED: Final = "their rows stay until a row with the same key and window replaces them"
"""What a sink that cannot cut says of the rows of batches that are done again."""


@attrs.frozen
class Place:
    """Where a sink writes: `kind` is what that is, such as a table, and `name` what the user calls it.

    Two places with the same `key` are one, however they are spelt. `path` is the file or directory in which the place
    lies, if it lies in one; what is written into a directory has such `names`, folder by folder, with `ANY` in them.
    """

    kind: str
    name: str
    key: tuple[str, ...] = ()
    path: str = ""
    names: tuple[str, ...] = ()


@runtime_checkable
class Distributed(Protocol):
    """A sink that says where it is written."""

    @property
    def distributed(self) -> bool:
        """True if tasks of Spark write a part each, false if the driver writes all of a batch."""


@runtime_checkable
class HasLocation(Protocol):
    """A sink that knows more of where it writes than its `path`. No other sink and no source may be there."""

    def place(self) -> Place:
        """Where it writes."""


@attrs.frozen
class RowKey:
    """What tells rows of panes apart, as columns of `output_frame`.

    `groups` are the grouping's keys and the window; `pane` has the index of the pane and `retracted` says that it was
    taken back, None where no column does. With `per_pane` the pane is part of the key.
    """

    groups: tuple[str, ...]
    pane: str | None
    retracted: str | None
    per_pane: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """`groups`, and with `per_pane` the pane."""
        return (*self.groups, *([self.pane] if self.per_pane and self.pane else []))


@attrs.frozen
class SinkInput:
    """What a sink gets: of which step, columns of `output_frame`, which of them are the user's, and their key."""

    step: str
    schema: pl.Schema = attrs.field(eq=False)
    user: tuple[str, ...]
    key: RowKey | None = None

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns of the key; none for rows that are only appended."""
        return () if self.key is None else self.key.columns

    @property
    def required(self) -> list[str]:
        """The columns without which the rows would say less; others are the engine's own."""
        return [name for name in self.schema if name in (*self.user, *self.key_columns)]


@runtime_checkable
class AcceptsSchema(Protocol):
    """A sink that is told, when it is declared, which columns it gets and what tells their rows apart."""

    @property
    def upserts(self) -> bool:
        """Whether a row replaces the one with its key, so that the collection must have a key."""

    @property
    def per_pane(self) -> bool:
        """Whether each pane has a row of its own."""

    def fitted(self, rows: SinkInput) -> Self:
        """The sink that is run. Raises `PlanError` for columns that it cannot hold."""


@runtime_checkable
class PerRun(Protocol):
    """A sink that learns something about what it writes to: each run has one of its own."""

    def for_run(self) -> Self:
        """Gives the sink for one run, before that checks or starts it."""


@runtime_checkable
class HasCheck(Protocol):
    """A sink that looks at what it writes to before anything is read, each time that a run begins or goes on."""

    def check(self) -> None:
        """Raises `PlanError` where that does not fit; another error says that it cannot be looked at."""


@runtime_checkable
class Lockable(Protocol):
    """A sink that only one run of a name may write to at a time."""

    def hold(self, run: str) -> AbstractContextManager[object] | None:
        """Until it is left, no other run of this name gets it. Raises `InUse`; None where nothing can tell."""


@runtime_checkable
class HasStart(Protocol):
    """A sink that makes ready what it writes to."""

    def start(self, run: str) -> None:
        """Called once when a run begins from nothing: forgets what an earlier run of that name wrote."""


@runtime_checkable
class RecordsBatches(Protocol):
    """A sink that knows the last batch it has of a run, also when a run on a copy of the checkpoint asks for it."""

    @property
    def remembers(self) -> bool:
        """True if the sink notes its batches, as it is declared."""

    def latest_batch(self, run: str) -> int | None:
        """The number of the last batch of this run that the sink has; None if it has none."""

    def cut(self, run: str, batch: int) -> str:
        """Removes the rows of later batches of this run, if the sink can.

        Returns a sentence about the rows that stay, such as "they are doubled"; no text if none stay.
        """


@runtime_checkable
class Replacing(Protocol):
    """A sink that can write a whole run beside what is there, which it replaces when the run is over."""

    def beside(self, run: str) -> Self:
        """The sink, but what it writes is seen only when `publish` has put it in place of what was there."""

    def publish(self, run: str) -> None:
        """Puts what was written beside in place of what an earlier run of this name left."""

    def has_beside(self, run: str) -> bool:
        """Whether something was written beside."""

    def forget(self, run: str) -> None:
        """Removes what was written beside."""


@runtime_checkable
class HasTakeBack(Protocol):
    """A sink that is told where a batch has no rows that may have had some when it was tried before."""

    def take_back(self, empty: pl.DataFrame, part: Part) -> None:
        """What was written of this batch does not count. `empty` has the columns, and no rows."""


@runtime_checkable
class TwoPhase(WrittenInFrames, Protocol):
    """A sink whose parts tasks write where nobody sees them, and the driver shows: it knows which attempts count."""

    def from_anywhere(self) -> Self:
        """The sink with its paths as this process means them: tasks have working directories of their own."""

    def prepare(self, frame: pl.DataFrame, part: Part) -> Mapping[str, str]:
        """Writes the part unseen: which files, and the names that they are to have."""

    def settle(self, run: str, batch: int, parts: Mapping[str, str], *, again: bool) -> None:
        """Shows the parts of a batch, of all its tasks; `again`: other attempts may have left something."""

    def shown_early(self) -> str | None:
        """Where the parts are seen before they are settled; None if they are not."""


def overtaken(batch: int, latest: int) -> RuntimeError:
    """The error for a batch of a run of which the sink has this batch or a later one that the run did not write."""
    return RuntimeError(
        f"it has batch {latest} of this run already, and this is batch {batch}: another run goes on from a copy of the "
        "checkpoint; stop both, and start the one that is to go on, which then tells what can be done"
    )


def records_batches(sink: Sink) -> TypeGuard[RecordsBatches]:
    """True for a sink that notes its batches."""
    return isinstance(sink, RecordsBatches) and sink.remembers


def written_by_tasks(sink: Sink) -> TypeGuard[WrittenInFrames]:
    """Whether tasks on other machines write it, rather than the driver."""
    return isinstance(sink, WrittenInFrames) and isinstance(sink, Distributed) and sink.distributed


def require_unique(frame: pl.DataFrame, key: RowKey) -> None:
    """A pane has one row per key and window, unless a function has changed keys since the grouping."""
    if key.pane is None:
        return
    own = [*key.groups, key.pane, *([key.retracted] if key.retracted else [])]
    twice = frame.select(own).filter(pl.struct(own).is_duplicated()).head(1)
    if len(twice):
        raise ValueError(
            f"two rows of one pane are alike in {', '.join(key.groups)}: {twice.row(0)}; steps after the grouping must "
            "leave its keys as they are"
        )
