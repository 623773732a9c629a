"""Reads CSV files in blocks. An invalid record becomes one dead letter.

Each block is parsed as a whole. Only if that fails, its records are examined one by one.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import attrs
import polars as pl

from beamlike.errors import nearest
from beamlike.io.base import Faulty
from beamlike.io.files.csv_dialect import Dialect, is_blank
from beamlike.io.files.encodings import BYTE_ORDER_MARK, open_text
from beamlike.io.files.faults import (
    ERRORS,
    as_text,
    broken,
    fit,
    joined,
    of_each,
    of_lines,
    of_misfits,
    raises,
    shown,
    unfit,
)
from beamlike.io.files.jsonl import BLOCK
from beamlike.io.files.unpacking import Damaged, not_packed, require_not_packed
from beamlike.rows.numbers import in_range, narrow
from beamlike.rows.values import from_text, naming_column, reads_natively, row_json

_LONGEST: Final = 4
"""The number of blocks within which a quote must be closed. Otherwise it counts as an unpaired quote."""

_INFERRED_FROM: Final = 10_000  # records
_USUAL: Final = Dialect()
_LOG = logging.getLogger("beamlike")


def blocks(
    file: str, size: int = BLOCK, dialect: Dialect = _USUAL, header: bytes = b""
) -> Iterator[tuple[bytes, bytes]]:
    """Yields the header alone, then the header with each following block of about `size` bytes.

    Blocks end at line ends outside of quotes. `header` is used for a file that has none. Raises `Damaged` after the
    last readable bytes of a damaged file.
    """
    with open_text(file, dialect.encoding) as handle:
        first = b""
        while b"\n" not in first and (read := handle.read(size)):
            first = (first + read).removeprefix(BYTE_ORDER_MARK)
            require_not_packed(first)
            first = first if header else first.lstrip(b"\r\n")
        if not header:
            header = header_of(first, dialect)
            first = first[len(header) :]
        held, length, read, damaged = list[memoryview](), 0, first, None
        try:
            while read:
                cut = _cut(held, read, dialect)
                if not cut and length >= (_LONGEST - 1) * size:
                    cut = read.rfind(b"\n") + 1
                # Views and a single join: copying a block costs about half as much as parsing it.
                view = memoryview(read)
                if cut:
                    yield header, b"".join([header, *held, view[:cut]])
                    held, length = [], 0
                held.append(view[cut:])
                length += len(view) - cut
                read = handle.read(size)
        except Damaged as error:
            damaged = error
        if length:
            yield header, b"".join([header, *held])
        if damaged is not None:
            raise damaged


def columns(schema: Mapping[str, pl.DataType]) -> dict[str, tuple[pl.DataType, pl.Expr]]:
    """Returns the type in which polars reads each column, and the expression that converts it to the declared type.

    Raises `TypeError` for a type that has no text form.
    """
    return {name: _column(name, dtype) for name, dtype in schema.items()}


def _column(name: str, dtype: pl.DataType) -> tuple[pl.DataType, pl.Expr]:
    value = pl.col(name)
    if dtype == pl.Float32:
        return pl.Float64(), narrow(value)
    if reads_natively(dtype):
        return dtype, value
    with naming_column(name):
        return pl.String(), from_text(value, dtype).alias(name)


def frames(
    file: str,
    raw: pl.Schema,
    typed: Sequence[pl.Expr],
    dialect: Dialect,
    size: int = BLOCK,
    see: Callable[[Iterable[str]], None] | None = None,
) -> Iterator[tuple[pl.DataFrame, Faulty | None]]:
    """Yields the result of `Parser.parse` for each block. Raises `Damaged` at the end if the file is damaged.

    `see` is called with the columns of the header.
    """
    parser = None
    given = b"" if dialect.header else dialect.delimiter.join(map(str, range(len(raw)))).encode() + b"\n"
    for header, block in blocks(file, size, dialect, given):
        if parser is None:
            parser = Parser(file, header, raw, typed, dialect)
            parser.warn_missing()
            if see is not None and not dialect.no_text(header):
                see(names_of(header, dialect))
        yield parser.parse(block)


def infer(file: str, dialect: Dialect) -> pl.Schema:
    """Infers the columns from the header and those of the first records that can be read."""
    header, block = next(blocks(file, dialect=dialect), (b"", b""))
    if why := dialect.no_text(header):
        raise Damaged(f"its header is {why}")
    return pl.scan_csv(
        not_packed(block, BYTE_ORDER_MARK),
        separator=dialect.delimiter,
        quote_char=dialect.quote,
        infer_schema_length=_INFERRED_FROM,
        null_values=list(dialect.nulls),
        ignore_errors=True,
        truncate_ragged_lines=True,
        encoding="utf8-lossy",
        raise_if_empty=False,
    ).collect_schema()


def _cut(held: Sequence[memoryview], read: bytes, dialect: Dialect) -> int:
    """Returns the end of the last line in `read` that ends outside of quotes; 0 if there is none.

    `held` has the bytes before `read`.
    """
    inside = sum(dialect.is_open(view.tobytes()) for view in held) % 2
    end = read.rfind(b"\n") + 1
    if dialect.is_open(read, 0, end) == inside:
        return end
    import numpy as np  # slow to import

    content = np.frombuffer(read, np.uint8)
    ends = np.flatnonzero(content == ord("\n"))
    before = np.searchsorted(np.flatnonzero(content == ord(dialect.quote or "\0")), ends)
    outside = ends[before % 2 == inside]
    return int(outside[-1]) + 1 if len(outside) else 0


def header_of(block: bytes, dialect: Dialect) -> bytes:
    """Returns the first line that is not blank, including its end. Raises `Damaged` if lines end with CR only."""
    start = len(block) - len(block.lstrip(b"\r\n"))
    end = start
    while (end := block.find(b"\n", end) + 1) and dialect.is_open(block, start, end):
        pass
    header = block[start:end] if end else block[start:] + b"\n"
    if b"\r" in dialect.without_quoted(header).rstrip(b"\r\n"):
        raise Damaged("its lines end with CR alone, where LF or CR LF is expected")
    return header


def names_of(header: bytes, dialect: Dialect) -> list[str]:
    """Returns the column names in a header. A repeated name belongs to its first column only."""
    if not header.strip():
        return []
    scan = pl.scan_csv(
        not_packed(header, BYTE_ORDER_MARK),
        separator=dialect.delimiter,
        quote_char=dialect.quote,
        infer_schema=False,
        encoding="utf8-lossy",
        raise_if_empty=False,
    )
    return scan.collect_schema().names()


@functools.lru_cache(maxsize=1_000)
def _warn_missing(folder: str, columns: tuple[str, ...], hint: str) -> None:
    """Logs missing columns once for all files of a folder."""
    shown = ", ".join(map(repr, columns))
    _LOG.warning("%r has files without the declared columns %s: they are null there%s", folder, shown, hint)


@attrs.frozen(eq=False)
class Parser:
    """A parser for the blocks of one file.

    `raw` has the declared columns with the types that polars reads. `typed` converts them to the declared types.
    """

    file: str
    header: bytes
    raw: pl.Schema
    typed: Sequence[pl.Expr]
    dialect: Dialect = _USUAL
    _given: list[str] = attrs.field(init=False)
    _columns: pl.Schema = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        given = names_of(self.header, self.dialect)
        columns = (
            {name: self.raw.get(name, pl.String()) for name in given} if self.dialect.header else self.raw
        )
        object.__setattr__(self, "_given", given)
        object.__setattr__(self, "_columns", pl.Schema(columns))

    def parse(self, block: bytes) -> tuple[pl.DataFrame, Faulty | None]:
        """Returns a row for each record after the header, and dead letters for invalid records.

        Columns that the file or the record lacks are null. A record is a dead letter if it has too many fields, quotes
        that do not pair, bytes that are not text, or a value that is not of its type; so is every line of a file that
        has none of the columns, or whose header is not text. Blank lines are skipped, unless the file has one column.
        """
        if why := self._foreign():
            return self._nothing(), of_lines(self.file, why, self._lines(block))
        try:
            read = self._read(block, self._columns)
            found = self._declared(read)
            frame = found.select(self.typed)
        except ERRORS:
            return self._sorted_out(block)
        is_whole = fit(found, frame) and not (_has_empty(read) or _has_infinite(found))
        return (frame, None) if is_whole else self._sorted_out(block)

    def warn_missing(self) -> None:
        """Logs the declared columns that the file does not have."""
        missing = tuple(name for name in self.raw if name not in self._columns)
        if missing and len(missing) < len(self.raw) and self._columns:
            others = [name for name in self._given if name not in self.raw]
            hint = next(filter(None, (nearest(name, others) for name in missing)), "")
            _warn_missing(os.path.dirname(self.file) or os.curdir, missing, hint)

    def _foreign(self) -> str | None:
        """Returns the reason why the file has none of the declared columns; None if it has at least one."""
        if why := self.dialect.no_text(self.header):
            return f"the header is {why}"
        if not self._columns or not self.raw.keys().isdisjoint(self._columns):
            return None
        names = ", ".join(map(repr, self.raw))
        return f"the header has none of the columns {names}; {self.dialect.hint(self._given, self.raw)}"

    def _lines(self, block: bytes) -> list[bytes]:
        lines = block.removeprefix(self.header).removesuffix(b"\n").split(b"\n")
        return [line for line in lines if not is_blank(line + b"\n")]

    def _nothing(self) -> pl.DataFrame:
        return pl.DataFrame(schema=self.raw).select(self.typed)

    def _read(
        self, block: bytes, columns: Mapping[str, pl.DataType], *, lenient: bool = False
    ) -> pl.DataFrame:
        # If the schema has all columns of the file in order, polars raises an error for a line with too many
        # fields.
        frame = pl.scan_csv(
            not_packed(block, BYTE_ORDER_MARK),
            separator=self.dialect.delimiter,
            quote_char=self.dialect.quote,
            schema=dict(zip(self._given, columns.values(), strict=True)),
            null_values=list(self.dialect.nulls),
            ignore_errors=lenient,
            raise_if_empty=False,
        ).collect()
        frame.columns = list(columns)
        return frame

    def _declared(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Returns the frame with exactly the declared columns."""
        return frame.select(
            pl.col(name) if name in frame.columns else pl.lit(None, dtype).alias(name)
            for name, dtype in self.raw.items()
        )

    def _sorted_out(self, block: bytes) -> tuple[pl.DataFrame, Faulty | None]:
        """Parses a block like `parse`, if necessary record by record."""
        faults = list[Faulty]()
        # Each record is examined only if polars refuses the bytes, or if there is an empty row, which may be
        # a blank line.
        if raises(lambda: self._as_text(block)) or _has_empty(self._read(block, as_text(self._columns))):
            good, faults = self._records(block.removeprefix(self.header))
            block = b"".join([self.header, *good])
        text = self._as_text(block)
        found = self._declared(self._read(block, self._columns, lenient=True))
        floats = [name for name, dtype in self.raw.items() if dtype.is_float()]
        in_reach = [found.select(in_range(pl.col(name), pl.lit(text[name]))).to_series() for name in floats]
        frame = found.with_columns(in_reach).select(self.typed)
        bad = unfit(text, frame)
        rows = text.filter(bad).select(row_json(text.schema)).to_series()
        faults.append(of_misfits(self.file, shown(text.filter(bad)), frame.filter(bad), rows))
        return frame.filter(~bad), joined(faults)

    def _records(self, content: bytes) -> tuple[list[bytes], list[Faulty]]:
        """Returns the records that can be read, and dead letters for the others."""
        width, no_texts = len(self._columns), list[tuple[str, bytes]]()
        found, ragged, unpaired = self.dialect.sort_out(content, width)
        good = list[bytes]()
        for record in found:
            if why := self.dialect.no_text(record):
                no_texts.append((why, record))
            else:
                good.append(record)
        for index in reversed(list(broken(good, lambda data: self._as_text(self.header + data)))):
            unpaired.append(good.pop(index))
        fields = f"more fields than the {width} of the {'header' if self.dialect.header else 'schema'}"
        return good, [
            of_lines(self.file, fields, ragged),
            of_lines(self.file, "quotes that do not pair", unpaired),
            of_each(self.file, no_texts),
        ]

    def _as_text(self, block: bytes) -> pl.DataFrame:
        """Returns the declared columns as text. An empty quoted value is null, except in text columns."""
        text = self._declared(self._read(block, as_text(self._columns)))
        blank = [name for name in text.columns if self.raw[name] != pl.String]
        return text.cast(pl.String).with_columns(pl.col(blank).replace("", None))


def _has_infinite(frame: pl.DataFrame) -> bool:
    """True if a float is infinite, in the file or because the number is out of range."""
    return any(column.is_infinite().any() for column in frame.iter_columns() if column.dtype.is_float())


def _has_empty(frame: pl.DataFrame) -> bool:
    """True if a row of several columns has no value, which may be a blank line."""
    if frame.width < 2 or not all(column.null_count() for column in frame.iter_columns()):
        return False
    return bool(frame.select(pl.all_horizontal(pl.all().is_null()).any()).item())
