"""Files as sources and as sinks: Parquet, CSV, JSON lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar, Self

import attrs
import polars as pl
from polars.io.plugins import register_io_source

from beamlike.dtypes import type_name
from beamlike.errors import unknown_column
from beamlike.io.base import Declared, Part, declared
from beamlike.io.jsonlines import blocks, infer, parse
from beamlike.io.parts import clear, discard, part_name, put
from beamlike.io.paths import list_files, path_text
from beamlike.io.text import csv_columns, from_text, json_columns, reads_natively

_INFERRED_FROM = 10_000  # rows of the first CSV file

Piece = tuple[pl.LazyFrame, int]
"""Some rows of a file, and how many."""


@attrs.frozen
class Files:
    """Files of one format below a path: a file, a directory or a glob; to write, a directory.

    `schema` names the columns and their types; without it they are read from the first file. With
    `max_files_per_trigger`, a batch is exactly that many files.
    """

    path: str = attrs.field(converter=path_text)
    _schema: Declared | None = attrs.field(default=None, converter=declared)
    max_files_per_trigger: int | None = attrs.field(
        default=None,
        validator=attrs.validators.optional([attrs.validators.instance_of(int), attrs.validators.gt(0)]),
    )
    _event_time: str | None = attrs.field(default=None, kw_only=True, repr=False)
    # What was read from the first file, once: it travels with the declaration, so that workers need not look.
    _found: dict[str, pl.Schema] = attrs.field(factory=dict, init=False, eq=False, repr=False)

    bounded: ClassVar[bool] = True
    distributed: ClassVar[bool] = True
    extension: ClassVar[str] = ""

    def files(self) -> list[str]:
        """The files in order of arrival: by modification time, then path; hidden ones are left out."""
        return list_files(self.path)

    def schema(self) -> pl.Schema:
        """The columns: those declared, else those of the first file.

        Raises `FileNotFoundError` if there is no file to read them from.
        """
        if self._schema is not None:
            return pl.Schema(self._schema)
        if not self._found:
            self._found["schema"] = self._first_schema()
        return self._found["schema"]

    def _first_schema(self) -> pl.Schema:
        advice = f"give the columns, {type(self).__name__}(..., schema={{...}}), if the files come later"
        try:
            files = self.files()
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{error}; {advice}") from None
        for file in files:
            if found := self._infer(file):
                return found
        raise FileNotFoundError(f"there are no files with columns at {self.path!r}; {advice}")

    def for_event_time(self, column: str) -> Self:
        """The same source, where the text formats leave this column as text unless its type is declared."""
        return attrs.evolve(self, event_time=column)

    def scan(self, file: str) -> pl.LazyFrame:
        """One file with the columns of `schema()`."""
        raise NotImplementedError

    def chunks(self, rows: int) -> Iterator[pl.LazyFrame]:
        """The files in order of arrival, in pieces of about `rows` rows, or `max_files_per_trigger` files."""
        files = self.files()
        if count := self.max_files_per_trigger:
            for first in range(0, len(files), count):
                yield _joined([self.scan(file) for file in files[first : first + count]])
        else:
            yield from _chunks((piece for file in files for piece in self._counted(file, rows)), rows)

    def pieces(self, file: str, rows: int) -> Iterator[pl.LazyFrame]:
        """One file with the columns of `schema()`, in order, in pieces of at most `rows` rows."""
        for piece, _ in self._counted(file, rows):
            yield piece

    def start(self, run: str) -> None:
        """Makes the directory and removes the files that an earlier run of this name left."""
        clear(self.path, run, self.extension)

    def write(self, frame: pl.DataFrame, part: Part) -> None:
        """Writes `part-<query>-<batch>-<task>`, or replaces it; nothing if there are no rows."""
        name = part_name(part, self.extension)
        if frame.is_empty():
            discard(self.path, name)
        else:
            put(self.path, name, lambda target: self._save(frame, target))

    def _infer(self, file: str) -> pl.Schema:
        """The columns of a file; none if it is empty."""
        raise NotImplementedError

    def _counted(self, file: str, rows: int) -> Iterator[Piece]:
        """The pieces, none of them empty, and how long they are."""
        raise NotImplementedError

    def _save(self, frame: pl.DataFrame, target: str) -> None:
        raise NotImplementedError


@attrs.frozen
class Parquet(Files):
    """Parquet files. A column that a file does not have is an error; what nobody needs is not read."""

    extension: ClassVar[str] = "parquet"

    def scan(self, file: str) -> pl.LazyFrame:
        """One file with the columns of `schema()`; `UnknownColumn` or `TypeError` if it has not got them."""
        lf = _parquet(file)
        found = lf.collect_schema()
        return lf.select(_as_declared(found, name, dtype, file) for name, dtype in self.schema().items())

    def _infer(self, file: str) -> pl.Schema:
        return _parquet(file).collect_schema()

    def _counted(self, file: str, rows: int) -> Iterator[Piece]:
        # Polars decodes only the pages of a slice, so pieces need not be row groups.
        height = _parquet(file).select(pl.len()).collect().item()
        size = -(-height // max(1, -(-height // rows)))
        lf = self.scan(file)
        for offset in range(0, height, size or 1):
            yield lf.slice(offset, size), min(size, height - offset)

    def _save(self, frame: pl.DataFrame, target: str) -> None:
        frame.lazy().sink_parquet(target)


def _parquet(file: str) -> pl.LazyFrame:
    return pl.scan_parquet(file, glob=False, hive_partitioning=False)


def _as_declared(found: pl.Schema, name: str, dtype: pl.DataType, file: str) -> pl.Expr:
    if name not in found:
        raise unknown_column(name, found, None, f"file {file!r}")
    if found[name] == dtype:
        return pl.col(name)
    if not _widens(found[name], dtype):
        types = f"{type_name(found[name])}, which cannot be read as {type_name(dtype)}"
        raise TypeError(f"file {file!r}: column {name!r} is {types}")
    return pl.col(name).cast(dtype)


def _widens(found: pl.DataType, dtype: pl.DataType) -> bool:
    """Whether values of one type can stand for the other; one that does not fit is an error when read."""
    text = (pl.String, pl.Categorical, pl.Enum)
    return (
        type(found) is type(dtype)
        or found == pl.Null
        or (found.is_integer() and dtype.is_numeric())
        or (found.is_numeric() and dtype.is_float())
        or (found == pl.Date and isinstance(dtype, pl.Datetime))
        or (isinstance(found, text) and isinstance(dtype, text))
    )


@attrs.frozen
class _Text(Files):
    """Formats without types of their own: what is not of the declared type becomes null."""

    def schema(self) -> pl.Schema:
        """The columns: those declared, else those of the first file, with the event time as text."""
        schema = super().schema()
        time = self._event_time
        if self._schema is None and time is not None and time in schema:
            schema = pl.Schema({**schema, time: pl.String()})
        return schema

    @staticmethod
    def _native(dtype: pl.DataType) -> bool:
        return reads_natively(dtype)

    def _raw(self, schema: pl.Schema) -> pl.Schema:
        """The types that polars' reader is asked for."""
        native = self._native
        return pl.Schema({name: dtype if native(dtype) else pl.String() for name, dtype in schema.items()})

    def _typed(self, schema: pl.Schema) -> list[pl.Expr]:
        """From these to the columns of the schema."""
        return [
            pl.col(name) if self._native(dtype) else from_text(pl.col(name), dtype).alias(name)
            for name, dtype in schema.items()
        ]


