"""A source that is read repeatedly. Each reading replaces the previous one."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import attrs
import polars as pl

from beamlike.io.base import Announced, Faulty, Pieces
from beamlike.io.datasets import datasets_of
from beamlike.io.files.formats import Parquet
from beamlike.io.in_process import CHUNK_ROWS, InProcess, chunks_of
from beamlike.io.sources import FoundFile, InfersSchema
from beamlike.system.datasets import Dataset
from beamlike.system.durable import make_folder, rename, sync_tree
from beamlike.system.file_digests import size_and_digest
from stages.strategies.base import MonotonousTimestamps, WatermarkStrategy
from windowing.time import format_duration, microseconds

READ_AT: Final = "read_at"
"""The column with the time at which a reading began, in microseconds since 1970."""
CONTENT: Final = "rows"
"""The column with the rows of a reading, as a list."""

KEPT: Final = 20
"""The number of readings that are stored for replayed batches."""

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
    """A bounded source that is read completely, again and again, for side inputs that change slowly.

    As a side of `bl.lookup` and others, each reading replaces the previous one. Rows use the latest reading when they
    arrive, and wait for the first one. The event time of a reading is the time when it was read.

    On Spark, and in a run in process with a checkpoint, readings are stored next to the checkpoint, so that a replayed
    batch uses the same reading. If a reading fails, a warning is logged and the previous reading stays in use; if the
    first reading fails, the run fails. Rows that the reader cannot read are counted in the log.

    Args:
        source: A source with an end that can be read in process.
        every: The time between readings, a duration of processing time such as "5m". The source is checked between
            batches, so a reading may be later.

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

    bounded = False
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

    def datasets(self) -> Sequence[Dataset] | None:
        return datasets_of(self.source)

    def reading(self, now: int) -> pl.DataFrame:
        """Reads the source completely. Returns the reading as a single row."""
        frames, wrong = [pl.DataFrame(schema=self.rows)], list[pl.DataFrame]()
        for chunk in chunks_of(self.source, CHUNK_ROWS):
            found = chunk.rows if isinstance(chunk, Announced) else chunk
            pieces = [piece.rows for piece in found.pieces] if isinstance(found, Pieces) else [found]
            for piece in pieces:
                if isinstance(piece, Faulty):
                    wrong.append(piece.dead_letters)
                else:
                    frames.append(piece.lazy().collect())
        if wrong:
            message = "%r was read without %d rows or files that cannot be read; the first reason: %s"
            _LOG.warning(message, self.source, sum(map(len, wrong)), wrong[0]["error"][0])
        rows = pl.concat(frames).to_struct("row").implode()
        return pl.DataFrame({READ_AT: [now], CONTENT: rows}, self.schema())

    def next(self, now: int, last: int | None) -> pl.DataFrame | None:
        """Returns a reading if one is due, else None. `last` is the time (us) of the previous reading.

        Raises the error of the source if there was no reading before.
        """
        if last is not None and now - last < self.every:
            return None
        if last is None:
            return self.reading(now)
        try:
            return self.reading(now)
        except Exception as error:
            _LOG.warning("%r cannot be read again, so the previous reading stays: %s", self.source, error)
            return None

    def readings(self, clock: Clock) -> Iterator[pl.LazyFrame | None]:
        """Yields, each time it is asked, a reading if one is due, else None."""
        last: int | None = None
        while True:
            now = clock()
            found = self.next(now, last)
            last = now if found is not None or last is None else last
            yield None if found is None else found.lazy()


@attrs.frozen(slots=False)
class ReadingsAsFiles(Parquet):
    """Readings stored as files in a folder. Each file is a batch. Listing the folder creates a reading if one
    is due.
    """

    refreshed: Refreshed = attrs.field(kw_only=True)
    clock: Clock = attrs.field(default=wall_clock, kw_only=True)

    order_advice: ClassVar[str] = ""

    @classmethod
    def of(cls, refreshed: Refreshed, folder: str, clock: Clock = wall_clock) -> ReadingsAsFiles:
        """Creates the readings in a local folder."""
        return cls(
            folder,
            schema=refreshed.schema(),
            max_files_per_trigger=1,
            order="path",
            refreshed=refreshed,
            clock=clock,
        )

    def datasets(self) -> Sequence[Dataset]:
        return self.refreshed.datasets() or ()

    def require_there(self, *, globs: bool) -> None:
        """Checks nothing, because listing the folder creates the first file."""

    def found(self, *, later: bool = False) -> list[FoundFile]:
        make_folder(self.folder)
        folder = Path(self.folder)
        there = sorted(file for file in folder.glob("*.parquet") if not file.name.startswith(("_", ".")))
        now = self.clock()
        reading = self.refreshed.next(now, int(there[-1].stem) if there else None)
        if reading is not None:
            # Written under a hidden name, because a listing must not include an incomplete file.
            hidden, file = folder / "_new", folder / f"{now:020d}.parquet"
            reading.write_parquet(hidden)
            # The digest is written before the file gets its final name. So no visible reading lacks a digest.
            _sum_of(file).write_text(json.dumps(size_and_digest(str(hidden))), encoding="utf-8")
            rename(str(hidden), str(file))
            sync_tree(self.folder)
            for old in there[: 1 - KEPT]:
                _sum_of(old).unlink(missing_ok=True)
                old.unlink()
        return super().found(later=later)


def damaged_readings(folder: str) -> list[str]:
    """Returns the stored readings in a folder whose content has changed since they were written.

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
