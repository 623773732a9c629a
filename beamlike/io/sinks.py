"""Protocols of sinks: optional capabilities in addition to writing."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol, Self, TypeGuard, runtime_checkable

import attrs
import polars as pl

from beamlike.io.base import Part, Sink, WrittenInFrames

ANY: Final = "\0"
"""A placeholder for any text in a file name. No real name contains this character."""


ARE_DOUBLED: Final = "their rows stay, and are written once more"
STAY_UNTIL_REPLACED: Final = "their rows stay until a row with the same key and window replaces them"
"""Sentences for the log, from sinks that cannot remove the rows of repeated batches."""


@attrs.frozen
class Place:
    """A place that a sink writes to. `kind` is its kind in messages, such as "table", and `name` is the user's name for
    it.

    Places with equal `key` are the same place, even if they are written differently. `path` is the file or directory
    that contains the place, if there is one. `names` are the parts of the paths that are written below that directory;
    they may contain `ANY`.
    """

    kind: str
    name: str
    key: tuple[str, ...] = ()
    path: str = ""
    names: tuple[str, ...] = ()


# `isinstance` only checks that methods exist; `beamlike.io.capabilities` checks their signatures.


@runtime_checkable
class Distributed(Protocol):
    """A sink that declares whether tasks or the driver write it."""

    @property
    def distributed(self) -> bool:
        """True if each Spark task writes its part; false if the driver writes the whole batch."""


@runtime_checkable
class HasLocation(Protocol):
    """A sink with a place of its own. No other sink and no source may use that place."""

    def place(self) -> Place:
        """Returns the place to which the sink writes."""


@attrs.frozen
class RowKey:
    """The columns of `output_frame` that identify a row.

    `groups` are the keys of the grouping and the window. `pane` is the column with the index of the pane, and
    `retracted` the column that marks a retracted pane; each is None if there is no such column. With `per_pane`, the
    pane is part of the key.
    """

    groups: tuple[str, ...]
    pane: str | None
    retracted: str | None
    per_pane: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the key: `groups` and, with `per_pane`, the pane."""
        return (*self.groups, *([self.pane] if self.per_pane and self.pane else []))


