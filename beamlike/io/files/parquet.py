"""Reads Parquet files in pieces. Damaged pieces, and rows that do not fit the declared columns, become dead letters."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from typing import Final

import attrs
import polars as pl
from polars.io.plugins import register_io_source

from beamlike.errors import unknown_column
from beamlike.io.base import AnyFrame, Faulty, Unreadable
from beamlike.io.files.faults import (
    ERRORS,
    first_line,
    of_file,
    of_misfits,
    of_rows,
    raises,
    shown,
    without_lost,
)
from beamlike.io.files.hive import Piece
from beamlike.io.files.paths import open_file, read_by_polars
from beamlike.rows.dtypes import as_dtype, type_name
from beamlike.rows.exact import always_fits, fields, stands_for
from beamlike.rows.values import row_json
from beamlike.system.path_names import is_remote

_INT96: Final = "INT96"
_SMALL: Final = 64 << 10  # bytes
_FEW_VALUES: Final = 1_000_000
"""The greatest number of values of a file that is read completely. Millions of equal values take few bytes."""

_FEW: Final = 20_000  # rows
"""The greatest number of rows of a slice that is read at once. polars plans many lazy slices in quadratic time."""


def scan(file: str, schema: pl.Schema | None = None) -> pl.LazyFrame:
    """Scans a file without conversions. From storage that polars cannot read, the whole file is loaded first.

    `schema` replaces the types that polars finds. It must have all columns of the file.
    """
    source = file if read_by_polars(file) else BytesIO(open_file(file).read())
    return pl.scan_parquet(source, schema=schema, glob=False, hive_partitioning=False)


def _scan_or_read(file: str) -> AnyFrame:
    """Scans a file. If it has few bytes and few values, it is read completely, because each query of a file costs more
    than its rows.
    """
    if not is_remote(file) and os.path.getsize(file) <= _SMALL:
        with suppress(*ERRORS):  # perhaps some of its columns can be read
            lf = scan(file)
            most = _FEW_VALUES // max(1, len(lf.collect_schema()))
            # To ask for the height first would be another query.
            found = lf.head(most + 1).collect()
            return found if found.height <= most else lf
    return scan(file)


def pieces(file: str, schema: pl.Schema, rows: int, part: int, parts: int) -> Iterator[Piece]:
    """Yields part `part` of `parts` of a file's rows, in pieces of at most `rows` rows, each with its number of rows.

    A piece is read when it is collected, which may raise `Unreadable`. All rows of a file that lacks a column, or has
    it with an incompatible type, are dead letters; so are rows with a value that does not fit.
    """
    try:
        lf = _scan_or_read(file)
        found = lf.collect_schema()
        old = _of_int96(file, found, schema)
        if wider := {name: _in_microseconds(found[name]) for name in old if not _has_ns(schema[name])}:
            found = pl.Schema({**found, **wider})
            lf = scan(file, found)
        height = lf.height if isinstance(lf, pl.DataFrame) else lf.select(pl.len()).collect().item()
    except ERRORS as error:
        if part == 0:  # only one of the tasks that share a file reports it
            yield of_file(file, f"not a Parquet file that can be read: {first_line(error)}"), 1
        return
    reader = _SliceReader(file, lf, found, schema, old)
    first, last = height * part // parts, height * (part + 1) // parts
    # The pieces have nearly equal sizes, of at most `rows` rows.
    size = -(-(last - first) // max(1, -(-(last - first) // rows)))
    for offset in range(first, last, size or 1):
        yield from reader.piece(offset, min(size, last - offset))


@attrs.frozen(eq=False)
class _SliceReader:
    """A reader of slices of a file. The file has the columns `found`; the rows get those of `schema`."""

    file: str
    rows: AnyFrame
    found: pl.Schema
    schema: pl.Schema
    old: Collection[str] = ()
    """Columns with times of type INT96, which may be too large for nanoseconds."""
    _wrong: str | None = attrs.field(init=False)
    _checked: tuple[str, ...] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        wrong = (self._misfit(name, dtype) for name, dtype in self.schema.items())
        object.__setattr__(self, "_wrong", next(filter(None, wrong), None))
        known = {name: dtype for name, dtype in self.schema.items() if name in self.found}
        checked = (
            name
            for name, dtype in known.items()
            if name in self.old or not always_fits(self.found[name], dtype)
        )
        object.__setattr__(self, "_checked", tuple(checked))

    def piece(self, offset: int, length: int) -> Iterator[Piece]:
        """Yields the rows of a slice, and dead letters for rows that do not fit."""
        as_it_is = not self._checked and self._wrong is None
        if as_it_is and length > _FEW:
            yield self._lazy(offset, length), length
            return
        wanted = self._typed(offset, length) if as_it_is else self.rows.slice(offset, length)
        try:
            frame = wanted.collect() if isinstance(wanted, pl.LazyFrame) else wanted
        except ERRORS as error:
            yield self._damaged(offset, length, error), 1
            return
        if as_it_is:
            yield frame, length
            return
        if self._wrong is not None:
            yield of_rows(self.file, self._wrong, _json(frame)), length
            return
        found = frame.select(self._checked)
        typed = frame.select(frame[name].cast(dtype, strict=False) for name, dtype in self.schema.items())
        typed, bad = without_lost(found, typed)
        if count := int(bad.sum()):
            values, rows = shown(found.filter(bad)), _json(frame.filter(bad))
            yield of_misfits(self.file, values, typed.filter(bad), rows), count
        if count < length:
            yield typed.filter(~bad), length - count

    def _misfit(self, name: str, dtype: pl.DataType) -> str | None:
        if name not in self.found:
            return str(unknown_column(name, self.found, None))
        found = self.found[name]
        if stands_for(found, dtype):
            return None
        return f"column {name!r} is {type_name(found)}, which cannot be read as {type_name(dtype)}"

    def _damaged(self, offset: int, length: int, error: BaseException) -> Faulty:
        lost = f"the rows {offset} to {offset + length - 1} are lost"
        return of_file(self.file, f"{lost}, as they cannot be read: {first_line(error)}")

    def _typed(self, offset: int, length: int) -> AnyFrame:
        rows = self.rows.slice(offset, length)
        if list(self.found.items()) == list(self.schema.items()):
            return rows
        return rows.select(pl.col(name).cast(dtype) for name, dtype in self.schema.items())

    def _lazy(self, offset: int, length: int) -> pl.LazyFrame:
        """Returns the slice as a lazy frame, which is read when it is collected."""
        lf = self._typed(offset, length).lazy()
        is_left_out = False

        @contextmanager
        def left_out() -> Iterator[None]:
            nonlocal is_left_out
            is_left_out = True
            try:
                yield
            finally:
                is_left_out = False

        def read(
            columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, _: int | None
        ) -> Iterator[pl.DataFrame]:
            wanted = lf if columns is None else lf.select(columns)
            wanted = wanted.head(0) if is_left_out else wanted if n_rows is None else wanted.head(n_rows)
            try:
                yield (wanted if predicate is None else wanted.filter(predicate)).collect()
            except ERRORS as error:
                if raises(wanted.collect):
                    raise Unreadable(self._damaged(offset, length, error), left_out) from error
                raise  # a user's expression in the predicate has failed

        return register_io_source(read, schema=self.schema, is_pure=True)


def _json(frame: pl.DataFrame) -> pl.Series:
    return frame.select(row_json(frame.schema)).to_series()


def _of_int96(file: str, found: pl.Schema, schema: pl.Schema) -> list[str]:
    """Returns the declared columns whose type in the file is INT96, a time that polars reads as nanoseconds."""
    suspects = [name for name, dtype in found.items() if name in schema and _has_ns(dtype)]
    if not suspects:
        return []
    import pyarrow as pa  # slow to import
    import pyarrow.parquet as pq

    try:
        with open_file(file) as handle, pq.ParquetFile(handle) as metadata:
            leaves = [metadata.schema.column(index) for index in range(len(metadata.schema))]
    except pa.ArrowNotImplementedError:
        return []  # a type that only polars writes, and polars never writes INT96
    old = [leaf.path for leaf in leaves if leaf.physical_type == _INT96]
    return [name for name in suspects if any(path == name or path.startswith(f"{name}.") for path in old)]


def _has_ns(dtype: pl.DataType) -> bool:
    """True if the type is, or contains, a time in nanoseconds."""
    return _in_microseconds(dtype) != dtype


def _in_microseconds(dtype: pl.DataType) -> pl.DataType:
    """Returns the type with all nanoseconds replaced by microseconds, also in nested types."""
    if isinstance(dtype, pl.Datetime) and dtype.time_unit == "ns":
        return pl.Datetime("us", dtype.time_zone)
    if isinstance(dtype, pl.Struct):
        return pl.Struct({name: _in_microseconds(inner) for name, inner in fields(dtype).items()})
    if isinstance(dtype, pl.List):
        return pl.List(_in_microseconds(as_dtype(dtype.inner)))
    return dtype
