"""Reads JSON lines in blocks. An invalid line becomes one dead letter.

Each block is parsed as a whole. Only if that fails, its lines are examined one by one.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Final, NoReturn

import attrs
import polars as pl

from beamlike.io.base import Faulty
from beamlike.io.files import json_array, json_nested
from beamlike.io.files.encodings import BYTE_ORDER_MARK, looks_like, no_text
from beamlike.io.files.faults import (
    ERRORS,
    broken,
    first_line,
    fit,
    joined,
    of_each,
    raises,
    unfit,
    why_unfit,
)
from beamlike.io.files.json_columns import INEXACT, JsonColumns, readable
from beamlike.io.files.paths import open_file
from beamlike.io.files.unpacking import Damaged, not_packed, require_not_packed
from beamlike.rows.dtypes import type_name

BLOCK: Final = 8 << 20
"""The number of bytes that are parsed together."""

_NOTHING: Final = pl.Schema({"": pl.String()})
_NO_TEXT: Final = (pl.Boolean(), pl.List(pl.Boolean), pl.Struct({}))
"""The types that polars writes as JSON text if a text column has them. Each of them can be read only as itself."""

_DEEPEST: Final = 64  # levels
_FIRST: Final = 100  # lines in which undeclared columns are looked for

_KEY: Final = re.compile(rb'"([^"\\]*)"[ \t]*:')
"""A name in a JSON object, or text that looks like one. Names in nested objects match, too."""

_NUMBER: Final = r'((?:"(?:[^"\\]|\\.)*"|[^"\d-])*)(-?\d[\d.eE+-]*)'
"""A number, with the text between the previous number and this one."""

_HALF: Final = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])")
"""A first surrogate without a second one, which polars reads as a null character. Polars refuses a lone second one."""

_NAMES_PART: Final = re.compile(r"cannot parse '[^{[]")
"""The beginning of an error of polars that shows a number or text within a nested value."""


def blocks(file: str, size: int = BLOCK) -> Iterator[bytes]:
    """Yields a file in blocks of about `size` bytes that end at line ends. JSON values contain no line ends.

    Raises `Damaged` after the last readable bytes of a damaged file.
    """
    with open_file(file) as handle:
        rest: list[bytes] = []
        mark, damaged = BYTE_ORDER_MARK, None
        try:
            while read := handle.read(size):
                if mark:
                    require_not_packed(read)
                    read, mark = read.removeprefix(mark), b""
                cut = read.rfind(b"\n") + 1
                if cut:
                    yield b"".join([*rest, read[:cut]])
                    rest = []
                rest.append(read[cut:])
        except Damaged as error:
            damaged = error
        if last := b"".join(rest):
            yield last
        if damaged is not None:
            raise damaged


def frames(
    file: str,
    columns: JsonColumns,
    see: Callable[[Iterable[str]], None] | None = None,
    lacks: Callable[[str, Iterable[str]], None] | None = None,
) -> Iterator[tuple[pl.DataFrame, Faulty | None]]:
    """Yields the result of `parse` for each block. Raises `Damaged` at the end of a damaged file.

    `see` is called with the columns of each block that may have columns which `columns` lacks, `lacks` with each column
    that the first block lacks, and with the columns of its first rows that `columns` lacks.
    """
    known = {name.encode() for name in columns.raw}
    for number, block in enumerate(blocks(file)):
        if see is not None and (new := {*_KEY.findall(block)} - known):
            see(_names(block))
            known |= new
        parsed = parse(file, block, columns)
        if lacks is not None and number == 0:
            _note_absent(block, parsed[0], columns, lacks)
        yield parsed


def _note_absent(
    block: bytes, frame: pl.DataFrame, columns: JsonColumns, lacks: Callable[[str, Iterable[str]], None]
) -> None:
    empty = [name for name in columns.raw if frame.height and frame[name].null_count() == frame.height]
    absent = [name for name in empty if json.dumps(name, ensure_ascii=False).encode() not in block]
    if not absent:
        return
    first = b"\n".join(block.split(b"\n", _FIRST)[:_FIRST])
    undeclared = [name for name in _names(first) if name not in columns.raw]
    for name in absent if undeclared else ():
        lacks(name, undeclared)


def _names(block: bytes) -> list[str]:
    """Returns the names of the columns that the lines have, also if a column has no single type."""
    try:
        return [*infer(block)]
    except ERRORS:
        return [*dict.fromkeys(name for line in _lines(block) for name in _names_of(line))]


def _names_of(line: bytes) -> list[str]:
    """Returns the names in the object of a line; none if Python cannot read the line as an object."""
    try:
        found = None if _half(line) else json.loads(line)
    except (ValueError, RecursionError):
        return []
    return [*found] if isinstance(found, dict) else []


def parse(file: str, block: bytes, columns: JsonColumns) -> tuple[pl.DataFrame, Faulty | None]:
    """Returns a row for each valid line, with nulls for missing values, and dead letters for invalid lines.

    A line is invalid if it is no object, or has a value that is not of its type. Blank lines are skipped.
    """
    frame = _parse_whole(block, columns, lambda: _lines(block))
    if frame is not None:
        return frame, None
    lines = _lines(block)
    found = _sort_out(lines, columns)
    return found.frame, joined([of_each(file, [(why, lines[index]) for index, why in found.wrong])])


@attrs.frozen(eq=False)
class Parsed:
    """Parsed lines: the rows, the index of each row's line (`kept`), and index and reason of each invalid line."""

    frame: pl.DataFrame
    kept: pl.Series
    wrong: Sequence[tuple[int, str]] = ()


