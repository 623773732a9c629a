"""JSON lines in blocks: a line that is no JSON costs only itself, not the file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

import polars as pl

from beamlike.io.paths import open_file

BLOCK: Final = 8 << 20
"""Bytes that are parsed at once."""

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


def blocks(file: str, size: int = BLOCK) -> Iterator[bytes]:
    """The file in pieces of some `size` bytes, cut at line ends. JSON has no line end within a value."""
    with open_file(file) as handle:
        rest = b""
        mark = _BYTE_ORDER_MARK
        while read := handle.read(size):
            block = rest + read.removeprefix(mark)
            cut = block.rfind(b"\n") + 1
            if cut:
                yield block[:cut]
            rest, mark = block[cut:], b""
        if rest:
            yield rest


def parse(block: bytes, schema: pl.Schema, spare: str | None = None) -> pl.DataFrame:
    """One row per line that is not blank; null where a value is missing or not of its type.

    Of a line that is no JSON all columns are null, but for the column `spare`, which holds the line.
    """
    try:
        return pl.read_ndjson(block, schema=schema, ignore_errors=True)
    except pl.exceptions.ComputeError:
        lines = [line for line in block.split(b"\n") if line.strip()]
        for index in _broken(lines, 0):
            text = lines[index].decode("utf-8", errors="replace")
            lines[index] = json.dumps({} if spare is None else {spare: text}).encode()
        return pl.read_ndjson(b"\n".join(lines), schema=schema, ignore_errors=True)


def infer(block: bytes) -> pl.Schema:
    """The columns of the lines, broken ones left aside; a column with nothing but nulls is String."""
    lines = [line for line in block.split(b"\n") if line.lstrip().startswith(b"{")]
    broken = set(_broken(lines, 0))
    good = b"\n".join(line for index, line in enumerate(lines) if index not in broken)
    if not good:
        return pl.Schema({})
    found = pl.read_ndjson(good, infer_schema_length=None).schema
    return pl.Schema({name: pl.String() if dtype == pl.Null else dtype for name, dtype in found.items()})


def _broken(lines: list[bytes], start: int) -> Iterator[int]:
    """The indexes of the lines that polars cannot parse, found by halving."""
    try:
        pl.read_ndjson(b"\n".join(lines), schema={"": pl.String}, ignore_errors=True)
    except pl.exceptions.ComputeError:
        if len(lines) == 1:
            yield start
            return
        half = len(lines) // 2
        yield from _broken(lines[:half], start)
        yield from _broken(lines[half:], start + half)
