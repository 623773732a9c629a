"""Protocols of sinks: what a sink can do besides writing. All of them are optional."""

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
    """A place that a sink writes to: `kind` says of what kind, such as a table, and `name` is what the user calls it.

    Two places with the same `key` are the same place, however they are spelt. `path` is the file or directory that
    contains
    the place, if there is one. `names` are patterns for what is written into a directory, folder by folder, with `ANY`
    in
    them.
    """

    kind: str
    name: str
    key: tuple[str, ...] = ()
    path: str = ""
    names: tuple[str, ...] = ()


@runtime_checkable
class Distributed(Protocol):
    """A sink that declares which process writes it."""

    @property
    def distributed(self) -> bool:
        """True if each Spark task writes its part; false if the driver writes the whole batch."""


@runtime_checkable
class HasLocation(Protocol):
    """A sink that knows more about its place than its `path`. No other sink and no source may use the place."""

    def place(self) -> Place:
        """Returns the place that the sink writes to."""


@attrs.frozen
class RowKey:
    """The columns of `output_frame` that identify a row of a pane.

    `groups` are the keys of the grouping and the window. `pane` is the column with the index of the pane, `retracted`
    the
    column that marks a pane as taken back; each is None if there is no such column. With `per_pane`, the pane is part
    of
    the key.
    """

    groups: tuple[str, ...]
    pane: str | None
    retracted: str | None
    per_pane: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the key: `groups`, and the pane with `per_pane`."""
        return (*self.groups, *([self.pane] if self.per_pane and self.pane else []))


@attrs.frozen
class SinkInput:
    """The rows that a sink receives.

    `step` is the name of the step that writes, `schema` has the columns of `output_frame`, and `user` the names of the
    user's columns. `key` identifies rows, if the rows have a key.
    """

    step: str
    schema: pl.Schema = attrs.field(eq=False)
    user: tuple[str, ...]
    key: RowKey | None = None

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns of the key; empty for rows that are only appended."""
        return () if self.key is None else self.key.columns

    @property
    def required(self) -> list[str]:
        """The columns that a target must have: the user's columns and the key, but not the engine's others."""
        return [name for name in self.schema if name in (*self.user, *self.key_columns)]


@runtime_checkable
class AcceptsSchema(Protocol):
    """A sink that receives its columns, and the key of its rows, when it is declared."""

    @property
    def upserts(self) -> bool:
        """True if a row replaces the row with the same key, so that the collection must have a key."""

    @property
    def per_pane(self) -> bool:
        """True if each pane has its own row."""

    def fitted(self, rows: SinkInput) -> Self:
        """Returns the sink to run with. Raises `PlanError` for columns that it cannot store."""


@runtime_checkable
class PerRun(Protocol):
    """A sink that learns something about its target; each run uses its own copy."""

    def for_run(self) -> Self:
        """Returns the sink for one run, before the run checks or starts it."""


@runtime_checkable
class HasCheck(Protocol):
    """A sink that checks its target each time that a run begins or continues, before anything is read."""

    def check(self) -> None:
        """Raises `PlanError` if the target does not fit; another error means that it cannot be checked."""


@runtime_checkable
class Lockable(Protocol):
    """A sink that only one run of a name may write to at a time."""

    def hold(self, run: str) -> AbstractContextManager[object] | None:
        """Returns a lock that excludes other runs of this name; None if the target cannot be locked. Raises `InUse`."""


@runtime_checkable
class HasStart(Protocol):
    """A sink that prepares its target."""

    def start(self, run: str) -> None:
        """Called once when a run begins from nothing: removes what an earlier run of the same name wrote."""


@runtime_checkable
class RecordsBatches(Protocol):
    """A sink that knows its last batch of a run, also if the run continues from a copy of the checkpoint."""

    @property
    def remembers(self) -> bool:
        """True if the sink, as it is declared, records its batches."""

    def latest_batch(self, run: str) -> int | None:
        """Returns the number of the last batch of this run in the sink; None if there is none."""

    def cut(self, run: str, batch: int) -> str:
        """Removes the rows of later batches of this run, if the sink can.

        Returns a sentence about the rows that stay, such as "they are doubled"; empty if none stay.
        """


@runtime_checkable
class Replacing(Protocol):
    """A sink that can write a whole run beside existing output, and replace that at the end of the run."""

    def beside(self, run: str) -> Self:
        """Returns a sink that writes beside the existing output; the rows become visible with `publish`."""

    def publish(self, run: str) -> None:
        """Replaces the output of an earlier run of this name by what was written beside it."""

    def has_beside(self, run: str) -> bool:
        """True if something was written beside."""

    def forget(self, run: str) -> None:
        """Removes what was written beside."""


@runtime_checkable
class HasTakeBack(Protocol):
    """A sink that removes the rows of a batch that an earlier attempt wrote and a replay does not have."""

    def take_back(self, empty: pl.DataFrame, part: Part) -> None:
        """Removes what was written for this batch. `empty` has the columns, and no rows."""


@runtime_checkable
class TwoPhase(WrittenInFrames, Protocol):
    """A sink whose tasks write parts that are not visible, and whose parts the driver publishes.

    Only the driver knows which attempts are valid.
    """

    def from_anywhere(self) -> Self:
        """Returns the sink with absolute paths, since tasks have other working directories."""

    def prepare(self, frame: pl.DataFrame, part: Part) -> Mapping[str, str]:
        """Writes the part without publishing it.

        Returns the files written -> the names that they will have.
        """

    def settle(self, run: str, batch: int, parts: Mapping[str, str], *, again: bool) -> None:
        """Publishes the parts of a batch, of all its tasks.

        `again`: other attempts at the batch may have left files.
        """

    def shown_early(self) -> str | None:
        """Returns the place where parts are visible before `settle`; None if they are not."""


def overtaken(batch: int, latest: int) -> RuntimeError:
    """Returns the error for a batch that is in the sink already, or has a later one there, from another run."""
    return RuntimeError(
        f"it has batch {latest} of this run already, and this is batch {batch}: another run goes on from a copy of the "
        "checkpoint; stop both, and start the one that is to go on, which then tells what can be done"
    )


def records_batches(sink: Sink) -> TypeGuard[RecordsBatches]:
    """True for a sink that records its batches."""
    return isinstance(sink, RecordsBatches) and sink.remembers


def written_by_tasks(sink: Sink) -> TypeGuard[WrittenInFrames]:
    """True if tasks on other machines write the sink, rather than the driver."""
    return isinstance(sink, WrittenInFrames) and isinstance(sink, Distributed) and sink.distributed


def require_unique(frame: pl.DataFrame, key: RowKey) -> None:
    """Raises `ValueError` if two rows of one pane have the same key and window.

    A pane has one row for each, unless a function has changed keys since the grouping.
    """
    if key.pane is None:
        return
    own = [*key.groups, key.pane, *([key.retracted] if key.retracted else [])]
    twice = frame.select(own).filter(pl.struct(own).is_duplicated()).head(1)
    if len(twice):
        raise ValueError(
            f"two rows of one pane are alike in {', '.join(key.groups)}: {twice.row(0)}; steps after the grouping must "
            "leave its keys as they are"
        )
