"""The dialect of a CSV file: delimiter, quotes, header, encoding and null values.

If polars cannot read a block of lines, the dialect divides the block into records.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any, Final

import attrs

from beamlike.io.files.encodings import UTF8, is_utf8, looks_like, no_text, require_encoding

_DELIMITERS: Final = ";\t|,:"
_SHOWN: Final = 100  # characters of a header in an error


@attrs.frozen
class Dialect:
    """A CSV dialect. Delimiter and quote are single ASCII characters; with `quote=None`, values are never quoted.

    Values that are written as one of `nulls` are null.
    """

    delimiter: str = ","
    quote: str | None = '"'
    header: bool = True
    encoding: str = UTF8
    nulls: tuple[str, ...] = ()

    def __attrs_post_init__(self) -> None:
        given: dict[str, Any] = {"delimiter": self.delimiter}
        if self.quote is not None:
            given["quote"] = self.quote
        for name, value in given.items():
            if not isinstance(value, str) or len(value) != 1 or not value.isascii() or value in "\r\n\0":
                raise ValueError(f"CSV: {name} must be one ASCII character, not {value!r}")
            if value.isalnum() or value in "+-.":  # numbers and booleans are written without quotes
                raise ValueError(f"CSV: {name} must not be {value!r}, which is a part of numbers or words")
        if self.delimiter == self.quote:
            raise ValueError(f"CSV: delimiter and quote must differ, and both are {self.quote!r}")
        if not isinstance(self.header, bool):
            raise TypeError(
                f"CSV: header must be True (the first line names the columns) or False, not {self.header!r}"
            )
        require_encoding(self.encoding, "CSV")

    @property
    def _mark(self) -> bytes:
        return (self.quote or "").encode()

    def no_text(self, line: bytes) -> str | None:
        """Returns the reason why a line is invalid in the encoding, with the likely encoding; None for valid text."""
        why = no_text(line, self.encoding)
        near = looks_like(line) if why and is_utf8(self.encoding) else None
        return f"{why}; is it {near} (encoding={near!r})?" if near else why

    def is_open(self, data: bytes, start: int = 0, end: int | None = None) -> bool:
        """True if the bytes contain a quote that is opened and not closed."""
        return bool(self._mark) and data.count(self._mark, start, end) % 2 == 1

    def without_quoted(self, data: bytes) -> bytes:
        """Returns the bytes without their quoted values."""
        return re.sub(_quoted(self._mark), b"", data) if self._mark and self._mark in data else data

    def sort_out(self, block: bytes, width: int) -> tuple[list[bytes], list[bytes], list[bytes]]:
        """Returns records of at most `width` fields, lines with more fields, and lines whose quotes do not pair.

        A line whose quote is not closed is joined with the following lines if that gives a record. Blank lines are
        skipped, but in a file of one column they are null.
        """
        good: list[bytes] = []
        ragged: list[bytes] = []
        unpaired: list[bytes] = []

        def put(text: bytes) -> bool:
            if not self._is_record(text):
                return False
            fields = self.without_quoted(text).count(self.delimiter.encode()) + 1
            (good if fields <= width else ragged).append(text)
            return True

        left = [line + b"\n" for line in reversed(block.removesuffix(b"\n").split(b"\n"))]
        held: list[bytes] = []
        while left or held:
            if not left:  # the quote is not closed in any later line
                unpaired.append(held[0])
                left, held = held[:0:-1], []
                continue
            line = left.pop()
            odd = self.is_open(line)
            if held:
                held.append(line)
                if odd:
                    if not put(b"".join(held)):
                        unpaired.append(held[0])
                        left += held[:0:-1]
                    held = []
            elif odd:
                held = [line]
            elif (width == 1 or not is_blank(line)) and not put(line):
                unpaired.append(line)
        return good, ragged, unpaired

    def _is_record(self, text: bytes) -> bool:
        if not self._mark or self._mark not in text:
            return True
        quoted, delimiter = _quoted(self._mark), re.escape(self.delimiter.encode())
        field = rb"(?:%b|(?!%b)[^%b\r\n]*+)" % (quoted, re.escape(self._mark), delimiter)
        return re.fullmatch(rb"%b(?:%b%b)*+\r?\n" % (field, delimiter, field), text) is not None

    def hint(self, names: Sequence[str], wanted: Collection[str]) -> str:
        """Returns the likely mistake if a header has these names, and none of the `wanted` ones."""
        shown = ", ".join(map(repr, names))
        shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "..."
        others = [one for one in _DELIMITERS if len(names) == 1 and one in names[0]]
        if others:
            best = max(others, key=lambda one: len({*wanted}.intersection(names[0].split(one))))
            return f"it has one column, {shown}: is the delimiter {best!r}?"
        if {*map(_plainly, names)} & {*map(_plainly, wanted)}:
            return f"it has {shown}: names must agree in case and blanks, too"
        return f"it has {shown}: is there no header (header=False)?"


def _plainly(name: str) -> str:
    return name.strip().casefold()


def is_blank(line: bytes) -> bool:
    """True if the line consists of its line end only."""
    return line in (b"\n", b"\r\n")


def _quoted(mark: bytes) -> bytes:
    mark = re.escape(mark)
    return rb"%b(?:[^%b]|%b%b)*+%b" % (mark, mark, mark, mark, mark)
