"""What may be given to the Spark runner."""

from __future__ import annotations

import re
from typing import Any, Final

import attrs

_INTERVAL: Final = re.compile(r"(\d+)\s*(microsecond|millisecond|second|minute|hour|day)s?")

_SECONDS: Final = {
    "microsecond": 1e-6,
    "millisecond": 1e-3,
    "second": 1.0,
    "minute": 60.0,
    "hour": 3_600.0,
    "day": 86_400.0,
}


def is_trigger(owner: object, attribute: attrs.Attribute[str], value: object) -> None:
    if value != "available_now" and not (isinstance(value, str) and _INTERVAL.fullmatch(value.strip())):
        raise ValueError(
            f"SparkRunner: trigger must be 'available_now' or an interval such as '10 seconds', not {value!r}"
        )


def seconds(interval: str) -> float:
    """How long an interval is."""
    found = _INTERVAL.fullmatch(interval.strip())
    assert found is not None
    return int(found[1]) * _SECONDS[found[2]]


def is_positive(owner: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ValueError(f"SparkRunner: shards must be a whole number of at least 1, not {value!r}")