def parse_lines(lines: Sequence[bytes], columns: JsonColumns) -> Parsed:
    """Parses lines. Blank lines are invalid. A line end within a line counts as a space."""
    block = b"\n".join([*lines, b""])
    if block.count(b"\n") > len(lines):  # never in text, as JSON escapes it
        return parse_lines([line.replace(b"\n", b" ") for line in lines], columns)
    ended = cache(lambda: [line + b"\n" for line in lines])
    frame = _parse_whole(block, columns, ended)
    if frame is None or len(frame) != len(lines):
        return _sort_out(ended(), columns)
    return Parsed(frame, pl.int_range(len(lines), dtype=pl.UInt32, eager=True))


def _parse_whole(
    block: bytes, columns: JsonColumns, lines: Callable[[], Sequence[bytes]]
) -> pl.DataFrame | None:
    """Parses a block as a whole. Returns None if a line is invalid."""
    try:
        found = pl.read_ndjson(not_packed(block, b"\n"), schema=columns.read_as)
        frame = _as_written_in(block, found, columns)
        # `found` has no line that could not be read, so without a conversion no value is lost.
        frame = frame if columns.as_read else frame.select(columns.typed)
    except ERRORS:
        return None
    if frame is not found and not fit(found, frame):
        return None
    return None if _half(block) or any(_no_texts(found, frame.schema, columns, lines)) else frame


def infer(block: bytes) -> pl.Schema:
    """Infers the columns from the lines. Invalid lines are skipped. A column that is always null is String.

    Lines with more than `_DEEPEST` nested levels are skipped, too, because polars fails on such types.
    """
    lines = _lines(block)
    good = b"".join(lines[index] for index in _objects(lines)[0] if not _is_deep(lines[index]))
    if not good:
        return pl.Schema({})
    found = pl.read_ndjson(good, infer_schema_length=None).schema
    return pl.Schema({name: pl.String() if dtype == pl.Null else dtype for name, dtype in found.items()})


def _read(block: bytes, schema: Mapping[str, pl.DataType], *, lenient: bool = False) -> pl.DataFrame:
    return pl.read_ndjson(not_packed(block, b"\n"), schema=readable(schema), ignore_errors=lenient)


def _as_written_in(block: bytes, found: pl.DataFrame, columns: JsonColumns) -> pl.DataFrame:
    """Replaces numbers in text columns, and decimals, by the text in the block, because polars reads them as floats."""
    texts, exact, with_text = columns.texts, columns.exact, columns.with_text
    if not (texts or exact or with_text):
        return found
    text = pl.Series([block]).cast(pl.String)
    if texts and text.str.contains(columns.inexact).item():
        found = found.with_columns(_read(_with_numbers_quoted(block), texts, lenient=True))
    if with_text and text.str.contains(rf"[:\[,]\s*{INEXACT}").item():
        exact = exact | with_text
    return found.with_columns(_nested(block, exact)) if exact else found


