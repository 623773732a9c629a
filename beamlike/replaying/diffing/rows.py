"""The differences between the rows of two versions at a point of their plans."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
import polars as pl

from windowing.columns import PANE_DRAINED, PANE_LAST, PANE_NONSPECULATIVE_INDEX, PREVIOUS_END

_NUMBER, _AGAIN = "__number", "__again"
_LEFT_OUT = (PREVIOUS_END, PANE_NONSPECULATIVE_INDEX, PANE_LAST, PANE_DRAINED)
"""Columns that follow from others, or from rows that are still to come."""


@attrs.frozen(eq=False)
class RowsDiffer:
    """Rows that only the new version has, that only the old one has, and pairs of rows that have changed.

    `changed` has the rows of the old version, and `into` those of the new one, in the same order. `columns` has
    sentences about columns that are new, gone, or of another type. `same` is the number of equal rows.
    """

    same: int
    new: pl.DataFrame
    gone: pl.DataFrame
    changed: pl.DataFrame
    into: pl.DataFrame
    columns: Sequence[str] = ()

    def __bool__(self) -> bool:
        return bool(self.columns) or bool(len(self.new) or len(self.gone) or len(self.changed))


def differing(
    old: pl.DataFrame, new: pl.DataFrame, identity: Sequence[str], *, whole: bool = False
) -> RowsDiffer:
    """Compares the columns that both frames have, row by row, in any order.

    Rows without an equal are paired by the columns `identity`, and are then changed instead of new and gone. If the
    rows are `whole`, those that lack a column of the old version, or have it under another name, are changed, too.
    """
    old, new = (frame.drop(_LEFT_OUT, strict=False) for frame in (old, new))
    if not old.width or not new.width:
        return RowsDiffer(0, new, old, old.clear(), new.clear())
    shared = [name for name in old.columns if name in new.columns and old.schema[name] == new.schema[name]]
    (gone, equal), (added, equal_now) = _paired(old, new, shared)
    columns = [*_columns_differ(equal, equal_now)]
    known = [name for name in identity if name in shared]
    before, after = gone.clear(), added.clear()
    if known:
        (gone, before), (added, after) = _paired(gone, added, known)
    if whole and len(shared) < old.width:
        before, after = pl.concat([equal, before]), pl.concat([equal_now, after])
        equal = equal.clear()
    return RowsDiffer(len(equal), added, gone, before, after, columns)


def _columns_differ(old: pl.DataFrame, new: pl.DataFrame) -> Iterator[str]:
    """Yields what became of columns, for rows that are equal in all others."""
    fresh = [name for name in new.columns if name not in old.schema]
    for name, dtype in old.schema.items():
        if name in new.schema:
            if dtype != new.schema[name]:
                yield f"column {name} was {dtype}, now {new.schema[name]}"
            continue
        values = old[name]
        again = [one for one in fresh if len(values) and values.equals(new[one], check_names=False)]
        if again and new.schema[again[0]] == dtype:
            fresh.remove(again[0])
            yield f"column {name} is now called {again[0]}"
        else:
            yield f"column {name} is gone"
    yield from (f"column {name} is new" for name in fresh)


def _paired(
    gone: pl.DataFrame, added: pl.DataFrame, known: list[str]
) -> tuple[tuple[pl.DataFrame, pl.DataFrame], tuple[pl.DataFrame, pl.DataFrame]]:
    """Divides both frames into (rows without a partner, rows with one, in the order of the first frame)."""
    one, other = (_numbered(frame, known) for frame in (gone, added))
    pairs = one.join(other, on=[*known, _AGAIN], how="inner", nulls_equal=True).sort(_NUMBER)
    before, after = pairs[_NUMBER], pairs[f"{_NUMBER}_right"]
    return (_others(gone, before), gone[before]), (_others(added, after), added[after])


def _others(frame: pl.DataFrame, numbers: pl.Series) -> pl.DataFrame:
    return frame.filter(~pl.int_range(len(frame), dtype=pl.UInt32, eager=True).is_in(numbers.implode()))


def _numbered(frame: pl.DataFrame, columns: list[str]) -> pl.DataFrame:
    """Returns these columns in a form that can be joined, with the number of each row, and of each repetition."""
    nested = [name for name in columns if frame.schema[name].is_nested()]
    texts = [pl.Series(name, [repr(value) for value in frame[name].to_list()], pl.String) for name in nested]
    made = frame.select(columns).with_columns(texts).with_row_index(_NUMBER)
    return made.with_columns(pl.int_range(pl.len()).over(columns).alias(_AGAIN))
