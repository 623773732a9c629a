"""Bloom filters of the keys that each stage of a run has received, in files next to the records of the run.

A filter has no false negatives. Its rate of false positives is 1 in 10,000 for ten thousand keys, and 3 in 100 for a
hundred thousand keys.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import lru_cache
from typing import Final
from urllib.parse import quote

import attrs
import numpy as np
import numpy.typing as npt
import polars as pl

from beamlike.system.durable import replace
from beamlike.system.path_names import file_name
from beamlike.system.seals import NotAsWritten, sealed_bytes, unsealed_bytes
from stages.keys import hashed

_BITS: Final = 1 << 20
"""The number of bits of the filters of all shards of a stage together: 128 kB."""
_LEAST: Final = 1 << 12
_LONGEST: Final = 200

Bits = npt.NDArray[np.uint8]


@attrs.frozen(eq=False)
class SeenKeys:
    """The keys of the rows that one shard of a stage received in a batch; `rows` has a column for each key column.

    `shard`: the number of the shard. `shards`: the number of shards of the stage.
    """

    stage: str
    rows: pl.DataFrame
    shard: int = 0
    shards: int = 1


def keys_of(records: str) -> str:
    """Returns the folder with the filters of the run that writes these records."""
    return f"{records}.keys"


def write_seen(folder: str | None, keys: SeenKeys) -> None:
    """Adds the keys to the filters of the folder, if it is not None and can be written."""
    if folder is not None and keys.rows.width and len(keys.rows):
        with suppress(OSError):  # Executors on other machines may have no access to the folder.
            mark_seen(folder, keys)


def mark_seen(folder: str, keys: SeenKeys) -> None:
    """Adds the keys to the filter of their shard. A damaged filter is left unchanged. Raises `OSError` if the filter
    cannot be read or written.
    """
    path = os.path.join(folder, f"{_begin(keys.stage)}{keys.shard}")
    try:
        known = _load(path)
    except NotAsWritten:
        # The earlier keys are lost, so the filter stays damaged: `might_contain` returns None for this stage.
        return
    if known is None:
        known = np.zeros(max(_LEAST, _BITS >> (keys.shards - 1).bit_length()) // 8, np.uint8)
    new = [places for places in _places(keys.rows, len(known) * 8) if not _are_set(known, places)]
    if not new:
        return
    known = known.copy()
    for places in new:
        np.bitwise_or.at(known, *_bits(places))
    with open(f"{path}.new", "wb") as file:
        file.write(sealed_bytes(known.tobytes(), os.path.basename(path)))
    replace(f"{path}.new", path)


def might_contain(folder: str, stage: str, row: pl.DataFrame) -> bool | None:
    """True if the stage may have received the key in `row`, which has exactly the key columns.

    None if the keys were not recorded, or a filter of the stage is damaged.
    """
    if not os.path.isdir(folder):
        return None
    start = _begin(stage)
    shards = [name for name in os.listdir(folder) if name.startswith(start) and name[len(start) :].isdigit()]
    try:
        filters = [_load(os.path.join(folder, name)) for name in shards]
    except NotAsWritten:
        return None
    return any(_knows(bits, row) for bits in filters if bits is not None)


def damaged_keys(folder: str) -> list[str]:
    """Returns the files of the folder whose filter is damaged."""
    return [path for name in sorted(os.listdir(folder)) if _is_damaged(path := os.path.join(folder, name))]


def _is_damaged(path: str) -> bool:
    try:
        _load(path)
    except NotAsWritten:
        return not path.endswith(".new")  # A `.new` file is left by a run that was killed; it is no filter.
    return False


def _begin(stage: str) -> str:
    """Returns the beginning of the names of a stage's files."""
    name = quote(stage.encode(errors="surrogatepass"), safe="")
    return f"{name if len(name) <= _LONGEST else file_name(stage)}-"


def _knows(bits: Bits, row: pl.DataFrame) -> bool:
    return all(_are_set(bits, places) for places in _places(row, len(bits) * 8))


def _are_set(bits: Bits, places: npt.NDArray[np.uint64]) -> bool:
    byte, bit = _bits(places)
    return bool((bits[byte] & bit).all())


def _bits(places: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.uint64], Bits]:
    """Returns the byte of each bit position, and a mask for the bit in it, in the order of `np.packbits`."""
    return places >> np.uint64(3), np.uint8(128) >> (places & np.uint64(7)).astype(np.uint8)


def _places(rows: pl.DataFrame, bits: int) -> list[npt.NDArray[np.uint64]]:
    """Returns two bit positions for each row, from parts of its hash that do not decide its shard."""
    found = hashed(rows, tuple(rows.columns)).to_numpy()
    return [(found >> np.uint64(shift)) & np.uint64(bits - 1) for shift in (42, 20)]


def _load(path: str) -> Bits | None:
    """Returns the filter in a file; None if there is no file. Raises `NotAsWritten` if it is damaged.

    The filter must not be changed, since the next call returns it again if the file is the same.
    """
    try:
        file = os.stat(path)
        return _read(path, (file.st_ino, file.st_mtime_ns, file.st_size))
    except FileNotFoundError:
        return None


# After some batches there are hardly any new keys, so the file seldom changes.
@lru_cache(maxsize=16)
def _read(path: str, version: tuple[int, ...]) -> Bits:
    """Reads the filter in a file. `version` changes whenever the file is replaced."""
    with open(path, "rb") as file:
        content = file.read()
    return np.frombuffer(unsealed_bytes(content, os.path.basename(path).removesuffix(".new"), path), np.uint8)
