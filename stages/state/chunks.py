"""Rows of state in the store: chunks of bytes, numbered within their bucket, of a size that suits Spark's state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any, Final

import attrs
import polars as pl

from stages.parted import together
from stages.sizes import size_of
from stages.state.store import ENCODING, PATCHED, StateStore, decode, encode

CHUNK_BYTES: Final = 1_000_000
"""About how large a chunk is: Spark's Python state takes more than its share of time for values of many megabytes."""

DELETED: Final = "__gone"
"""Beside the rows of a patch, the numbers of those that are gone; the shorter of both is filled up with nulls."""

_ROW: Final = "__row"

_CHUNK: Final = "rows"

FEW: Final = 1_000
"""To look for such columns in fewer rows takes longer than to write them."""


@attrs.frozen
class Patch:
    """Rows that have come into a bucket, and the numbers of those that are gone, of all rows before, from 0 on."""

    rows: pl.DataFrame
    deleted: pl.Series | None = None


@attrs.frozen
class Written:
    """Of chunks, one by one: how many rows each has, and how many bytes it takes."""

    rows: list[int]
    bytes: list[int]


@attrs.frozen
class Chunk:
    """What is in a value: columns, and of those that have one value throughout this value; and how many `rows`."""

    columns: pl.DataFrame
    constants: Mapping[str, Any]
    rows: int
    deleted: pl.Series | None

    @classmethod
    def of(cls, value: bytes) -> Chunk:
        """What `pack` was given."""
        columns, facts = decode(value)
        deleted, rows = None, facts["rows"]
        if DELETED in columns.columns:
            deleted, columns = columns.drop_in_place(DELETED).head(facts["gone"]), columns.head(rows)
        if columns.width == 0:
            columns = pl.DataFrame({_ROW: pl.repeat(0, rows, eager=True)})
        return cls(columns, facts["constants"], rows, deleted)

    @property
    def kind(self) -> tuple[list[str], Mapping[str, Any]]:
        """What chunks that can be unpacked at once have in common."""
        return self.columns.columns, self.constants


def pack(patch: Patch) -> bytes:
    """A patch as bytes; unless rows are few, a column with one value throughout is kept as that, beside the others.

    Compressed they take a quarter: 3 ms per megabyte, where to pass one to Spark and back takes 20 and more.
    """
    constants = {} if len(patch.rows) < FEW else _constants(patch.rows)
    facts: dict[str, Any] = {"rows": len(patch.rows), "constants": constants}
    columns = patch.rows.drop(list(constants)) if constants else patch.rows
    version = ENCODING
    if patch.deleted is not None:
        facts["gone"] = len(patch.deleted)
        version = PATCHED
        deleted = patch.deleted.to_frame(DELETED)
        columns = pl.concat([deleted, columns], how="horizontal_extend")
    return encode(columns, facts, compression="zstd", version=version)


def unpack(
    chunks: Iterable[Chunk], schema: pl.Schema, new: Mapping[str, pl.Expr] | None = None
) -> list[pl.DataFrame]:
    """The rows of chunks, with this schema: columns that they did not have are `new`, others are left out.

    Fields that a struct did not have are null.
    """
    frames = []
    structs = [name for name, dtype in schema.items() if isinstance(dtype, pl.Struct)]
    # To add columns to a frame takes as long as to read a small chunk, so it is done for many.
    for (names, constants), alike in groupby(chunks, key=lambda chunk: chunk.kind):
        columns = [
            pl.lit(value, schema[name]).alias(name) for name, value in constants.items() if name in schema
        ]
        known = {*names, *constants}
        missing = [column.alias(name) for name, column in (new or {}).items() if name not in known]
        frame = together(*(_with_fields(chunk.columns, structs, schema) for chunk in alike))
        if constants or names != list(schema):
            frame = frame.with_columns(*columns, *missing).select(list(schema))
        frames.append(frame)
    return frames


def _with_fields(frame: pl.DataFrame, structs: list[str], schema: pl.Schema) -> pl.DataFrame:
    """The frame with these structs as they are in the schema."""
    grown = [name for name in structs if frame.schema.get(name, schema[name]) != schema[name]]
    return frame.with_columns(pl.col(name).cast(schema[name]) for name in grown) if grown else frame


def _constants(frame: pl.DataFrame) -> dict[str, object]:
    """The value of each column of a plain type that has only one; null is a value, too."""
    if frame.is_empty():
        return {}
    plain = [column for column in frame if column.dtype in (pl.Int64, pl.Boolean, pl.String)]
    # Of most columns the first and the last value already differ, and to look at all of them takes a while.
    likely = {column.name: column[0] for column in plain if column[0] == column[-1]}
    same = frame.select(pl.col(name).eq_missing(pl.col(name).first()).all() for name in likely)
    return {name: value for name, value in likely.items() if same[name].item()}


def _slices(frame: pl.DataFrame) -> Iterable[pl.DataFrame]:
    """The rows in pieces of about a chunk."""
    pieces = -(-size_of(frame) // CHUNK_BYTES)
    if frame.is_empty():
        return [frame]
    return frame.iter_slices(-(-len(frame) // max(1, pieces)))


def read(store: StateStore, stage: str, bucket: int, numbers: Iterable[int]) -> list[Chunk]:
    """These chunks of a bucket, in order. Raises `KeyError` where one is missing."""
    found = []
    for number in numbers:
        value = store.get(stage, _key(bucket, number))
        if value is None:
            raise KeyError(
                f"the state of stage {stage!r} lacks {_key(bucket, number)!r}, which its index has"
            )
        found.append(Chunk.of(value))
    return found


def write(store: StateStore, stage: str, bucket: int, first: int, patch: Patch) -> Written:
    """Writes rows, and which are gone, as chunks, numbered from `first`."""
    pieces = list(_slices(patch.rows))
    values = [pack(Patch(pieces[0], patch.deleted)), *(pack(Patch(piece)) for piece in pieces[1:])]
    for number, value in enumerate(values, start=first):
        store.put(stage, _key(bucket, number), value)
    return Written([len(piece) for piece in pieces], [len(value) for value in values])


def remove(store: StateStore, stage: str, bucket: int, numbers: Iterable[int]) -> None:
    """Removes these chunks of a bucket."""
    for number in numbers:
        store.delete(stage, _key(bucket, number))


def is_chunk(key: str) -> bool:
    """Whether a key is that of a chunk, in a table or not."""
    return f"/{_CHUNK}/" in f"/{key}"


def _key(bucket: int, number: int) -> str:
    return f"{_CHUNK}/{bucket}/{number}"