def _nested(block: bytes, columns: Mapping[str, pl.DataType]) -> list[pl.Series]:
    """Returns nested columns, read from the text of their numbers. A value that does not fit is null."""
    kinds = {name: json_nested.quoted(dtype) for name, dtype in columns.items()}
    quoted = _read(_with_numbers_quoted(block, json_nested.MARK), kinds, lenient=True)
    return [json_nested.typed(quoted[name], dtype) for name, dtype in columns.items()]


def _with_numbers_quoted(block: bytes, mark: str = "") -> bytes:
    """Returns the block with all numbers quoted. Each of its lines must be an object."""
    lines = pl.Series(block.split(b"\n"), dtype=pl.Binary).cast(pl.String)
    # A match includes the text before a number, so none begins within a string. The appended 0 is removed.
    quoted = (lines + "0").str.replace_all(_NUMBER, f'${{1}}"{mark}${{2}}"').str.head(-3 - len(mark))
    return "\n".join(quoted).encode()


def _lines(block: bytes) -> list[bytes]:
    """Returns the lines that are not blank."""
    return [line + b"\n" for line in block.split(b"\n") if line.strip()]


def _no_texts(
    found: pl.DataFrame, typed: pl.Schema, columns: JsonColumns, lines: Callable[[], Sequence[bytes]]
) -> Iterator[tuple[str, pl.Series]]:
    """Yields text columns, with the rows in which polars wrote a list, an object or a boolean as text."""
    # In a column that is converted to a time or number, such text becomes null anyway.
    texts = [name for name in columns.texts if not (typed[name].is_temporal() or typed[name].is_decimal())]
    if not texts:
        return
    alike = found.select(map(_looks_like_no_text, texts))
    suspects = {name: rows for name in texts if len(rows := alike[name].arg_true())}
    given = lines() if suspects else ()
    for name, rows in suspects.items():
        block = b"".join(map(given.__getitem__, rows))
        read = [_read(block, {name: dtype}, lenient=True)[name] for dtype in _NO_TEXT]
        wrong = pl.select(pl.any_horizontal(column.is_not_null() for column in read)).to_series()
        if wrong.any():
            yield name, rows.filter(wrong)


def _looks_like_no_text(name: str) -> pl.Expr:
    text = pl.col(name)
    return text.str.starts_with("[") | text.str.starts_with("{") | (text == "true") | (text == "false")


def _half(text: bytes) -> str | None:
    """Returns the first escape that is only half of a surrogate pair; None if there is none."""
    if _HALF.search(text) is None:
        return None
    found = _HALF.search(text.replace(rb"\\", b"  "))  # an escaped backslash begins no escape
    return None if found is None else text[found.start() : found.start() + 6].decode("ascii", "replace")


def _is_deep(line: bytes) -> bool:
    """True if a line has too many nested levels. Brackets in text count, too."""
    if line.count(b"[") + line.count(b"{") <= _DEEPEST:
        return False
    steps = (1 if bracket in b"[{" else -1 for bracket in re.findall(rb"[\[\]{}]", line))
    return max(itertools.accumulate(steps)) > _DEEPEST


def _objects(lines: Sequence[bytes]) -> tuple[list[int], list[tuple[int, str]]]:
    """Returns the indexes of the lines that are objects, and pairs of index and reason for the others."""
    block = b"".join(lines)
    if not lines or not (_half(block) or raises(lambda: _require_rows(block, len(lines)))):
        return [*range(len(lines))], []
    # Python is slower than polars for a whole block, but faster than bisection if some lines are invalid.
    good, wrong = list[int](), list[tuple[int, str]]()
    for index, line in enumerate(lines):
        if why := _fault(line):
            wrong.append((index, why))
        else:
            good.append(index)
    for place in reversed(list(broken([lines[index] for index in good], lambda data: _read(data, _NOTHING)))):
        index = good.pop(place)
        wrong.append((index, _unread(lines[index])))
    return good, wrong


def _require_rows(block: bytes, count: int) -> None:
    """Raises `ComputeError` unless there are `count` objects. Polars skips blank lines and reads two in a line."""
    if (found := _read(block, _NOTHING).height) != count:
        raise pl.exceptions.ComputeError(f"{found} objects in {count} lines")


