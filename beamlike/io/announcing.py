"""Sources that announce how complete they are, batch by batch, and are told when a batch is committed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Protocol, cast, runtime_checkable

import attrs
import polars as pl

from beamlike.io.base import Announced, Pieces, Source
from beamlike.io.sources import Position, Taken
from stages.strategies.announced import AnnouncedWatermark
from stages.strategies.base import WatermarkStrategy
from windowing.time import MAX_TIME, MIN_TIME

Rows = pl.DataFrame | pl.LazyFrame | Pieces
"""What a batch of such a source has."""


@runtime_checkable
class ReadAsPlanned(Source, Protocol):
    """A source that plans its batches one after the other. On Spark the driver plans, and a task reads."""

    def plan(self, position: Position, rows: int) -> Taken | None: ...

    def read(self, taken: Taken) -> Rows: ...

    def committed(self, taken: Taken) -> None: ...

    def close(self) -> None: ...


class AnnouncingSource(ABC):
    """A source that announces its watermark itself, such as a queue; a class of your own defines three methods.

    `schema` gives the columns. `plan` says what the next batch takes, where the source is after that, and how complete
    it is then. `read` gives the rows of a planned batch: in process the process that has planned it, on Spark a task.
    When the batch is committed, `committed` is called, once or, after a run that was killed, again; only after that the
    next one is planned. A batch that was planned and not committed comes again, and `read` must give the same rows.

    `p.read` needs no `watermark=` then; `bl.AnnouncedWatermark(idle_after="30s")` leaves the source out of the minimum
    while it plans nothing. A run without a checkpoint plans and reads, and commits nothing.

    Example:
        >>> import polars as pl
        >>> class Counter(bl.AnnouncingSource):
        ...     '''The numbers below `end`, one for each second.'''
        ...
        ...     def __init__(self, end):
        ...         self.end = end
        ...
        ...     def schema(self):
        ...         return {"at": pl.Int64}
        ...
        ...     def plan(self, position, rows):
        ...         first = position.get("next", 0)
        ...         to = min(first + min(rows, 60), self.end)
        ...         if to > first:
        ...             return bl.Taken([first, to], {"next": to}, more=to < self.end, watermark=to * 1_000_000)
        ...
        ...     def read(self, taken):
        ...         return pl.DataFrame({"at": range(*taken.input)})
        >>> p = bl.Pipeline("p")
        >>> seconds = p.read("seconds", Counter(100), timestamp="at", timestamp_unit="s")
        >>> minutes = seconds.window_into(bl.FixedWindows("1m")).aggregate(n=bl.count())
        >>> _ = minutes.write("out", bl.Memory())
        >>> [batch.sources["seconds"].watermark // 1_000_000 for batch in p.run().batches[:-1]]
        [60, 100]
    """

    bounded: bool = False
    watermark: WatermarkStrategy = AnnouncedWatermark()

    @abstractmethod
    def schema(self) -> pl.Schema:
        """The columns, which rows have in the order that they like; a dict will do."""

    @abstractmethod
    def plan(self, position: Position, rows: int) -> Taken | None:
        """What the next batch takes from this position, about so many rows; None if nothing is new.

        `{}` is the position of a run that begins. `Taken.input` says what to read, as data that JSON can hold; with
        None a batch only moves the position or the watermark. `Taken.watermark` holds once the batch is done: a
        datetime, or microseconds since 1970; None leaves it where it is, as does one that is behind.
        """

    @abstractmethod
    def read(self, taken: Taken) -> Rows:
        """The rows that were planned. Raises `LookupError` where they are not there any more."""

    def committed(self, taken: Taken) -> None:
        """The batch is done for good, and is not read again. It may be told of more than once."""
        return

    def close(self) -> None:
        """The run is over."""
        return

    # For the runner in process

    def chunks(self, rows: int) -> Iterator[Announced]:
        """Batch after batch while more is there; nothing is committed."""
        intake = PlannedIntake(self, {}, rows)
        try:
            while (taken := intake.new()) is not None:
                yield intake.read(taken)
                intake.go_on_from(taken)
                if not taken.more:
                    return
        finally:
            intake.close()

    def resume(self, position: Position, rows: int) -> PlannedIntake:
        """Plans on from there."""
        return PlannedIntake(self, position, rows)


@attrs.define
class PlannedIntake:
    """Has a source plan its batches, from a position on; the next one when the last is committed."""

    source: ReadAsPlanned
    position: Position
    rows: int
    _next: Taken | None = attrs.field(default=None, init=False)
    _told: int | None = attrs.field(default=None, init=False)

    def new(self) -> Taken | None:
        """The next batch, with its watermark in microseconds; the same until it is committed."""
        if self._next is None:
            self._next = self._planned()
        return self._next

    def _planned(self) -> Taken | None:
        given: Any = self.source.plan(self.position, self.rows)
        if given is None:
            return None
        if not isinstance(given, Taken):
            kind = type(self.source).__name__
            raise TypeError(f"{kind}.plan must give a bl.Taken(input, position, ...) or None, not {given!r}")
        taken = given._replace(watermark=_microseconds(given.watermark, self.source))
        moves = {**self.position, **taken.position} != self.position
        if taken.input is None and not moves and taken.watermark in (None, self._told):
            return None
        return taken

    def read(self, taken: Taken) -> Announced:
        """Its rows, with what it announces."""
        return read_planned(self.source, taken)

    def committed(self, taken: Taken) -> None:
        """The batch is done."""
        self.go_on_from(taken)
        if taken.input is not None:
            self.source.committed(taken)

    def go_on_from(self, taken: Taken) -> None:
        """What comes after it is next."""
        self.position, self._next = {**self.position, **taken.position}, None
        self._told = self._told if taken.watermark is None else cast(int, taken.watermark)

    def close(self) -> None:
        """The run is over."""
        self.source.close()


def read_planned(source: ReadAsPlanned, taken: Taken) -> Announced:
    """What a planned batch has."""
    rows: Rows = pl.LazyFrame(schema=source.schema()) if taken.input is None else source.read(taken)
    return Announced(rows if isinstance(rows, Pieces) else rows.lazy(), cast("int | None", taken.watermark))


def _microseconds(watermark: object, source: object) -> int | None:
    if watermark is None:
        return None
    if isinstance(watermark, datetime):
        moment = watermark if watermark.tzinfo is not None else watermark.replace(tzinfo=UTC)
        since = moment - datetime(1970, 1, 1, tzinfo=UTC)
        return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    if type(watermark) is not int:
        raise TypeError(
            f"{type(source).__name__}.plan: the watermark must be a datetime or microseconds since 1970, not "
            f"{watermark!r}"
        )
    return min(max(watermark, MIN_TIME), MAX_TIME)
