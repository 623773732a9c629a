"""Rows as the bytes of an envelope."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any, Final

import polars as pl

from stages.sizes import size_of
from stages.state.store import decode, encode

SMALL: Final = 64_000
"""Bytes that are passed on as they are. More is compressed, for 3 ms per megabyte; to pass it on takes far more."""

_ORDER: Final = "order"
_NULL: Final = "null"


def packed(frame: pl.DataFrame) -> bytes:
    """Rows as bytes; of columns in which all structs are null, only the type.

    Rows of a join have such a column for the other side, and it would take as much room as all the fields of that.
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
    """What was packed."""
    frame, facts = decode(payload)
    if _NULL not in facts:
        return frame
    null, _ = decode(b64decode(facts[_NULL]))
    columns = [pl.lit(None, dtype).alias(name) for name, dtype in null.schema.items()]
    return frame.with_columns(columns).select(facts[_ORDER])
