"""The content of side inputs during a step, by side and window: read from state, updated, and written back."""

from __future__ import annotations

import io
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Final, TypeVar

import attrs
import polars as pl

from stages.clock import StepClock
from stages.errors import ResultError
from stages.frames import size_of, write_stream
from stages.operator import HOLD, PENDING
from stages.sides.declarations import IS_ROW, Side
from stages.sides.memory import REMEMBERED
from stages.sides.tables import BYTES, NEWNESS, ROWS, SIDE, TOKEN, ContentVersions, SideRows
from stages.state_tables import State
from windowing.clocks import WATERMARK, Times
from windowing.columns import EVENT_TIME, PANE_INDEX, WINDOW_COLUMNS, WINDOW_END
from windowing.lateness import collection
from windowing.time import GLOBAL_WINDOW_END, MIN_TIME
from windowing.windows import GlobalWindows

T = TypeVar("T")

_MB: Final = 1 << 20
_FEW: Final = 1_000
"""The number of rows of a growing side up to which no row is left out."""


@attrs.frozen
class Version:
    """The description of a side's content in one window.

    Attributes:
        side: The name of the side.
        start: The start of the window (us).
        end: The end of the window (us), which identifies it.
        token: A digest that identifies the content.
        rows: The number of rows.
        bytes: Their size in memory.
        newness: The index of the pane, or the time of the reading (us), that the content is from; of a growing side,
            the number of rows after unread ones were last left out.
    """

    side: str
    start: int
    end: int
    token: str
    rows: int
    bytes: int
    newness: int


@attrs.frozen(eq=False)
class SideContent:
    """The content of a side in one window, as rows of the main input read it. It is loaded only when needed.

    `token` is a digest that identifies the content; empty if there is none. `bytes` is its size in memory.
    """

    token: str
    bytes: int
    load: Callable[[], pl.DataFrame]

    def cached(self, how: Hashable, make: Callable[[pl.DataFrame], T]) -> T:
        """Returns the object that `make` builds from the content, such as an index, cached in this process.

        For equal content and equal `how`, `make` must build equal objects.
        """
        if not self.token:  # without a token, empty contents with other columns could not be distinguished
            return make(self.load())
        return REMEMBERED.get((self.token, how), self.bytes, lambda: make(self.load()))


@attrs.frozen(eq=False)
class SideUpdate:
    """The update of a side in a step: new rows with their descriptions, and the ends of windows that they replace."""

    versions: tuple[Version, ...]
    rows: pl.DataFrame
    replaced: tuple[int, ...] = ()


