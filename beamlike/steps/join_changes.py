"""The step of a join whose windows emit several panes: the difference between the results of two panes of a window.

              rows of both panes (kept)   of the earlier one only (removed)   of the later one only (added)
retracted     removed left x (kept and removed) right,   kept left x removed right
new           added left x (kept and added) right,       kept left x added right
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final

import attrs
import polars as pl

from beamlike.steps.joins import Matched
from stages.changes import without_retracted
from stages.joins.base import LEFT, RIGHT
from windowing.columns import EVENT_TIME, PANE_LAST, PANE_RETRACTED, WINDOW_COLUMNS

_SIDES: Final = (LEFT, RIGHT)
_WINDOW: Final = "__place"
"""The position of a window, in rows of the window."""
_EARLIER: Final = "__earlier"
_KNOWN: Final = "__known"
_MATCH: Final = "__match"
_MATCHED_EARLIER: Final = "__matched_earlier"


@attrs.frozen(eq=False)
class _Panes:
    """The first retracted pane and the last new one of each window of a frame. Either may be missing.

    Attributes:
        windows: A row for each window: keys, system columns, and for both panes whether any rows match.
        kept: The rows of each side that are in both panes.
        removed: The rows that are in the earlier pane only.
        added: The rows that are in the later pane only.
    """

    windows: pl.DataFrame
    kept: dict[str, pl.DataFrame]
    removed: dict[str, pl.DataFrame]
    added: dict[str, pl.DataFrame]

    def where(self, rows: pl.DataFrame, flag: pl.Series) -> pl.DataFrame:
        """Returns the rows of the windows for which the flag is true."""
        return rows.filter(flag.gather(rows[_WINDOW]))


@attrs.frozen
class MatchedChanges(Matched):
    """A step that emits the difference between the results of the panes of a retracting grouping.

    Unlike other steps, it must receive all panes of a batch in one frame.

    Attributes:
        once: True if a row without a match is emitted only with the last pane of its window, when that is certain.
    """

    inferred: ClassVar[tuple[str, ...]] = ("left", "kept", "sides", "once")
    once: bool = False

    @property
    def retracts(self) -> bool:
        """True if emitted rows have the flag of retractions. Otherwise no result is ever retracted."""
        return PANE_RETRACTED in self.kept

    def needs(self, wanted: frozenset[str]) -> frozenset[str]:
        panes = (EVENT_TIME, *WINDOW_COLUMNS, PANE_RETRACTED, *((PANE_LAST,) if self.once else ()))
        return super().needs(wanted) | {*panes}

    def apply(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        """Returns retracted rows, then new ones, each in the order of their windows."""
        panes = self._panes(frame.collect())
        signs = (False, True) if self.retracts else (True,)
        return pl.concat(self._rows(panes, new) for new in signs).lazy()

    def _panes(self, frame: pl.DataFrame) -> _Panes:
        """Finds the two panes of each window. Those between the first and the last cancel each other."""
        window = [*self.keys, *WINDOW_COLUMNS]
        first = frame.unique(window, keep="first", maintain_order=True).filter(PANE_RETRACTED)
        last = frame.unique(window, keep="last", maintain_order=True).filter(~pl.col(PANE_RETRACTED))
        # With another event time, a row is another row, if it may be retracted.
        on = [*window, EVENT_TIME] if self.retracts else window
        earlier = first.select(*on, pl.col(_SIDES).name.suffix(_EARLIER))
        both = last.join(
            earlier, on=on, how="full", coalesce=True, nulls_equal=True, maintain_order="left_right"
        ).with_row_index(_WINDOW)
        known = pl.all_horizontal(pl.col(key).is_not_null() for key in self.keys)
        windows = both.select(
            *(name for name in both.columns if name.removesuffix(_EARLIER) not in _SIDES),
            known.alias(_KNOWN),
            _matches(known, "").alias(_MATCH),
            _matches(known, _EARLIER).alias(_MATCHED_EARLIER),
        )
        added, kept, removed = zip(*(_divided(both, side) for side in _SIDES), strict=True)
        return _Panes(windows, *(dict(zip(_SIDES, rows, strict=True)) for rows in (kept, removed, added)))

    def _rows(self, panes: _Panes, new: bool) -> pl.DataFrame:
        """Returns the new rows, or the retracted ones."""
        found = pl.concat(self._changes(panes, new), how="diagonal").sort(_WINDOW, maintain_order=True)
        windows = panes.windows[found[_WINDOW]].drop(_WINDOW)
        flag = pl.lit(not new).alias(PANE_RETRACTED)
        return found.hstack(windows).with_columns(flag).select(*self.flat(), *self.kept)

    def _changes(self, panes: _Panes, new: bool) -> Iterator[pl.DataFrame]:
        """Yields the rows as structs of both sides, and the position of their window."""
        yield pl.DataFrame(
            schema={_WINDOW: pl.UInt32(), **{side: pl.Struct(self.sides[side]) for side in _SIDES}}
        )
        if self.how == "semi":
            yield self._single(panes, LEFT, new)
        elif self.how != "anti":
            own, known = panes.added if new else panes.removed, panes.windows[_KNOWN]
            right = pl.concat([panes.kept[RIGHT], own[RIGHT]])
            for left, partners in ((own[LEFT], right), (panes.kept[LEFT], own[RIGHT])):
                yield panes.where(left, known).join(partners, on=_WINDOW, maintain_order="left_right")
        if self.how in ("left", "full", "anti"):
            yield self._single(panes, LEFT, new)
        if self.how in ("right", "full"):
            yield self._single(panes, RIGHT, new)

    def _single(self, panes: _Panes, side: str, new: bool) -> pl.DataFrame:
        """Returns the changes of rows alone, without the other side: those with a match (semi join), or without."""
        before, after = panes.windows[_MATCHED_EARLIER], panes.windows[_MATCH]
        if self.how != "semi":
            before, after = ~before, ~after
            if self.once:
                before, after = before & False, after & panes.windows[PANE_LAST].fill_null(False)
        own, there, other = (panes.added, after, before) if new else (panes.removed, before, after)
        return pl.concat([panes.where(own[side], there), panes.where(panes.kept[side], there & ~other)])


def _matches(known: pl.Expr, suffix: str) -> pl.Expr:
    """Returns an expression that is true if the pane has rows of both sides, with a key that may match."""
    some = ((pl.col(f"{side}{suffix}").list.len() > 0).fill_null(False) for side in _SIDES)
    return pl.all_horizontal(known, *some)


def _divided(both: pl.DataFrame, side: str) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Divides the rows of a side into (added, kept, removed)."""
    later, earlier = (
        both.select(_WINDOW, pl.col(name).alias(side)).explode(side, empty_as_null=False, keep_nulls=False)
        for name in (side, f"{side}{_EARLIER}")
    )
    kept_later, kept_earlier = _at_equal_positions(both, side, later[side], earlier[side])
    added, kept, removed = without_retracted(
        later.filter(~kept_later), earlier.filter(~kept_earlier), [_WINDOW, side]
    )
    return added, pl.concat([later.filter(kept_later), kept]), removed


def _at_equal_positions(
    both: pl.DataFrame, side: str, later: pl.Series, earlier: pl.Series
) -> tuple[pl.Series, pl.Series]:
    """Masks of the rows that are equal at the same position of both lists: most, as new rows are appended to a list.

    A comparison takes a fraction of the time of a search by hashes.
    """
    import numpy as np  # slow to import

    lengths = [
        both[name].list.len().fill_null(0).to_numpy().astype(np.int64) for name in (side, f"{side}{_EARLIER}")
    ]
    starts = [np.cumsum(length) - length for length in lengths]
    window = np.repeat(np.arange(len(both)), lengths[1])
    place = np.arange(len(earlier)) - starts[1][window]
    there = np.flatnonzero(place < lengths[0][window])
    opposite = starts[0][window[there]] + place[there]
    same = later.gather(opposite).eq_missing(earlier.gather(there)).to_numpy()
    masks = np.zeros(len(later), np.bool_), np.zeros(len(earlier), np.bool_)
    masks[0][opposite[same]], masks[1][there[same]] = True, True
    return pl.Series(masks[0], dtype=pl.Boolean), pl.Series(masks[1], dtype=pl.Boolean)