@attrs.frozen
class SinkInput:
    """A description of the rows that a sink receives.

    `step` is the name of the step that writes. `schema` has the columns of `output_frame`, and `user` the names of the
    user's columns among them. `key` identifies rows, if the rows have a key.
    """

    step: str
    schema: pl.Schema = attrs.field(eq=False)
    user: tuple[str, ...]
    key: RowKey | None = None

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns of the key. Empty if rows are only appended."""
        return () if self.key is None else self.key.columns

    @property
    def required(self) -> list[str]:
        """The columns that a target must have: the user's columns and the key. Other columns of the engine
        are optional.
        """
        return [name for name in self.schema if name in (*self.user, *self.key_columns)]


@runtime_checkable
class AcceptsSchema(Protocol):
    """A sink that receives, when it is declared, the columns and the key of its rows."""

    @property
    def upserts(self) -> bool:
        """True if a row replaces an earlier row with the same key. The collection must then have a key."""

    @property
    def per_pane(self) -> bool:
        """True if each pane has its own row."""

    def fitted(self, rows: SinkInput) -> Self:
        """Returns the sink for these rows. Raises `PlanError` for columns that it cannot store."""


@runtime_checkable
class PerRun(Protocol):
    """A sink that stores what it learns about its target, so that each run needs a copy of its own."""

    def for_run(self) -> Self:
        """Returns the sink for one run, before the run checks or starts it."""


@runtime_checkable
class HasCheck(Protocol):
    """A sink that checks its target each time a run begins or continues, before anything is read."""

    def check(self) -> None:
        """Raises `PlanError` if the target does not fit. Any other error means that the target cannot be inspected."""


@runtime_checkable
class Lockable(Protocol):
    """A sink to which only one run of a given name may write at a time."""

    def hold(self, run: str) -> AbstractContextManager[object] | None:
        """Returns a lock that excludes other runs of this name; None if the target cannot be locked.

        Raises `InUse` if another run of this name holds the lock.
        """


@runtime_checkable
class HasStart(Protocol):
    """A sink that prepares its target at the start of a run."""

    def start(self, run: str) -> None:
        """Called once at the start of a new run: removes output of an earlier run with the same name."""


@runtime_checkable
class RecordsBatches(Protocol):
    """A sink that records the last batch of each run. So an older copy of a checkpoint can be detected."""

    @property
    def remembers(self) -> bool:
        """True if the sink records its batches with its current options."""

    def latest_batch(self, run: str) -> int | None:
        """Returns the number of the last batch of this run in the sink; None if there is none."""

    def cut(self, run: str, batch: int) -> str:
        """Removes the rows of later batches of this run, if the sink can.

        Returns a sentence about rows that stay, such as "they are doubled"; empty if none stay.
        """


@runtime_checkable
class Replacing(Protocol):
    """A sink that can write the whole output of a run to a staging area, and replace existing output at the end of the
    run.
    """

    def beside(self, run: str) -> Self:
        """Returns a sink that writes to a staging area. Its rows become visible with `publish`."""

    def publish(self, run: str) -> None:
        """Replaces the output of an earlier run of this name by the staged output."""

    def has_beside(self, run: str) -> bool:
        """True if there is staged output."""

    def forget(self, run: str) -> None:
        """Removes the staged output."""


@runtime_checkable
class HasTakeBack(Protocol):
    """A sink that can remove the rows that an earlier attempt at a batch wrote, if the replay has no rows."""

    def take_back(self, empty: Any, part: Part) -> None:
        """Removes rows that were written for this batch. `empty` has the columns, and no rows. It is a polars frame,
        and a Spark DataFrame for a sink that Spark writes.
        """


@runtime_checkable
class TwoPhase(WrittenInFrames, Protocol):
    """A sink whose tasks write invisible parts, which the driver then publishes.

    Only the driver knows which attempts are valid.
    """

    def from_anywhere(self) -> Self:
        """Returns the sink with absolute paths, because tasks have other working directories."""

    def prepare(self, frame: pl.DataFrame, part: Part) -> Mapping[str, str]:
        """Writes the part without publishing it.

        Returns, for each written file, its temporary name and its final name.
        """

    def settle(self, run: str, batch: int, parts: Mapping[str, str], *, again: bool) -> None:
        """Publishes the parts of a batch, from all its tasks.

        `again`: earlier attempts at the batch may have left files.
        """

    def shown_early(self) -> str | None:
        """Returns the place in which parts are visible before `settle`; None if they are invisible."""


def overtaken(batch: int, latest: int) -> RuntimeError:
    """Returns the error for a batch that another run has already written, or for which it has written a later batch."""
    return RuntimeError(
        f"it has batch {latest} of this run already, and this is batch {batch}: another run continues from a copy of "
        "the checkpoint; stop both, and start the run to keep, which then reports what to do"
    )


def records_batches(sink: Sink) -> TypeGuard[RecordsBatches]:
    """True if the sink records its batches."""
    return isinstance(sink, RecordsBatches) and sink.remembers


def written_by_tasks(sink: Sink) -> TypeGuard[WrittenInFrames]:
    """True if Spark tasks write the sink, rather than the driver."""
    return isinstance(sink, WrittenInFrames) and isinstance(sink, Distributed) and sink.distributed


@attrs.frozen(eq=False)
class Standing:
    """The effect of a batch on a table with one row per key: rows to write, and the keys of rows to delete."""

    rows: pl.DataFrame
    gone: pl.DataFrame


def standing(frame: pl.DataFrame, key: RowKey) -> Standing:
    """Returns what a batch leaves of each key, by its last row: a retraction follows its row, and precedes another one.

    With `per_pane`, a retraction is a row of its own. Raises `ValueError` if two rows of one key stand, or two rows of
    one pane have the same key. That is only possible if a function has changed keys.
    """
    columns = list(key.columns)
    _require_unique(frame, key)
    last = frame.unique(columns, keep="last", maintain_order=True)
    if key.retracted is None or key.per_pane:
        return Standing(last, last.clear().select(columns))
    return Standing(last.filter(~pl.col(key.retracted)), last.filter(key.retracted).select(columns))


def _require_unique(frame: pl.DataFrame, key: RowKey) -> None:
    if key.pane is not None:
        own = [*key.groups, key.pane, *([key.retracted] if key.retracted else [])]
        twice, what = frame.select(own).filter(pl.struct(own).is_duplicated()), "two rows of one pane"
    elif key.retracted is not None:
        signs = pl.when(key.retracted).then(-1).otherwise(1)
        twice = frame.group_by(key.groups).agg(signs.sum().alias("left")).filter(pl.col("left") > 1)
        twice, what = twice.drop("left"), "two rows"
    else:
        return
    if len(twice):
        raise ValueError(
            f"{what} have the same {', '.join(key.groups)}: {twice.row(0)}; steps after the grouping must not change "
            "its keys"
        )
