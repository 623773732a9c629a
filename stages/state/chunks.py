"""Chunks: pieces of a bucket of about a megabyte, each stored as one value under the bucket and a chunk number."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from itertools import accumulate, groupby
from typing import Any, Final

import attrs
import numpy as np
import polars as pl

from stages.frames import at, concat_nonempty, has_nested, repeated, rows_at, size_of
from stages.state.row_numbers import Positions
from stages.state.store import Compression, StateStore, decode, encode

CHUNK_BYTES: Final = 1_000_000
"""The approximate size of a chunk in memory. Spark's Python state is slower per byte for values of many megabytes."""

REMEMBERED: Final = 8
"""The factor by which chunks are larger in a store that remembers them: a step pays for each chunk that it reaches."""

DELETED: Final = "__gone"
"""The column of a stored patch with the deleted row numbers. The shorter of this column and the rows ends in nulls."""

_ROW: Final = "__row"

_CHUNK: Final = "rows"

_PLAIN: Final = frozenset({pl.Int64(), pl.Boolean(), pl.String()})
"""The types of columns that may be stored as one value."""

FEW: Final = 1_000
"""The number of rows below which the search for constant columns takes longer than writing them."""


@attrs.frozen
class Patch:
    """Rows to append to a bucket, and the row numbers (from 0) of earlier rows of the bucket that they delete."""

    rows: pl.DataFrame
    deleted: pl.Series | None = None


@attrs.frozen
class Written:
    """The number of rows and the number of bytes of each chunk of one write."""

    rows: list[int]
    bytes: list[int]


@attrs.frozen
class Chunk:
    """A decoded chunk. `constants` has the columns that were stored as one value, `deleted` the deleted row numbers.

    `indices` are those of `stages.state.lookup`, by key columns: the last chunk that each includes, and the index.
    `orders` are those of `stages.state.time_order`, by `StateTable.timing` and index column.
    """

    columns: pl.DataFrame
    constants: Mapping[str, Any]
    rows: int
    deleted: pl.Series | None
    indices: dict[tuple[str, ...], tuple[Chunk, Any]] = attrs.field(factory=dict, eq=False, repr=False)
    orders: dict[tuple[tuple[bytes, ...], str], Any] = attrs.field(factory=dict, eq=False, repr=False)

    @classmethod
    def of(cls, value: bytes) -> Chunk:
        """Decodes a value that `pack` returned."""
        columns, facts = decode(value)
        deleted, rows = None, facts["rows"]
        if DELETED in columns.columns:
            deleted, columns = columns.drop_in_place(DELETED).head(facts["gone"]), columns.head(rows)
        if columns.width == 0:
            columns = pl.DataFrame({_ROW: pl.repeat(0, rows, eager=True)})
        return cls(columns, facts["constants"], rows, deleted)

    def at(self, positions: Positions) -> Chunk:
        """Returns the chunk with only the rows at these positions, which must be ascending and distinct."""
        if len(positions) == self.rows:
            return self
        return Chunk(rows_at(self.columns, positions), self.constants, len(positions), self.deleted)

    def only(self, names: Collection[str]) -> Chunk:
        """Returns the chunk with only these columns; all columns if it lacks one of them, which is then computed."""
        if not all(name in self.constants or name in self.columns.columns for name in names):
            return self
        columns = [name for name in self.columns.columns if name in names]
        constants = {name: value for name, value in self.constants.items() if name in names}
        frame = (
            self.columns[columns] if columns else pl.DataFrame({_ROW: pl.repeat(0, self.rows, eager=True)})
        )
        return Chunk(frame, constants, self.rows, self.deleted)

    @property
    def size(self) -> int:
        """The approximate number of bytes in memory, with an index of 16 bytes for each row."""
        return size_of(self.columns) + 16 * self.rows

    @property
    def kind(self) -> tuple[list[str], Mapping[str, Any]]:
        """The column names and constants of the chunk. Adjacent chunks with equal ones are unpacked together."""
        return self.columns.columns, self.constants


