"""The comparison of two outcomes: what each stage and sink has new, gone and changed, and what made the difference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import polars as pl

from beamlike.replaying.diffing.outcome import Outcome, Point
from beamlike.replaying.diffing.rows import RowsDiffer, differing


@attrs.frozen(eq=False)
class PartDiffers:
    """The differences of a stage or sink. `where` is "both", "new" or "gone". `stage` is False for a sink."""

    name: str
    stage: bool
    where: str
    rows: RowsDiffer

    @property
    def kind(self) -> str:
        """The kind of the part: "stage" or "sink"."""
        return "stage" if self.stage else "sink"

    def __bool__(self) -> bool:
        return bool(self.rows) or self.where != "both"


@attrs.frozen(eq=False)
class Cause:
    """The reason for the first difference: a sentence, the declarations that differ, and the first row that differs.

    `row` is in the new version only if `added`, otherwise in the old version only. It is None if no row differs before
    the part that made the difference.
    """

    text: str
    declared: Sequence[str]
    row: Mapping[str, Any] | None = None
    added: bool = False


def parts(old: Outcome, new: Outcome) -> list[PartDiffers]:
    """Compares the panes of each stage, and the rows of each sink."""
    found = list[PartDiffers]()
    for name, stage in _parts(old) | _parts(new):
        before, after = (_rows(outcome, name, stage=stage) for outcome in (old, new))
        where = "both" if before and after else "new" if after else "gone"
        identity = (after or before)[0].identity
        rows = differing(_joined(before), _joined(after), identity, whole=True)
        found.append(PartDiffers(name, stage, where, rows))
    return found


def _parts(outcome: Outcome) -> dict[tuple[str, bool], None]:
    """Returns the stages and sinks of a plan, in order."""
    stages = {point.producer for point in outcome.points if not point.consumer}
    return dict.fromkeys(
        (point.consumer or point.producer, not point.consumer)
        for point in outcome.points
        if not point.consumer or point.consumer not in stages
    )


def _rows(outcome: Outcome, name: str, *, stage: bool) -> list[Point]:
    if stage:
        return [point for point in outcome.points if point.producer == name and not point.consumer]
    return [point for point in outcome.points if point.consumer == name]


def _joined(points: Sequence[Point]) -> pl.DataFrame:
    return pl.concat([point.rows for point in points], how="diagonal_relaxed") if points else pl.DataFrame()


def cause(old: Outcome, new: Outcome) -> Cause | None:
    """Finds the first point of the plans, in the order of their rows, at which rows differ; None if there is none."""
    before = {point.address: point for point in old.points}
    after = {point.address: point for point in new.points}
    for address in before | after:
        one, other = before.get(address), after.get(address)
        if one is None or other is None:
            return _structure(old, new, address, is_new=one is None)
        rows = differing(one.rows, other.rows, other.identity)
        # A column that is only new or gone on a route makes no difference by itself.
        if len(rows.gone) or len(rows.new) or len(rows.changed) or (rows.columns and not one.consumer):
            return _made(old, new, one, rows)
    return None


def _structure(old: Outcome, new: Outcome, address: tuple[str, str, str], *, is_new: bool) -> Cause:
    producer, consumer, _ = address
    what = f"the way from {producer!r} to {consumer!r}" if consumer else f"stage {producer!r}"
    declared = [*_declared(old, new, consumer or producer)]
    return Cause(f"{what} is only in the {'new' if is_new else 'old'} version", declared)


def _made(old: Outcome, new: Outcome, point: Point, rows: RowsDiffer) -> Cause:
    if not point.consumer:
        text = f"stage {point.producer!r} emits other panes for the same rows"
        declared = [*_declared(old, new, point.producer, ways=False)]
        if not declared:
            text += ", although it is declared alike: look at the code of its functions"
        return Cause(text, declared)
    text = f"{point.consumer!r} receives other rows of {point.producer!r}"
    declared = [
        line for name in _between(old, new, point) for line in _declared(old, new, name, choices=False)
    ]
    if not declared:
        text += ", although the steps between are declared alike: look at the code of their functions"
        declared = list(new.facts.get(point.consumer, {}).get("ways", []))
    frame = next(one for one in (rows.gone, rows.changed, rows.new) if len(one))
    return Cause(text, declared, frame.row(0, named=True), added=frame is rows.new)


def _between(old: Outcome, new: Outcome, point: Point) -> list[str]:
    """Returns the names under which the steps between producer and consumer are declared."""
    stages = {one.producer for one in (*old.points, *new.points) if not one.consumer}
    return [name for name in (point.producer, point.consumer) if name == point.consumer or name not in stages]


def _declared(
    old: Outcome, new: Outcome, name: str, *, choices: bool = True, ways: bool = True
) -> Iterator[str]:
    """Yields the declarations of a stage or sink that differ, before and now."""
    before, after = old.facts.get(name, {}), new.facts.get(name, {})
    if ways:
        one, other = (found.get("ways", []) for found in (before, after))
        gone, added = [way for way in one if way not in other], [way for way in other if way not in one]
        if gone or added:
            yield f"{'; '.join(gone) or 'nothing'}, now {'; '.join(added) or 'nothing'}"
    for kind in ("choices", "aggregates", "fields") if choices else ():
        one, other = before.get(kind, {}), after.get(kind, {})
        for fact in {**one, **other}:
            if one.get(fact) != other.get(fact):
                yield f"{fact} was {one.get(fact, 'not there')}, now {other.get(fact, 'gone')}"
