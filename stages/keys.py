"""Stable hashes of keys, which determine shards and buckets, and keys as text.

Hashes are stored in checkpoints, so they are the same in every process and version.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Final

import polars as pl
import polars_hash as plh

_NULL = "\x00"
_NULL_BITS: Final = 0x9E3779B97F4A7C15
_ODD: Final = pl.Series([0xD6E8FEB86659FD93], dtype=pl.UInt64)
_STEPS: Final = (
    (30, 0xBF58476D1CE4E5B9),
    (27, 0x94D049BB133111EB),
)
_LAST: Final = 31
_WHOLE: Final = frozenset({pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64})
_DAYS: Final = 95_000_000
"""The number of days before and after 1970 for which polars can format times; it panics beyond them."""
_TEXTS: Final = (pl.String, pl.Categorical, pl.Enum)
_SHOWN: Final = 100  # characters
_PER_DAY: Final = {"ms": 86_400_000, "us": 86_400_000_000}


def key_hash(keys: Sequence[str]) -> pl.Expr:
    """Returns an expression for a stable UInt64 hash of the key columns; 0 for every row if there are no keys."""
    if not keys:
        return pl.lit(0, pl.UInt64)
    # Computed on columns, since mixing would repeat an expression several times.
    return pl.map_batches([pl.col(key) for key in keys], _hash, return_dtype=pl.UInt64, is_elementwise=True)


def hashed(rows: pl.DataFrame, keys: Sequence[str]) -> pl.Series:
    """Computes `key_hash` for the rows of a frame. For few rows this is faster than evaluating the expression."""
    return _hash([rows[key] for key in keys]) if keys else rows.select(key_hash(keys)).to_series()


def _hash(columns: Sequence[pl.Series]) -> pl.Series:
    return reduce(lambda before, own: _mixed(before * _ODD + own), map(_hash_column, columns))


def _hash_column(values: pl.Series) -> pl.Series:
    """Hashes one column: integers, floats and times by their bits, all other values by their text."""
    numbers = values.to_physical() if values.dtype.is_temporal() else values
    # Keys are no floats, but values that are counted or sampled may be. Both zeros and all NaNs get one hash.
    if numbers.dtype.is_float():
        whole = numbers.cast(pl.Float64).fill_nan(float("nan"))
        whole = whole.zip_with((whole != 0).fill_null(True), pl.Series([0.0]))
        numbers = whole.reinterpret(dtype=pl.UInt64)
    if numbers.dtype in _WHOLE:
        bits = numbers.cast(pl.UInt64, wrap_numerical=True)
        return _mixed(bits.fill_null(_NULL_BITS) if bits.null_count() else bits)
    text: pl.Expr = plh.col("key").nchash.wyhash()
    return _text(values).fill_null(_NULL).to_frame("key").select(text).to_series()


def _mixed(bits: pl.Series) -> pl.Series:
    """Mixes the bits of UInt64 values: the finalizer of SplitMix64, Stafford's variant 13. Products wrap.

    Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014.
    """
    # With numpy: for few rows, an operation of polars takes a hundred times as long.
    values = bits.to_numpy()
    for shift, factor in _STEPS:
        values = (values ^ (values >> shift)) * factor
    return pl.Series(bits.name, values ^ (values >> _LAST), dtype=pl.UInt64)


def key_text(key: str) -> pl.Expr:
    """Returns an expression for a key column as text. Null stays null. Different keys have different texts."""
    return pl.col(key).map_batches(_text, return_dtype=pl.String, is_elementwise=True)


def key_named(key: str) -> pl.Expr:
    """Returns an expression for a key column as text without nulls. Different keys have different texts.

    Null becomes `null`; the text "null" is quoted to differ from it.
    """
    return pl.col(key).map_batches(_named, return_dtype=pl.String, is_elementwise=True)


def key_shown(key: str) -> pl.Expr:
    """Returns an expression for a key column as text for people: as `key_named`, but long texts are truncated."""
    return pl.col(key).map_batches(shown, return_dtype=pl.String, is_elementwise=True)


def text_named(text: str) -> str:
    """Converts a text as `key_named` does: "null", with any number of quotes, gets one more pair of quotes."""
    return f"'{text}'" if text.strip("'") == "null" else text


def text_of(name: str) -> str:
    """Returns the inverse of `text_named`: removes the quotes that it added."""
    return name[1:-1] if name == text_named(name[1:-1]) else name


def shown(values: pl.Series) -> pl.Series:
    """Converts a key column to text for people, as `key_shown` does."""
    text = _named(values)
    if values.dtype.is_numeric():
        return text
    long = text.str.len_bytes() > 4 * _SHOWN
    return text.zip_with(~long, text.str.head(_SHOWN) + "...") if long.any() else text


def named_one(value: pl.Series) -> str:
    """Converts the only value of a key column as `key_named` does. A text takes no query."""
    if value.dtype != pl.String:
        return str(_named(value).item())
    text = value.item()
    return "null" if text is None else text_named(text)


def shown_one(value: pl.Series) -> str:
    """Converts the only value of a key column as `shown` does. A text takes no query."""
    if value.dtype != pl.String:
        return str(shown(value).item())
    named = named_one(value)
    return f"{named[:_SHOWN]}..." if len(named.encode()) > 4 * _SHOWN else named


def _named(values: pl.Series) -> pl.Series:
    text = _text(values)
    if values.dtype in _TEXTS:
        quoted = text.str.strip_chars("'") == "null"
        if quoted.any():
            text = text.zip_with(~quoted.fill_null(False), "'" + text + "'")
    return text.fill_null("null") if text.null_count() else text


def _text(values: pl.Series) -> pl.Series:
    """Converts values to text: bytes to hexadecimal digits, and times that polars cannot format to integers."""
    dtype = values.dtype
    if dtype == pl.Binary:
        return values.bin.encode("hex")
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
    """Returns an expression for the shard of each row's key, from 0 to `shards - 1`."""
    return (key_hash(keys) % shards).cast(pl.Int32)
