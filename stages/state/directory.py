"""Which keys the rows of a large bucket have, chunk by chunk, which rows are live, and the least times of each chunk.

Beside the chunks of each write lies half of the hash of each row's key, four bytes, and which rows before it are gone.
A step that needs few keys reads this first, and then only the chunks in which they may be: none where all keys are new,
and few where they lie together, as those of keys that came at one time do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
import numpy as np
import numpy.typing as npt
import polars as pl

from stages.keys import key_hash
from stages.state.chunks import Patch, Written
from stages.state.index import Size
from stages.state.store import StateStore, decode, encode

NEVER: Final = 2**63 - 1
"""In the place of a time, where there is none."""

MOST_CHUNKS: Final = 0.5
"""Of a bucket from which more of its chunks are wanted, all are read, lest some be read twice."""

SAMPLED: Final = 16
"""One of so many rows is looked at first."""

_ENTRIES: Final = "entries"


@attrs.frozen
class Directory:
    """Of all rows of a bucket in their order, in chunks of so many `lengths`: the hash of their key, and who is live.

    The first `base` rows are no patches'. `least` has for each of the times that the index has of a bucket the least in
    each chunk, also of rows that are gone; NEVER where there is none.
    """

    hashes: npt.NDArray[np.uint32]
    live: npt.NDArray[np.bool_]
    lengths: Sequence[int]
    base: int
    least: Mapping[str, npt.NDArray[np.int64]]

    @classmethod
    def read(cls, store: StateStore, stage: str, bucket: int, size: Size) -> Directory | None:
        """What has been noted of a bucket; None if that is not what is in it, as an earlier version notes nothing."""
        hashes, gone, lengths, taken, least = [], [], list[int](), 0, []
        while len(lengths) < size.chunks:
            value = store.get(stage, _key(bucket, len(lengths)))
            if value is None:
                return None
            entries, facts = decode(value)
            numbers = entries[_ENTRIES].to_numpy()
            gone.append(numbers[: facts["gone"]])
            hashes.append(numbers[facts["gone"] :])
            lengths += facts["rows"]
            taken += facts["bytes"]
            least.append(facts["least"])
        if len(lengths) != size.chunks or taken != size.bytes + size.log:
            return None
        everything = np.concatenate(hashes)
        live = np.ones(len(everything), dtype=np.bool_)
        live[np.concatenate(gone)] = False
        times = {name: np.concatenate([each[name] for each in least]) for name in least[0]}
        return cls(everything, live, lengths, sum(lengths[: size.base]), times)

    def chunks_with(self, keys: pl.DataFrame) -> list[int] | None:
        """The numbers of the chunks in which live rows with one of these keys may be; None if they are most."""
        wanted, hashes = pl.Series(_hashes(keys, keys.columns)).implode(), pl.Series(self.hashes)
        for step in (SAMPLED, 1):  # where many rows are wanted, a few of them show it
            found = np.flatnonzero(hashes[::step].is_in(wanted).to_numpy()) * step
            chunks = np.unique(
                np.searchsorted(np.cumsum(self.lengths), found[self.live[found]], side="right")
            )
            if len(chunks) > MOST_CHUNKS * len(self.lengths):
                return None
        return [int(chunk) for chunk in chunks]

    def numbers_in(self, chunks: Sequence[int]) -> npt.NDArray[np.intp]:
        """The numbers of the rows in these chunks."""
        ends = np.cumsum(self.lengths)
        ranges = [np.arange(ends[chunk] - self.lengths[chunk], ends[chunk]) for chunk in chunks]
        return np.concatenate([np.arange(0), *ranges])

    def least_but(self, chunks: Sequence[int]) -> dict[str, tuple[int, int]]:
        """Of each of the times the least that is not in these chunks, and the number of its chunk."""
        others = np.setdiff1d(np.arange(len(self.lengths)), chunks)
        if not len(others):
            return {}
        first = {name: others[values[others].argmin()] for name, values in self.least.items()}
        return {name: (int(self.least[name][chunk]), int(chunk)) for name, chunk in first.items()}


def note(
    store: StateStore,
    stage: str,
    bucket: int,
    first: int,
    patch: Patch,
    written: Written,
    keys: Sequence[str],
    times: Mapping[str, pl.Expr],
) -> None:
    """Notes of a patch that was written as chunks from number `first` on its keys and the least of these times."""
    gone = np.empty(0, np.uint32) if patch.gone is None else patch.gone.to_numpy()
    entries = np.concatenate([gone, _hashes(patch.rows, keys)]).astype(np.uint32, copy=False)
    facts: dict[str, Any] = {"gone": len(gone), "rows": written.rows, "bytes": sum(written.bytes)}
    facts["least"] = _least(patch.rows, written.rows, times)
    store.put(stage, _key(bucket, first), encode(pl.DataFrame({_ENTRIES: entries}), facts))


def forget(store: StateStore, stage: str, bucket: int, size: Size, *, but_first: bool = False) -> None:
    """Removes what was noted of a bucket of this size; `but_first` not of its first write."""
    for number in range(size.base, size.chunks):
        store.delete(stage, _key(bucket, number))
    if not but_first:
        store.delete(stage, _key(bucket, 0))


def _least(rows: pl.DataFrame, lengths: Sequence[int], times: Mapping[str, pl.Expr]) -> dict[str, list[int]]:
    found = rows.select(time.fill_null(NEVER).alias(name) for name, time in times.items())
    ends = np.cumsum(lengths)
    return {
        values.name: [
            int(values.to_numpy()[end - length : end].min(initial=NEVER))
            for end, length in zip(ends, lengths, strict=True)
        ]
        for values in found
    }


def _hashes(rows: pl.DataFrame, keys: Sequence[str]) -> npt.NDArray[np.uint32]:
    """The half of the hashes that does not say which bucket a key is in."""
    hashes = rows.select(key_hash(keys)).to_series().to_numpy()
    return hashes.astype(np.uint32)  # the lower half


def _key(bucket: int, first: int) -> str:
    return f"keys/{bucket}/{first}"