def _fault(line: bytes) -> str | None:
    """Returns why Python cannot read a line as a JSON object, or None. `NaN` and `Infinity` are not JSON."""
    if why := no_text(line):
        near = looks_like(line)
        return f"{why}, and JSON is UTF-8{f'; is it {near}?' if near else ''}"
    if half := _half(line):
        return f"it has {half}, which is half a character"
    try:
        found = json.loads(line, parse_constant=_no_json)
    except RecursionError:
        return None
    except ValueError:
        found = None
    if isinstance(found, dict):
        return None
    is_list = isinstance(found, list) and any(isinstance(one, dict) for one in found)
    is_part = is_list or json_array.has_part(line)
    return f"not a JSON object: {json_array.ADVICE}" if is_part else "not a JSON object"


def _unread(line: bytes) -> str:
    """Returns the reason why polars cannot read a line that Python can read, such as deep nesting."""
    try:
        _read(line, _NOTHING)
    except ERRORS as error:
        return f"not JSON that can be read: {first_line(error)}"
    return "not JSON that can be read beside other lines"


def _no_json(constant: str) -> NoReturn:
    raise ValueError(constant)


def _sort_out(lines: Sequence[bytes], columns: JsonColumns) -> Parsed:
    """Parses lines, one by one if necessary. Each must end with a line end."""
    raw, nested = columns.raw, columns.nested
    places, wrong = _objects(lines)
    good = [lines[index] for index in places]
    inside = list(broken(good, lambda data: _read(data, nested))) if nested else []
    for place in reversed(inside):
        wrong.append((places.pop(place), _why(good.pop(place), nested)))
    block = b"".join(good)
    there = _read(block, raw, lenient=True)
    found = _as_written_in(block, there, columns)
    no_texts = _no_texts(found, found.select(columns.typed).schema, columns, lambda: good)
    texts = [found[name].scatter(rows, None) for name, rows in no_texts]
    frame, kept = found.with_columns(texts).select(columns.typed), pl.Series(places, dtype=pl.UInt32)
    if raw:
        flat = JsonColumns.of({name: pl.String() for name in raw if name not in nested})
        as_text = (
            _as_written_in(block, _read(block, flat.raw), flat)
            if flat.raw
            else pl.DataFrame(height=len(good))
        )
        # For nested values, only their presence counts here, because their text is read from the line.
        as_text = as_text.with_columns(
            pl.when(there[name].is_not_null()).then(pl.lit("")).alias(name) for name in nested
        )
        bad = unfit(as_text, frame)
        misfits = [good[place] for place in bad.arg_true()]
        whys = _why_misfits(misfits, as_text.filter(bad), frame.select(as_text.columns).filter(bad))
        wrong += zip(kept.filter(bad), whys, strict=True)
        frame, kept = frame.filter(~bad), kept.filter(~bad)
    return Parsed(frame, kept, wrong)


def _why_misfits(lines: Sequence[bytes], texts: pl.DataFrame, typed: pl.DataFrame) -> pl.Series:
    """Returns why the values of lines do not fit the columns of `typed`. `texts` has the values as text."""
    written = map(_as_written, lines, texts.iter_rows(named=True))
    return why_unfit(pl.DataFrame(list(written), schema=texts.schema), typed)


def _as_written(line: bytes, texts: dict[str, str | None]) -> dict[str, str | None]:
    """Returns the values as the line has them, text in quotes; or `texts` if nesting is too deep for Python."""
    try:
        values = json.loads(line)
    except RecursionError:
        return texts
    return {name: _shown(values.get(name), text) for name, text in texts.items()}


def _shown(value: object, text: str | None) -> str | None:
    """Returns a value as JSON text. For a number it returns polars' `text`, because Python would round the number."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return text if value is None or is_number else json.dumps(value)


def _why(line: bytes, nested: Mapping[str, pl.DataType]) -> str:
    """Returns the reason why the first invalid nested column of a line cannot be read."""
    for name, dtype in nested.items():
        try:
            _read(line, {name: dtype})
        except ERRORS as error:
            return _why_nested(line, name, dtype, first_line(error))
    return "its nested columns cannot be read"


def _why_nested(line: bytes, name: str, dtype: pl.DataType, error: str) -> str:
    """Returns why a nested column is invalid: polars' error if that names a part of the value, or else the value."""
    try:
        text = None if _NAMES_PART.match(error) else json.dumps(json.loads(line)[name], ensure_ascii=False)
    except RecursionError:
        text = None
    if text is None:
        return f"column {name!r}: {error}, expected {type_name(dtype)}"
    return str(why_unfit(pl.DataFrame({name: [text]}), pl.DataFrame(schema={name: dtype}).clear(1)).item())
