"""Compares the completeness that panes stated with the share of rows that had really arrived."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import attrs
import polars as pl

from beamlike.errors import ViewError
from beamlike.observe.completeness.promises import promise_lines
from beamlike.observe.tuning.arrived import Rows, SourceArrivals, needed
from beamlike.records.history import History
from beamlike.records.model import BatchRecord, StageRecord
from beamlike.records.shares import WindowShare
from beamlike.system.html import bullets, page, table
from beamlike.system.printable import printable
from windowing.time import MAX_TIME

if TYPE_CHECKING:
    from beamlike.observe.charts.figure import Picture

_BINS: Final = (0.0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999, 1.0)
_HEADS: Final = ("stated", "windows", "mean", "really", "least")

_SCHEMA: Final = {
    "stage": pl.String(),
    "batch": pl.Int64(),
    **dict.fromkeys(("window_start", "window_end"), pl.Datetime("us", "UTC")),
    "timing": pl.String(),
    "panes": pl.Int64(),
    "stated": pl.Float64(),
    "really": pl.Float64(),
}


@attrs.frozen
class Stated:
    """The completeness that panes of a window stated in a batch, and what it really was.

    Attributes:
        stage: The name of the stage.
        batch: The number of the batch.
        start: The start of the window (us).
        end: The end of the window (us).
        timing: The timing of the panes: "early", "on_time" or "late".
        panes: The number of panes, one for each key.
        stated: The value of `bl.pane_complete()`; None if nothing had been learned.
        really: The share of the rows of the window that had arrived; None as long as more rows may arrive.
    """

    stage: str
    batch: int
    start: int
    end: int
    timing: str
    panes: int
    stated: float | None
    really: float | None


@attrs.frozen(eq=False)
class Calibration:
    """The completeness that the panes of a run stated, compared with what it really was.

    Its text is a report; a notebook shows tables.

    Attributes:
        windows: The windows of each stage and batch with panes.

    Example, with the `plays` of `bl.Collection`:
        >>> minutes = plays.window_into(bl.FixedWindows("1m")).aggregate(n=bl.count()).named("minutes")
        >>> minutes.promise(complete=0.9, within="2m").write("out", bl.Memory())
        <Collection 'minutes': n Int64>
        >>> run = p.run(bl.LocalRunner(records="plays.jsonl"))
        >>> print(bl.observe.completeness("plays.jsonl"))
        stage minutes: promise of 0.9 within 2m: ...
        ...
    """

    windows: Sequence[Stated]
    promises: Sequence[str] = ()

    def frame(self) -> pl.DataFrame:
        """Returns the windows as a polars frame, with a row for each window, batch and timing.

        Example, with the `plays` of `bl.Collection`:
            >>> minutes = plays.window_into(bl.FixedWindows("1m")).aggregate(n=bl.count())
            >>> minutes.select(complete=bl.pane_complete()).write("out", bl.Memory())
            <Collection ...>
            >>> run = p.run(bl.LocalRunner(records="plays.jsonl"))
            >>> bl.observe.completeness("plays.jsonl").frame()["stated"].to_list()
            [0.66..., 1.0]
        """
        return pl.DataFrame([attrs.astuple(one) for one in self.windows], _SCHEMA, orient="row")

    def __str__(self) -> str:
        lines = [*self.promises]
        for name, rows in self._tables():
            lines += [f"stage {printable(name)}:", *_aligned([_HEADS, *rows])]
        return "\n".join([*lines, *self.notes()])

    def _repr_html_(self) -> str:
        tables = [(f"stage {printable(name)}", rows) for name, rows in self._tables()]
        parts = [page(title, table(_HEADS, rows)) for title, rows in tables]
        return "".join([*parts, *bullets([*self.promises, *self.notes()])])

    def plot(self) -> Picture:
        """Draws the stated shares against what they really were, a dot for each window. Needs matplotlib."""
        from beamlike.observe.charts.calibration_chart import draw_calibration

        return draw_calibration(
            [
                (one.timing, one.stated, one.really)
                for one in self.windows
                if one.stated is not None and one.really is not None
            ]
        )

    def _tables(self) -> Iterator[tuple[str, list[list[str]]]]:
        """Yields, for each stage, the windows whose share is known, by what they stated."""
        for name in dict.fromkeys(one.stage for one in self.windows):
            known = [
                (one.stated, one.really)
                for one in self.windows
                if one.stage == name and one.stated is not None and one.really is not None
            ]
            yield name, [*_binned(known)]

    def notes(self) -> Iterator[str]:
        """Yields sentences about the windows whose share is not known.

        Example, with the `plays` of `bl.Collection`:
            >>> minutes = plays.window_into(bl.FixedWindows("1m")).aggregate(n=bl.count())
            >>> minutes.promise(complete=0.9, within="2m").write("out", bl.Memory())
            <Collection ...>
            >>> run = p.run(bl.LocalRunner(records="plays.jsonl"))
            >>> list(bl.observe.completeness("plays.jsonl").notes())
            []
        """
        unknown = sum(one.stated is None for one in self.windows)
        if unknown:
            yield f"{unknown:,} windows stated no share, because nothing had been learned."
        if open_ := sum(one.really is None and one.stated is not None for one in self.windows):
            yield f"Of {open_:,} windows the share is not known yet, as more rows may arrive."


def completeness(run: str | os.PathLike[str] | History) -> Calibration:
    """Compares the completeness that panes stated with the share of rows that had really arrived.

    The share of a window is known when the newest event time is past its end by the greatest lateness in the records,
    or when the input has ended.

    Args:
        run: A file of records, a folder with one, a checkpoint, or a `History`.

    Raises:
        ViewError: No pane of the run has stated its completeness.

    Example, with the `plays` of `bl.Collection`:
        >>> minutes = plays.window_into(bl.FixedWindows("1m")).aggregate(n=bl.count())
        >>> minutes.select(complete=bl.pane_complete()).write("out", bl.Memory())
        <Collection ...>
        >>> run = p.run(bl.LocalRunner(records="plays.jsonl"))
        >>> [one.really for one in bl.observe.completeness("plays.jsonl").windows]
        [1.0, 1.0]
    """
    history = run if isinstance(run, History) else History.open(run)
    if not any(stage.observes for stage in history.plan.stages.values()):
        raise ViewError(
            "no pane of this run states its completeness; use bl.pane_complete() or promise(...) in the pipeline, and "
            "run it again"
        )
    return Calibration([*_stated(history)], [*promise_lines(history)])


def _stated(history: History) -> Iterator[Stated]:
    known = {name: _Arrived.of(history, name) for name in history.plan.sources}
    for name, stage in history.plan.stages.items():
        sources = [known[source] for source in stage.observes]
        for place, batch in enumerate(history.batches):
            for one in _shares(batch, name):
                shares = [source.share(one, place) for source in sources]
                window = one.start, one.end, one.timing, one.panes, one.share
                yield Stated(name, batch.batch, *window, _least(shares))


def _least(shares: Iterable[float | None]) -> float | None:
    """Returns the least share of the sources that have rows of a window; None if one is not known, or none has."""
    counted = [share for share in shares if share != _NO_ROWS]
    known = [share for share in counted if share is not None]
    return min(known) if known and len(known) == len(counted) else None


def _shares(batch: BatchRecord, stage: str) -> Iterable[WindowShare]:
    record: StageRecord | None = batch.stages.get(stage)
    # A record of several batches does not say in which of them a window had panes.
    return () if record is None or batch.batches > 1 else record.shares


_NO_ROWS: Final = -1.0
"""The share of a window of which a source has no rows. The source does not count."""


@attrs.frozen(eq=False)
class _Arrived:
    """The rows of a source by batch, and the event time (us) up to which no more rows may arrive."""

    rows: Rows
    merged_until: int
    settled: int

    @classmethod
    def of(cls, history: History, name: str) -> _Arrived:
        arrived = SourceArrivals.of(history, name)
        newest = arrived.newest_times()
        last = history.batches[-1].sources.get(name) if history.batches else None
        over = last is not None and last.watermark >= MAX_TIME
        settled = MAX_TIME if over else int(newest[-1]) - needed(arrived, None, own=False)
        merged = int(newest[arrived.merged - 1]) + 1 if arrived.merged else 0
        return cls(arrived.rows(), merged, settled)

    def share(self, window: WindowShare, place: int) -> float | None:
        """Returns the share of the rows of a window that had arrived up to a batch; None if it is not known."""
        if window.end > self.settled or (self.merged_until and window.start < self.merged_until):
            return None
        rows = self.rows
        inside = (rows.first >= window.start) & (rows.first < window.end)
        total = int(rows.counts[inside].sum())
        return int(rows.counts[inside & (rows.batches <= place)].sum()) / total if total else _NO_ROWS


def _binned(known: Sequence[tuple[float, float]]) -> Iterator[list[str]]:
    """Yields a line for each range of stated shares that has windows."""
    ranges: Mapping[str, list[tuple[float, float]]] = {
        **{f"{low:g} to {high:g}": [] for low, high in pairwise(_BINS)},
        "proved": [],
    }
    for stated, really in known:
        low = max(bound for bound in _BINS if bound <= stated)
        place = "proved" if low == 1.0 else f"{low:g} to {_BINS[_BINS.index(low) + 1]:g}"
        ranges[place].append((stated, really))
    for text, found in ranges.items():
        if found:
            means = [sum(column) / len(found) for column in zip(*found, strict=True)]
            least = min(really for _, really in found)
            yield [text, f"{len(found):,}", *(f"{share:.4f}" for share in (*means, least))]


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
