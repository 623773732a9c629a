"""Tables for the terminal: the watermarks after each batch, and the totals of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

from rich.markup import escape
from rich.table import Table

from beamlike.records.model import BatchRecord, StageRecord, merged
from windowing.time import day_and_clock, format_duration, format_time


def watermarks_table(batches: Sequence[BatchRecord]) -> Table:
    """Makes a table of the watermarks of every source and stage after each batch, with their holders, for a terminal.

    Times are UTC, to the second. If all are of one day, the date is in the title only.

    Args:
        batches: The records of batches, as a run or a `History` has them.

    Returns:
        A `rich.table.Table`.

    Example, with the `plays` of `bl.Collection`:
        >>> plays.write("out", bl.Memory())
        <Collection 'plays': user String, points Int64, at String>
        >>> table = bl.observe.watermarks_table(p.run().batches)
        >>> table.title
        'Watermarks, 2026-01-31'
    """
    parts = [day_and_clock(time) for batch in batches for time in _watermarks(batch)]
    days = {part[0] for part in parts if part is not None}
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
            table.add_row(head, escape(name), *marks, lag, escape(_held_by(stage, short)))
        table.add_section()
    return table


def _watermarks(batch: BatchRecord) -> Iterator[int]:
    yield from (source.watermark for source in batch.sources.values())
    for stage in batch.stages.values():
        yield from (stage.input, stage.output)


def _text(time: int, short: bool) -> str:
    """Formats an event time to the second, with or without its date."""
    parts = day_and_clock(time)
    if parts is None:
        return format_time(time)
    return parts[1] if short else " ".join(parts)


def _held_by(stage: StageRecord, short: bool) -> str:
    """Formats the holder of the output watermark. Only the window's times are shortened, as a key may contain
    any text.
    """
    return stage.holder if stage.window is None else stage.window.text(lambda time: _text(time, short))


def totals_table(batches: Iterable[BatchRecord]) -> Table:
    """Makes a table of the counts of each source, stage and step over all batches, for a terminal.

    Args:
        batches: The records of batches, as a run or a `History` has them.

    Returns:
        A `rich.table.Table`.
    """
    first, *others = TOTALS
    table = Table(first, title="Totals", title_justify="left")
    for name in others:
        table.add_column(name, justify="right")
    for row in total_rows(batches):
        table.add_row(*map(escape, row))
    return table


def sinks_table(rows: Iterable[tuple[str, str, str]]) -> Table:
    """Makes a table of sinks, each with its rows and its place, for a terminal."""
    table = Table("sink", title="Written", title_justify="left")
    table.add_column("rows", justify="right")
    table.add_column("place", overflow="fold")
    for name, count, place in rows:
        table.add_row(escape(name), count, escape(place))
    return table


TOTALS = ("source, stage or step", "elements", "panes", "dropped", "dead letters")
"""The column names of `total_rows`."""


def total_rows(batches: Iterable[BatchRecord]) -> Iterator[tuple[str, ...]]:
    """Yields the rows of `totals_table`, as text."""
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
