"""The conversion of Beam's triggers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from windowing import (
    AfterAll,
    AfterAny,
    AfterCount,
    AfterEach,
    AfterProcessingTime,
    AfterSynchronizedProcessingTime,
    AfterWatermark,
    Always,
    DefaultTrigger,
    Never,
    OrFinally,
    Repeatedly,
    Trigger,
)
from windowing.time import Microseconds


def trigger_of(proto: Any) -> Trigger:
    """Converts a trigger of a pipeline proto; a trigger that is not set is the default trigger.

    Raises:
        NotImplementedError: The trigger is of an unknown kind.
    """
    kind = proto.WhichOneof("trigger")
    if kind is None:
        return DefaultTrigger()
    if kind not in _KINDS:
        raise NotImplementedError(f"BeamlikeRunner has no trigger {kind!r}; it has {', '.join(_KINDS)}")
    return _KINDS[kind](getattr(proto, kind))


def _after_watermark(own: Any) -> Trigger:
    early = trigger_of(own.early_firings) if own.HasField("early_firings") else None
    late = trigger_of(own.late_firings) if own.HasField("late_firings") else None
    return AfterWatermark(early, late)


def _after_processing_time(own: Any) -> Trigger:
    delay, align = 0, dict[str, Microseconds]()
    for each in own.timestamp_transforms:
        if each.WhichOneof("timestamp_transform") == "delay":
            delay += each.delay.delay_millis * 1000
        else:
            period, offset = each.align_to.period * 1000, each.align_to.offset * 1000
            align = {"align_to": Microseconds(period), "offset": Microseconds(offset)}
    return AfterProcessingTime(Microseconds(delay), **align)


_KINDS: Final[dict[str, Callable[[Any], Trigger]]] = {
    "default": lambda own: DefaultTrigger(),
    "always": lambda own: Always(),
    "never": lambda own: Never(),
    "element_count": lambda own: AfterCount(own.element_count),
    "after_end_of_window": _after_watermark,
    "after_processing_time": _after_processing_time,
    "after_synchronized_processing_time": lambda own: AfterSynchronizedProcessingTime(),
    "repeat": lambda own: Repeatedly(trigger_of(own.subtrigger)),
    "or_finally": lambda own: OrFinally(trigger_of(own.main), trigger_of(getattr(own, "finally"))),
    "after_all": lambda own: AfterAll(*map(trigger_of, own.subtriggers)),
    "after_any": lambda own: AfterAny(*map(trigger_of, own.subtriggers)),
    "after_each": lambda own: AfterEach(*map(trigger_of, own.subtriggers)),
}
