"""The base class of file formats that are sources and sinks."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import ClassVar, Self, get_args

import attrs
import polars as pl

from beamlike.io.base import AnyFrame, Declared, Faulty, FromFile, Part, Pieces, declared
from beamlike.io.files import hive, part_files
from beamlike.io.files.changes import OnChange, check_on_change
from beamlike.io.files.chunking import limited, together
from beamlike.io.files.faults import ERRORS, first_line, of_file
from beamlike.io.files.hive import Piece
from beamlike.io.files.new_columns import forget
from beamlike.io.files.order import ADVICE, Order, in_order
from beamlike.io.files.paths import (
    absolute,
    is_pattern,
    list_files,
    nothing_at,
    path_texts,
    read_by_polars,
    require_bucket,
    require_something,
    root_of,
    unreadable,
)
from beamlike.io.files.reader import FileReader
from beamlike.io.files.unpacking import Damaged
from beamlike.io.options import FOR_SINKS, FOR_SOURCES
from beamlike.io.sinks import ANY, Place, SinkInput
from beamlike.io.sources import FoundFile, Position
from beamlike.system.datasets import Dataset, file_datasets
from beamlike.system.fields import text, true_or_false, whole_number
from beamlike.system.locks import Lock
from beamlike.system.path_names import is_remote

_LOG = logging.getLogger("beamlike")


@attrs.frozen(slots=False)
class Files:
    """Files of one format below a path.

    Files are read in order of modification time or path; in paths, `part-2` is before `part-10`. The order matters if
    files are read in several batches: the watermark follows the rows that were read, so the rows of a file that is read
    after newer events are late, which the log reports. A copy may change modification times or make them equal; names
    are then often the better order. A file is read once, by its path, and must not change. If a later listing has
    another size or time for it, the log has a warning. Folders with Hive names, such as `date=2026-01-01`, add a column
    to the files below them, of the declared type, else text.

    Args:
        path: A file, a directory, a glob, or a list of them. To write, a directory.
        schema: Column names and types. By default they are read from the first file.
        max_files_per_trigger: The exact number of files in a batch. By default a batch in process has about a number of
            rows, and on Spark all new files.
        partition_by: Columns that are written as Hive folders, and left out of the files.
        order: "modified" for modification time, then path; or "path".
        on_change: "ignore" to log files that were changed after they were listed, or "error" to fail the run.
        include_file_paths: The name of an additional column with the path of the row's file.
        complete: True if no files will be added, as for `Parquet`.

    Raises:
        MissingFiles: The path does not exist when a run begins. A directory may be empty.
    """

    path: str | tuple[str, ...] = attrs.field(converter=path_texts)
    _schema: Declared | None = attrs.field(
        default=None, converter=declared, alias="schema", metadata=FOR_SOURCES
    )
    max_files_per_trigger: int | None = attrs.field(
        default=None, validator=whole_number(1), metadata=FOR_SOURCES
    )
    partition_by: tuple[str, ...] = attrs.field(
        default=(), converter=hive.column_names, kw_only=True, metadata=FOR_SINKS
    )
    order: Order = attrs.field(default="modified", kw_only=True, metadata=FOR_SOURCES)
    on_change: OnChange = attrs.field(
        default="ignore", kw_only=True, validator=check_on_change, metadata=FOR_SOURCES
    )
    include_file_paths: str | None = attrs.field(
        default=None, kw_only=True, validator=text, metadata=FOR_SOURCES
    )
    complete: bool = attrs.field(default=False, kw_only=True, validator=true_or_false, metadata=FOR_SOURCES)
    _event_time: str | None = attrs.field(default=None, kw_only=True, repr=False)
    # The columns of the first file, inferred when the pipeline was declared.
    _seen: pl.Schema | None = attrs.field(default=None, kw_only=True, eq=False, repr=False)
    # The run whose output is in a staging folder, so that existing files stay; None writes to the folder itself.
    _staged_run: str | None = attrs.field(default=None, kw_only=True, repr=False)

    bounded = True
    distributed: ClassVar[bool] = True
    extension: ClassVar[str] = ""
    upserts: ClassVar[bool] = False
    per_pane: ClassVar[bool] = False
    remembers: ClassVar[bool] = True
    splits: ClassVar[bool] = False
    """True if several tasks can read parts of a file independently."""

    @order.validator
    def _is_an_order(self, attribute: attrs.Attribute[Order], value: object) -> None:
        if value not in get_args(Order):
            raise ValueError(
                f"{type(self).__name__}: order must be 'modified' (by modification time) or 'path', not {value!r}"
            )

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths to read."""
        return (self.path,) if isinstance(self.path, str) else self.path

    @property
    def folder(self) -> str:
        """The directory to write to."""
        if not isinstance(self.path, str):
            raise ValueError(f"a sink writes to one directory, not to {len(self.path)} paths")
        return self.path

    @property
    def order_advice(self) -> str:
        return ADVICE[self.order]

    def require_there(self, *, globs: bool) -> None:
        """Raises `FileNotFoundError` for a path that does not exist and, with `globs`, for a glob that matches nothing.

        Without `globs`, logs a warning for a glob in a folder that does not exist.
        """
        for path in self.paths:
            if globs or not is_pattern(path):
                require_something(path)
            elif is_remote(path):
                require_bucket(path)
            elif not os.path.isdir(root_of(path) or os.curdir):
                _LOG.warning("files may come later, but now %s", nothing_at(path))

    def found(self, *, later: bool = False) -> list[FoundFile]:
        """Returns the existing files in reading order, each once, without hidden files.

        A link is left out if its target is among the files by its own name, unless the link is in a Hive folder of
        another name. So a file is read once if a link leads to it from the same path or another one, and a link that
        is created later adds no rows. Several links to a file that has no own name here are files of their own.

        Raises `FileNotFoundError` for a path that does not exist. With `later`, files may still arrive, so a glob may
        match nothing.
        """
        from beamlike.io.files.linked import once  # declarations do not need it

        found = list[tuple[str, FoundFile]]()
        for path in self.paths:
            try:
                found += [(path, file) for file in list_files(path, self.paths)]
            except FileNotFoundError:
                if not (later and is_pattern(path)):
                    raise
        columns = None if self._schema is None else pl.Schema(self._schema).names()
        return in_order(once(found, columns), self.order)

    def files(self) -> list[str]:
        """Returns the paths of the existing files."""
        return [file.path for file in self.found()]

    def schema(self) -> pl.Schema:
        """Returns the declared columns or those of the first file, and the column for the path, if requested.

        Raises `FileNotFoundError` if the columns are not declared and there is no file.
        """
        columns, path = self._content(), self.include_file_paths
        if path is None:
            return columns
        if path in columns:
            kind = type(self).__name__
            raise ValueError(f"{kind}: include_file_paths={path!r}: the files have a column of that name")
        return pl.Schema({**columns, path: pl.String()})

    def _content(self) -> pl.Schema:
        """Returns the columns that are in the files."""
        if self._schema is not None:
            return pl.Schema(self._schema)
        return self._found() if self._seen is None else self._seen

    @property
    def told_as(self) -> str:
        """The words for the source in the log, by which its columns that are left out are known."""
        return f"{self.path!r}" if self.infers else f"{self.path!r} with schema="

    @property
    def infers(self) -> bool:
        """True if the columns are inferred from the first file."""
        return self._schema is None

    def looked_up(self) -> Self:
        """Returns the source with the columns of its first file as part of the declaration, unless columns are
        declared.

        All runs of a pipeline then have the same columns, and workers need not read the file.
        """
        return self if self._schema is not None else attrs.evolve(self, seen=self._found())

    def _found(self) -> pl.Schema:
        """Returns the columns of the first readable file. Raises `FileNotFoundError` if there is none."""
        forget(repr(self.path))
        advice = f"if the files come later, give the columns: {type(self).__name__}(..., schema={{...}})"
        try:
            files = self.files()
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{error} ({advice})") from None
        whys = ""
        for file in files:
            try:
                if why := unreadable(file, self.paths):
                    raise Damaged(why)
                if found := self._infer(file):
                    folders = dict.fromkeys(hive.values_of(file), pl.String())
                    return pl.Schema({**folders, **found})
            except (*ERRORS, Damaged) as error:  # rows of this file become dead letters
                whys = whys or f"; file {file!r}: {first_line(error)}"
        raise FileNotFoundError(
            f"no file at {self.path!r} has a row to infer the columns from{whys} ({advice})"
        )

    def for_event_time(self, column: str) -> Self:
        return attrs.evolve(self, event_time=column)

    def chunks(self, rows: int) -> Iterator[AnyFrame | Faulty]:
        found = (piece.rows for batch in self.batches(rows) for piece in batch.pieces)
        return (one if isinstance(one, Faulty) else one.lazy() for one in found)

    def batches(self, rows: int) -> Iterator[Pieces]:
        """Yields `max_files_per_trigger` files for each batch, or else about `rows` rows.

        As on Spark, a batch has dead letters, and empty files count.
        """
        files = self.files()
        if count := self.max_files_per_trigger:
            for first in range(0, len(files), count):
                yield together([piece for piece, _ in self._pieces(files[first : first + count], rows)])
        else:
            yield from map(together, limited(self._pieces(files, rows), rows))

    def batches_apart(self, rows: int) -> Iterator[Pieces]:
        files = list(map(absolute, self.files()))
        count = self.max_files_per_trigger or len(files) or 1
        limit = None if self.max_files_per_trigger else rows
        known: Sequence[str] = files
        for first in range(0, len(files), count):
            for pieces in limited(self.ending_pieces(files[first : first + count], rows), limit):
                yield Pieces(pieces, known)
                known = ()

    def resume(self, position: Position, rows: int, *, apart: bool = False) -> FileReader:
        """Returns a reader from `position` on: for the rest of files that were read in part, then for new files."""
        return FileReader.of(self.from_anywhere(), position, rows, apart=apart)

    def ending_pieces(self, files: list[str], rows: int) -> Iterator[tuple[FromFile, int]]:
        """Yields pieces of at most `rows` rows, each with its number of rows.

        The last piece of each file is marked as `over`.
        """
        for file in files:
            last, height = FromFile(Faulty.none(), file), 0
            for piece in self._pieces([file], rows):
                if height:
                    yield last, height
                last, height = piece
            yield attrs.evolve(last, over=True), height

    def pieces(self, file: str, rows: int, part: int = 0, parts: int = 1) -> Iterator[AnyFrame | Faulty]:
        for piece, _ in self._with_path(file, rows, part, parts):
            yield piece

    def _with_path(self, file: str, rows: int, part: int, parts: int) -> Iterator[Piece]:
        path = (
            None if self.include_file_paths is None else pl.lit(absolute(file)).alias(self.include_file_paths)
        )
        for piece, height in self._counted(file, rows, part, parts):
            yield piece if path is None or isinstance(piece, Faulty) else piece.with_columns(path), height

    def _pieces(self, files: list[str], rows: int) -> Iterator[tuple[FromFile, int]]:
        for file in files:
            for piece, height in self._with_path(file, rows, 0, 1):
                yield FromFile(piece, file), height

    def _counted(self, file: str, rows: int, part: int, parts: int) -> Iterator[Piece]:
        """Yields the non-empty pieces of a file, each with its number of rows."""
        if why := unreadable(file, self.paths):
            if part == 0:
                yield of_file(file, why), 1
            return
        schema = self._content()
        folders = {name: text for name, text in hive.values_of(file).items() if name in schema}
        own = pl.Schema({name: dtype for name, dtype in schema.items() if name not in folders})
        if not own:
            raise ValueError(
                f"file {file!r}: its folders give all columns of schema=; declare one of the file's, too"
            )
        pieces = self._read(file, own, rows, part, parts)
        yield from hive.added(pieces, file, schema, folders) if folders else pieces

    def from_anywhere(self) -> Self:
        path = self.path
        return attrs.evolve(self, path=absolute(path) if isinstance(path, str) else [*map(absolute, path)])

    def fitted(self, rows: SinkInput) -> Self:
        """Raises `PlanError` if the rows lack a column of `partition_by`."""
        if self.partition_by:
            hive.require_columns(self.partition_by, rows.schema, rows.step)
        return self

    def place(self) -> Place:
        below = (f"{column}={ANY}" for column in self.partition_by)
        return Place("folder", self.folder, path=self.folder, names=(*below, f"part-{ANY}.{self.extension}"))

    def datasets(self) -> Sequence[Dataset]:
        return file_datasets(map(root_of, self.paths))

    def check(self) -> None:
        """Raises `FileNotFoundError` if the bucket (of an object store) does not exist."""
        if is_remote(self.folder):
            require_bucket(self.folder)

    def beside(self, run: str) -> Self:
        return attrs.evolve(self, staged_run=run)

    def hold(self, run: str) -> Lock:
        """Creates the directory, and locks it for a run of this name. Raises `InUse` if another one has locked it."""
        part_files.require_folder(self.folder)
        return Lock.take(part_files.lock_of(self.folder, run, self.extension), f"the run {run!r}")

    def warn_of_others(self, run: str) -> None:
        """Logs a warning if the directory has files of other runs."""
        if others := part_files.of_others(self.folder, run, self.extension):
            message = "%r has files of other runs already (%d): this run adds to them; remove them if it replaces those"
            _LOG.warning(message, self.folder, others)

    def start(self, run: str) -> None:
        """Creates the directory, and removes files that an earlier run of this name left.

        If this run's output goes to a staging folder, only that is removed.
        """
        part_files.require_folder(self.folder)
        if self._staged_run is None:
            part_files.clear(self.folder, run, self.extension)
        part_files.forget_killed(self.folder, run, self.extension)

    def latest_batch(self, run: str) -> int | None:
        if not read_by_polars(self.folder):
            return None  # so no part can have been written
        return part_files.latest_batch(self.folder, run, self.extension)

    def cut(self, run: str, batch: int) -> str:
        if read_by_polars(self.folder):  # otherwise no part can have been written
            part_files.remove_after(self.folder, run, self.extension, batch)
        return ""

    def publish(self, run: str) -> None:
        part_files.publish(self.folder, run, self.extension)

    def has_beside(self, run: str) -> bool:
        return os.path.isdir(part_files.staging_folder(self.folder, run, self.extension))

    def forget(self, run: str) -> None:
        part_files.remove_staging(self.folder, run, self.extension)

    def write(self, frame: pl.DataFrame, part: Part) -> None:
        """Writes or replaces `part-<query>-<batch>-<task>`. Writes nothing if there are no rows.

        With `partition_by`, a repeated batch does not remove files from folders for which it has no rows any more.
        """
        parts = self.prepare(frame, part)
        part_files.show(self._target(), parts)
        if not parts:
            part_files.discard(self._target(), [part_files.part_name(part, self.extension)])

    def prepare(self, frame: pl.DataFrame, part: Part) -> dict[str, str]:
        """Writes files under hidden names, or in an object store, which cannot rename, under their final names."""
        name = part_files.part_name(part, self.extension)
        parts = hive.split(frame, self.partition_by) if self.partition_by else [("", frame)]
        saves = {
            f"{below}/{name}" if below else name: partial(self._save, rows)
            for below, rows in parts
            if len(rows)
        }
        return part_files.prepare(self._target(), saves)

    def settle(self, run: str, batch: int, parts: Mapping[str, str], *, again: bool) -> None:
        """Publishes the files of a batch. With `again`, first lists the folder and removes files of other attempts."""
        if not (parts or read_by_polars(self.folder)):
            return  # so no part can have been written
        folder = self._target()
        if again:
            part_files.remove_others(folder, run, self.extension, batch, parts)
        part_files.show(folder, parts)

    def shown_early(self) -> str | None:
        """Returns the folder if it is in an object store, where files are visible as soon as they are written."""
        return self.folder if is_remote(self.folder) else None

    def _target(self) -> str:
        """Returns the folder to which parts are written: the staging folder, if there is one."""
        if self._staged_run is None:
            return self.folder
        return part_files.staging_folder(self.folder, self._staged_run, self.extension)

    def _infer(self, file: str) -> pl.Schema:
        """Returns the columns of a file, or no columns if it is empty."""
        raise NotImplementedError

    def _read(self, file: str, schema: pl.Schema, rows: int, part: int, parts: int) -> Iterator[Piece]:
        """Yields the non-empty pieces of a file with these columns, each with its number of rows."""
        raise NotImplementedError

    def _save(self, frame: pl.DataFrame, target: str) -> None:
        """Writes the rows to a file."""
        raise NotImplementedError
