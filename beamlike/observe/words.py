"""Formats times, durations and counts for people."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from beamlike.records.history import History
from beamlike.records.present import Present
from stages.state.index import HoldOwner
from windowing.time import GLOBAL_WINDOW_END, MIN_TIME, format_duration, format_time

_STEPS = (
    (86_400_000_000, 3_600_000_000),
    (3_600_000_000, 60_000_000),
    (1_000_000, 1_000_000),
    (1_000, 1_000),
)


def length(us: int) -> str:
    """Formats a duration to the second; long ones to the minute or hour, short ones to the millisecond."""
    for least, step in _STEPS:
        if abs(us) >= least:
            return format_duration(round(us / step) * step)
    return format_duration(us)


def moment(us: int) -> str:
    """Formats a time in full. Infinite times are described in words."""
    if us <= MIN_TIME:
        return "the beginning of time"
    return "the end of input" if us >= GLOBAL_WINDOW_END - 1 else format_time(us)


def clock(us: int) -> str:
    """Formats a processing time to the second."""
    return format_time(us // 1_000_000 * 1_000_000)


def window_text(start: int, end: int, text: Callable[[int], str] = format_time) -> str:
    """Formats a window as `[start, end)`. `text` formats each bound."""
    return f"[{text(start)}, {text(end)})"


def holder_text(holder: HoldOwner, text: Callable[[int], str] = format_time) -> str:
    """Describes what holds a watermark: a window and its key, if any; or a timer. `text` formats times."""
    if holder.timer is not None or holder.table or holder.said:
        return holder.text(text)
    window = window_text(holder.start, holder.end, text)
    return f"key {holder.key} in {window}" if holder.key else f"window {window}"


def holding_text(holder: HoldOwner) -> str:
    """Describes why a window holds the watermark."""
    return "has a pane that may be retracted" if holder.pane else "has elements that wait for a pane"


def in_hand_text(present: Present) -> str | None:
    """Describes the current batch, its activities and its duration; None between batches."""
    in_hand, lasts = present.in_hand, present.in_hand_for
    if in_hand is None:
        return None
    which = f"batch {in_hand.batch}"
    if lasts is None:
        return f"it was in {which}" + "".join(f", in {work}" for work in in_hand.works[:1])
    works = [f"{work}, for {length(present.at_for(work))}" for work in in_hand.works]
    what = "; ".join(works) or "it is between two operations, or waits for free cores"
    return f"{which} has been running for {length(lasts)}: {what}"


def failure_texts(history: History, present: Present) -> list[str]:
    """Describes why a run failed, or where it was killed; before its first batch, also why the run before failed."""
    if history.failure is not None:
        return [*history.failure.sentences("the run failed" if history.closed else "the run before failed")]
    if history.closed is None and history.alive is False:
        return [f"the run was killed{(in_hand_text(present) or '').removeprefix('it was')}"]
    return []


def current_texts(history: History, present: Present) -> list[str]:
    """Describes the current batch of a run that goes on, as a list of at most one sentence."""
    text = None if history.closed is not None or history.alive is False else in_hand_text(present)
    return [] if text is None else [text]


def counts(numbers: Mapping[str, int], *, nothing: str = "0") -> str:
    """Formats counts by name, such as `3 early, 1 on time`."""
    return (
        ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in numbers.items() if count)
        or nothing
    )


def rows(count: int, what: str = "element") -> str:
    """Formats a count with its noun: `1 element`, `2 elements`."""
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def size(count: int) -> str:
    """Formats a number of bytes, such as `12 kB`."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count = round(count / 1000)
    return f"{count:,} GB"


def aligned(rows: Sequence[Sequence[str]], *, left: int = 0) -> Iterator[str]:
    """Yields the rows of a table as lines. The first `left` columns are aligned on the left, others on the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = zip(row, widths, strict=True)
        parts = [
            cell.ljust(width) if at < left else cell.rjust(width) for at, (cell, width) in enumerate(cells)
        ]
        yield "  ".join(parts).rstrip()
