"""Times, durations and counts as text for people."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from beamlike.records.present import Present
from stages.state.index import Holder
from windowing.time import GLOBAL_WINDOW_END, MIN_TIME, format_duration, format_time

_STEPS = (
    (86_400_000_000, 3_600_000_000),
    (3_600_000_000, 60_000_000),
    (1_000_000, 1_000_000),
    (1_000, 1_000),
)


def length(us: int) -> str:
    """A duration to the second; long ones to the minute or hour, short ones to the millisecond."""
    for least, step in _STEPS:
        if abs(us) >= least:
            return format_duration(round(us / step) * step)
    return format_duration(us)


def moment(us: int) -> str:
    """A time in full; infinite times in words."""
    if us <= MIN_TIME:
        return "the beginning of time"
    return "the end of input" if us >= GLOBAL_WINDOW_END - 1 else format_time(us)


def clock(us: int) -> str:
    """A processing time, to the second."""
    return format_time(us // 1_000_000 * 1_000_000)


def window_text(start: int, end: int, text: Callable[[int], str] = format_time) -> str:
    """A window as `[start, end)`, each formatted by `text`."""
    return f"[{text(start)}, {text(end)})"


def holder_text(holder: Holder, text: Callable[[int], str] = format_time) -> str:
    """The holder of a watermark: its key, if any, and window, with times formatted by `text`; or its timer."""
    if holder.timer is not None or holder.table or holder.said:
        return holder.text(text)
    window = window_text(holder.start, holder.end, text)
    return f"key {holder.key} in {window}" if holder.key else f"window {window}"


def holding_text(holder: Holder) -> str:
    """The reason why a window holds the watermark."""
    return "has a pane that may be taken back" if holder.pane else "has elements that wait for a pane"


def in_hand_text(present: Present) -> str | None:
    """The current batch, its activity and duration; None between batches."""
    in_hand, lasts = present.in_hand, present.in_hand_for
    if in_hand is None:
        return None
    which = f"batch {in_hand.batch}"
    if lasts is None:
        return f"it was in {which}" + "".join(f", in {work}" for work in in_hand.works[:1])
    works = [f"{work}, for {length(present.at_for(work))}" for work in in_hand.works]
    what = "; ".join(works) or "it is between two operations, or waits for free cores"
    return f"{which} has been running for {length(lasts)}: {what}"


def counts(numbers: Mapping[str, int], *, nothing: str = "0") -> str:
    """Counts by name: `3 early, 1 on time`."""
    return (
        ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in numbers.items() if count)
        or nothing
    )


def rows(count: int, what: str = "element") -> str:
    """A count with its noun: `1 element`, `2 elements`."""
    return f"{count:,} {what}" + ("" if count == 1 else "s")
