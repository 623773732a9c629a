"""The rows of a large bucket with the least hold and deadlines, which the index must know, found in few of its chunks.

The directory has the least times of each chunk, of deleted rows, too. So the least ones are first looked for in the
chunks that have them, among the rows that remain, and only if they are later there than in other chunks in all rows:

    least deadlines by chunk    7   5   9        chunk 1 is read: its row with 5 was deleted, the next one has 6
                                                 6 is before 7 and 9, so it is the least of the bucket
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate, pairwise

import attrs
import numpy as np
import numpy.typing as npt
import polars as pl

from stages.frames import concat_nonempty
from stages.state.buckets import BUCKET
from stages.state.chunks import Chunk, gathered, unpack
from stages.state.content import BucketContent
from stages.state.directory import NEVER
from stages.state.row_numbers import BucketMask, Positions
from stages.state.storage import Storage
from windowing.clocks import Times


@attrs.frozen(eq=False)
class Remaining:
    """The live rows of a bucket that a step leaves as they are: a flag for each row, and the content that was read."""

    content: BucketContent
    mask: BucketMask


@attrs.frozen(order=True)
class _Place:
    """A time (us), and the chunk and the position in it of the row that has the time."""

    time: int
    chunk: int
    position: int


@attrs.frozen(eq=False)
class _Candidate:
    """A chunk that may have the row with the least time of its bucket.

    Attributes:
        bucket: The number of the bucket.
        number: The number of the chunk.
        times: The chunk with only the columns that times depend on, and only one row if all rows are alike in them.
        remaining: A flag for each row of the chunk.
    """

    bucket: int
    number: int
    times: Chunk
    remaining: npt.NDArray[np.bool_]

    @classmethod
    def of(
        cls, bucket: int, number: int, chunk: Chunk, remaining: npt.NDArray[np.bool_], names: set[str]
    ) -> _Candidate:
        times = chunk.only(names)
        # Many chunks have one deadline for all of their rows, such as the end of a window.
        if times.kind[1].keys() >= names:
            times = times.at(Positions(np.arange(1)))
        return cls(bucket, number, times, remaining)

    def least(self, times: npt.NDArray[np.int64]) -> _Place:
        """Returns the place of the least of the times of the remaining rows."""
        masked = np.where(self.remaining, times, NEVER)
        position = int(masked.argmin() if len(times) > 1 else self.remaining.argmax())
        return _Place(int(masked[position]), self.number, position)


def earliest(storage: Storage, remaining: Mapping[int, Remaining], now: Times) -> pl.DataFrame:
    """Returns the rows with the least hold and deadlines of the remaining rows of each bucket, with column BUCKET."""
    chunks = {bucket: _with_least(storage, bucket, one.content) for bucket, one in remaining.items()}
    least = _least(storage, remaining, chunks, now)
    parts, buckets, others = list[tuple[Chunk, Positions]](), list[int](), list[pl.DataFrame]()
    for bucket, one in remaining.items():
        if _known(one.content, least[bucket], chunks[bucket]):
            found = [(chunks[bucket][chunk], places) for chunk, places in _by_chunk(least[bucket])]
            parts += found
            buckets += [bucket] * sum(len(places) for _, places in found)
        else:
            others.append(_placed(_in_all(storage, bucket, one, now), bucket))
    rows = storage.rows_of(gathered(parts)).hstack([pl.Series(BUCKET, buckets, pl.Int64)])
    return concat_nonempty(rows, *others)


def _with_least(storage: Storage, bucket: int, content: BucketContent) -> dict[int, Chunk]:
    """Reads the chunks that have the least times of all rows of a bucket, by number."""
    if content.directory is None:
        return {}
    numbers = sorted({chunk for _, chunk in content.directory.least_without(()).values()})
    return {chunk: content.chunks.get(chunk) or storage.chunk(bucket, chunk) for chunk in numbers}


def _least(
    storage: Storage,
    remaining: Mapping[int, Remaining],
    chunks: Mapping[int, Mapping[int, Chunk]],
    now: Times,
) -> dict[int, dict[str, _Place]]:
    """Returns the places of the least times of the remaining rows in these chunks, by bucket and index column."""
    times = storage.least_times(now)
    names = {name for time in times.values() for name in time.meta.root_names()}
    least = {bucket: {name: _Place(NEVER, -1, -1) for name in times} for bucket in remaining}
    candidates = [
        _Candidate.of(bucket, number, chunk, here, names)
        for bucket, found in chunks.items()
        for number, chunk in found.items()
        if (here := _mask(remaining[bucket], number, chunk)).any()
    ]
    if not candidates:
        return least
    columns = pl.Schema({name: dtype for name, dtype in storage.table.schema.items() if name in names})
    rows = pl.concat(unpack((one.times for one in candidates), columns, storage.table.missing))
    bounds = pairwise(accumulate((one.times.rows for one in candidates), initial=0))
    values = storage.times_of(rows, now)
    for one, (first, last) in zip(candidates, bounds, strict=True):
        of_bucket = least[one.bucket]
        for name, all_times in values.items():
            of_bucket[name] = min(of_bucket[name], one.least(all_times[first:last]))
    return least


def _mask(remaining: Remaining, number: int, chunk: Chunk) -> npt.NDArray[np.bool_]:
    """Returns a flag for each row of a chunk: true if it remains."""
    assert remaining.content.directory is not None
    end = remaining.content.directory.ends[number]
    return remaining.mask[end - chunk.rows : end]


def _known(content: BucketContent, least: Mapping[str, _Place], chunks: Mapping[int, Chunk]) -> bool:
    """True if no chunk other than these can have an earlier row."""
    if content.directory is None:
        return False
    others = {name: time for name, (time, _) in content.directory.least_without([*chunks]).items()}
    return all(least[name].time <= others.get(name, NEVER) for name in least)


def _in_all(storage: Storage, bucket: int, one: Remaining, now: Times) -> pl.DataFrame:
    """Returns the earliest remaining rows of a bucket, which is read if it has a directory."""
    content = one.content if one.content.directory is None else storage.content(bucket)
    here, places = one.mask[content.numbers], set[int]()
    for values in storage.times_of(content.rows, now).values():
        times = np.where(here, values, NEVER)
        places |= {int(times.argmin())} if times.min(initial=NEVER) != NEVER else set()
    return content.rows[sorted(places)]


def _placed(rows: pl.DataFrame, bucket: int) -> pl.DataFrame:
    return rows.with_columns(pl.lit(bucket, pl.Int64).alias(BUCKET))


def _by_chunk(least: Mapping[str, _Place]) -> Iterator[tuple[int, Positions]]:
    """Yields the positions of the places, by chunk."""
    places = sorted({(each.chunk, each.position) for each in least.values() if each.time != NEVER})
    for chunk in sorted({chunk for chunk, _ in places}):
        yield chunk, Positions(np.array([position for other, position in places if other == chunk]))
