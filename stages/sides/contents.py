"""The content of the windows of all sides during a step: read from the state, updated, and written back."""

from __future__ import annotations

import io
from collections.abc import Callable, Hashable, Iterable, Mapping
from hashlib import blake2b
from typing import Final, TypeVar

import attrs
import polars as pl

from stages.clock import StepClock
from stages.errors import ResultError
from stages.operator import HOLD, PENDING, State
from stages.sides.declarations import IS_ROW, Side
from stages.sides.memory import REMEMBERED
from stages.sides.tables import BYTES, NEWNESS, ROWS, SIDE, TOKEN, Content, Versions
from stages.sizes import size_of
from windowing.clocks import WATERMARK, Times
from windowing.columns import EVENT_TIME, PANE_INDEX, WINDOW_COLUMNS, WINDOW_END
from windowing.lateness import collection
from windowing.time import GLOBAL_WINDOW_END, MIN_TIME
from windowing.windows import GlobalWindows

T = TypeVar("T")

_MB: Final = 1 << 20


@attrs.frozen
class Version:
    """The content of a window of a side: a `token` unique to it, its size, and its pane index or reading time."""

    side: str
    start: int
    end: int
    token: str
    rows: int
    bytes: int
    newness: int


@attrs.frozen
class Seen:
    """The content of a side that a row sees."""

    token: str
    bytes: int
    load: Callable[[], pl.DataFrame]

    def made(self, how: Hashable, make: Callable[[pl.DataFrame], T]) -> T:
        """Returns what `make` builds from the content, cached in this process; it must be the same for equal `how`."""
        if not self.token:  # no digest tells the columns of nothing from those of other sides
            return make(self.load())
        return REMEMBERED.get((self.token, how), self.bytes, lambda: make(self.load()))


@attrs.frozen
class Change:
    """The update of a side in a step: new rows, and the ends of windows whose rows they replace."""

    versions: tuple[Version, ...]
    rows: pl.DataFrame
    replaced: tuple[int, ...] = ()


@attrs.define
class Contents:
    """The content of all sides in a step. `read` contains the rows of each side that were read."""

    state: State
    tables: Mapping[str, Content]
    versions: dict[tuple[str, int], Version]
    read: dict[str, pl.DataFrame] = attrs.field(factory=dict)
    new: tuple[Version, ...] = ()

    @classmethod
    def after(
        cls,
        state: State,
        kept: Versions,
        tables: Mapping[str, Content],
        arrivals: Mapping[str, pl.DataFrame],
        clock: StepClock,
        lateness: int,
    ) -> Contents:
        """The content after the arrivals of this step, which is stored without windows that no row to come can see.

        Raises `ResultError` if a side has become too large.
        """
        known = {(one.side, one.end): one for one in _versions(state.scan(kept, (0, 0)))}
        contents, gone = cls(state, tables, known), list[Version]()
        for content in tables.values():
            side = content.side
            change = _change(side, content, arrivals[side.clock], known, clock)
            contents.versions.update({(side.name, one.end): one for one in change.versions})
            contents.new += change.versions
            over = [one for one in contents.of(side) if _is_over(one, side, clock.now, lateness)]
            contents._leave(content, change, over)
            contents._require_small(side)
            gone += over
        if contents.new or gone:
            left = [one for one in contents.versions.values() if one not in gone]
            state.load(kept, kept.table.no_rows.vstack(_rows(left[:1] or gone[:1], kept)))
            state.write_back(kept, _rows(left, kept))
        return contents

    def of(self, side: Side) -> list[Version]:
        """The windows of a side that have content."""
        return [one for one in self.versions.values() if one.side == side.name]

    def seen(self, side: Side, end: int | None) -> Seen:
        """The content that rows see in the window of a side with this end; empty if there is no such window."""
        version = None if end is None else self.versions.get((side.name, end))
        if version is None or end is None:
            return Seen("", 0, lambda: self.tables[side.name].table.no_rows)
        return Seen(version.token, version.bytes, lambda: self._load(self.tables[side.name], version))

    def _load(self, content: Content, version: Version) -> pl.DataFrame:
        mine = pl.col(WINDOW_END) == version.end
        found = self.read.get(content.side.name, content.table.no_rows).filter(mine)
        if found.is_empty() and version.rows:
            found = self.state.scan(content, (version.end, version.end)).filter(mine)
        return found

    def _leave(self, content: Content, change: Change, over: Iterable[Version]) -> None:
        gone = [one.end for one in over]
        touched = [*change.replaced, *gone]
        if change.rows.is_empty() and not touched:
            return
        loaded = self.state.load(content, change.rows, (min(touched), max(touched)) if touched else None)
        stays = loaded.rows.filter(~pl.col(WINDOW_END).is_in(change.replaced))
        pool = self.read[content.side.name] = pl.concat([stays, loaded.incoming])
        self.state.write_back(content, pool.filter(~pl.col(WINDOW_END).is_in(gone)))

    def _require_small(self, side: Side) -> None:
        versions = self.of(side)
        size, rows = sum(one.bytes for one in versions), sum(one.rows for one in versions)
        require_small(side, size, rows, f" in {len(versions)} windows" if len(versions) > 1 else "")


