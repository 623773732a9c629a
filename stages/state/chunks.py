"""Rows of state in the store: chunks of bytes, numbered within their bucket, of a size that suits Spark's state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import polars as pl

from stages.sizes import size_of
from stages.state.store import StateStore, decode, encode

CHUNK_BYTES: Final = 1_000_000
"""About how large a chunk is: Spark's Python state takes more than its share of time for values of many megabytes."""


FEW: Final = 1_000
"""To look for such columns in fewer rows takes longer than to write them."""


def pack(frame: pl.DataFrame) -> bytes:
    """Rows as bytes; unless they are few, a column that has one value throughout is kept as that, beside the others.

    Compressed they take a quarter: 2 ms per megabyte, where to pass one to Spark and back takes 20 and more.
    """
    constants = {} if len(frame) < FEW else _constants(frame)
    facts = {"rows": len(frame), "constants": constants}
    return encode(frame.drop(list(constants)) if constants else frame, facts, compression="lz4")


def unpack(value: bytes, schema: pl.Schema, new: Mapping[str, pl.Expr] | None = None) -> pl.DataFrame:
    """What `pack` was given, with this schema: columns that it did not have are `new`, others are left out."""
    frame, facts = decode(value)
    if frame.width == 0:
        frame = pl.DataFrame({"__row": pl.repeat(0, facts["rows"], eager=True)})
    constants = facts["constants"]
    if not constants and frame.columns == list(schema):
        return frame
    columns = [pl.lit(value, schema[name]).alias(name) for name, value in constants.items() if name in schema]
    known = {*frame.columns, *constants}
    missing = [column.alias(name) for name, column in (new or {}).items() if name not in known]
    return frame.with_columns(*columns, *missing).select(list(schema))


def _constants(frame: pl.DataFrame) -> dict[str, object]:
    """The value of each column of a plain type that has only one; null is a value, too."""
    plain = [name for name, dtype in frame.schema.items() if dtype in (pl.Int64, pl.Boolean, pl.String)]
    if not plain or frame.is_empty():
        return {}
    first = frame.select(plain).head(1)
    same = frame.select(pl.col(name).eq_missing(pl.col(name).first()).all() for name in plain)
    return {name: first[name].item() for name in plain if same[name].item()}


def _slices(frame: pl.DataFrame) -> Iterable[pl.DataFrame]:
    """The rows in pieces of about a chunk."""
    pieces = -(-size_of(frame) // CHUNK_BYTES)
    return frame.iter_slices(-(-len(frame) // max(1, pieces)))


def read(
    store: StateStore,
    stage: str,
    bucket: int,
    numbers: Iterable[int],
    schema: pl.Schema,
    new: Mapping[str, pl.Expr],
) -> list[pl.DataFrame]:
    """These chunks of a bucket, in order, as `unpack` gives them. Raises `KeyError` where one is missing."""
    frames = []
    for number in numbers:
        value = store.get(stage, _key(bucket, number))
        if value is None:
            raise KeyError(
                f"the state of stage {stage!r} lacks {_key(bucket, number)!r}, which its index has"
            )
        frames.append(unpack(value, schema, new))
    return frames


def write(store: StateStore, stage: str, bucket: int, first: int, frame: pl.DataFrame) -> list[int]:
    """Writes rows as chunks, numbered from `first`; gives how many bytes each takes."""
    values = [pack(piece) for piece in _slices(frame)]
    for number, value in enumerate(values, start=first):
        store.put(stage, _key(bucket, number), value)
    return [len(value) for value in values]


def remove(store: StateStore, stage: str, bucket: int, numbers: Iterable[int]) -> None:
    """Removes these chunks of a bucket."""
    for number in numbers:
        store.delete(stage, _key(bucket, number))


def _key(bucket: int, number: int) -> str:
    return f"rows/{bucket}/{number}"
