"""The public classes to declare keyed state: `Process`, and its rows with times of their own."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from stages.process.calls import Call, Window
from stages.process.state_fields import Field
from stages.process.time_conversion import EPOCH, to_datetime
from stages.process.timer_fields import Timer


class TimestampedValue(NamedTuple):
    """A row that a `Process` emits with an event time of its own: `TimestampedValue({"user": "a"}, time)`.

    Args:
        value: The row as a dict.
        timestamp: The event time as a datetime, in UTC if it has no zone. It must not be before the event time of the
            row, or the output timestamp of the timer, for which the method was called.

    Example, with the `plays` of `Collection`:
        >>> from datetime import timedelta
        >>> class Later(bl.Process):
        ...     def element(self, row):
        ...         yield bl.TimestampedValue({"user": row["user"]}, self.time + timedelta(hours=1))
        >>> later = plays.group_by("user").process(Later(), {"user": str}).collect()
        >>> print(later["event_time"].min())
        2026-01-31 13:00:10+00:00
    """

    value: Any
    timestamp: datetime


Rows = Iterable[Any] | None
"""The result of a method of a `Process`: any number of rows, as dicts or objects of a class, or None."""


class Process:
    """Keyed state and timers. A subclass declares the state of a key, and methods for each row and each timer.

    State fields and timers are declared as attributes of the class. Within a method they have the values of the current
    key. Attributes that the constructor sets are parameters, which all keys share. A method must not set one.

    If a method raises, its row or firing is a dead letter, and leaves no trace in state, timers or output. The methods
    are then called again for the other rows of the key. So they must have no other effects, such as writing to a
    database.

    Example, with the `plays` of `Collection`:
        >>> from datetime import datetime
        >>> class Silence(bl.Process):
        ...     since = bl.Value(datetime)
        ...     quiet = bl.EventTimer()
        ...     def element(self, row):
        ...         self.since = self.time
        ...         self.quiet.after("10m")
        ...     def on_quiet(self):
        ...         yield {"user": self.key.user, "since": self.since}
        >>> silences = plays.group_by("user").process(Silence(), {"user": str, "since": datetime})
        >>> silences.collect().height
        2
    """

    # One object serves all keys of a shard: `CellState` sets its attributes to the state of each key in turn, and
    # `_call` to the current call. So the properties below are valid only within a method.
    _call: Call

    def element(self, row: Any) -> Rows:
        """Processes a row, a dict of the user's columns. By default, emitted rows have the event time of this row.

        If the annotation of `row` is a class such as a dataclass, the row is an object of that class.
        """
        raise NotImplementedError

    def expire(self) -> Rows:
        """Returns the last rows of a key. Called when its window is collected, before its state is removed."""
        return None

    @property
    def key(self) -> Any:
        """The current key: a named tuple of the columns of `group_by`."""
        return self._call.key

    @property
    def time(self) -> datetime:
        """The event time of the row or timer; for a processing-time timer, the event time of the rows that it emits."""
        # Nearly every method reads it, and further calls would double its cost.
        try:
            return EPOCH + timedelta(0, 0, self._call.now)
        except OverflowError:
            return to_datetime(self._call.now)

    @property
    def window(self) -> Window | None:
        """The window of the row; None in the global window."""
        return self._call.window

    @property
    def late(self) -> bool:
        """True if the row arrived after the watermark had passed its event time."""
        return self._call.late

    @property
    def at_end(self) -> bool:
        """True if the input has ended."""
        return self._call.at_end

    @property
    def retracted(self) -> bool:
        """True if the row retracts an earlier one."""
        return self._call.retracted

    @property
    def watermark(self) -> datetime | None:
        """The input watermark; None before there is one. It depends on how the input was divided into batches."""
        return self._call.shown_watermark

    @property
    def processing_time(self) -> datetime:
        """The processing time of the batch."""
        return self._call.shown_processing_time


def fields_of(process: Process) -> dict[str, Field]:
    """Returns the state fields of a process by name, in order of declaration, inherited ones first."""
    return {name: found for name, found in _declared(process) if isinstance(found, Field)}


def timers_of(process: Process) -> dict[str, Timer]:
    """Returns the timers of a process by name, in order of declaration, inherited ones first."""
    return {name: found for name, found in _declared(process) if isinstance(found, Timer)}


def _declared(process: Process) -> list[tuple[str, Any]]:
    # An override keeps the place of the attribute that it replaces. So the order, which is that of the state's
    # columns, does not change when a subclass overrides a field.
    found: dict[str, Any] = {}
    for base in reversed(type(process).__mro__):
        found.update(vars(base))
    return list(found.items())
