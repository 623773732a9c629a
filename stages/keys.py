"""Placing keys: hashes that are the same in every process and version, for shards and buckets."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import polars_hash as plh

_SEPARATOR = "\x1f"
_NULL = "\x00"


def key_hash(keys: Sequence[str]) -> pl.Expr:
    """UInt64 per row: a stable hash of the key columns; the same for every row where there is no key."""
    if not keys:
        return pl.lit(0, pl.UInt64)
    texts = [pl.col(key).cast(pl.String).fill_null(_NULL) for key in keys]
    text = texts[0] if len(texts) == 1 else pl.concat_str(texts, separator=_SEPARATOR)
    hashed: pl.Expr = plh.concat_str(text).nchash.wyhash()
    return hashed


def shard_of(keys: Sequence[str], shards: int) -> pl.Expr:
    """Which of `shards` shards has the key of each row."""
    return (key_hash(keys) % shards).cast(pl.Int32)


def bucket_of(keys: Sequence[str], buckets: int) -> pl.Expr:
    """Which of `buckets` buckets of its shard has the key of each row: by other bits than the shard."""
    return (key_hash(keys) // 2**32 % buckets).cast(pl.Int64)
