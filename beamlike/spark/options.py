"""What may be given to the Spark runner."""

from __future__ import annotations

import re
from typing import Any

import attrs

_INTERVAL = re.compile(r"\d+\s*(microsecond|millisecond|second|minute|hour|day)s?")


def is_trigger(owner: object, attribute: attrs.Attribute[str], value: object) -> None:
    if value != "available_now" and not (isinstance(value, str) and _INTERVAL.fullmatch(value.strip())):
        raise ValueError(
            f"SparkRunner: trigger must be 'available_now' or an interval such as '10 seconds', not {value!r}"
        )


def is_positive(owner: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ValueError(f"SparkRunner: shards must be a whole number of at least 1, not {value!r}")
