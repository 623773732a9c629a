"""A source that is read repeatedly; each reading replaces the one before."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import attrs
import polars as pl

from beamlike.io.base import Announced, Faulty, Pieces
from beamlike.io.files.formats import Parquet
from beamlike.io.in_process import CHUNK_ROWS, InProcess, chunks_of
from beamlike.io.sources import FoundFile, InfersSchema
from beamlike.system.durable import make_folder, sync_tree
from beamlike.system.file_digests import size_and_digest
from stages.strategies.base import MonotonousTimestamps, WatermarkStrategy
from windowing.time import format_duration, microseconds

READ_AT: Final = "read_at"
"""Of a reading: when it began, in microseconds since 1970."""
CONTENT: Final = "rows"
"""Of a reading: a list of its rows."""

KEPT: Final = 20
"""So many readings are kept, for batches that are done again."""

_LOG = logging.getLogger("beamlike")

Clock = Callable[[], int]


def wall_clock() -> int:
    """Returns the time of this machine in microseconds."""
    return time.time_ns() // 1000


def _positive(owner: object, attribute: attrs.Attribute[int], value: int) -> None:
    if value <= 0:
        raise ValueError(f"Refreshed: every must be longer than nothing, not {format_duration(value)}")


@attrs.frozen(slots=False)
class Refreshed:
    """A bounded source that is read as a whole again and again, for side inputs that change slowly.

    Each reading replaces the one before, as a side of `bl.lookup` and others. Rows see the latest reading when they
    arrive,
    and wait for the first one. The event time of a reading is the time when it was read.

    On Spark, and in a run in process with a checkpoint, readings are stored beside the checkpoint, so that a replayed
    batch
    sees the same reading. If a reading fails, the log has a warning and the previous reading stays; if the first one
    fails,
    the run fails. Rows that the reader cannot read are counted in the log.

    Args:
        source: A source with an end that can be read in process.
        every: The time between readings, a duration of processing time such as "5m". The source is checked between
            batches,
            so a reading may be later.

    Raises:
        TypeError: The source has no end, or cannot be read in process.
        ValueError: The duration is not positive.

    Example, with the `plays` of `bl.Collection`:
        >>> ages = p.read("ages", bl.Refreshed(bl.Rows([{"user": "ada", "age": 36}]), every="5m"))
        >>> plays.with_columns(age=bl.lookup(ages, on="user")["age"]).collect()["age"].to_list()
        [36, None, 36]
    """

    source: Any = attrs.field()
    every: int = attrs.field(converter=microseconds, validator=_positive)

    bounded: ClassVar[bool] = False
    watermark: ClassVar[WatermarkStrategy] = MonotonousTimestamps()

    @source.validator
    def _can_be_read_again(self, attribute: attrs.Attribute[Any], value: object) -> None:
        if isinstance(value, type) or not isinstance(value, InProcess) or not value.bounded:
            raise TypeError(
                f"Refreshed: expected a source with an end, such as bl.Parquet('prices'), that is read in process; got "
                f"{value!r}"
            )

    @property
    def rows(self) -> pl.Schema:
        """The columns of the rows of a reading."""
        return pl.Schema(self.source.schema())

    def looked_up(self) -> Self:
        return (
            attrs.evolve(self, source=self.source.looked_up())
            if isinstance(self.source, InfersSchema)
            else self
        )

    def schema(self) -> pl.Schema:
        """Returns the columns of a reading: its time and its rows."""
        return pl.Schema({READ_AT: pl.Int64(), CONTENT: pl.List(pl.Struct(self.rows))})

    def reading(self, now: int) -> pl.DataFrame:
        """Reads the source, and returns all rows as one row."""
        frames, wrong = [pl.DataFrame(schema=self.rows)], list[pl.DataFrame]()
        for chunk in chunks_of(self.source, CHUNK_ROWS):
            found = chunk.rows if isinstance(chunk, Announced) else chunk
            pieces = [piece.rows for piece in found.pieces] if isinstance(found, Pieces) else [found]
            for piece in pieces:
                if isinstance(piece, Faulty):
                    wrong.append(piece.dead_letters)
                else:
                    frames.append(piece.collect())
        if wrong:
            told = "%r was read without %d rows or files that cannot be read, the first for this reason: %s"
            _LOG.warning(told, self.source, sum(map(len, wrong)), wrong[0]["error"][0])
        rows = pl.concat(frames).to_struct("row").implode()
        return pl.DataFrame({READ_AT: [now], CONTENT: rows}, self.schema())

    def next(self, now: int, last: int | None) -> pl.DataFrame | None:
        """Returns a reading if one is due, else None. `last`: the time (us) of the reading before.

        Raises the error of the source if there was no reading before.
        """
        if last is not None and now - last < self.every:
            return None
        if last is None:
            return self.reading(now)
        try:
            return self.reading(now)
        except Exception as error:
            _LOG.warning("%r cannot be read again, so what was read last stays: %s", self.source, error)
            return None

    def readings(self, clock: Clock) -> Iterator[pl.LazyFrame | None]:
        """Yields at each request a reading, or None if none is due."""
        last: int | None = None
        while True:
            now = clock()
            found = self.next(now, last)
            last = now if found is not None or last is None else last
            yield None if found is None else found.lazy()


@attrs.frozen(slots=False)
class ReadingsAsFiles(Parquet):
    """Readings as files in a folder, each of which is a batch. Listing the folder makes a new reading if one is due."""

    refreshed: Refreshed = attrs.field(kw_only=True)
    clock: Clock = attrs.field(default=wall_clock, kw_only=True)

    order_advice: ClassVar[str] = ""

    @classmethod
    def of(cls, refreshed: Refreshed, folder: str, clock: Clock = wall_clock) -> ReadingsAsFiles:
        """Returns the readings in a local folder."""
        return cls(
            folder,
            schema=refreshed.schema(),
            max_files_per_trigger=1,
            order="path",
            refreshed=refreshed,
            clock=clock,
        )

    def require_there(self, *, globs: bool) -> None:
        """Checks nothing, as listing the folder makes the first file."""

    def found(self, *, later: bool = False) -> list[FoundFile]:
        make_folder(self.folder)
        folder = Path(self.folder)
        there = sorted(file for file in folder.glob("*.parquet") if not file.name.startswith(("_", ".")))
        now = self.clock()
        reading = self.refreshed.next(now, int(there[-1].stem) if there else None)
        if reading is not None:
            # A hidden name, until it is whole.
            hidden, file = folder / "_new", folder / f"{now:020d}.parquet"
            reading.write_parquet(hidden)
            _sum_of(file).write_text(json.dumps(size_and_digest(str(hidden))))
            os.replace(hidden, file)
            sync_tree(self.folder)
            for old in there[: 1 - KEPT]:
                _sum_of(old).unlink(missing_ok=True)
                old.unlink()
        return super().found(later=later)


def damaged_readings(folder: str) -> list[str]:
    """Returns the files of readings in a folder whose content has changed since they were written.

    Readings of earlier versions have no digest. A digest without its file is from a run that was killed.
    """
    files = Path(folder).glob("[!._]*.parquet")
    return sorted(str(file) for file in files if not _is_as_written(file))


def _is_as_written(file: Path) -> bool:
    try:
        size, digest = json.loads(_sum_of(file).read_bytes())
    except FileNotFoundError:
        return True
    except (ValueError, TypeError):
        return False
    return size_and_digest(str(file)) == (size, digest)


def _sum_of(file: Path) -> Path:
    return file.with_name(f"_{file.name}.sum")