@attrs.define(eq=False)
class SideContents:
    """The content of all sides during a step.

    Attributes:
        state: The state of the step.
        tables: The table of rows of each side.
        versions: The description of each window's content, by the side's name and the window's end.
        read: The rows of each side that were loaded in this step.
        new: The contents that arrived in this step.
        added: The token before this step, and the rows that were added to it, by the side's name and the window's end.
    """

    state: State
    tables: Mapping[str, SideRows]
    versions: dict[tuple[str, int], Version]
    read: dict[str, pl.DataFrame] = attrs.field(factory=dict)
    new: tuple[Version, ...] = ()
    added: dict[tuple[str, int], tuple[str, pl.DataFrame]] = attrs.field(factory=dict)

    @classmethod
    def after(
        cls,
        state: State,
        table: ContentVersions,
        tables: Mapping[str, SideRows],
        arrivals: Mapping[str, pl.DataFrame],
        clock: StepClock,
        lateness: int,
    ) -> SideContents:
        """Returns the content after the arrivals of this step, and stores it.

        Windows that no further row can read are removed. Raises `ResultError` if a side is larger than its limit.
        """
        known = {(one.side, one.end): one for one in _versions(state.scan(table, (0, 0)))}
        contents, ended = cls(state, tables, known), list[Version]()
        for content in tables.values():
            side = content.side
            arrived = _updated(side, content, arrivals[side.clock], known, clock)
            change = contents._newest_firings(content, contents._compacted(content, arrived))
            contents._note_added(side, change)
            contents.versions.update({(side.name, one.end): one for one in change.versions})
            contents.new += change.versions
            over = [one for one in contents.of(side) if is_over(one.end, side, clock.now, lateness)]
            contents._write(content, change, over)
            contents._require_small(side)
            ended += over
        # The table of versions is written only if it has changed. Passing any row of it to `load` loads all of them.
        if contents.new or ended:
            remaining = [one for one in contents.versions.values() if one not in ended]
            state.load(table, table.table.no_rows.vstack(_rows(remaining[:1] or ended[:1], table)))
            state.write_back(table, _rows(remaining, table))
        return contents

    def of(self, side: Side) -> list[Version]:
        """Returns the descriptions of all windows of a side that have content."""
        return [one for one in self.versions.values() if one.side == side.name]

    def content(self, side: Side, end: int | None) -> SideContent:
        """Returns the content of a side in its window with this end (us); empty if there is no such window."""
        version = None if end is None else self.versions.get((side.name, end))
        if version is None or end is None:
            return SideContent("", 0, lambda: self.tables[side.name].table.no_rows)
        return SideContent(version.token, version.bytes, lambda: self._load(self.tables[side.name], version))

    def _note_added(self, side: Side, change: SideUpdate) -> None:
        """Notes the rows that are added to earlier content, before the descriptions of this are replaced."""
        if not side.adds or change.replaced:
            return
        for one in change.versions:
            if (before := self.versions.get((side.name, one.end))) is not None:
                rows = change.rows.filter(pl.col(WINDOW_END) == one.end)
                self.added[side.name, one.end] = before.token, rows

    def _load(self, content: SideRows, version: Version) -> pl.DataFrame:
        in_window = pl.col(WINDOW_END) == version.end
        found = self.read.get(content.side.name, content.table.no_rows).filter(in_window)
        # Rows that this step has loaded are in `read`. Others are scanned, since a table may be loaded only once.
        if found.is_empty() and version.rows:
            found = self.state.scan(content, (version.end, version.end)).filter(in_window)
        return found

    def _compacted(self, content: SideRows, change: SideUpdate) -> SideUpdate:
        """Leaves out rows that are no longer read, if the rows of a growing side have doubled in number since then."""
        side = content.side
        if not (side.newest_of and change.versions):
            return change
        (grown,) = change.versions
        if grown.rows < 2 * max(grown.newness, _FEW):
            return change
        found = self.state.scan(content, (grown.end, grown.end))
        rows = newest(pl.concat([found, change.rows]), side.newest_of)
        version = _version(side, (grown.start, grown.end), rows, len(rows))
        return SideUpdate((version,), rows, (grown.end,))

    def _newest_firings(self, content: SideRows, change: SideUpdate) -> SideUpdate:
        """Leaves out the rows of earlier firings in each window that has a firing among the new rows."""
        side = content.side
        if side.firing is None or change.rows[side.firing[0]].null_count() == len(change.rows):
            return change
        firing, number = side.firing
        ends = change.rows.filter(pl.col(firing).is_not_null())[WINDOW_END].unique()
        touched = pl.col(WINDOW_END).is_in(ends.implode())
        found = self.state.scan(content, (ends.min(), ends.max())).filter(touched)  # type: ignore[arg-type]
        pool = pl.concat([found, change.rows.filter(touched)])
        latest = pl.col(number) == pl.col(number).max().over(WINDOW_END, firing)
        kept = pool.filter(pl.col(firing).is_null() | latest)
        windows = [part.select(WINDOW_COLUMNS).row(0) for part in kept.partition_by(WINDOW_END)]
        versions = [
            _version(side, (start, end), kept.filter(pl.col(WINDOW_END) == end), 0) for start, end in windows
        ]
        others = [one for one in change.versions if one.end not in ends]
        rows = pl.concat([kept, change.rows.filter(~touched)])
        return SideUpdate((*others, *versions), rows, tuple(found[WINDOW_END].unique()))

    def _write(self, content: SideRows, change: SideUpdate, over: Iterable[Version]) -> None:
        ended = [one.end for one in over]
        touched = [*change.replaced, *ended]
        if change.rows.is_empty() and not touched:
            return
        between = (min(touched), max(touched)) if touched else None
        if content.side.adds and change.replaced:  # rows of these windows may also wait in the log
            renewed = pl.col(WINDOW_END).is_in(change.replaced)
            loaded = self.state.load_between(content, change.rows.filter(~renewed), between)
            stays = pl.concat([loaded.rows, loaded.incoming]).filter(~renewed)
            pool = pl.concat([stays, change.rows.filter(renewed)])
        else:
            loaded = self.state.load_between(content, change.rows, between)
            stays = loaded.rows.filter(~pl.col(WINDOW_END).is_in(change.replaced))
            pool = pl.concat([stays, loaded.incoming])
        self.read[content.side.name] = pool
        self.state.write_back(content, pool.filter(~pl.col(WINDOW_END).is_in(ended)))

    def _require_small(self, side: Side) -> None:
        versions = self.of(side)
        size, rows = sum(one.bytes for one in versions), sum(one.rows for one in versions)
        require_small(side, size, rows, f" in {len(versions)} windows" if len(versions) > 1 else "")


def require_small(side: Side, size: int, rows: int, where: str = "") -> None:
    """Raises `ResultError` if `size` (bytes) exceeds the limit of a side. `rows` and `where` are for the message."""
    if size > side.limit:
        raise ResultError(
            f"side {side.name!r} takes {size / _MB:,.1f} MB in the memory of each shard ({rows:,} rows{where}), "
            f"and at most {side.limit / _MB:,.1f} MB are allowed: select(...) only the columns that are looked up, "
            "or allow more with max_bytes=; for a larger side use join(...) or "
            "join_asof(...), which spreads both inputs over the shards"
        )


