"""Files as sources and as sinks, whatever their format."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import ClassVar, Self, get_args

import attrs
import polars as pl

from beamlike.io.base import Declared, Faulty, FromFile, Part, Pieces, declared
from beamlike.io.files import hive, part_files
from beamlike.io.files.changes import OnChange, check_on_change
from beamlike.io.files.chunking import limited, together
from beamlike.io.files.faults import ERRORS, first_line
from beamlike.io.files.hive import Piece
from beamlike.io.files.new_columns import forget
from beamlike.io.files.order import ADVICE, Order, in_order
from beamlike.io.files.paths import (
    Damaged,
    absolute,
    is_pattern,
    list_files,
    nothing_at,
    path_texts,
    read_by_polars,
    require_bucket,
    require_something,
    root_of,
)
from beamlike.io.files.reader import FileReader
from beamlike.io.options import FOR_SINKS, FOR_SOURCES
from beamlike.io.sinks import ANY, Place, SinkInput
from beamlike.io.sources import FoundFile, Position
from beamlike.system.fields import text, whole_number
from beamlike.system.locks import Lock
from beamlike.system.path_names import is_remote

_LOG = logging.getLogger("beamlike")


@attrs.frozen(slots=False)
class Files:
    """Files of one format below a path: a file, a directory, a glob, or a list of them; to write, a directory.

    A run raises `MissingFiles` at its start where nothing is there; a directory may be empty.

    `schema` names the columns and their types; without it they are read from the first file. With
    `max_files_per_trigger`, a batch is exactly that many files.

    Folders that are named as Hive's are, such as `date=2026-01-01`, give the files below them a column: of the type
    that is declared, else text. The columns of `partition_by` are written so, and left out of the files.

    Files are read in order of modification time, those of one time in order of path; with `order="path"`, by path
    alone. Paths are in natural order: `part-2` comes before `part-10`. It matters where a batch does not take all
    files: the watermark follows what was read, so a file that comes after newer events is late, which is told in the
    log. A copy may give files other times, or all the same; then the order of names is often the better one.

    A file is read once, by its path, and must not change. One that has another size or time in a later listing is told
    in the log; with `on_change="error"` it fails the run.

    `include_file_paths="file"` adds a column of that name with the path of the file that a row is from.
    """

    path: str | tuple[str, ...] = attrs.field(converter=path_texts)
    _schema: Declared | None = attrs.field(default=None, converter=declared, metadata=FOR_SOURCES)
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
    _event_time: str | None = attrs.field(default=None, kw_only=True, repr=False)
    # The columns of the first file, as the pipeline has found them.
    _seen: pl.Schema | None = attrs.field(default=None, kw_only=True, eq=False, repr=False)
    # The run that writes beside what is there, until it is over.
    _beside: str | None = attrs.field(default=None, kw_only=True, repr=False)

    bounded: ClassVar[bool] = True
    distributed: ClassVar[bool] = True
    extension: ClassVar[str] = ""
    upserts: ClassVar[bool] = False
    per_pane: ClassVar[bool] = False
    remembers: ClassVar[bool] = True
    splits: ClassVar[bool] = False
    """Whether parts of a file can be read apart."""

    @order.validator
    def _is_an_order(self, attribute: attrs.Attribute[Order], value: object) -> None:
        if value not in get_args(Order):
            raise ValueError(
                f"{type(self).__name__}: order must be 'modified' (by modification time) or 'path', not {value!r}"
            )

    @property
    def paths(self) -> tuple[str, ...]:
        """Those that are read."""
        return (self.path,) if isinstance(self.path, str) else self.path

    @property
    def folder(self) -> str:
        """The directory that is written to."""
        if not isinstance(self.path, str):
            raise ValueError(f"a sink writes to one directory, not to {len(self.path)} paths")
        return self.path

    @property
    def order_advice(self) -> str:
        """In which order files are read, and how else they could be."""
        return ADVICE[self.order]

    def require_there(self, *, globs: bool) -> None:
        """Raises `FileNotFoundError` for a path that does not exist, and with `globs` for one that nothing matches.

        Without that, the log is told of a glob in a folder that is not there.
        """
        for path in self.paths:
            if globs or not is_pattern(path):
                require_something(path)
            elif is_remote(path):
                require_bucket(path)
            elif not os.path.isdir(root_of(path) or os.curdir):
                _LOG.warning("files may come later, but now %s", nothing_at(path))

    def found(self, *, later: bool = False) -> list[FoundFile]:
        """The files that are there, each once, in the order in which they are read; hidden ones are left out.

        Raises `FileNotFoundError` for a path that names nothing; for a glob not if files may come `later`.
        """
        found = dict[str, FoundFile]()
        for path in self.paths:
            try:
                found |= {absolute(file.path): file for file in list_files(path)}
            except FileNotFoundError:
                if not (later and is_pattern(path)):
                    raise
        return in_order(found.values(), self.order)

    def files(self) -> list[str]:
        """Their paths."""
        return [file.path for file in self.found()]

    def schema(self) -> pl.Schema:
        """The columns: those declared, else those of the first file; and the path of the file, if it is included.

        Raises `FileNotFoundError` if there is no file to read them from.
        """
        columns, path = self._content(), self.include_file_paths
        if path is None:
            return columns
        if path in columns:
            kind = type(self).__name__
            raise ValueError(f"{kind}: include_file_paths={path!r}: the files have a column of that name")
        return pl.Schema({**columns, path: pl.String()})

    def _content(self) -> pl.Schema:
        """The columns that are read from the files."""
        if self._schema is not None:
            return pl.Schema(self._schema)
        return self._found() if self._seen is None else self._seen

    def looked_up(self) -> Self:
        """Gives the source with the columns of its first file, unless they are declared.

        So they are the same for all runs of a pipeline, and workers need not look.
        """
        return self if self._schema is not None else attrs.evolve(self, seen=self._found())

    def _found(self) -> pl.Schema:
        """The columns of the first file. Raises `FileNotFoundError` if there is none."""
        forget(repr(self.path))
        advice = f"if the files come later, give the columns: {type(self).__name__}(..., schema={{...}})"
        try:
            files = self.files()
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{error} ({advice})") from None
        whys = ""
        for file in files:
            try:
                if found := self._infer(file):
                    folders = dict.fromkeys(hive.values_of(file), pl.String())
                    return pl.Schema({**folders, **found})
            except (*ERRORS, Damaged) as error:  # its rows are dead letters
                whys = whys or f"; file {file!r}: {first_line(error)}"
        raise FileNotFoundError(f"there are no files with columns at {self.path!r}{whys} ({advice})")

    def for_event_time(self, column: str) -> Self:
        """The same source, where the text formats leave this column as text unless its type is declared."""
        return attrs.evolve(self, event_time=column)

    def chunks(self, rows: int) -> Iterator[pl.LazyFrame | Faulty]:
        """The files in their order, in pieces of about `rows` rows, or `max_files_per_trigger` files."""
        return (piece.rows for batch in self.batches(rows) for piece in batch.pieces)

    def batches(self, rows: int) -> Iterator[Pieces]:
        """What each batch in process takes: `max_files_per_trigger` files, whatever is in them, or about `rows` rows.

        Bad rows are in the batch of the others, and an empty file counts, as on Spark.
        """
        files = self.files()
        if count := self.max_files_per_trigger:
            for first in range(0, len(files), count):
                yield together([piece for piece, _ in self._pieces(files[first : first + count], rows)])
        else:
            yield from map(together, limited(self._pieces(files, rows), rows))

    def batches_apart(self, rows: int) -> Iterator[Pieces]:
        """The same, file by file."""
        files = list(map(absolute, self.files()))
        count = self.max_files_per_trigger or len(files) or 1
        limit = None if self.max_files_per_trigger else rows
        known: Sequence[str] = files
        for first in range(0, len(files), count):
            for pieces in limited(self.ending_pieces(files[first : first + count], rows), limit):
                yield Pieces(pieces, known)
                known = ()

    def resume(self, position: Position, rows: int, *, apart: bool = False) -> FileReader:
        """Reads on from there: what is left of a file that was cut, then the files that have come since."""
        return FileReader.of(self.from_anywhere(), position, rows, apart=apart)

    def ending_pieces(self, files: list[str], rows: int) -> Iterator[tuple[FromFile, int]]:
        """The pieces of files of at most so many rows, the last one of each file marked, and how many rows each is."""
        for file in files:
            last, height = FromFile(Faulty.none(), file), 0
            for piece in self._pieces([file], rows):
                if height:
                    yield last, height
                last, height = piece
            yield attrs.evolve(last, over=True), height

    def pieces(self, file: str, rows: int, part: int = 0, parts: int = 1) -> Iterator[pl.LazyFrame | Faulty]:
        """One file with the columns of `schema()`, in order, in pieces of at most `rows` rows.

        Of a file of a format that `splits`, it can be one of several parts.
        """
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
        """The pieces, none of them empty, and how many rows each is."""
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
        """The same with paths as this process means them: others have working directories of their own."""
        path = self.path
        return attrs.evolve(self, path=absolute(path) if isinstance(path, str) else [*map(absolute, path)])

    def fitted(self, rows: SinkInput) -> Self:
        """The same. Raises `PlanError` for columns of `partition_by` that the rows do not have."""
        if self.partition_by:
            hive.require_columns(self.partition_by, rows.schema, rows.step)
        return self

    def place(self) -> Place:
        """The directory, and how the files in it are named."""
        below = (f"{column}={ANY}" for column in self.partition_by)
        return Place("folder", self.folder, path=self.folder, names=(*below, f"part-{ANY}.{self.extension}"))

    def check(self) -> None:
        """Raises `FileNotFoundError` for a bucket that is not there."""
        if is_remote(self.folder):
            require_bucket(self.folder)

    def beside(self, run: str) -> Self:
        """The same sink, but what it writes is seen only when `publish` has put it in place of what was there."""
        return attrs.evolve(self, beside=run)

    def hold(self, run: str) -> Lock:
        """Makes the directory; no other run of this name writes to it until this is released. Raises `InUse`."""
        part_files.require_folder(self.folder)
        return Lock.take(part_files.lock_of(self.folder, run, self.extension), f"the run {run!r}")

    def warn_of_others(self, run: str) -> None:
        """Logs that there are files of other runs."""
        if others := part_files.of_others(self.folder, run, self.extension):
            told = "%r has files of other runs already (%d): this run adds to them; remove them if it replaces those"
            _LOG.warning(told, self.folder, others)

    def start(self, run: str) -> None:
        """Makes the directory; removes what an earlier run of this name left.

        If it writes beside, that is only what is there.
        """
        part_files.require_folder(self.folder)
        if self._beside is None:
            part_files.clear(self.folder, run, self.extension)
        part_files.forget_killed(self.folder, run, self.extension)

    def latest_batch(self, run: str) -> int | None:
        """The last batch of this run of which there are files."""
        if not read_by_polars(self.folder):
            return None  # no part can have been written
        return part_files.latest_batch(self.folder, run, self.extension)

    def cut(self, run: str, batch: int) -> str:
        """Removes the files of later batches of this run, so none stay."""
        if read_by_polars(self.folder):  # else no part can have been written
            part_files.remove_after(self.folder, run, self.extension, batch)
        return ""

    def publish(self, run: str) -> None:
        """Puts what was written beside in place of the files that an earlier run of this name left."""
        part_files.publish(self.folder, run, self.extension)

    def has_beside(self, run: str) -> bool:
        """Whether something was written beside."""
        return os.path.isdir(part_files.folder_beside(self.folder, run, self.extension))

    def forget(self, run: str) -> None:
        """Removes what was written beside."""
        part_files.forget_beside(self.folder, run, self.extension)

    def write(self, frame: pl.DataFrame, part: Part) -> None:
        """Writes `part-<query>-<batch>-<task>`, or replaces it; nothing if there are no rows.

        In folders by columns (`partition_by`), what was written before stays where there are no rows now.
        """
        parts = self.prepare(frame, part)
        part_files.show(self._target(), parts)
        if not parts:
            part_files.discard(self._target(), [part_files.part_name(part, self.extension)])

    def prepare(self, frame: pl.DataFrame, part: Part) -> dict[str, str]:
        """Writes the part where nobody sees it before `settle`: which files, and the names that they are to have.

        Both by path below the folder. In an object store they are seen at once.
        """
        name = part_files.part_name(part, self.extension)
        parts = hive.split(frame, self.partition_by) if self.partition_by else [("", frame)]
        saves = {
            f"{below}/{name}" if below else name: partial(self._save, rows)
            for below, rows in parts
            if len(rows)
        }
        return part_files.prepare(self._target(), saves)

    def settle(self, run: str, batch: int, parts: Mapping[str, str], *, again: bool) -> None:
        """Shows the parts of a batch, of all its tasks, as `prepare` gave them.

        With `again`, what other attempts at the batch left is removed before; for that the folder is listed.
        """
        if not (parts or read_by_polars(self.folder)):
            return  # no part can have been written
        folder = self._target()
        if again:
            part_files.remove_others(folder, run, self.extension, batch, parts)
        part_files.show(folder, parts)

    def shown_early(self) -> str | None:
        """The folder, if it is in an object store, which shows files at once."""
        return self.folder if is_remote(self.folder) else None

    def _target(self) -> str:
        """Where parts are written now."""
        if self._beside is None:
            return self.folder
        return part_files.folder_beside(self.folder, self._beside, self.extension)

    def _infer(self, file: str) -> pl.Schema:
        """The columns of a file; none if it is empty."""
        raise NotImplementedError

    def _read(self, file: str, schema: pl.Schema, rows: int, part: int, parts: int) -> Iterator[Piece]:
        """The pieces with these columns, none of them empty, and how many rows each is."""
        raise NotImplementedError

    def _save(self, frame: pl.DataFrame, target: str) -> None:
        raise NotImplementedError
