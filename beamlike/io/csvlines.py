"""CSV in blocks: a record that has too many fields, a stray quote or an unfit value costs only itself."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import attrs
import numpy as np
import polars as pl

from beamlike.io.base import Faulty
from beamlike.io.faults import (
    ERRORS,
    as_text,
    broken,
    fit,
    joined,
    of_lines,
    of_misfits,
    raises,
    shown,
    unfit,
)
from beamlike.io.jsonlines import BLOCK, BYTE_ORDER_MARK
from beamlike.io.paths import Damaged, open_file
from beamlike.io.text import row_json

_LONGEST: Final = 4
"""Blocks: a quote that is not closed within them is a stray one."""

_INFERRED_FROM: Final = 10_000  # records

_QUOTED: Final = rb'"(?:[^"]|"")*+"'
_FIELD: Final = rb"(?:" + _QUOTED + rb'|(?!")[^,\r\n]*+)'


def blocks(file: str, size: int = BLOCK) -> Iterator[tuple[bytes, bytes]]:
    """The header, and it with some `size` bytes of what follows, cut at a line end that is not within quotes.

    After the last bytes that can be read, `Damaged` if there should be more.
    """
    with open_file(file) as handle:
        first = b""
        while b"\n" not in first and (read := handle.read(size)):
            first = (first + read).removeprefix(BYTE_ORDER_MARK).lstrip(b"\r\n")
        header = header_of(first)
        held, length, read, damaged = list[memoryview](), 0, first[len(header) :], None
        try:
            while read:
                cut = _cut(held, read)
                if not cut and length >= (_LONGEST - 1) * size:
                    cut = read.rfind(b"\n") + 1
                # Views, and one join: a copy of megabytes costs about as much as half of their parsing.
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


def frames(
    file: str, raw: pl.Schema, typed: Sequence[pl.Expr]
) -> Iterator[tuple[pl.DataFrame, Faulty | None]]:
    """The file block by block, as `Parser.parse` has it; then `Damaged` if there should be more."""
    parser = None
    for header, block in blocks(file):
        parser = parser or Parser(file, header, raw, typed)
        yield parser.parse(block)


def infer(file: str) -> pl.Schema:
    """The columns of the header, with types that fit the first records as far as they can be read."""
    with open_file(file) as handle:
        begin = handle.read(BLOCK)
    return pl.scan_csv(
        begin[: begin.rfind(b"\n") + 1] if len(begin) == BLOCK else begin,
        infer_schema_length=_INFERRED_FROM,
        ignore_errors=True,
        truncate_ragged_lines=True,
        encoding="utf8-lossy",
        raise_if_empty=False,
    ).collect_schema()


def _cut(held: Sequence[memoryview], read: bytes) -> int:
    """Where in `read`, which follows the bytes held, the last line ends that ends outside of quotes; 0 if none does."""
    inside = sum(view.tobytes().count(b'"') for view in held) % 2
    end = read.rfind(b"\n") + 1
    if read.count(b'"', 0, end) % 2 == inside:
        return end
    content = np.frombuffer(read, np.uint8)
    ends = np.flatnonzero(content == ord("\n"))
    before = np.searchsorted(np.flatnonzero(content == ord('"')), ends)
    outside = ends[before % 2 == inside]
    return int(outside[-1]) + 1 if len(outside) else 0


def header_of(block: bytes) -> bytes:
    """The first line that is not blank, with its end."""
    start = len(block) - len(block.lstrip(b"\r\n"))
    end = start
    while (end := block.find(b"\n", end) + 1) and block.count(b'"', start, end) % 2:
        pass
    return block[start:end] if end else block[start:] + b"\n"


def names_of(header: bytes) -> list[str]:
    """The columns of a header; of those with one name, only the first has it."""
    if not header.strip():
        return []
    scan = pl.scan_csv(header, infer_schema=False, encoding="utf8-lossy", raise_if_empty=False)
    return scan.collect_schema().names()


@attrs.frozen
class Parser:
    """Parses blocks of one file.

    `raw` are the declared columns in the types that polars reads, `typed` makes them those declared.
    """

    file: str
    header: bytes
    raw: pl.Schema
    typed: Sequence[pl.Expr]
    _columns: pl.Schema = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        columns = {name: self.raw.get(name, pl.String()) for name in names_of(self.header)}
        object.__setattr__(self, "_columns", pl.Schema(columns))

    def parse(self, block: bytes) -> tuple[pl.DataFrame, Faulty | None]:
        """A row for each record below the header: null for columns that the file, or the record, does not have.

        A record with too many fields, quotes that do not pair, or a value that is not of its type is a letter.
        """
        try:
            found = self._declared(self._read(block, self._columns))
            frame = found.select(self.typed)
        except ERRORS:
            return self._sorted_out(block)
        return (frame, None) if fit(found, frame) else self._sorted_out(block)

    def _read(
        self, block: bytes, columns: Mapping[str, pl.DataType], *, lenient: bool = False
    ) -> pl.DataFrame:
        # With all columns of the file in its order, polars says where a line has more fields.
        return pl.scan_csv(
            block,
            schema=columns,
            ignore_errors=lenient,
            encoding="utf8-lossy",
            raise_if_empty=False,
        ).collect()

    def _declared(self, frame: pl.DataFrame) -> pl.DataFrame:
        """With exactly the declared columns."""
        return frame.select(
            pl.col(name) if name in frame.columns else pl.lit(None, dtype).alias(name)
            for name, dtype in self.raw.items()
        )

    def _sorted_out(self, block: bytes) -> tuple[pl.DataFrame, Faulty | None]:
        """The same, record by record where that is needed."""
        width, faults = len(self._columns), list[Faulty]()
        if raises(lambda: self._as_text(block)):
            good, ragged, unpaired = sort_out(block.removeprefix(self.header), width)
            for index in reversed(list(broken(good, lambda data: self._as_text(self.header + data)))):
                unpaired.append(good.pop(index))
            faults += [
                of_lines(self.file, f"more fields than the {width} of the header", ragged),
                of_lines(self.file, "quotes that do not pair", unpaired),
            ]
            block = b"".join([self.header, *good])
        text = self._as_text(block)
        frame = self._declared(self._read(block, self._columns, lenient=True)).select(self.typed)
        bad = unfit(text, frame)
        rows = text.filter(bad).select(row_json(text.schema)).to_series()
        faults.append(of_misfits(self.file, shown(text.filter(bad)), frame.filter(bad), rows))
        return frame.filter(~bad), joined(faults)

    def _as_text(self, block: bytes) -> pl.DataFrame:
        """The declared columns as they are written. Nothing between quotes is no value, unless it is text."""
        text = self._declared(self._read(block, as_text(self._columns)))
        blank = [name for name in text.columns if self.raw[name] != pl.String]
        return text.cast(pl.String).with_columns(pl.col(blank).replace("", None))


def sort_out(block: bytes, width: int) -> tuple[list[bytes], list[bytes], list[bytes]]:
    """The records of at most `width` fields; the lines of those with more; the lines whose quotes do not pair.

    A line whose quote is not closed is taken together with those that follow, if that gives a record.
    """
    record = re.compile(_FIELD + rb"(?:," + _FIELD + rb")*+\r?\n")
    good: list[bytes] = []
    ragged: list[bytes] = []
    unpaired: list[bytes] = []

    def put(text: bytes) -> bool:
        if record.fullmatch(text) is None:
            return False
        (good if _fields(text) <= width else ragged).append(text)
        return True

    left = [line + b"\n" for line in reversed(block.removesuffix(b"\n").split(b"\n"))]
    held: list[bytes] = []
    while left or held:
        if not left:  # the quote that is open is never closed
            unpaired.append(held[0])
            left, held = held[:0:-1], []
            continue
        line = left.pop()
        odd = line.count(b'"') % 2 == 1
        if held:
            held.append(line)
            if odd:
                if not put(b"".join(held)):
                    unpaired.append(held[0])
                    left += held[:0:-1]
                held = []
        elif odd:
            held = [line]
        elif not put(line):
            unpaired.append(line)
    return good, ragged, unpaired


def _fields(record: bytes) -> int:
    return re.sub(_QUOTED, b"", record).count(b",") + 1 if b'"' in record else record.count(b",") + 1
