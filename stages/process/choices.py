"""Validators of the arguments of state fields and timers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import attrs

Domain = Literal["event", "processing"]
"""The kind of time that a timer or a time to live refers to."""


def kind_of(kind: type, called: str) -> Callable[[object, attrs.Attribute[Any], object], None]:
    def check(owner: object, attribute: attrs.Attribute[Any], value: object) -> None:
        if not isinstance(value, kind):
            raise TypeError(f"{attribute.name} must be {called}, not {value!r}")

    return check


def one_of(*choices: str) -> Callable[[object, attrs.Attribute[Any], object], None]:
    def check(owner: object, attribute: attrs.Attribute[Any], value: object) -> None:
        if value not in choices:
            allowed = " or ".join(map(repr, choices))
            raise ValueError(f"{attribute.name} must be {allowed}, not {value!r}")

    return check
