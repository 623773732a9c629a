"""Predicts what other bounds of the watermarks of a run would lose and delay, as text, a table and a picture."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import attrs

from beamlike.errors import UnknownName, ViewError, listed, nearest
from beamlike.observe.tuning.advice import advice, code, knee, losses, share
from beamlike.observe.tuning.predict import BoundPrediction, SourcePrediction, predict
from beamlike.observe.tuning.stages import Range
from beamlike.observe.words import aligned, length
from beamlike.records.history import History
from beamlike.system.html import bullets, html_text, page, table
from beamlike.system.printable import printable
from windowing.time import Duration, microseconds

if TYPE_CHECKING:
    from beamlike.observe.charts.figure import Picture

_DELAYS = ("delay", "p99", "wait", "p99")


@attrs.frozen(eq=False)
class Tuning:
    """The predictions for the sources of a run. Its text is a report; a notebook shows tables.

    Attributes:
        sources: The predictions for each source.

    Example, with the `plays` of `bl.Collection`:
        >>> plays.write("out", bl.Memory())
        <Collection 'plays': user String, points Int64, at String>
        >>> run = p.run(bl.LocalRunner(records="plays.jsonl"))
        >>> print(bl.observe.tune("plays.jsonl"))
        source plays: 3 elements in 3 batches; its watermark is ...
        ...
    """

    sources: Sequence[SourcePrediction]

    def __str__(self) -> str:
        return "\n\n".join("\n".join(_lines(found)) for found in self.sources)

    def _repr_html_(self) -> str:
        parts = [
            page(
                _title(found),
                *(f"<p>{html_text(text)}</p>{table(heads, rows)}" for text, heads, rows in _tables(found)),
                *bullets([*advice(found), *_notes(found)]),
                f"<pre>{html_text(code(found, knee(found).bound))}</pre>",
            )
            for found in self.sources
        ]
        return "".join(parts)

    def plot(self) -> Picture:
        """Draws, for each source, the share of elements that are lost by bound. Needs matplotlib."""
        from beamlike.observe.charts.tuning_chart import draw_losses

        return draw_losses(
            [
                (
                    printable(found.name),
                    losses(found)[0],
                    [one.bound for one in found.bounds],
                    [count / max(1, _total(found)) for count in losses(found)[1]],
                )
                for found in self.sources
            ]
        )


def tune(
    run: str | os.PathLike[str] | History, *, source: str | None = None, bounds: Iterable[Duration] = ()
) -> Tuning:
    """Predicts, for bounds of the watermark of each source, what would be late and dropped, and the delay of panes.

    The records of a run have the event times of each batch. A prediction plays these batches with another bound. It
    equals a run with that bound and the same batches, unless a note says that it is an estimate.

    Args:
        run: A file of records, a folder with one, a checkpoint, or a `History`.
        source: Only this source; by default all that have event times.
        bounds: Further bounds, such as "45s".

    Raises:
        UnknownName: If the run has no such source.
        ViewError: If the records have no event times, or no source has any.

    Example, with the `plays` of `bl.Collection`:
        >>> plays.write("out", bl.Memory())
        <Collection 'plays': user String, points Int64, at String>
        >>> run = p.run(bl.LocalRunner(records="plays.jsonl"))
        >>> bl.observe.tune("plays.jsonl").sources[0].needed
        0
    """
    history = run if isinstance(run, History) else History.open(run)
    asked = [_bound(bound) for bound in bounds]
    names = [source] if source is not None else [*history.plan.sources]
    if source is not None and source not in history.plan.sources:
        hint = nearest(source, history.plan.sources)
        raise UnknownName(
            f"there is no source {source!r}; the sources are {listed(history.plan.sources)}{hint}"
        )
    if not history.batches:
        raise ViewError("the run has no records of batches yet, so there is nothing to predict from")
    found = [predict(history, name, asked) for name in names]
    counted = [one for one in found if one.elements]
    if not counted:
        raise ViewError(_nothing(history, names))
    return Tuning(counted)


def _bound(given: Duration) -> int:
    bound = microseconds(given)
    if bound < 0:
        raise ValueError(f"a bound must not be negative, not {given!r}")
    return bound


def _nothing(history: History, names: Sequence[str]) -> str:
    which = listed(map(repr, names))
    arrived = any(
        record.elements
        for batch in history.batches
        for name, record in batch.sources.items()
        if name in names
    )
    if not arrived:
        return f"no element of {which} has arrived, so there is nothing to predict from"
    return (
        f"the records have no event times of {which}: an earlier version wrote them, its event times are times of "
        "arrival, or all batches are merged; run it again with this version"
    )


# Text


def _title(found: SourcePrediction) -> str:
    split = f", per_split={found.described.per_split}" if found.described.per_split is not None else ""
    strategy = found.described.watermark
    shown = strategy if "per_split" in strategy else f"{strategy}{split}"
    return (
        f"source {printable(found.name)}: {found.elements:,} elements in {found.batches:,} batches; its watermark is "
        f"{printable(shown)}"
    )


def _lines(found: SourcePrediction) -> Iterator[str]:
    yield _title(found)
    for text, heads, rows in _tables(found):
        yield text
        yield from aligned([heads, *rows])
    yield from advice(found)
    yield f"    {code(found, knee(found).bound)}"
    for note in _notes(found):
        yield f"Note: {note}."


def _notes(found: SourcePrediction) -> Iterator[str]:
    if found.resolution:
        yield (
            f"times are known to {length(found.resolution)} or better, so a count may be a range, such as 3-5"
        )
    yield from found.notes


def _tables(found: SourcePrediction) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Yields a caption, the heads and the rows of each table: one for each stage, or one of the source only."""
    total = found.elements
    if not found.placed:
        rows = [[_bound_text(one, found), _count(one.late, total)] for one in found.bounds]
        yield "late: elements behind the watermark", ["bound", "late"], rows
    for name, placed in found.placed.items():
        yield (
            f"stage {printable(name)}:",
            ["bound", "late", "dropped", *_DELAYS],
            [[_bound_text(one, found), *_row(one, name, total, placed)] for one in found.bounds],
        )


def _bound_text(one: BoundPrediction, found: SourcePrediction) -> str:
    return length(one.bound) + (" (in use)" if one.bound == found.described.bound else "")


def _row(one: BoundPrediction, stage: str, total: int, placed: int) -> list[str]:
    predicted = one.stages[stage]
    delays = predicted.delays
    times = map(length, (*delays.event, *delays.processing)) if delays.windows else ("",) * len(_DELAYS)
    return [_count(one.late, total), _count(predicted.dropped, placed), *times]


def _count(found: Range, total: int) -> str:
    """Formats a count, or the range in which it is, with the share of the total."""
    text = f"{found.most:,}" if found.exact else f"{found.least:,}-{found.most:,}"
    return f"{text} ({share(found.most, total)})" if found.most else text


def _total(found: SourcePrediction) -> int:
    return max(found.placed.values(), default=0) if losses(found)[0] == "dropped" else found.elements
