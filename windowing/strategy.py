"""Windowing: where in event time, when, and how a grouping emits: five choices, checked together."""

from __future__ import annotations

from typing import TypeVar

import attrs

from windowing.combiners import TimestampCombiner
from windowing.panes import Accumulation
from windowing.time import GLOBAL_WINDOW_END, format_duration, microseconds
from windowing.triggers import AfterWatermark, DefaultTrigger, Trigger
from windowing.windows import GlobalWindows, WindowFn

Choice = TypeVar("Choice", Accumulation, TimestampCombiner)


def _accumulation(value: Accumulation | str) -> Accumulation:
    return _member(Accumulation, value)


def _combiner(value: TimestampCombiner | str) -> TimestampCombiner:
    return _member(TimestampCombiner, value)


def _member(kind: type[Choice], value: Choice | str) -> Choice:
    try:
        return kind(value)
    except ValueError:
        allowed = ", ".join(repr(member.value) for member in kind)
        raise ValueError(f"{value!r} is no {kind.__name__}; it may be {allowed}") from None


@attrs.frozen
class Windowing:
    """How a collection is windowed: windows, trigger, accumulation, timestamp combiner, allowed lateness.

    `allowed_lateness` is a duration, kept in microseconds: how long after its end a window still takes
    elements. A trigger that finishes while the window would still take elements is refused, as these would
    be dropped; `allow_data_loss=True` takes it nevertheless.
    """

    windows: WindowFn = attrs.field(factory=GlobalWindows, validator=attrs.validators.instance_of(WindowFn))
    trigger: Trigger = attrs.field(factory=DefaultTrigger, validator=attrs.validators.instance_of(Trigger))
    accumulation: Accumulation = attrs.field(default=Accumulation.DISCARDING, converter=_accumulation)
    timestamp_combiner: TimestampCombiner = attrs.field(
        default=TimestampCombiner.END_OF_WINDOW, converter=_combiner
    )
    allowed_lateness: int = attrs.field(default=0, converter=microseconds)
    allow_data_loss: bool = attrs.field(default=False, kw_only=True)

    @allowed_lateness.validator
    def _not_negative(self, attribute: attrs.Attribute[int], value: int) -> None:
        if not 0 <= value < GLOBAL_WINDOW_END:
            raise ValueError(f"allowed_lateness must not be negative: {format_duration(value)}")

    def __attrs_post_init__(self) -> None:
        if self.may_lose_data() and not self.allow_data_loss:
            raise ValueError(
                f"the trigger {self.trigger} may lose data: it finishes after a pane, and elements that come "
                f"later{self._until()} would be dropped; {self._remedy()}, or give allow_data_loss=True"
            )

    def may_lose_data(self) -> bool:
        """Whether the trigger can close a window that still takes elements."""
        if not self.trigger.may_finish():
            return False
        return not (isinstance(self.trigger, AfterWatermark) and self.allowed_lateness == 0)

    def _until(self) -> str:
        late = self.allowed_lateness
        return f" (until {format_duration(late)} after the window's end)" if late else ""

    def _remedy(self) -> str:
        if isinstance(self.trigger, AfterWatermark):
            return "give it a late trigger such as late=AfterCount(1)"
        return "wrap it in Repeatedly(...)"

    @property
    def last_collection(self) -> int:
        """The latest end that a window can have so that end + allowed lateness stays inside the limits."""
        return GLOBAL_WINDOW_END - self.allowed_lateness
