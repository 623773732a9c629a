"""Shows a run live in the terminal: watermarks, lags, counts, and what holds the watermarks."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from beamlike.observe.totals import others, totals
from beamlike.observe.words import clock, current_texts, failure_texts, holder_text, length, size
from beamlike.records.history import History
from beamlike.records.model import BatchRecord, SourceRecord, StageRecord, is_a_time
from beamlike.records.present import Present
from beamlike.records.unread import unread_input
from windowing.time import day_and_clock, format_time

REFRESH_SECONDS = 0.5


def watch(
    run: str | os.PathLike[str],
    *,
    console: Console | None = None,
    wait: Callable[[float], object] = time.sleep,
    now: Callable[[], int] | None = None,
) -> None:
    """Shows a run until it ends or Ctrl-C is pressed. If there is no terminal, only its end is printed.

    `now` returns the time (us), by default this machine's.
    """
    history = History.open(run)
    console = console or Console()

    def shown() -> RenderableType:
        return frame(history, None if now is None else now())

    live = Live(shown(), console=console, auto_refresh=False, transient=False, vertical_overflow="visible")
    with live, suppress(KeyboardInterrupt):
        while history.closed is None and history.alive is not False:
            wait(REFRESH_SECONDS)
            if history.refresh() or history.alive:  # lags also grow while nothing arrives
                live.update(shown(), refresh=True)
    if not console.is_terminal:
        console.line()  # a terminal has this line already


def frame(history: History, now: int | None = None) -> RenderableType:
    """Returns the view at time `now` (us), by default this machine's. It fits into eighty columns."""
    present = history.present(now)
    batch, name = present.batch, history.plan.pipeline
    first = [Text(text, style="bold") for text in failure_texts(history, present)]
    in_hand = [*map(Text, current_texts(history, present))]
    if batch is None:
        return Group(*first, Text(f"{name}: no batch yet"), *in_hand)
    state = history.closed or ("was killed" if history.alive is False else "runs")
    title = Text(f"{name}: batch {batch.batch} at {clock(batch.processing_time)}, {state}", style="bold")
    if history.bad_lines:
        in_hand.append(Text(f"damaged lines of its records left out: {history.bad_lines:,}"))
    in_hand += map(Text, unread_input(history.batches, history.changed))
    blocks = _watermarks(history, present), _work(history, batch), _holders(history, present)
    return Group(*first, title, *in_hand, *(part for block in blocks for part in ("", block)))


def _table(*headings: str, title: str) -> Table:
    """Creates a table. Names in the first column are folded if they are long; numbers in the others are not."""
    table = Table(
        title=title, title_justify="left", title_style="italic", box=box.SIMPLE_HEAD, show_edge=False,
        pad_edge=False, padding=(0, 1, 0, 0),
    )  # fmt: skip
    table.add_column(overflow="fold", max_width=24)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _watermarks(history: History, present: Present) -> Table:
    """Returns the table of watermarks, with the lags of the data (event time) and of the system (processing time)."""
    assert present.batch is not None
    batch = present.batch
    days = {parts[0] for mark in _marks(history, batch) if (parts := day_and_clock(mark)) is not None}
    day = f", {next(iter(days))}" if len(days) == 1 else ""
    title = f"Watermarks{day}; lag of data and system"
    table = _table("input", "output", "lag in", "lag out", "sys in", "sys out", title=title)
    short = len(days) == 1
    for name, source in _sources(history, batch):
        lag = _length(present.lag(source.watermark))
        table.add_row(Text(name), "", _time(source.watermark, short), "", lag, "", "")
        _add_percentiles(table, source.percentiles, short)
    for name, stage in _stages(history, batch):
        data = _length(present.lag(stage.input)), _length(present.lag(stage.output))
        system = length(present.input_system_lag(name)), length(present.output_system_lag(name))
        table.add_row(Text(name), _time(stage.input, short), _time(stage.output, short), *data, *system)
        _add_percentiles(table, stage.percentiles, short)
    return table


def _add_percentiles(table: Table, percentiles: Mapping[int, int], short: bool) -> None:
    for share, mark in sorted(percentiles.items()):
        table.add_row(f"  {share}%", "", _time(mark, short), "", "", "", style="dim")


