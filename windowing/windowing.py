"""Windowing: the options that decide the windows of a grouping, and when and how it emits; validated together."""

from __future__ import annotations

from typing import Any, TypeVar

import attrs

from windowing.identity import Declared
from windowing.panes import ALWAYS, IF_NON_EMPTY, Accumulation
from windowing.time import GLOBAL_WINDOW_END, format_duration, microseconds
from windowing.timestamp_combiners import TimestampCombiner, TimestampOf
from windowing.triggers.base import Trigger, is_trigger
from windowing.triggers.basic import AfterWatermark, DefaultTrigger
from windowing.windows import GlobalWindows, WindowFn

Choice = TypeVar("Choice", Accumulation, TimestampCombiner)


def _accumulation(value: Accumulation | str) -> Accumulation:
    return _member(Accumulation, value)


def _combiner(value: TimestampCombiner | TimestampOf | str) -> TimestampCombiner | TimestampOf:
    return value if isinstance(value, TimestampOf) else _member(TimestampCombiner, value)


def _member(kind: type[Choice], value: Choice | str) -> Choice:
    try:
        return kind(value)
    except ValueError:
        allowed = ", ".join(repr(member.value) for member in kind)
        raise ValueError(f"{value!r} is no {kind.__name__}; it may be {allowed}") from None


def _when_empty(owner: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if value not in (ALWAYS, IF_NON_EMPTY):
        raise ValueError(f"{attribute.name} may be {ALWAYS!r} or {IF_NON_EMPTY!r}, not {value!r}")


def _true_or_false(owner: object, attribute: attrs.Attribute[bool], value: object) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{attribute.name} must be True or False, not {value!r}")


@attrs.frozen(repr=False)
class Windowing(Declared):
    """The windowing of a collection: windows, trigger, accumulation, timestamp combiner and allowed lateness.

    Args:
        windows: The windows; by default, the global window.
        trigger: The rule that decides when a window emits a pane.
        accumulation: The relation of a pane to earlier panes of its window.
        timestamp_combiner: The choice of the event time of a pane.
        allowed_lateness: The duration after its end for which a window accepts elements. Stored in microseconds.
        on_time: "always" to emit the pane at the end of a window even without new elements, which is the default; or
            "if_non_empty".
        closing: The same choice for the last pane of a window; by default "if_non_empty".
        allow_data_loss: True to accept a trigger that may finish while its window still accepts elements. Such
            elements are dropped. By default it is refused.
        allow_repeats: True to allow a later grouping of accumulating panes, which contain the same elements again.
    """

    windows: WindowFn = attrs.field(factory=GlobalWindows, validator=attrs.validators.instance_of(WindowFn))
    trigger: Trigger = attrs.field(factory=DefaultTrigger, validator=is_trigger)
    accumulation: Accumulation = attrs.field(default=Accumulation.DISCARDING, converter=_accumulation)
    timestamp_combiner: TimestampCombiner | TimestampOf = attrs.field(
        default=TimestampCombiner.END_OF_WINDOW, converter=_combiner
    )
    allowed_lateness: int = attrs.field(default=0, converter=microseconds)
    on_time: str = attrs.field(default=ALWAYS, validator=_when_empty, kw_only=True)
    closing: str = attrs.field(default=IF_NON_EMPTY, validator=_when_empty, kw_only=True)
    allow_data_loss: bool = attrs.field(default=False, kw_only=True, validator=_true_or_false)
    allow_repeats: bool = attrs.field(default=False, kw_only=True, validator=_true_or_false)

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
        """True if the trigger may finish while its window still accepts elements."""
        if not self.trigger.may_finish():
            return False
        at_the_end = isinstance(self.trigger, AfterWatermark) and self.trigger.percentile is None
        return not (at_the_end and self.allowed_lateness == 0)

    def may_repeat(self) -> bool:
        """True if a pane may repeat elements of an earlier one of its window."""
        return self.accumulation is Accumulation.ACCUMULATING and not self.has_one_pane()

    def may_retract(self) -> bool:
        """True if a pane may retract an earlier one of its window."""
        return self.accumulation is Accumulation.RETRACTING and not self.has_one_pane()

    def has_one_pane(self) -> bool:
        """True if no window emits twice."""
        at_the_end = isinstance(self.trigger, AfterWatermark) and self.trigger == AfterWatermark()
        return at_the_end or (self.trigger.waits_for_end and self.allowed_lateness == 0)

    def _until(self) -> str:
        late = self.allowed_lateness
        return f" (until {format_duration(late)} after the window's end)" if late else ""

    def _remedy(self) -> str:
        if isinstance(self.trigger, AfterWatermark) and self.trigger.percentile is not None:
            return f"give it to another, as in AfterWatermark(early={self.trigger})"
        if isinstance(self.trigger, AfterWatermark):
            return "give it a late trigger such as late=AfterCount(1)"
        return "wrap it in Repeatedly(...)"

    @property
    def columns(self) -> tuple[str, ...]:
        """The user's columns that the windows and the timestamp combiner read."""
        return tuple(dict.fromkeys([*self.windows.columns, *self.timestamp_combiner.columns]))
