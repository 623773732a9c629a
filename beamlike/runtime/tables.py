"""Tables for the terminal: where every watermark stands, and what a run did."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

from rich.markup import escape
from rich.table import Table

from beamlike.records.model import BatchRecord, merged
from windowing.time import format_duration, format_time

_MOMENT = re.compile(r"(\d+-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?Z")


def watermarks_table(batches: Sequence[BatchRecord]) -> Table:
    """Input and output watermark of every source and stage after each of these batches, and what holds it.

    Times are UTC, to the second; where all are of one day, that stands in the title only.
    """
    days = {day for batch in batches for day in map(_day, _watermarks(batch)) if day}
    title = f"Watermarks, {next(iter(days))}" if len(days) == 1 else "Watermarks"
    short = len(days) == 1
    table = Table("after", "source or stage", title=title, title_justify="left")
    for name in ("input", "output", "lag"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("held by")
    for batch in batches:
        heads = [_clock(batch.processing_time), f"batch {batch.batch}"]
        for name, source in sorted(batch.sources.items()):
            table.add_row(
                heads.pop() if heads else "", escape(name), "", _text(source.watermark, short), "", ""
            )
        for name, stage in batch.stages.items():
            marks = _text(stage.input, short), _text(stage.output, short)
            lag = format_duration(round(stage.lag, -6))
            head = heads.pop() if heads else ""
            holder = _MOMENT.sub(_shortened if short else r"\1 \2", stage.holder)
            table.add_row(head, escape(name), *marks, lag, escape(holder))
        table.add_section()
    return table


def _watermarks(batch: BatchRecord) -> Iterator[int]:
    yield from (source.watermark for source in batch.sources.values())
    for stage in batch.stages.values():
        yield from (stage.input, stage.output)


def _day(time: int) -> str:
    """The date of an event time; nothing for the ends of time, and for times that no calendar has."""
    day, t, _ = format_time(time).partition("T")
    return day if t else ""


def _text(time: int, short: bool) -> str:
    """An event time to the second, with its date or without."""
    day, t, clock = format_time(time).partition("T")
    if not t:
        return day
    return clock[:8] if short else f"{day} {clock[:8]}"


def _shortened(moment: re.Match[str]) -> str:
    return moment[2]


def totals_table(batches: Iterable[BatchRecord]) -> Table:
    """What each source and stage took in, gave and dropped over all of these batches, and steps could not use."""
    first, *others = TOTALS
    table = Table(first, title="Totals", title_justify="left")
    for name in others:
        table.add_column(name, justify="right")
    for row in total_rows(batches):
        table.add_row(*map(escape, row))
    return table


TOTALS = ("source, stage or step", "elements", "panes", "dropped", "dead letters")
"""The columns of `total_rows`."""


def total_rows(batches: Iterable[BatchRecord]) -> Iterator[tuple[str, ...]]:
    """The rows of `totals_table`, as text."""
    records = list(batches)
    sources = merged(item for record in records for item in record.sources.items())
    stages = merged(item for record in records for item in record.stages.items())
    for name, source in sorted(sources.items()):
        yield name, f"{source.elements:,}", "", "", f"{source.dead_letters:,}"
    for name, stage in stages.items():
        yield name, f"{stage.elements:,}", _counts(stage.panes), _counts(stage.dropped), ""
    steps = sum((Counter(record.dead_letters) for record in records), Counter[str]())
    for name, count in sorted(steps.items()):
        yield name, "", "", "", f"{count:,}"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items()) or "0"


def _clock(now: int) -> str:
    return f"{datetime.fromtimestamp(now // 1_000_000, UTC):%H:%M:%S}"