def pack(patch: Patch, compress_from: int = 0, *, plain: bool = False) -> bytes:
    """Encodes a patch, compressed if it has at least `compress_from` bytes in memory; not if it is `plain`.

    In `FEW` rows or more, a column with the same value in all rows is stored as one value.
    """
    # Compression to about a quarter takes 3 ms per megabyte; passing a megabyte to Spark and back takes 20 ms or more.
    constants = {} if len(patch.rows) < FEW else _constants(patch.rows)
    facts: dict[str, Any] = {"rows": len(patch.rows), "constants": constants}
    columns = patch.rows
    if constants:
        columns = columns[:, [name for name in columns.columns if name not in constants]]
    if patch.deleted is not None:
        facts["gone"] = len(patch.deleted)
        deleted = patch.deleted.to_frame(DELETED)
        columns = pl.concat([deleted, columns], how="horizontal_extend")
    plain = plain or size_of(columns) < compress_from
    compression: Compression = "uncompressed" if plain else "zstd"
    return encode(columns, facts, compression=compression)


def unpack(
    chunks: Iterable[Chunk], schema: pl.Schema, new: Mapping[str, pl.Expr] | None = None
) -> list[pl.DataFrame]:
    """Returns the rows of chunks as frames with this schema.

    A column that a chunk lacks is computed by its expression in `new`. A column that the schema lacks is left out. A
    field that a struct lacks is null.
    """
    frames = []
    structs = [name for name, dtype in schema.items() if isinstance(dtype, pl.Struct)]
    # Adding columns to a frame takes as long as reading a small chunk, so it is done for many chunks at once.
    for (names, constants), alike in groupby(chunks, key=lambda chunk: chunk.kind):
        frame = concat_nonempty(*(_with_fields(chunk.columns, structs, schema) for chunk in alike))
        known = {*names, *constants}
        missing = [column.alias(name) for name, column in (new or {}).items() if name not in known]
        if missing:
            frame = frame.with_columns(missing)
        if constants:
            one = (_one(name, value, schema[name]) for name, value in constants.items() if name in schema)
            frame = frame.hstack([repeated(column, len(frame)) for column in one])
        frames.append(frame if frame.columns == list(schema) else frame[:, list(schema)])
    return frames


@lru_cache(maxsize=1_024)
def _one(name: str, value: Any, dtype: pl.DataType) -> pl.Series:
    """Returns a column with one value, which most chunks of a table have in common."""
    return pl.Series(name, [value], dtype)


def _with_fields(frame: pl.DataFrame, structs: list[str], schema: pl.Schema) -> pl.DataFrame:
    """Casts the struct columns `structs` to their types in the schema, which adds missing fields as nulls."""
    incomplete = [name for name in structs if frame.schema.get(name, schema[name]) != schema[name]]
    return frame.with_columns(pl.col(name).cast(schema[name]) for name in incomplete) if incomplete else frame


def gathered(parts: Iterable[tuple[Chunk, Positions]]) -> list[Chunk]:
    """Returns chunks with only the rows at these positions, in this order, as one chunk for adjacent ones of a kind."""
    found = list[Chunk]()
    for (_, constants), alike in groupby(parts, key=lambda part: part[0].kind):
        some, positions = zip(*alike, strict=True)
        # Polars gathers lists and structs from several chunks more slowly than chunk by chunk.
        if len(some) == 1 or has_nested(some[0].columns):
            found += [chunk.at(here) for chunk, here in zip(some, positions, strict=True)]
            continue
        starts = accumulate((chunk.rows for chunk in some), initial=0)
        places = np.concatenate([start + here for start, here in zip(starts, positions, strict=False)])
        rows = at(pl.concat([chunk.columns for chunk in some]), places)
        found.append(Chunk(rows, constants, len(places), None))
    return found


