"""Identities are plain data: equal for equal declarations, and unchanged when a version adds an attribute."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from datetime import timedelta
from functools import cached_property, partial
from typing import Any

import attrs
import pytest

from windowing.custom import CustomWindows
from windowing.identity import as_text, function_of, identity_of
from windowing.time import Microseconds
from windowing.timestamp_combiners import TimestampCombiner, TimestampOf
from windowing.triggers.base import Repeatedly, Trigger
from windowing.triggers.basic import AfterCount, AfterWatermark
from windowing.windowing import Windowing
from windowing.windows import FixedWindows, SlidingWindows, WindowFn

MINUTE = 60_000_000


def test_what_is_at_its_default_is_left_out() -> None:
    assert FixedWindows("1m").identity() == {"kind": "FixedWindows", "size": MINUTE}
    assert FixedWindows("60s", "0s").identity() == FixedWindows("1m").identity()
    assert SlidingWindows("1m", "10s", offset="1s").identity() == {
        "kind": "SlidingWindows",
        "size": MINUTE,
        "period": 10_000_000,
        "offset": 1_000_000,
    }
    assert Windowing().identity() == {"kind": "Windowing"}
    trigger = Repeatedly(AfterWatermark(early=AfterCount(10)))
    assert trigger.identity() == {
        "kind": "Repeatedly",
        "trigger": {"kind": "AfterWatermark", "early": {"kind": "AfterCount", "count": 10}},
    }
    assert identity_of(TimestampCombiner.EARLIEST) == "earliest"
    assert TimestampOf("won").identity() == {"kind": "TimestampOf", "column": "won"}


def test_an_attribute_that_a_later_version_adds_changes_nothing() -> None:
    added = {"rounding": attrs.field(default="down")}
    later: Any = attrs.make_class("FixedWindows", added, bases=(FixedWindows,), frozen=True)
    assert later("1m").identity() == FixedWindows("1m").identity()
    assert later("1m", rounding="up").identity() != FixedWindows("1m").identity()


def test_whole_numbers_are_written_as_numbers() -> None:
    assert json.loads(as_text(identity_of(Microseconds(5)))) == 5
    assert identity_of(timedelta(seconds=1)) == 1_000_000
    assert identity_of({"b": (1, 2.5), "a": frozenset({"y", "x"})}) == {"b": [1, 2.5], "a": ["x", "y"]}
    assert identity_of(float("nan")) == "nan"


class Plain(CustomWindows):
    """Windows as a plain class with an attribute that changes in use."""

    def __init__(self, most: int) -> None:
        self.most, self.calls = most, []  # type: ignore[var-annotated]

    @cached_property
    def doubled(self) -> int:
        return 2 * self.most

    def assign_windows(self, time: int, row: dict[str, Any]) -> list[tuple[int, int]]:
        self.calls.append(time)
        return [(time, time + self.doubled)]


@attrs.frozen
class OnWeekdays(Trigger):
    """A user-defined trigger."""

    days: tuple[int, ...]
    weeks: int = 1


@dataclasses.dataclass(frozen=True)
class Config:
    """A value object of a user."""

    size: int
    name: str = "usual"


def test_classes_of_users_have_their_attributes_and_no_module() -> None:
    windows = Plain(3)
    before = windows.identity()
    windows.assign_windows(1, {})
    assert before == windows.identity() == {"kind": "Plain", "most": 3}
    assert Plain(4).identity() != before
    assert OnWeekdays((1, 2)).identity() == {"kind": "OnWeekdays", "days": [1, 2]}
    assert identity_of(Config(3)) == {"kind": "Config", "size": 3}
    assert identity_of(object()) == {"kind": "object"}


def above(least: int) -> Callable[[int], bool]:
    return lambda value: value > least


class Scaled:
    """An object whose method is passed as a function."""

    def call(self, value: int) -> int:
        return value


def test_functions_are_known_by_name_and_by_the_values_that_they_were_given() -> None:
    assert function_of(above) == {"function": f"{__name__}.above"}
    assert function_of(above(1)) == function_of(above(1)) != function_of(above(2))
    assert function_of(partial(above, 1)) != function_of(partial(above, 2)) != function_of(above)
    assert function_of(Scaled().call) == {"function": f"{__name__}.Scaled.call", "of": {"kind": "Scaled"}}
    seen: list[int] = []
    noting = lambda value: seen.append(value)  # noqa: E731
    before = function_of(noting)
    noting(1)
    assert function_of(noting) == before, "what changes while it is called is left out"
    assert "sha256" in function_of(above("long" * 1_000))["given"]  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [WindowFn, Trigger])
def test_kinds_are_told_apart_by_their_names(kind: type) -> None:
    def all_of(kind: type) -> list[type]:
        return [kind, *(each for below in kind.__subclasses__() for each in all_of(below))]

    # Classes with slots are made twice.
    names = {
        (each.__module__, each.__name__) for each in all_of(kind) if each.__module__.startswith("windowing.")
    }
    assert len({name for _, name in names}) == len(names) > 4