@attrs.frozen
class CSV(_Text):
    """CSV files with a header; columns go by name, and those that a file does not have are null."""

    extension: ClassVar[str] = "csv"

    def scan(self, file: str) -> pl.LazyFrame:
        """One file with the columns of `schema()`; `TypeError` for a type that text has no form of."""
        schema = self.schema()
        lf = pl.scan_csv(
            file,
            schema=self._raw(schema),
            ignore_errors=True,
            truncate_ragged_lines=True,
            missing_columns="insert",
            extra_columns="ignore",
            encoding="utf8-lossy",
            raise_if_empty=False,
            glob=False,
        )
        return lf.select(self._typed(schema))

    def _infer(self, file: str) -> pl.Schema:
        return pl.scan_csv(
            file,
            infer_schema_length=_INFERRED_FROM,
            ignore_errors=True,
            truncate_ragged_lines=True,
            encoding="utf8-lossy",
            raise_if_empty=False,
            glob=False,
        ).collect_schema()

    def _counted(self, file: str, rows: int) -> Iterator[Piece]:
        for batch in self.scan(file).collect_batches(chunk_size=rows):
            if batch.height:
                yield batch.lazy(), batch.height

    def _save(self, frame: pl.DataFrame, target: str) -> None:
        frame.lazy().select(csv_columns(frame.schema)).sink_csv(target)


@attrs.frozen
class JSONLines(_Text):
    """Files with a JSON object per line; what a line does not have is null.

    A line that is no JSON gives a row of nulls, with the line itself as event time where that column is text.
    """

    extension: ClassVar[str] = "jsonl"

    @staticmethod
    def _native(dtype: pl.DataType) -> bool:
        return reads_natively(dtype) or dtype.is_nested()

    def scan(self, file: str) -> pl.LazyFrame:
        """One file with the columns of `schema()`; `TypeError` for a type that text has no form of."""
        schema = self.schema()
        self._typed(schema)

        def read(
            columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, _: int | None
        ) -> Iterator[pl.DataFrame]:
            wanted = schema if columns is None else pl.Schema({name: schema[name] for name in columns})
            for frame in _heads(self._frames(file, wanted), n_rows):
                yield frame if predicate is None else frame.filter(predicate)

        return register_io_source(read, schema=schema, is_pure=True)

    def _frames(self, file: str, schema: pl.Schema) -> Iterator[pl.DataFrame]:
        for block in blocks(file):
            yield parse(block, self._raw(schema), self._event_time).select(self._typed(schema))

    def _infer(self, file: str) -> pl.Schema:
        return infer(next(blocks(file), b""))

    def _counted(self, file: str, rows: int) -> Iterator[Piece]:
        for frame in self._frames(file, self.schema()):
            for piece in frame.iter_slices(rows):
                if piece.height:
                    yield piece.lazy(), piece.height

    def _save(self, frame: pl.DataFrame, target: str) -> None:
        frame.lazy().select(json_columns(frame.schema)).sink_ndjson(target)


def _heads(frames: Iterable[pl.DataFrame], rows: int | None) -> Iterator[pl.DataFrame]:
    """The frames up to `rows` rows in all."""
    for frame in frames:
        if rows is not None:
            frame = frame.head(rows)
            rows -= frame.height
        yield frame
        if rows == 0:
            return


def _chunks(pieces: Iterable[Piece], rows: int) -> Iterator[pl.LazyFrame]:
    """The pieces, neighbours joined while they stay within `rows` rows."""
    held: list[pl.LazyFrame] = []
    count = 0
    for piece, height in pieces:
        if held and count + height > rows:
            yield _joined(held)
            held, count = [], 0
        held.append(piece)
        count += height
    if held:
        yield _joined(held)


def _joined(frames: list[pl.LazyFrame]) -> pl.LazyFrame:
    return frames[0] if len(frames) == 1 else pl.concat(frames)
