"""The file formats Parquet, CSV and JSON lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from io import BytesIO
from typing import ClassVar, Self

import attrs
import polars as pl
import polars.selectors as cs

from beamlike.errors import PlanError
from beamlike.io.base import Faulty
from beamlike.io.files import csv, json_array, jsonl
from beamlike.io.files.csv_dialect import Dialect
from beamlike.io.files.encodings import UTF8, is_utf8, recoded
from beamlike.io.files.faults import ERRORS, first_line, of_file
from beamlike.io.files.files import Files
from beamlike.io.files.hive import Piece
from beamlike.io.files.json_columns import JsonColumns
from beamlike.io.files.new_columns import warn_absent, warn_new
from beamlike.io.files.paths import write_file
from beamlike.io.files.unpacking import Damaged
from beamlike.io.sinks import SinkInput
from beamlike.rows.nonfinite import warn_nonfinite
from beamlike.rows.values import csv_columns, json_columns


@attrs.frozen(slots=False)
class Parquet(Files):
    """Parquet files, as a source or as a sink. Columns are matched by name, and unused columns are not read.

    Dead letters: a damaged file or a damaged piece of a file, which is one dead letter; every row of a file that lacks
    a declared column, or has it with an incompatible type; a row with a value that does not fit.

    Args:
        path: A file, a directory, a glob, or a list of them. To write, a directory.
        schema: Column names and types. By default they are read from the first file.
        max_files_per_trigger: The exact number of files in a batch. By default a batch in process has about a number of
            rows, and on Spark all new files.
        partition_by: Columns that are written as Hive folders such as `user=ada`, and left out of the files.
        order: The order in which files are read: "modified" for modification time, then path; or "path".
        on_change: "ignore" to log files that were changed after they were listed, or "error" to fail the run.
        include_file_paths: The name of an additional column with the path of the row's file.
        complete: True if no files will be added: when all files are read that exist when a run begins, the watermark of
            the source goes to the end of time, and other sources go on. A file that is added later is not read, which
            is logged and recorded, or fails the run with `on_change="error"`.

    Raises:
        MissingFiles: The path does not exist when a run begins. A directory may be empty.

    Example, with the `plays` of `bl.Collection`:
        >>> plays.write("files", bl.Parquet("out", partition_by="user"))
        <Collection 'plays': user String, points Int64, at String>
        >>> run = p.run()
        >>> bl.Pipeline("again").read("plays", bl.Parquet("out")).collect()["points"].sort().to_list()
        [3, 4, 5]
    """

    extension: ClassVar[str] = "parquet"
    splits: ClassVar[bool] = True

    def _infer(self, file: str) -> pl.Schema:
        from beamlike.io.files import parquet

        try:
            return parquet.scan(file).collect_schema()
        except ERRORS as error:
            raise Damaged(
                f"it is no Parquet file (bl.CSV and bl.JSONLines read text): {first_line(error)}"
            ) from error

    def _read(self, file: str, schema: pl.Schema, rows: int, part: int, parts: int) -> Iterator[Piece]:
        from beamlike.io.files import parquet

        # Only one of the tasks that share a file logs its new columns.
        if self._schema is None and part == 0:
            with suppress(*ERRORS, Damaged):  # a file that cannot be read becomes a dead letter below
                warn_new(repr(self.path), self._content(), self._infer(file), file)
        return parquet.pieces(file, schema, rows, part, parts)

    def _save(self, frame: pl.DataFrame, target: str) -> None:
        frame.lazy().sink_parquet(target)


@attrs.frozen(slots=False)
class _Text(Files):
    """The base class of text formats, which store no column types."""

    def _content(self) -> pl.Schema:
        """Returns the columns in the files. An event time without declared type is read as text."""
        schema = super()._content()
        time = self._event_time
        if self._schema is None and time is not None and time in schema:
            schema = pl.Schema({**schema, time: pl.String()})
        return schema

    def _read(self, file: str, schema: pl.Schema, rows: int, part: int, parts: int) -> Iterator[Piece]:
        try:
            for frame, faulty in self._frames(file, schema):
                if faulty is not None:
                    yield faulty, len(faulty.dead_letters)
                for piece in frame.iter_slices(rows):
                    if piece.height:
                        yield piece, piece.height
        except Damaged as error:
            yield of_file(file, str(error)), 1

    def _frames(self, file: str, schema: pl.Schema) -> Iterator[tuple[pl.DataFrame, Faulty | None]]:
        """Yields rows and dead letters, a few megabytes at a time. Raises `Damaged` at the end of a damaged file.

        Raises `TypeError` for a column type that has no text form.
        """
        raise NotImplementedError


def _texts(given: str | Sequence[str]) -> tuple[str, ...]:
    """Returns one text or several texts as a tuple. Raises `TypeError` for anything else."""
    texts = (given,) if isinstance(given, str) else given
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise TypeError(
            f"CSV: null_values must be text or a list of texts such as ['NA', '-'], not {given!r}"
        )
    return tuple(texts)


@attrs.frozen(slots=False)
class CSV(_Text):
    r"""CSV files, as a source or as a sink. Columns are matched by name; those that a file or a line lacks are null.

    Dead letters: a line with more fields than the header, with a quote that is not closed, or with bytes that are
    invalid in the encoding; a row with a value that is not of its type; all lines of a file whose header has no
    declared column. Blank lines are skipped; in a file of one column they are a null. A quoted value may contain line
    ends, and may have at most about 24 MB.

    Args:
        path: A file, a directory, a glob, or a list of them. To write, a directory.
        schema: Column names and types. By default they are inferred from the first file.
        max_files_per_trigger: The exact number of files in a batch, as for `Parquet`.
        partition_by: Columns that are written as Hive folders, as for `Parquet`.
        order: The order in which files are read, as for `Parquet`.
        on_change: The reaction to changed files, as for `Parquet`.
        include_file_paths: A column for the path of the row's file, as for `Parquet`.
        complete: True if no files will be added, as for `Parquet`.
        delimiter: One ASCII character.
        header: True if the first line names the columns. Otherwise the columns are those of `schema`, in this order.
        quote: One ASCII character, or None for files without quotes.
        encoding: An encoding that Python knows, such as "latin-1" or "utf-16".
        null_values: Texts that are read as null in all columns, such as `["NA", "-"]`. Empty text without quotes is
            always null.

    Example:
        >>> from pathlib import Path
        >>> Path("plays.csv").write_text("user;points\nada;3\nbob;many\n")
        27
        >>> source = bl.CSV("plays.csv", schema={"user": str, "points": int}, delimiter=";")
        >>> plays = bl.Pipeline("p").read("plays", source)
        >>> plays.collect()["user"].to_list(), plays.dead_letters().collect().height
        (['ada'], 1)
    """

    delimiter: str = attrs.field(default=",", kw_only=True)
    header: bool = attrs.field(default=True, kw_only=True)
    quote: str | None = attrs.field(default='"', kw_only=True)
    encoding: str = attrs.field(default=UTF8, kw_only=True)
    null_values: tuple[str, ...] = attrs.field(default=(), kw_only=True, converter=_texts)

    extension: ClassVar[str] = "csv"

    def __attrs_post_init__(self) -> None:
        self._dialect()
        csv.columns(dict(self._schema or ()))

    def _dialect(self) -> Dialect:
        return Dialect(self.delimiter, self.quote, self.header, self.encoding, self.null_values)

    def fitted(self, rows: SinkInput) -> Self:
        if self.null_values:
            raise PlanError(
                "CSV: null_values= is for sources; nulls are written as empty text", step=rows.step
            )
        return super().fitted(rows)

    def _infer(self, file: str) -> pl.Schema:
        if not self.header:
            raise ValueError(
                "CSV: with header=False the columns are needed: CSV(..., header=False, schema={...})"
            )
        return csv.infer(file, self._dialect())

    def _frames(self, file: str, schema: pl.Schema) -> Iterator[tuple[pl.DataFrame, Faulty | None]]:
        columns = csv.columns(schema)
        raw = pl.Schema({name: dtype for name, (dtype, _) in columns.items()})
        typed = [expression for _, expression in columns.values()]
        see = partial(warn_new, repr(self.path), self._content(), file=file) if self._schema is None else None
        return csv.frames(file, raw, typed, self._dialect(), see=see)

    def _save(self, frame: pl.DataFrame, target: str) -> None:
        warn_nonfinite(frame.select(cs.nested()), f"CSV {self.path!r}")
        text = frame.select(csv_columns(frame.schema))
        if self.quote is None:
            self._require_plain(text)
        # polars writes only UTF-8, so text for another encoding is converted in memory.
        buffer = None if is_utf8(self.encoding) else BytesIO()
        text.lazy().sink_csv(
            buffer or target,
            separator=self.delimiter,
            include_header=self.header,
            quote_char=self.quote or '"',
            quote_style="never" if self.quote is None else None,
        )
        if buffer is not None:
            write_file(target, recoded(buffer.getvalue(), self.encoding, text))

    def _require_plain(self, frame: pl.DataFrame) -> None:
        """Raises `ValueError` for a value that cannot be written without quotes."""
        for column in frame.cast(pl.String).iter_columns():
            special = column.filter(column.str.contains(rf"[\r\n\x{ord(self.delimiter):02x}]"))
            if len(special):
                what = f"column {column.name!r} has {special[0]!r}"
                raise ValueError(f"{what}, which cannot be written without quotes (quote=None)")


@attrs.frozen(slots=False)
class JSONLines(_Text):
    r"""Files with a JSON object per line, as a source or as a sink. A column that a line lacks is null.

    Dead letters: a line that is not a JSON object; a row with a value that is not of its type.

    Args:
        path: A file, a directory, a glob, or a list of them. To write, a directory.
        schema: Column names and types. By default they are inferred from the first file.
        max_files_per_trigger: The exact number of files in a batch, as for `Parquet`.
        partition_by: Columns that are written as Hive folders, as for `Parquet`.
        order: The order in which files are read, as for `Parquet`.
        on_change: The reaction to changed files, as for `Parquet`.
        include_file_paths: A column for the path of the row's file, as for `Parquet`.
        complete: True if no files will be added, as for `Parquet`.

    Example:
        >>> from pathlib import Path
        >>> Path("plays.jsonl").write_text('{"user": "ada", "points": 3}\n{"user": "bob"}\n')
        45
        >>> plays = bl.Pipeline("p").read("plays", bl.JSONLines("plays.jsonl", {"user": str, "points": int}))
        >>> plays.collect()["points"].to_list()
        [3, None]
    """

    extension: ClassVar[str] = "jsonl"

    def __attrs_post_init__(self) -> None:
        JsonColumns.of(dict(self._schema or ()))

    def _infer(self, file: str) -> pl.Schema:
        block = next(jsonl.blocks(file), b"")
        found = jsonl.infer(block)
        if not found and json_array.begins(block):
            raise Damaged(json_array.ADVICE)
        return found

    def _frames(self, file: str, schema: pl.Schema) -> Iterator[tuple[pl.DataFrame, Faulty | None]]:
        see = partial(warn_new, repr(self.path), self._content(), file=file) if self._schema is None else None
        lacks = None if self._schema is None else partial(warn_absent, self.told_as, file=file)
        return jsonl.frames(file, JsonColumns.of(schema), see, lacks)

    def _save(self, frame: pl.DataFrame, target: str) -> None:
        warn_nonfinite(frame, f"JSONLines {self.path!r}")
        frame.lazy().select(json_columns(frame.schema)).sink_ndjson(target)