def _constants(frame: pl.DataFrame) -> dict[str, object]:
    """Returns the value, by column, of each Int64, Boolean or String column that has the same value (or null) in all
    rows.
    """
    if frame.is_empty():
        return {}
    plain = frame[:, [name for name, dtype in frame.schema.items() if dtype in _PLAIN]]
    # In most columns the first and the last value differ, and comparing all values takes a while.
    ends = zip(plain.iter_columns(), plain.row(0), plain.row(-1), strict=True)
    return {
        column.name: first for column, first, last in ends if first == last and _is_constant(column, first)
    }


def _is_constant(column: pl.Series, first: object) -> bool:
    """True if all values are equal to the first, or all are null."""
    if nulls := column.null_count():
        return nulls == len(column)
    return bool(column.min() == column.max()) if column.dtype == pl.Int64 else bool((column == first).all())


def pieces_of(frame: pl.DataFrame, store: StateStore) -> int:
    """Returns the number of chunks as which a store should have these rows."""
    return _pieces(size_of(frame), store)


def _pieces(size: int, store: StateStore) -> int:
    return -(-size // (CHUNK_BYTES * (REMEMBERED if store.remembers else 1)))


def _slices(frame: pl.DataFrame, pieces: int) -> Iterable[pl.DataFrame]:
    """Divides rows into so many pieces."""
    return [frame] if pieces < 2 else frame.iter_slices(-(-len(frame) // pieces))


def read(
    store: StateStore, stage: str, bucket: int, numbers: Iterable[int], *, again: bool = False
) -> list[Chunk]:
    """Reads the chunks `numbers` of a bucket, in this order. Raises `KeyError` if one is missing.

    With `again`, later steps will probably read them again, so the store may remember them.
    """
    found = []
    for number in numbers:
        key = _key(bucket, number)
        chunk = store.decoded(stage, key, _decoded) if again else _once(store.get(stage, key))
        if chunk is None:
            raise KeyError(f"the state of stage {stage!r} lacks {key!r}, which its index has")
        found.append(chunk)
    return found


def _once(value: bytes | None) -> Chunk | None:
    return None if value is None else _decoded(value)


def _decoded(value: bytes) -> Chunk:
    return _WRITTEN.get(value) or Chunk.of(value)


_WRITTEN: Final = OrderedDict[bytes, Chunk]()
"""The last small chunks that this process has written, by value. The next step need not decode them."""

_MOST_WRITTEN: Final = 64
_MOST_BYTES: Final = 256_000


def _remember(value: bytes, patch: Patch) -> None:
    """Remembers a small chunk that was just written."""
    if patch.deleted is None and patch.rows.width and size_of(patch.rows) <= _MOST_BYTES:
        _WRITTEN[value] = Chunk(patch.rows.rechunk(), {}, len(patch.rows), None)
        if len(_WRITTEN) > _MOST_WRITTEN:
            _WRITTEN.popitem(last=False)


def write(
    store: StateStore, stage: str, bucket: int, first: int, patch: Patch, *, soon: bool = True
) -> Written:
    """Writes a patch as chunks numbered from `first`. The first chunk contains the deleted row numbers.

    Small chunks are remembered if a step will read them `soon`.
    """
    size = size_of(patch.rows)
    pieces = list(_slices(patch.rows, _pieces(size, store)))
    parts = [Patch(pieces[0], patch.deleted), *map(Patch, pieces[1:])]
    plain = patch.deleted is None and size < store.compress_from
    values = [pack(part, store.compress_from, plain=plain) for part in parts]
    for number, (value, part) in enumerate(zip(values, parts, strict=True), start=first):
        store.put(stage, _key(bucket, number), value)
        if soon and size <= len(parts) * _MOST_BYTES:
            _remember(value, part)
    return Written([len(piece) for piece in pieces], [len(value) for value in values])


def remove(store: StateStore, stage: str, bucket: int, numbers: Iterable[int]) -> None:
    for number in numbers:
        store.delete(stage, _key(bucket, number))


def is_chunk(key: str) -> bool:
    """True if a store key, with or without the table's prefix, is the key of a chunk."""
    return f"/{_CHUNK}/" in f"/{key}"


def _key(bucket: int, number: int) -> str:
    return f"{_CHUNK}/{bucket}/{number}"