def require_small(side: Side, size: int, rows: int, where: str = "") -> None:
    """Raises `ResultError` if a side with so many bytes and rows is larger than its limit."""
    if size > side.limit:
        raise ResultError(
            f"side {side.name!r} takes {size / _MB:,.1f} MB in the memory of each shard ({rows:,} rows{where}), "
            f"and at most {side.limit / _MB:,.1f} MB are allowed: select(...) only the columns that are looked at, "
            "or allow more with max_bytes=; what is too large for a side is joined, with join(...) or "
            "join_asof(...), which spreads both inputs over the shards"
        )


def digest(rows: pl.DataFrame) -> str:
    """A digest that identifies these rows."""
    return _digest("", rows)


def _is_over(version: Version, side: Side, now: Times, lateness: int) -> bool:
    """True if no row to come sees the version, and none waits for it."""
    over = collection(version.end, lateness)
    return now.time(WATERMARK) >= over and now.time(side.clock) >= version.end


def _change(
    side: Side,
    content: Content,
    came: pl.DataFrame,
    known: Mapping[tuple[str, int], Version],
    clock: StepClock,
) -> Change:
    if side.feed == "panes":
        return _panes(side, content, came, known)
    before = known.get((side.name, GLOBAL_WINDOW_END))
    time = pl.col(EVENT_TIME) if side.timed else pl.lit(None, pl.Int64).alias(EVENT_TIME)
    placed = GlobalWindows().assign(came.with_columns(time))
    if side.feed == "whole":
        rows = _as_content(placed, content)
        if rows.is_empty():
            return Change((), rows)
        return Change((_grown(side, before, rows),), rows)
    reading = clock.now.time(side.clock)
    if not clock.previous.time(side.clock) < reading < GLOBAL_WINDOW_END:
        return Change((), content.table.no_rows)
    rows = _as_content(placed.filter(pl.col(EVENT_TIME) == reading), content)
    version = _version(side, (MIN_TIME, GLOBAL_WINDOW_END), rows, reading)
    return Change((version,), rows, (GLOBAL_WINDOW_END,))


def _panes(
    side: Side, content: Content, came: pl.DataFrame, known: Mapping[tuple[str, int], Version]
) -> Change:
    """The newest pane of each window, if it is newer than the stored one."""
    versions, rows = [], [content.table.no_rows]
    for (start, end), panes in came.partition_by(WINDOW_COLUMNS, as_dict=True, maintain_order=True).items():
        index = int(panes[PANE_INDEX].max())  # type: ignore[arg-type]
        before = known.get((side.name, end))
        if before is not None and before.newness >= index:
            continue
        pane = _as_content(panes.filter((pl.col(PANE_INDEX) == index) & pl.col(IS_ROW)), content)
        versions.append(_version(side, (start, end), pane, index))
        rows.append(pane)
    return Change(tuple(versions), pl.concat(rows), tuple(one.end for one in versions))


def _as_content(rows: pl.DataFrame, content: Content) -> pl.DataFrame:
    nothing = pl.lit(None, pl.Int64)
    return rows.with_columns(pl.lit(0, pl.Int64).alias(PENDING), nothing.alias(HOLD)).select(
        list(content.rows)
    )


def _version(side: Side, window: tuple[int, int], rows: pl.DataFrame, newness: int) -> Version:
    return Version(side.name, *window, _digest("", rows), len(rows), size_of(rows), newness)


def _grown(side: Side, before: Version | None, rows: pl.DataFrame) -> Version:
    token, count, size = ("", 0, 0) if before is None else (before.token, before.rows, before.bytes)
    more = _digest(token, rows)
    return Version(side.name, MIN_TIME, GLOBAL_WINDOW_END, more, count + len(rows), size + size_of(rows), 0)


def _digest(before: str, rows: pl.DataFrame) -> str:
    """The digest of these rows, after others of the digest `before`."""
    buffer = io.BytesIO()
    rows.write_ipc_stream(buffer)
    return blake2b(buffer.getbuffer(), digest_size=16, key=before.encode()).hexdigest()


def _versions(rows: pl.DataFrame) -> list[Version]:
    return [
        Version(*row) for row in rows.select(SIDE, *WINDOW_COLUMNS, TOKEN, ROWS, BYTES, NEWNESS).iter_rows()
    ]


def _rows(versions: Iterable[Version], kept: Versions) -> pl.DataFrame:
    columns = (SIDE, *WINDOW_COLUMNS, TOKEN, ROWS, BYTES, NEWNESS)
    rows = [(*attrs.astuple(one), 0, None) for one in versions]
    schema = {name: kept.table.schema[name] for name in (*columns, PENDING, HOLD)}
    return pl.DataFrame(rows, schema, orient="row").select(list(kept.table.schema))
