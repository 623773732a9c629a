"""Placing keys: hashes that are the same in every process and version, for shards and buckets; and keys as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl
import polars_hash as plh

_SEPARATOR = "\x1f"
_NULL = "\x00"
_DAYS: Final = 95_000_000
"""So many days before and after 1970, 260 thousand years, are in polars' calendar, which panics at what is not."""
_SHOWN: Final = 100  # characters
_PER_DAY: Final = {"ms": 86_400_000, "us": 86_400_000_000}


def key_hash(keys: Sequence[str]) -> pl.Expr:
    """UInt64 per row: a stable hash of the key columns; the same for every row where there is no key."""
    if not keys:
        return pl.lit(0, pl.UInt64)
    texts = [key_text(key).fill_null(_NULL) for key in keys]
    text = texts[0] if len(texts) == 1 else pl.concat_str(texts, separator=_SEPARATOR)
    hashed: pl.Expr = plh.concat_str(text).nchash.wyhash()
    return hashed


def key_text(key: str) -> pl.Expr:
    """A key column as text, null where it is null: equal exactly where the keys are."""
    return pl.col(key).map_batches(_text, return_dtype=pl.String, is_elementwise=True)


def key_shown(key: str) -> pl.Expr:
    """A key column to read: its text, of which an enormous one is cut."""
    text = key_text(key).fill_null("null")
    cut = pl.concat_str(text.str.head(_SHOWN), pl.lit("..."))
    return pl.when(text.str.len_bytes() > 4 * _SHOWN).then(cut).otherwise(text)


def _text(values: pl.Series) -> pl.Series:
    """Times that are not in the calendar as their number."""
    dtype = values.dtype
    if dtype != pl.Date and not (isinstance(dtype, pl.Datetime) and dtype.time_unit in _PER_DAY):
        return values.cast(pl.String)
    limit = _DAYS * (_PER_DAY[dtype.time_unit] if isinstance(dtype, pl.Datetime) else 1)
    number = values.to_physical()
    known = number.is_between(-limit, limit)
    if known.all():  # nulls are left out
        return values.cast(pl.String)
    within = values.zip_with(known.fill_null(False), pl.Series([None], dtype=dtype))
    return within.cast(pl.String).zip_with(known.fill_null(True), number.cast(pl.String))


def shard_of(keys: Sequence[str], shards: int) -> pl.Expr:
    """Which of `shards` shards has the key of each row."""
    return (key_hash(keys) % shards).cast(pl.Int32)
