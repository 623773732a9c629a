"""Rows as the bytes of an envelope."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any, Final

import polars as pl

from stages.sizes import size_of
from stages.state.store import decode, encode

SMALL: Final = 64_000
"""The limit in bytes up to which payloads are not compressed. Compression takes 3 ms per megabyte, and saves more."""

_ORDER: Final = "order"
_NULL: Final = "null"


def packed(frame: pl.DataFrame) -> bytes:
    """Packs rows as bytes. A column in which all structs are null is packed as its type only.

    Rows of a join have such a column for the other side, whose fields would all take space.
    """
    null = [
        name
        for name, dtype in frame.schema.items()
        if isinstance(dtype, pl.Struct) and frame[name].null_count() == len(frame)
    ]
    if not null or len(null) == frame.width:
        return _encode(frame)
    types = b64encode(encode(frame.select(null).clear())).decode()
    return _encode(frame.drop(null), {_ORDER: frame.columns, _NULL: types})


def _encode(frame: pl.DataFrame, facts: dict[str, Any] | None = None) -> bytes:
    return encode(frame, facts, compression="zstd" if size_of(frame) > SMALL else "uncompressed")


def unpacked(payload: bytes) -> pl.DataFrame:
    """Unpacks rows."""
    frame, facts = decode(payload)
    if _NULL not in facts:
        return frame
    null, _ = decode(b64decode(facts[_NULL]))
    columns = [pl.lit(None, dtype).alias(name) for name, dtype in null.schema.items()]
    return frame.with_columns(columns).select(facts[_ORDER])
