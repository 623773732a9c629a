"""Event time is int64 microseconds since 1970-01-01 UTC; `datetime` and `timedelta` appear only at the border.

The limits are those of the Beam model (its portable constants, in milliseconds, times a thousand).
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from typing import Final

Duration = str | timedelta | int | float
"""How users write a length of time: `"90s"`, `"1h30m"`, a timedelta, or a number of seconds."""

MIN_TIME: Final = -9_223_372_036_854_775_000
"""The watermark before anything is known."""

MAX_TIME: Final = 9_223_372_036_854_775_000
"""The watermark at the end of input: no element is still to come."""

DAY: Final = 86_400_000_000
LONGEST: Final = 36_500_000 * DAY
"""Of a duration, some hundred thousand years: the sum of two such still fits 64 bits."""

GLOBAL_WINDOW_END: Final = MAX_TIME - DAY
"""End of the global window: before `MAX_TIME`, so that the end of input closes even that window."""

_UNITS: Final = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": DAY,
}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(us|ms|s|min|m|h|d)")


class Microseconds(int):
    """A length of time that has been converted; bare numbers are seconds."""


def microseconds(duration: Duration) -> Microseconds:
    """The duration in microseconds, exactly; what was converted before stays as it is.

    Raises `TypeError` for another type and `ValueError` for text that is no duration, for a number that is not finite
    and for what is longer than `LONGEST`. Durations may be negative (window offsets are); who needs a positive one
    checks that.
    """
    if isinstance(duration, Microseconds):
        return duration
    found = of_any_length(duration)
    if abs(found) > LONGEST:
        longest, given = format_duration(LONGEST), format_duration(found)
        raise ValueError(f"a duration must be at most {longest}, not {given}")
    return Microseconds(found)


def of_any_length(duration: Duration) -> int:
    """The same for one that may be longer, as where times that it leads to are cut to what there is."""
    if isinstance(duration, Microseconds):
        return duration
    if isinstance(duration, timedelta):
        return duration // timedelta(microseconds=1)
    if isinstance(duration, bool) or not isinstance(duration, str | int | float):
        raise TypeError(f"expected a duration such as '90s', a timedelta or seconds, not {duration!r}")
    if isinstance(duration, str):
        return _parse(duration)
    if isinstance(duration, float) and not math.isfinite(duration):
        raise ValueError(f"a duration must be finite, not {duration!r}")
    return round(duration * 1_000_000)


def _parse(text: str) -> int:
    body = text.strip().lower()
    sign = -1 if body.startswith("-") else 1
    body = body.removeprefix("-").strip()
    parts = _PART.findall(body)
    if not parts or _PART.sub("", body).strip():
        raise ValueError(f"not a duration: {text!r}; write for example '90s', '2m', '1h30m' or '500ms'")
    return sign * sum(_scaled(number, _UNITS[unit]) for number, unit in parts)


def _scaled(number: str, unit: int) -> int:
    whole, _, fraction = number.partition(".")
    return int(whole) * unit + (round(int(fraction) * unit / 10 ** len(fraction)) if fraction else 0)


def format_duration(us: int) -> str:
    """A length of time in microseconds as users write it.

    Example:
        >>> bl.observe.format_duration(90_000_000)
        '1m30s'
    """
    if us == 0:
        return "0s"
    sign, rest, text = ("-" if us < 0 else ""), abs(us), ""
    for unit in ("d", "h", "m", "s", "ms", "us"):
        count, rest = divmod(rest, _UNITS[unit])
        text += f"{count}{unit}" if count else ""
    return sign + text


def format_time(us: int) -> str:
    """A time in microseconds since 1970 as ISO 8601 in UTC, without a fraction that is zero; `-inf` and `+inf` at the
    limits.

    Example:
        >>> bl.observe.format_time(90_000_000)
        '1970-01-01T00:01:30Z'
    """
    if us <= MIN_TIME:
        return "-inf"
    if us >= GLOBAL_WINDOW_END - 1:
        return "+inf"
    moment = _moment(us)
    return f"{us}us" if moment is None else moment.isoformat() + "Z"


def day_and_clock(us: int) -> tuple[str, str] | None:
    """The date of a time and its clock to the second, in UTC; None for the limits, and for what no calendar has."""
    moment = _moment(us) if MIN_TIME < us < GLOBAL_WINDOW_END - 1 else None
    return None if moment is None else (moment.date().isoformat(), f"{moment:%H:%M:%S}")


def _moment(us: int) -> datetime | None:
    try:
        moment = datetime.fromtimestamp(us // 1_000_000, UTC).replace(microsecond=us % 1_000_000)
    except (OverflowError, ValueError, OSError):
        return None
    return moment.replace(tzinfo=None)
