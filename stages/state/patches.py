"""Large buckets of which a step needs few rows: it is shown these alone, and a patch is put beside the bucket.

Of a bucket are read the chunks in which keys that are wanted may be, all of them if a row is due. Rows that no arrival
reaches, and that are not due, stay where they are. What the index says of a bucket is what it said before, less the
rows that were shown, with those that have come; only for the least hold and deadlines rows that stay are looked
through. A bucket of which a good part has changed, or that has many patches, is written anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import attrs
import numpy as np
import numpy.typing as npt
import polars as pl

from stages.parted import together
from stages.state.buckets import BUCKET, partition
from stages.state.chunks import Patch
from stages.state.directory import NEVER
from stages.state.index import COUNTS, SIZES, Index, Size, folded
from stages.state.storage import LARGE_BYTES, Content, Storage, holds_of
from stages.strategies.histogram import Histogram, merge_histograms
from windowing.clocks import Times

MOST_PATCHES: Final = 16
"""With so many more chunks than its rows need, a bucket is written anew: each takes a while, however small it is."""

MOST_GONE: Final = 0.5
MOST_ROWS: Final = 8.0
"""By the rows that it had when it was written anew: when patches have taken so many, or it has so many, it is again."""

_NUMBER: Final = "__number"
_PLACE: Final = "__place"


@attrs.frozen
class Part:
    """The rows of a bucket that a step is shown, with their `numbers`; and of the others all that the index needs.

    Among the others are those that can be `seen`. `least` says of the others, as the index does, where they hold and
    when they are due. The first `base` rows are not from patches. `total` rows are in the bucket, of which `gone` are.
    `all`: no live row is left out. `rest` has the others, if so much arrives that the bucket may be written anew.
    """

    bucket: int
    rows: pl.DataFrame
    numbers: pl.Series
    seen: pl.DataFrame
    least: pl.DataFrame
    holds: Histogram
    base: int
    total: int
    gone: int
    all: bool
    rest: pl.DataFrame | None

    @classmethod
    def of(
        cls,
        storage: Storage,
        bucket: int,
        keys: pl.DataFrame,
        asked: pl.DataFrame,
        due: pl.Expr | None,
        now: Times,
    ) -> Part:
        """The rows that have these keys, or the key of a row that is due; all of them, if that is a good part."""
        everything = due is not None or now.percentiles
        wanted = together(keys, asked)
        contents = [storage.content(bucket)] if everything else storage.contents_with(bucket, wanted)
        parts = (cls._in(storage, content, bucket, keys, asked, due, now) for content in contents)
        return next(part for part in parts if part is not None)

    @classmethod
    def _in(
        cls,
        storage: Storage,
        content: Content,
        bucket: int,
        keys: pl.DataFrame,
        asked: pl.DataFrame,
        due: pl.Expr | None,
        now: Times,
    ) -> Part | None:
        """The part, if these rows of the bucket tell what the index has to say of the others."""
        places, seen = _places(content, keys, asked, due)
        live = int(np.count_nonzero(content.live))
        total, gone = len(content.live), len(content.live) - live
        rest = content.live[content.numbers]
        if content.whole and _too_many(total, gone + len(places), content.base):
            places, seen = np.flatnonzero(rest), seen[:0]
        rest[places] = False
        rows = content.rows[places]
        least = _least(storage, content, bucket, rows, rest, now)
        if least is None:
            return None
        held = holds_of(placed_in(content.rows.filter(rest), bucket), now) if now.percentiles else None
        grows = _too_many(total + len(keys), gone + len(places), content.base)
        return cls(
            bucket,
            rows,
            pl.Series(_NUMBER, content.numbers[places], dtype=pl.UInt32),
            content.rows[seen],
            least,
            (held or {}).get(bucket, {}),
            content.base,
            total,
            gone,
            len(places) == live,
            # These are no more than have arrived and changed; other buckets are read again if need be.
            content.rows.filter(rest) if grows and content.whole else None,
        )


@attrs.frozen
class Change:
    """A part, and the rows that the step has left of it."""

    part: Part
    come: pl.DataFrame

    @property
    def nothing(self) -> bool:
        """Whether the bucket is as it was."""
        return self.part.rows.is_empty() and self.come.is_empty()

    def is_large(self, storage: Storage) -> bool:
        """Whether the bucket had better be written anew."""
        size, part = storage.size(self.part.bucket), self.part
        if self.nothing:
            return False
        anew = _too_many(part.total + len(self.come), part.gone + len(part.rows), part.base)
        needed = size.base * size.log // max(1, size.bytes)
        return part.all or anew or size.chunks - size.base - needed >= MOST_PATCHES

    def everything(self, storage: Storage) -> pl.DataFrame:
        """All rows that the bucket has now."""
        if self.part.all:
            return self.come
        if self.part.rest is not None:
            return pl.concat([self.part.rest, self.come])
        content = storage.content(self.part.bucket)
        content.live[self.part.numbers.to_numpy()] = False
        return pl.concat([content.rows.filter(content.live), self.come])


def large(storage: Storage, buckets: Iterable[int]) -> frozenset[int]:
    """Those of these buckets of which a step is shown only what it needs."""
    return frozenset(bucket for bucket in buckets if storage.is_large(storage.size(bucket)))


def parts_of(
    storage: Storage,
    buckets: Collection[int],
    arrivals: pl.DataFrame,
    asked: pl.DataFrame,
    due: Collection[int],
    now: Times,
) -> tuple[Part, ...]:
    """What a step needs of these buckets, with arrivals and keys that have their bucket; a row of those in `due` is."""
    if not buckets:
        return ()
    columns = [*storage.table.keys, BUCKET]
    reached, wanted, nothing = partition(arrivals[columns]), partition(asked[columns]), asked[columns].clear()
    overdue = storage.overdue(now)
    return tuple(
        Part.of(
            storage,
            bucket,
            reached.get(bucket, nothing).drop(BUCKET),
            wanted.get(bucket, nothing).drop(BUCKET),
            overdue if bucket in due else None,
            now,
        )
        for bucket in sorted(buckets)
    )


def rows_with(storage: Storage, buckets: Iterable[int], keys: pl.DataFrame) -> pl.DataFrame:
    """The rows in these buckets that have one of these keys, and what of those waits."""
    # Large ones one by one: their other rows need not be there at the same time.
    alone = [[bucket] for bucket in buckets if storage.size(bucket).bytes >= LARGE_BYTES]
    groups = [*alone, [bucket for bucket in buckets if [bucket] not in alone]]
    parts = (together(storage.rows(group), storage.waiting(group)) for group in groups)
    return pl.concat(part.join(keys, on=keys.columns, how="semi", nulls_equal=True) for part in parts)


def put_patches(storage: Storage, index: Index, changes: Sequence[Change], now: Times) -> Index:
    """Puts patches beside the rows of their buckets; `index` describes all other buckets: the index after it."""
    changes = [change for change in changes if not change.nothing]
    if not changes:
        return index
    sizes = {
        change.part.bucket: storage.beside(change.part.bucket, Patch(change.come, change.part.numbers), now)
        for change in changes
    }
    come = pl.concat([placed_in(change.come, change.part.bucket) for change in changes])
    summary = _summary(storage, changes, come, sizes, now)
    holds = holds_of(come, now)
    if holds is not None:
        rest = {change.part.bucket: change.part.holds for change in changes}
        holds = {bucket: merge_histograms(rest[bucket], holds.get(bucket, {})) for bucket in rest}
    return index.replace(sizes, summary, holds)


def placed_in(rows: pl.DataFrame, bucket: int) -> pl.DataFrame:
    """The rows with the number of their bucket."""
    return rows.with_columns(pl.lit(bucket, pl.Int64).alias(BUCKET))


def _summary(
    storage: Storage, changes: Sequence[Change], come: pl.DataFrame, sizes: Mapping[int, Size], now: Times
) -> pl.DataFrame:
    """What the index says of changed buckets: counts by what has come and gone, minima by what has come and stays."""
    nothing = dict.fromkeys(sizes, Size())
    gone = pl.concat([placed_in(change.part.rows, change.part.bucket) for change in changes])
    before = storage.index.buckets.filter(pl.col(BUCKET).is_in(list(sizes)))
    added = [(bucket, *attrs.astuple(size)) for bucket, size in sizes.items()]
    frames = [
        before.select(BUCKET, *SIZES, *COUNTS),
        pl.DataFrame(added, schema=[BUCKET, *SIZES], orient="row"),
        storage.summary(gone, nothing, now).select(BUCKET, -pl.col(COUNTS)),
        storage.summary(come, nothing, now).drop(SIZES),
        *(change.part.least for change in changes),
    ]
    return folded(pl.concat(frames, how="diagonal"))


def _too_many(rows: int, gone: int, base: int) -> bool:
    """Whether so many cost more, whenever a bucket is read, than to write it anew once; it is also divided then."""
    return gone > MOST_GONE * base or rows > MOST_ROWS * base


def _places(
    content: Content, keys: pl.DataFrame, asked: pl.DataFrame, due: pl.Expr | None
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Where the live rows are that have these keys, or that of one that is due; and others that are asked for."""
    here = content.live[content.numbers]
    if due is not None:
        over = content.rows.filter(due.fill_null(False), pl.lit(pl.Series(here)))
        keys = pl.concat([keys, over.select(keys.columns)])
    numbered = content.rows.select(keys.columns).with_row_index(_PLACE)
    on: dict[str, Any] = {"on": keys.columns, "nulls_equal": True, "maintain_order": "left"}
    found = numbered.join(pl.concat([keys, asked]), how="semi", **on)
    found = found.filter(here[found[_PLACE].to_numpy()])
    if asked.is_empty():
        return found[_PLACE].to_numpy(), np.arange(0)
    mine, others = found.join(keys, how="semi", **on), found.join(keys, how="anti", **on)
    return mine[_PLACE].to_numpy(), others[_PLACE].to_numpy()