def _marks(history: History, batch: BatchRecord) -> Iterator[int]:
    for _, source in _sources(history, batch):
        yield from (source.watermark, *source.percentiles.values())
    for _, stage in _stages(history, batch):
        yield from (stage.input, stage.output, *stage.percentiles.values())


def _sources(history: History, batch: BatchRecord) -> Iterator[tuple[str, SourceRecord]]:
    return ((name, batch.sources[name]) for name in history.plan.sources if name in batch.sources)


def _stages(history: History, batch: BatchRecord) -> Iterator[tuple[str, StageRecord]]:
    return ((name, batch.stages[name]) for name in history.plan.stages if name in batch.stages)


def _work(history: History, batch: BatchRecord) -> Table:
    """Returns the table of counts since the start of the run, and of the current state."""
    table = _table("in", "panes out", "dropped", "windows", "keys", "state", title="Work")
    done = totals(history)
    for name, _ in _sources(history, batch):
        lost = done[name].dead_letters
        table.add_row(Text(name), _count(done[name].elements), "", _lost(lost), "", "", "")
    for name, stage in _stages(history, batch):
        total = done[name]
        timers = f"\n{_count(stage.timers)} timers" if stage.timers else ""
        live = f"{_count(stage.live)}{timers}", _count(stage.keys), size(stage.bytes)
        dropped = _lines({**total.dropped, "dead": total.dead_letters})
        table.add_row(
            Text(name), _count(total.elements), _lines({**total.panes, "fired": total.fired}), dropped, *live
        )
    for name in others(history, done):
        table.add_row(Text(name), "", "", _lost(done[name].dead_letters), "", "", "")
    return table


def _count(count: int) -> str:
    """Formats a count. It is exact up to a million."""
    return f"{count:,}" if count < 1_000_000 else f"{count / 1_000_000:,.1f}M"


def _lost(rows: int) -> str:
    return f"{_count(rows)} dead" if rows else ""


def _lines(numbers: Mapping[str, int]) -> str:
    """Returns the non-zero counts as text. Each has its own line, to save width."""
    lines = [f"{_count(count)} {name.replace('_', ' ')}" for name, count in numbers.items() if count]
    return "\n".join(lines) or "0"


def _holders(history: History, present: Present) -> Table:
    """Returns the table of what each output watermark waits for."""
    assert present.batch is not None
    batch, at = present.batch, present.time
    table = _table(title="Held by")
    table.show_header = False
    table.add_column(overflow="fold")
    for name, source in _sources(history, batch):
        table.add_row(Text(name), Text(_source_holder(at, source)))
    for name, stage in _stages(history, batch):
        table.add_row(Text(name), Text(_stage_holder(at, stage)))
    return table


def _source_holder(at: int, source: SourceRecord) -> str:
    if source.over:
        return "nothing, its input is over"
    parts = [f"split {source.split}"] if source.split is not None else []
    parts += [f"{source.awaited}, awaited"] if source.awaited else []
    silent = 0 if source.since is None else at - source.since
    parts += [f"silent for {length(silent)}"] if silent > 0 else []
    return ", ".join([*parts, *(["idle"] if source.idle else [])]) or "its newest elements"


def _stage_holder(at: int, stage: StageRecord) -> str:
    text = stage.holder if stage.window is None else holder_text(stage.window, _second)
    stood = 0 if stage.since is None else at - stage.since
    return f"{text}, for {length(stood)}" if stood > 0 and is_a_time(stage.output) else text


def _time(us: int, short: bool) -> str:
    """Formats an event time to the second. `short` omits the date, which all times share."""
    parts = day_and_clock(us)
    if parts is None:
        return format_time(us)
    # The title has the year. With it, the table would be wider than a terminal.
    return parts[1] if short else f"{parts[0][-5:]} {parts[1]}"


def _second(us: int) -> str:
    """Formats an event time to the second, with its date."""
    parts = day_and_clock(us)
    return format_time(us) if parts is None else " ".join(parts)


def _length(us: int | None) -> str:
    return "" if us is None else length(us)
