"""Conversion of times for users' functions: microseconds to datetimes in UTC, and back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from windowing.time import DAY, Duration, of_any_length

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST: Final = datetime.min.replace(tzinfo=UTC)
_LAST: Final = datetime.max.replace(tzinfo=UTC)


def to_datetime(us: int) -> datetime:
    """Converts microseconds to a datetime in UTC; times outside of the years 1 to 9999 become the first or last one."""
    try:
        return EPOCH + timedelta(0, 0, us)  # with keyword arguments it takes twice as long
    except OverflowError:
        return _FIRST if us < 0 else _LAST


def from_datetime(time: object) -> int:
    """Converts a datetime, in UTC if it has no zone, to microseconds. Raises `TypeError` for anything else."""
    if not isinstance(time, datetime):
        raise TypeError(f"expected a datetime, got {time!r}")
    since = (time if time.tzinfo is not None else time.replace(tzinfo=UTC)) - EPOCH
    return since.days * DAY + since.seconds * 1_000_000 + since.microseconds


@lru_cache(maxsize=1024)
def length(duration: Duration) -> int:
    """Converts a duration to microseconds. Cached, since a process uses the same few durations for every row."""
    return int(of_any_length(duration))
