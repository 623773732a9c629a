"""The rows of a large bucket with the least hold and deadlines, which the index must know, found in few of its chunks.

The directory has the least times of each chunk, of deleted rows, too. So the least ones are first looked for in the
chunks that have them, among the rows that remain, and only if they are later there than in other chunks in all rows:

    least deadlines by chunk    7   5   9        chunk 1 is read: its row with 5 was deleted, the next one has 6
                                                 6 is before 7 and 9, so it is the least of the bucket
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import numpy as np
import polars as pl

from stages.state.chunks import Chunk, unpack
from stages.state.content import BucketContent
from stages.state.directory import NEVER, Directory
from stages.state.row_numbers import BucketMask, Positions
from stages.state.storage import Storage
from windowing.clocks import Times


@attrs.frozen(order=True)
class _Place:
    """A time (us), and the chunk and the position in it of the row that has the time."""

    time: int
    chunk: int
    position: int


def earliest(
    storage: Storage, bucket: int, content: BucketContent, remaining: BucketMask, now: Times
) -> pl.DataFrame:
    """Returns the rows with the least hold and deadlines of the `remaining` rows of a bucket.

    `content` has been read of it.
    """
    known = content.directory
    if known is not None:
        numbers = sorted({chunk for _, chunk in known.least_without(()).values()})
        found = {chunk: content.chunks.get(chunk) or storage.chunk(bucket, chunk) for chunk in numbers}
        least = _least(storage, found, known, remaining, now)
        others = {name: time for name, (time, _) in known.least_without(numbers).items()}
        if all(least[name].time <= others.get(name, NEVER) for name in least):
            return storage.rows_of(found[chunk].at(places) for chunk, places in _by_chunk(least).items())
        content = storage.content(bucket)
    here, places = remaining[content.numbers], set[int]()
    for values in storage.times_of(content.rows, now).values():
        times = np.where(here, values, NEVER)
        places |= {int(times.argmin())} if times.min(initial=NEVER) != NEVER else set()
    return content.rows[sorted(places)]


def _least(
    storage: Storage, found: Mapping[int, Chunk], known: Directory, remaining: BucketMask, now: Times
) -> dict[str, _Place]:
    """Returns the places of the least times, by index column, among the remaining rows of these chunks."""
    times = storage.least_times(now)
    names = {name for time in times.values() for name in time.meta.root_names()}
    columns = pl.Schema({name: dtype for name, dtype in storage.table.schema.items() if name in names})
    least = {name: _Place(NEVER, -1, -1) for name in times}
    for number, chunk in found.items():
        here = remaining[known.ends[number] - chunk.rows : known.ends[number]]
        if not here.any():
            continue
        needed = chunk.only(names)
        # Many chunks have one deadline for all of their rows, such as the end of a window.
        if alike := needed.kind[1].keys() >= names:
            needed = needed.at(Positions(np.arange(1)))
        (rows,) = unpack([needed], columns, storage.table.missing)
        for name, values in storage.times_of(rows, now).items():
            masked = np.where(here, values, NEVER)
            position = int(here.argmax() if alike else masked.argmin())
            least[name] = min(least[name], _Place(int(masked[position]), number, position))
    return least


def _by_chunk(least: Mapping[str, _Place]) -> dict[int, Positions]:
    """Returns the positions of the places, by chunk."""
    places = sorted({(each.chunk, each.position) for each in least.values() if each.time != NEVER})
    chunks = sorted({chunk for chunk, _ in places})
    return {
        chunk: Positions(np.array([position for other, position in places if other == chunk]))
        for chunk in chunks
    }