def newest(rows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Returns the newest row of each key by event time, sorted by time; of equal times, the last row."""
    ordered = rows.sort(EVENT_TIME, maintain_order=True, nulls_last=False)
    return ordered.unique(list(keys), keep="last", maintain_order=True)


def digest(rows: pl.DataFrame) -> str:
    """Computes a digest that identifies these rows."""
    return _digest("", rows)


def is_over(end: int, side: Side, now: Times, lateness: int) -> bool:
    """True if no further row can read the content of the window with this end (us), and no stored row waits for it."""
    return now.time(WATERMARK) >= collection(end, lateness) and now.time(side.clock) >= end


def _updated(
    side: Side,
    content: SideRows,
    arrived: pl.DataFrame,
    known: Mapping[tuple[str, int], Version],
    clock: StepClock,
) -> SideUpdate:
    if side.feed == "panes":
        return _panes(side, content, arrived, known)
    time = pl.col(EVENT_TIME) if side.timed else pl.lit(None, pl.Int64).alias(EVENT_TIME)
    placed = arrived.with_columns(time)
    if not side.windowed:
        placed = GlobalWindows().assign(placed)
    if side.adds:
        rows = _as_content(placed, content)
        windows = rows.partition_by(WINDOW_END, as_dict=True, maintain_order=True)
        grown = [_grown(side, known.get((side.name, end)), part) for (end,), part in windows.items()]
        return SideUpdate(tuple(grown), rows)
    # The watermark of a side that is read again and again is the time of its newest reading.
    reading = clock.now.time(side.clock)
    if not clock.previous.time(side.clock) < reading < GLOBAL_WINDOW_END:
        return SideUpdate((), content.table.no_rows)
    rows = _as_content(placed.filter(pl.col(EVENT_TIME) == reading), content)
    version = _version(side, (MIN_TIME, GLOBAL_WINDOW_END), rows, reading)
    return SideUpdate((version,), rows, (GLOBAL_WINDOW_END,))


def _panes(
    side: Side, content: SideRows, arrived: pl.DataFrame, known: Mapping[tuple[str, int], Version]
) -> SideUpdate:
    """Returns the update by panes that arrived: the newest pane of each window, if it is newer than the stored one."""
    versions, rows = [], [content.table.no_rows]
    for (start, end), panes in arrived.partition_by(
        WINDOW_COLUMNS, as_dict=True, maintain_order=True
    ).items():
        index = int(panes[PANE_INDEX].max())  # type: ignore[arg-type]
        before = known.get((side.name, end))
        if before is not None and before.newness >= index:
            continue
        pane = _as_content(panes.filter((pl.col(PANE_INDEX) == index) & pl.col(IS_ROW)), content)
        versions.append(_version(side, (start, end), pane, index))
        rows.append(pane)
    return SideUpdate(tuple(versions), pl.concat(rows), tuple(one.end for one in versions))


def _as_content(rows: pl.DataFrame, content: SideRows) -> pl.DataFrame:
    nothing = pl.lit(None, pl.Int64)
    return rows.with_columns(pl.lit(0, pl.Int64).alias(PENDING), nothing.alias(HOLD)).select(
        list(content.rows)
    )


def _version(side: Side, window: tuple[int, int], rows: pl.DataFrame, newness: int) -> Version:
    return Version(side.name, *window, _digest("", rows), len(rows), size_of(rows), newness)


def _grown(side: Side, before: Version | None, rows: pl.DataFrame) -> Version:
    # The new token depends on the token before, so it identifies all rows, not only the added ones.
    if before is None:
        start, end = rows.select(WINDOW_COLUMNS).row(0)
        before = Version(side.name, start, end, "", 0, 0, 0)
    more = _digest(before.token, rows)
    return attrs.evolve(before, token=more, rows=before.rows + len(rows), bytes=before.bytes + size_of(rows))


def _digest(before: str, rows: pl.DataFrame) -> str:
    """Computes the digest of these rows appended to earlier rows, whose digest is `before`."""
    buffer = io.BytesIO()
    write_stream(rows, buffer)
    return blake2b(buffer.getbuffer(), digest_size=16, key=before.encode()).hexdigest()


def _versions(rows: pl.DataFrame) -> list[Version]:
    return [
        Version(*row) for row in rows.select(SIDE, *WINDOW_COLUMNS, TOKEN, ROWS, BYTES, NEWNESS).iter_rows()
    ]


def _rows(versions: Iterable[Version], table: ContentVersions) -> pl.DataFrame:
    columns = (SIDE, *WINDOW_COLUMNS, TOKEN, ROWS, BYTES, NEWNESS)
    rows = [(*attrs.astuple(one), 0, None) for one in versions]
    schema = {name: table.table.schema[name] for name in (*columns, PENDING, HOLD)}
    return pl.DataFrame(rows, schema, orient="row").select(list(table.table.schema))
