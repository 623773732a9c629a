"""Times and durations: int64 microseconds, times since 1970-01-01 UTC. `datetime` is used for input and output only.

The limits of time are those of the Beam model, whose constants are in milliseconds.
"""

from __future__ import annotations

import difflib
import math
import re
from datetime import UTC, datetime, timedelta
from typing import Final

Duration = str | timedelta | int | float
"""The type of a duration as users write it: text, a `timedelta`, or a number of seconds.

Text has numbers with units, such as `"90s"`, `"5 minutes"`, `"1h30m"` or `"2 days 12 hours"`. The units are us, ms, s
(sec, second), m (min, minute), h (hr, hour), d (day) and w (week), in any case and number; a minus in front applies to
all of them.
"""

MIN_TIME: Final = -9_223_372_036_854_775_000
"""The least time (us), the watermark before any data."""

MAX_TIME: Final = 9_223_372_036_854_775_000
"""The greatest time (us), the watermark at the end of input."""

DAY: Final = 86_400_000_000
LONGEST: Final = 36_500_000 * DAY
"""The longest duration (us), some hundred thousand years: the sum of two such durations fits into 64 bits."""

GLOBAL_WINDOW_END: Final = MAX_TIME - DAY
"""The end of the global window (us): before `MAX_TIME`, so that the end of input closes this window, too."""

_UNITS: Final = {"d": DAY, "h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1_000, "us": 1}
"""The units (us) in which durations are formatted, the longest first."""

_WORDS: Final = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "sec": 1_000_000,
    "minute": 60_000_000,
    "min": 60_000_000,
    "hour": 3_600_000_000,
    "hr": 3_600_000_000,
    "day": DAY,
    "week": 7 * DAY,
}
_LENGTHS: Final = {**_UNITS, "w": 7 * DAY, **_WORDS, **{f"{word}s": us for word, us in _WORDS.items()}}
"""The length of each unit (us), by each name that text may use."""

_CALENDAR: Final = re.compile(r"mo|months?|q|quarters?|y|years?")
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([^\W\d_]+)\s*")
_ACCEPTED: Final = "write for example '90s', '5 minutes', '1h30m', '2 days' or '500ms'"


class Microseconds(int):
    """A duration that has been converted to microseconds. The type distinguishes it from a plain number of seconds."""


def microseconds(duration: Duration) -> Microseconds:
    """Converts a duration, which may be negative, to microseconds. Returns `Microseconds` unchanged.

    Raises:
        TypeError: If the type is none of a duration.
        ValueError: If text is no duration, a number is not finite, or the duration is longer than `LONGEST`.
    """
    if isinstance(duration, Microseconds):
        return duration
    found = of_any_length(duration)
    if abs(found) > LONGEST:
        longest, given = format_duration(LONGEST), format_duration(found)
        raise ValueError(f"a duration must be at most {longest}, not {given}")
    return Microseconds(found)


def is_duration(given: object) -> bool:
    """True if a value is a valid duration."""
    try:
        return microseconds(given) is not None  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False


def of_any_length(duration: Duration) -> int:
    """Like `microseconds`, but accepts durations longer than `LONGEST`, and returns a plain int."""
    if isinstance(duration, Microseconds):
        return duration
    if isinstance(duration, timedelta):
        return duration // timedelta(microseconds=1)
    # In Python a bool is an int, but it is no number of seconds.
    if isinstance(duration, bool) or not isinstance(duration, str | int | float):
        raise TypeError(f"expected a duration such as '90s', a timedelta or seconds, not {duration!r}")
    if isinstance(duration, str):
        return _parse(duration)
    if isinstance(duration, float) and not math.isfinite(duration):
        raise ValueError(f"a duration must be finite, not {duration!r}")
    return round(duration * 1_000_000)


def _parse(text: str) -> int:
    body = text.strip()
    sign = -1 if body.startswith("-") else 1
    body = body.removeprefix("-").strip()
    parts = _PART.findall(body)
    if not parts or _PART.sub("", body):
        raise ValueError(f"not a duration: {text!r}; {_no_unit(body)}{_ACCEPTED}")
    for _, unit in parts:
        if unit == "M" or unit.lower() not in _LENGTHS:
            raise ValueError(f"not a duration: {text!r}; {_not_a_unit(unit)}; {_ACCEPTED}")
    return sign * sum(_scaled(number, _LENGTHS[unit.lower()]) for number, unit in parts)


def _no_unit(body: str) -> str:
    """Returns the hint of an error for text with a number but no unit; empty for other text."""
    number = re.fullmatch(r"\d+(\.\d+)?", body)
    return "it has no unit (a number of seconds goes without quotes); " if number else ""


def _not_a_unit(unit: str) -> str:
    if unit == "M":
        return "'M' may be minutes, which are 'm', or months, which have no fixed length (see bl.CalendarWindows)"
    if _CALENDAR.fullmatch(unit.lower()):
        return f"{unit!r} has no fixed length (bl.CalendarWindows has windows of months and years)"
    near = difflib.get_close_matches(unit.lower(), _LENGTHS, n=1)
    return f"{unit!r} is no unit" + (f", did you mean {near[0]!r}?" if near else "")


def _scaled(number: str, unit: int) -> int:
    whole, _, fraction = number.partition(".")
    # Integer arithmetic, since a float would lose the last microseconds of long durations.
    return int(whole) * unit + (round(int(fraction) * unit / 10 ** len(fraction)) if fraction else 0)


def format_duration(us: int) -> str:
    """Formats a duration (us) as users write it.

    Example:
        >>> bl.observe.format_duration(90_000_000)
        '1m30s'
    """
    if us == 0:
        return "0s"
    sign, rest, text = ("-" if us < 0 else ""), abs(us), ""
    for unit, length in _UNITS.items():
        count, rest = divmod(rest, length)
        text += f"{count}{unit}" if count else ""
    return sign + text


def format_time(us: int) -> str:
    """Formats a time (us) as ISO 8601 in UTC, with a fraction only if it is not zero.

    The limits of time are formatted as `-inf` and `+inf`.

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
    """Formats a time (us) in UTC as (date, time of day). None for the limits of time, and outside of the years that
    Python has.
    """
    moment = _moment(us) if MIN_TIME < us < GLOBAL_WINDOW_END - 1 else None
    return None if moment is None else (moment.date().isoformat(), f"{moment:%H:%M:%S}")


def _moment(us: int) -> datetime | None:
    try:
        moment = datetime.fromtimestamp(us // 1_000_000, UTC).replace(microsecond=us % 1_000_000)
    except (OverflowError, ValueError, OSError):
        return None
    return moment.replace(tzinfo=None)
