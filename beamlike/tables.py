"""Tables for the terminal: where every watermark stands, and what a run did."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from rich.table import Table

from beamlike.records import BatchRecord, merged
from windowing.time import format_duration, format_time


def watermarks_table(batches: Sequence[BatchRecord]) -> Table:
    """Input and output watermark of every source and stage after each of these batches, and what holds it."""
    table = Table("after", "source or stage", title="Watermarks", title_justify="left")
    for name in ("input", "output", "lag"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("held by")
    for batch in batches:
        heads = [_clock(batch.processing_time), f"batch {batch.batch}"]
        for name, source in sorted(batch.sources.items()):
            table.add_row(heads.pop() if heads else "", name, "", _short(source.watermark), "", "")
        for name, stage in batch.stages.items():
            head = heads.pop() if heads else ""
            lag = format_duration(round(stage.lag, -6))
            table.add_row(head, name, _short(stage.input), _short(stage.output), lag, stage.holder)
        table.add_section()
    return table


def totals_table(batches: Iterable[BatchRecord]) -> Table:
    """What each source and stage took in, gave and dropped over all of these batches."""
    table = Table("source or stage", title="Totals", title_justify="left")
    for name in ("elements", "panes", "dropped", "dead letters"):
        table.add_column(name, justify="right")
    records = list(batches)
    sources = merged(item for record in records for item in record.sources.items())
    stages = merged(item for record in records for item in record.stages.items())
    for name, source in sorted(sources.items()):
        table.add_row(name, f"{source.elements:,}", "", "", f"{source.dead_letters:,}")
    for name, stage in stages.items():
        table.add_row(name, f"{stage.elements:,}", _counts(stage.panes), _counts(stage.dropped), "")
    return table


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items()) or "0"


def _short(time: int) -> str:
    """An event time to the second."""
    text = format_time(time)
    return text if text.endswith("inf") else text[:19].replace("T", " ")


def _clock(now: int) -> str:
    return f"{datetime.fromtimestamp(now // 1_000_000, UTC):%H:%M:%S}"
