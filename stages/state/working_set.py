"""What a step looks at of the state of a stage, and how it leaves it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import attrs
import polars as pl

from stages.parted import parted, together
from stages.sizes import size_of
from stages.state.buckets import BUCKET, inside, partition, touched
from stages.state.due_soon import FROM_BYTES, NEAR, STALE, DueSoon, divide, mark_stale
from stages.state.index import Index, Size
from stages.state.patches import Change, Part, large, parts_of, placed_in, put_patches
from stages.state.storage import Storage
from windowing.clocks import WATERMARK, Times

SMALL_BYTES: Final = 64_000
"""A bucket that has less is looked at whenever something comes: that costs no more than to put it off."""

LONGEST_LOG: Final = 256
"""When so many batches wait in a bucket, it is looked at; also when what waits there takes more than its rows."""


@attrs.frozen
class WorkingSet:
    """What a step looks at: the rows of `looked` buckets, parts of others, all rows that are near, and what has come.

    `waiting` are the other arrivals, with their bucket. In `unmerged` are keys of which rows may overlap. Others of
    which a part is known can be `seen`.
    """

    storage: Storage
    looked: frozenset[int]
    parts: tuple[Part, ...]
    near: DueSoon
    rows: pl.DataFrame
    incoming: pl.DataFrame
    waiting: pl.DataFrame
    unmerged: pl.DataFrame | None
    seen: pl.DataFrame

    @classmethod
    def of(
        cls,
        storage: Storage,
        looked: Iterable[int],
        parts: tuple[Part, ...],
        near: DueSoon,
        placed: pl.DataFrame,
        reached: pl.Series | None,
    ) -> WorkingSet:
        """Reads these buckets; `placed` are arrivals with their bucket, `reached` which of them reach near rows."""
        looked = frozenset(looked)
        shown = [*looked, *(part.bucket for part in parts)]
        if reached is None:
            here, waiting = inside(placed, shown)
        else:
            here, waiting = parted(placed, placed[BUCKET].is_in(shown) | reached)
        stale = near.stale_keys() if looked else near.rows.clear()
        return cls(
            storage,
            looked,
            parts,
            near,
            together(
                storage.rows(looked), near.rows[list(storage.table.schema)], *(part.rows for part in parts)
            ),
            together(storage.waiting(looked), here[list(storage.table.incoming)]),
            waiting,
            stale if len(stale) else None,
            together(storage.table.no_rows, *(part.seen for part in parts)),
        )

    @classmethod
    def everything(cls, storage: Storage) -> WorkingSet:
        """Reads all rows and all that waits."""
        nothing = storage.buckets.place(storage.table.nothing_incoming)
        near, looked = storage.near(wanted=True), set(storage.sizes) - {NEAR}
        return cls.of(storage, looked, (), near, nothing, near.reached(nothing))

    def leave(self, rows: pl.DataFrame, now: Times) -> Index:
        """Writes the rows that it was left with, and what waits: the index after it."""
        storage, index = self.storage, self.storage.index
        placed = storage.buckets.place(rows)
        changes, others = self._changes(placed)
        anew = {change.part.bucket: change for change in changes if change.is_large(storage)}
        looked = self.looked | anew.keys()
        if looked or len(self.near.rows):
            written = [placed_in(change.everything(storage), bucket) for bucket, change in anew.items()]
            rows = together(others[[*storage.table.schema, BUCKET]], *written)
            index = self._leave_rows(rows, looked, now)
        patches = [change for change in changes if change.part.bucket not in anew]
        index = put_patches(storage, index, patches, now)
        if len(self.waiting):
            index = storage.append(index, self.waiting, now)
        return index

    def _changes(self, placed: pl.DataFrame) -> tuple[list[Change], pl.DataFrame]:
        """(what these rows are to the parts that were shown, the rows of other buckets)."""
        if not self.parts:
            return [], placed
        mine, others = inside(placed, [part.bucket for part in self.parts])
        come, columns = partition(mine), list(self.storage.table.schema)
        changes = [Change(part, come.get(part.bucket, mine.clear())[columns]) for part in self.parts]
        return changes, others

    def _leave_rows(self, placed: pl.DataFrame, looked: Collection[int], now: Times) -> Index:
        buckets, far = self.storage.buckets, dict[int, pl.DataFrame]()
        here, near = inside(placed, looked)
        near = near.with_columns(pl.lit(False).alias(STALE))
        if len(near):  # their buckets were not looked at
            near = mark_stale(near, self.near.stale_keys(), self.near.keys)
        for bucket, part in partition(here).items():
            soon, later = self._apart(part, now)
            if len(soon):
                near = pl.concat([near, soon.with_columns(pl.lit(False).alias(STALE))])
            split = buckets.split(bucket, size_of(later))
            far |= {bucket: later} if split is buckets else partition(split.place(later))
            buckets = split
        return self.storage.replace(looked, far, near[[*self.storage.table.schema, STALE]], now)

    def _apart(self, part: pl.DataFrame, now: Times) -> tuple[pl.DataFrame, pl.DataFrame]:
        """(rows of a bucket that go near, the others)."""
        table = self.storage.table
        by_key = table.spread is None and table.keys
        if not by_key or table.waits_until is None or size_of(part) < FROM_BYTES:
            return part.clear(), part
        return divide(part, self.storage.kept.deadlines(now)[WATERMARK])


def read_working_set(
    storage: Storage,
    incoming: pl.DataFrame,
    now: Times,
    also: Iterable[int] = (),
    asked: pl.DataFrame | None = None,
) -> WorkingSet:
    """Reads what must be looked at when this has come and the clocks move on to `now`, and these buckets `also`."""
    placed = storage.buckets.place(incoming)
    wanted = placed.clear() if asked is None else storage.buckets.place(asked)
    due, unknown = storage.index.due(now), _holds_unknown(storage, now)
    near = storage.near(wanted=bool(due or unknown) or len(placed) > 0)
    reached = near.reached(placed)
    reaching = placed.clear() if reached is None else placed.filter(reached)
    # What waits in a bucket may be part of the row that grows here.
    again = _with_waiting(storage, reaching) if storage.table.in_turn else []
    near = near.with_arrivals(reaching)
    looked = {
        *also,
        *unknown,
        *due,
        *again,
        *_in_a_hurry(storage, placed, now),
        *_stale_and_due(storage, near, now),
    }
    in_part = large(storage, looked - {*also, *unknown, NEAR})
    only_seen = set(touched(wanted)) & set(storage.sizes) - looked
    parts = parts_of(storage, in_part | only_seen, placed, wanted, due, now)
    return WorkingSet.of(storage, looked - {*in_part, NEAR}, parts, near, placed, reached)


def _with_waiting(storage: Storage, placed: pl.DataFrame) -> list[int]:
    """The buckets of these arrivals in which others wait."""
    return [bucket for bucket in touched(placed) if storage.sizes.get(bucket, Size()).log]


def _holds_unknown(storage: Storage, now: Times) -> list[int]:
    """All buckets, if percentiles are asked for and nobody has done so before: the index lacks where rows hold."""
    return list(storage.sizes) if now.percentiles and storage.index.holds is None else []


def _stale_and_due(storage: Storage, near: DueSoon, now: Times) -> Iterable[int]:
    """The buckets of near rows that are due, and may not be alone."""
    if near.rows.is_empty():
        return ()
    return near.stale_and(storage.overdue(now))


def _in_a_hurry(storage: Storage, placed: pl.DataFrame, now: Times) -> Iterable[int]:
    """The buckets whose arrivals cannot wait, or had better not."""
    table, buckets = storage.table, touched(placed)
    if table.waits_until is None or (now.percentiles and table.holds_as_a_whole):
        return buckets
    may_grow = {bucket for bucket in buckets if _may_grow(storage.sizes.get(bucket, Size()))}
    if not may_grow:
        return buckets
    come = [until <= now.time(clock) for clock, until in table.waits_until.items()]
    over = touched(placed.filter(pl.any_horizontal(come)))
    return [*over, *(bucket for bucket in buckets if bucket not in may_grow)]


def _may_grow(size: Size) -> bool:
    """Whether more may be put beside the rows of a bucket."""
    return size.bytes > SMALL_BYTES and size.log < size.bytes and size.chunks - size.base < LONGEST_LOG