def _least(
    storage: Storage,
    content: Content,
    bucket: int,
    shown: pl.DataFrame,
    rest: npt.NDArray[np.bool_],
    now: Times,
) -> pl.DataFrame | None:
    """What the index has to say of the rest without these rows: its least hold, and when it is due.

    None if that was a row of these, and it may be of one that is not here.
    """
    rows, times = content.rows, storage.least_times(now)
    known = storage.index.buckets.filter(pl.col(BUCKET) == bucket).drop(*SIZES, *COUNTS)
    before = known.row(0, named=True)
    first = shown.select(time.min().alias(name) for name, time in times.items()).row(0, named=True)
    if all(time is None or time > before[name] for name, time in first.items()):
        return known
    among = pl.lit(pl.Series(rest))
    numbers = rows.select(pl.when(among).then(time).arg_min().alias(name) for name, time in times.items())
    least = rows[sorted({number for number in numbers.row(0) if number is not None})]
    found = storage.summary(placed_in(least, bucket), {bucket: Size()}, now).drop(*SIZES, *COUNTS)
    return found if _is_least(found, content.others) else None


def _is_least(found: pl.DataFrame, others: Mapping[str, int]) -> bool:
    """Whether none of these times is after that of other rows."""
    here = found.row(0, named=True) if len(found) else dict.fromkeys(others)
    return all(
        least == NEVER or ((time := here[name]) is not None and time <= least)
        for name, least in others.items()
    )
