"""The timers that a user's process declares."""

from __future__ import annotations

from typing import ClassVar, Literal

import attrs

from stages.process.attribute_types import Attribute
from stages.process.choices import Domain, kind_of, one_of
from stages.process.timers import Family, Single

AtEnd = Literal["fire", "drop"]
"""The effect of the end of input on a pending event-time timer."""


@attrs.frozen(eq=False)
class Timer:
    """A timer of a `Process`: a method sets it, and the method `on_<name>` is called when its time is reached.

    A timer has at most one pending firing for each key and window; a family has one for each tag, too. Setting a timer
    again replaces its pending firing.
    """

    # `domain` and `family` decide the columns of state (`CellLayout`) and the attribute class (`Single`, `Family`).
    domain: ClassVar[Domain]
    family: ClassVar[bool] = False

    @property
    def drops(self) -> bool:
        """True if the timer does not fire at the end of input."""
        return False

    @property
    def holds(self) -> bool:
        """True if the timer holds the watermark at the time of the row that set it, and emits at that time."""
        return False


@attrs.frozen(eq=False)
class _OfEventTime(Timer):
    """A timer or a family of timers by event time."""

    domain: ClassVar[Domain] = "event"
    at_end: AtEnd = attrs.field(default="fire", validator=one_of("fire", "drop"), kw_only=True)

    @property
    def drops(self) -> bool:
        return self.at_end == "drop"


@attrs.frozen(eq=False)
class _OfProcessingTime(Timer):
    """A timer or a family of timers by processing time."""

    domain: ClassVar[Domain] = "processing"
    hold: bool = attrs.field(default=False, validator=kind_of(bool, "True or False"), kw_only=True)

    @property
    def holds(self) -> bool:
        return self.hold


@attrs.frozen(eq=False)
class EventTimer(_OfEventTime, Attribute[Single]):
    """A timer that fires when the watermark reaches its time: no row with an earlier event time is expected any more.

    Args:
        at_end: "fire" to fire at the end of input as if time went on; "drop" not to fire then, for a timer that always
            sets itself again.

    Example:
        >>> class Silence(bl.Process):
        ...     quiet = bl.EventTimer()
        ...     tick = bl.EventTimer(at_end="drop")
    """


@attrs.frozen(eq=False)
class ProcessingTimer(_OfProcessingTime, Attribute[Single]):
    """A timer that fires when processing time reaches its time: at most once in a batch, and once at the end of input.

    By default it does not hold the watermark, and the event time of the rows that it emits is the output watermark. If
    it is set with `output=`, it holds the watermark at that time, which is then the event time of emitted rows.

    Args:
        hold: True if the timer holds the watermark at the event time of the row that set it. Emitted rows then have
            this event time.

    Example:
        >>> class Flush(bl.Process):
        ...     flush = bl.ProcessingTimer(hold=True)
    """


@attrs.frozen(eq=False)
class EventTimers(_OfEventTime, Attribute[Family]):
    """A family of event-time timers, one for each tag: `self.retries.after("5s", tag="a")`.

    Args:
        at_end: "fire" or "drop", as for `EventTimer`.

    Example:
        >>> class Retries(bl.Process):
        ...     retry = bl.EventTimers()
        ...     def element(self, row):
        ...         self.retry.after("5s", tag=row["user"])
        ...     def on_retry(self, tag):
        ...         yield {"user": tag}
    """

    family: ClassVar[bool] = True


@attrs.frozen(eq=False)
class ProcessingTimers(_OfProcessingTime, Attribute[Family]):
    """A family of processing-time timers, one for each tag.

    Args:
        hold: True if the timers hold the watermark, as for `ProcessingTimer`.

    Example:
        >>> class Retries(bl.Process):
        ...     retry = bl.ProcessingTimers()
    """

    family: ClassVar[bool] = True
