"""Texts of times and counts, as the pages show them."""

from __future__ import annotations

from beamlike.observe.charts.axes import SIMULATED
from beamlike.observe.words import length
from beamlike.records.model import is_a_time
from beamlike.records.present import Present
from windowing.time import MIN_TIME, format_time


def event_clock(us: int) -> str:
    """Formats an event time to the millisecond, without its zone, which is UTC: `01-31 12:05:00`."""
    text = format_time(us - us % 1_000).removesuffix("Z")
    text = text.removesuffix("000") if "." in text else text
    day, _, clock = text.partition("T")
    if abs(us) < SIMULATED:
        return clock
    return f"{day[5:]} {clock}" if len(day) == len("2026-01-31") else f"{day} {clock}"


def mark(watermark: int) -> str:
    """Formats a watermark; infinite ones in words."""
    if is_a_time(watermark):
        return event_clock(watermark)
    return "not reported yet" if watermark <= MIN_TIME else "end of input"


def behind(present: Present, watermark: int) -> str:
    """Formats the lag of a watermark behind processing time; empty at the ends of time."""
    lag = present.lag(watermark)
    return "" if lag is None else length(lag)


def rate(rows: int, us: int) -> str:
    """Formats rows in a time (us) as rows per second; empty for no time."""
    if us <= 0:
        return ""
    per_second = rows * 1_000_000 / us
    return f"{per_second:,.0f}/s" if per_second >= 10 or per_second == 0 else f"{per_second:,.1f}/s"
