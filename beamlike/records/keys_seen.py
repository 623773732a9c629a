"""Which keys have come to the stages of a run: Bloom filters in files beside its records, for who asks about a key.

A filter never forgets: a key that it does not know has not come. Of ten thousand keys it takes one for known that is
not; with a hundred thousand, three in a hundred.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import polars as pl

from beamlike.system.durable import replace
from beamlike.system.in_hand import desk
from beamlike.system.seals import NotAsWritten, sealed_bytes, unsealed_bytes
from stages.keys import hashed

_BITS: Final = 1 << 20
"""Of all shards of a stage together: 128 kB."""
_LEAST: Final = 1 << 12

Bits = npt.NDArray[np.uint8]


def keys_of(records: str) -> str:
    """The folder with the filters of the run that writes these records."""
    return f"{records}.keys"


def came(stage: str, rows: pl.DataFrame, keys: tuple[str, ...], shard: int = 0, of: int = 1) -> None:
    """These rows have come to this of so many shards of the stage, which is noted if anybody wants to know."""
    here = desk()
    if here is not None and here.keys is not None and keys and len(rows):
        with suppress(OSError):  # an executor may not reach the folder
            note_keys(here.keys, stage, rows, keys, shard, of)


def note_keys(
    folder: str, stage: str, rows: pl.DataFrame, keys: tuple[str, ...], shard: int = 0, of: int = 1
) -> None:
    """These rows have come to this of so many shards of the stage."""
    path = os.path.join(folder, f"{quote(stage, safe='')}-{shard}")
    try:
        known = _load(path)
    except NotAsWritten:
        return  # what had come before is not known any more, so nothing can be said of this stage
    if known is None:
        known = np.zeros(max(_LEAST, _BITS >> (of - 1).bit_length()) // 8, np.uint8)
    new = [places for places in _places(rows, keys, len(known) * 8) if not _are_set(known, places)]
    if not new:
        return
    for places in new:
        np.bitwise_or.at(known, *_bits(places))
    with open(f"{path}.new", "wb") as file:
        file.write(sealed_bytes(known.tobytes()))
    replace(f"{path}.new", path)


def has_come(folder: str, stage: str, row: pl.DataFrame) -> bool | None:
    """True if the key in the row, which has all key columns and nothing else, has come.

    None if that was not noted, or a filter of the stage is damaged.
    """
    if not os.path.isdir(folder):
        return None
    start = quote(stage, safe="") + "-"
    shards = [name for name in os.listdir(folder) if name.startswith(start) and name[len(start) :].isdigit()]
    try:
        filters = [_load(os.path.join(folder, name)) for name in shards]
    except NotAsWritten:
        return None
    return any(_knows(bits, row) for bits in filters if bits is not None)


def damaged_keys(folder: str) -> list[str]:
    """The filters in the folder that are not what was written."""
    return [path for name in sorted(os.listdir(folder)) if _is_damaged(path := os.path.join(folder, name))]


def _is_damaged(path: str) -> bool:
    try:
        _load(path)
    except NotAsWritten:
        return not path.endswith(".new")  # which a run that was killed has left
    return False


def _knows(bits: Bits, row: pl.DataFrame) -> bool:
    return all(_are_set(bits, places) for places in _places(row, tuple(row.columns), len(bits) * 8))


def _are_set(bits: Bits, places: npt.NDArray[np.uint64]) -> bool:
    byte, bit = _bits(places)
    return bool((bits[byte] & bit).all())


def _bits(places: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.uint64], Bits]:
    """The byte of each place, and the bit in it, counted as `np.packbits` does."""
    return places >> np.uint64(3), np.uint8(128) >> (places & np.uint64(7)).astype(np.uint8)


def _places(rows: pl.DataFrame, keys: tuple[str, ...], bits: int) -> list[npt.NDArray[np.uint64]]:
    """Two places for each row, of the parts of its hash that do not say on which shard it is."""
    found = hashed(rows, keys).to_numpy()
    return [(found >> np.uint64(shift)) & np.uint64(bits - 1) for shift in (42, 20)]


def _load(path: str) -> Bits | None:
    """The filter in a file; None if there is none. Raises `NotAsWritten`."""
    try:
        with open(path, "rb") as file:
            content = file.read()
    except FileNotFoundError:
        return None
    # One of before there were checksums has the size of a filter.
    size = len(content)
    bits = content if size >= _LEAST // 8 and size & (size - 1) == 0 else unsealed_bytes(content)
    return np.frombuffer(bits, np.uint8).copy()
