"""What may be given to a runner."""

from __future__ import annotations

import re
from typing import Any, Final

import attrs

from beamlike.logical.names import require_name

_INTERVAL: Final = re.compile(r"(\d+)\s*(microsecond|millisecond|second|minute|hour|day)s?")

_SECONDS: Final = {
    "microsecond": 1e-6,
    "millisecond": 1e-3,
    "second": 1.0,
    "minute": 60.0,
    "hour": 3_600.0,
    "day": 86_400.0,
}


AVAILABLE_NOW: Final = "available_now"
"""The trigger of a run that takes what is there, and ends."""


def is_trigger(owner: object, attribute: attrs.Attribute[str], value: object) -> None:
    if value != AVAILABLE_NOW and not (isinstance(value, str) and _INTERVAL.fullmatch(value.strip())):
        raise ValueError(
            f"{type(owner).__name__}: trigger must be 'available_now' or an interval such as '10 seconds', "
            f"not {value!r}"
        )


def seconds(interval: str) -> float:
    """How long an interval is."""
    found = _INTERVAL.fullmatch(interval.strip())
    assert found is not None
    return int(found[1]) * _SECONDS[found[2]]


def is_positive(owner: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ValueError(
            f"{type(owner).__name__}: shards must be a whole number of at least 1, not {value!r}"
        )


def is_run_id(owner: object, attribute: attrs.Attribute[str | None], value: object) -> None:
    """Requires one line of text, as for all names. Raises `PlanError`."""
    if value is not None:
        require_name(value, "run")
