"""Times in tests: a datetime, ISO 8601 text, or a number of seconds since 1970."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

from windowing.time import Microseconds

TimeLike = datetime | str | int | float
"""A time. A number is in seconds since 1970; `Microseconds`, which is an int, is in microseconds."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def instant(time: TimeLike) -> int:
    """Converts a time to whole microseconds since 1970; only floats are rounded. A time without a zone is in UTC.

    Raises `TypeError` for another type, and `ValueError` for text that is not a time or a number that is not finite.
    """
    if isinstance(time, Microseconds):
        return int(time)
    if isinstance(time, str):
        time = _parse(time)
    if isinstance(time, datetime):
        aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
        return (aware - _EPOCH) // timedelta(microseconds=1)
    if isinstance(time, bool) or not isinstance(time, int | float):
        raise TypeError(
            f"expected a time such as '2026-01-01T12:00:00Z', a datetime or seconds, not {time!r}"
        )
    if isinstance(time, int):
        return time * 1_000_000
    if not math.isfinite(time * 1_000_000):
        raise ValueError(f"a time must be finite, not {time!r}")
    return round(time * 1_000_000)


def _parse(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(f"not a time: {text!r}; write for example '2026-01-01T12:00:00Z'") from None
