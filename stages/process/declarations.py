"""The declarations of a user's process: a class with state fields, timers, and methods for rows and firings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, ClassVar, Final, Literal, NamedTuple

import attrs

from stages.aggregates.base import Aggregate
from stages.process.calls import Call, Window
from stages.process.moments import to_datetime
from windowing.time import Duration, format_duration, microseconds

NO_TYPE: Final = "no type"
"""In place of a type that was not declared."""

Domain = Literal["event", "processing"]
AtEnd = Literal["fire", "drop"]


class TimestampedValue(NamedTuple):
    """A row that a `Process` emits with an event time of its own: `TimestampedValue({"user": "a"}, time)`.

    Args:
        timestamp: A datetime, in UTC if it has no zone. It must not be before the row that the method was called for,
            or before the output timestamp of the timer.

    Example, with the `plays` of `Collection`:
        >>> from datetime import timedelta
        >>> class Later(bl.Process):
        ...     def element(self, row):
        ...         yield bl.TimestampedValue({"user": row["user"]}, self.time + timedelta(hours=1))
        >>> later = plays.group_by("user").process(Later(), {"user": str}).collect()
        >>> print(later["event_time"].min())
        2026-01-31 13:00:10+00:00
    """

    value: Mapping[str, Any]
    timestamp: datetime


def _lifetime(ttl: Duration | None) -> int | None:
    return None if ttl is None else int(microseconds(ttl))


def _positive(owner: object, attribute: attrs.Attribute[Any], value: int | None) -> None:
    if value is not None and value <= 0:
        raise ValueError(f"ttl must be longer than 0s, not {format_duration(value)!r}")


def _kind_of(kind: type, called: str) -> Callable[[object, attrs.Attribute[Any], object], None]:
    def check(owner: object, attribute: attrs.Attribute[Any], value: object) -> None:
        if not isinstance(value, kind):
            raise TypeError(f"{attribute.name} must be {called}, not {value!r}")

    return check


def _one_of(*choices: str) -> Callable[[object, attrs.Attribute[Any], object], None]:
    def check(owner: object, attribute: attrs.Attribute[Any], value: object) -> None:
        if value not in choices:
            allowed = " or ".join(map(repr, choices))
            raise ValueError(f"{attribute.name} must be {allowed}, not {value!r}")

    return check


@attrs.frozen(eq=False)
class Field:
    """A state field of a `Process`: a value per key and window that is kept between rows and batches."""

    kind: ClassVar[str]


@attrs.frozen(eq=False)
class _Lasting(Field):
    """A field that may expire: `ttl` after it was last written, `by` event time or processing time."""

    ttl: int | None = attrs.field(default=None, converter=_lifetime, validator=_positive, kw_only=True)
    by: Domain = attrs.field(default="event", validator=_one_of("event", "processing"), kw_only=True)


@attrs.frozen(eq=False)
class Value(_Lasting):
    """A value of a type: `count = bl.Value(int, default=0)`.

    A `Value(object)` may be anything that pickle can store. Write access to a checkpoint then allows to run code in the
    pipeline that reads it.

    Args:
        type: The type as in a schema: a Python type such as `int`, `str`, `datetime` or `list[str]`, or a polars dtype.
        default: The value where nothing was written.
        ttl: The time after which a written value expires, such as "1h"; by default it does not expire.
        by: "event" to compare `ttl` with the time of the row that reads the value, "processing" for processing time.

    Example:
        >>> class Last(bl.Process):
        ...     points = bl.Value(int, default=0, ttl="1d")
    """

    kind: ClassVar[str] = "Value"
    type: Any = attrs.field(default=NO_TYPE)
    default: Any = attrs.field(default=None, kw_only=True)


@attrs.frozen(eq=False)
class List(_Lasting):
    """A list of values of a type: a plain Python list, to which `self.items.append(value)` adds.

    Args:
        type: The type of a value, as for `Value`.
        ttl: The time after which the list expires if it is not written; by default it does not expire.
        by: "event" or "processing", as for `Value`.

    Example:
        >>> class Batch(bl.Process):
        ...     rows = bl.List({"user": str, "points": int})
    """

    kind: ClassVar[str] = "List"
    type: Any = attrs.field(default=NO_TYPE)


@attrs.frozen(eq=False)
class Set(_Lasting):
    """A set of values of a type: a plain Python set.

    Args:
        type: The type of a value, as for `Value`. It must be hashable in Python.
        ttl: The time after which the set expires if it is not written; by default it does not expire.
        by: "event" or "processing", as for `Value`.

    Example:
        >>> class Seen(bl.Process):
        ...     ids = bl.Set(str, ttl="1h")
    """

    kind: ClassVar[str] = "Set"
    type: Any = attrs.field(default=NO_TYPE)


@attrs.frozen(eq=False)
class Map(_Lasting):
    """Values by key: a plain Python dict. All of it is read and written with its row of state.

    A large map therefore belongs into a finer key of the grouping.

    Args:
        key: The type of a key, as for `Value`. It must be hashable in Python.
        value: The type of a value.
        ttl: The time after which the map expires if it is not written; by default it does not expire.
        by: "event" or "processing", as for `Value`.

    Example:
        >>> class Counts(bl.Process):
        ...     by_page = bl.Map(str, int)
    """

    kind: ClassVar[str] = "Map"
    key: Any = attrs.field(default=NO_TYPE)
    value: Any = attrs.field(default=NO_TYPE)


@attrs.frozen(eq=False)
class OrderedList(_Lasting):
    """Values in the order of their times; the field is an `Ordered`, which has the methods.

    Args:
        type: The type of a value, as for `Value`.
        ttl: The time after which the list expires if it is not written; by default it does not expire.
        by: "event" or "processing", as for `Value`.

    Example:
        >>> class Recent(bl.Process):
        ...     prices = bl.OrderedList(float)
    """

    kind: ClassVar[str] = "OrderedList"
    type: Any = attrs.field(default=NO_TYPE)


@attrs.frozen(eq=False)
class Combining(Field):
    """An aggregate of added rows: `total = bl.Combining(bl.sum("amount"))`.

    `self.total.add(row)` adds a row, or any dict with the aggregate's columns, `self.total.read()` returns the result
    and `self.total.clear()` removes all that was added. Adding is cheap. A read computes the result, which takes a
    fraction of a millisecond, so a result that is read for every row is better kept in a `Value`.

    Args:
        aggregate: An aggregate such as `bl.sum("amount")`.

    Example:
        >>> class Total(bl.Process):
        ...     points = bl.Combining(bl.sum("points"))
    """

    kind: ClassVar[str] = "Combining"
    aggregate: Aggregate = attrs.field(validator=_kind_of(Aggregate, 'an aggregate such as bl.sum("points")'))


@attrs.frozen(eq=False)
class Timer:
    """A timer of a `Process`: a method sets it, and `on_<name>` is called when its time is reached.

    There is one pending firing per key and window, and per tag in a family. Setting a timer again replaces the firing.
    """

    domain: ClassVar[Domain]
    family: ClassVar[bool] = False


@attrs.frozen(eq=False)
class EventTimer(Timer):
    """Fires when the watermark reaches its time, when no row before that time is still expected.

    Args:
        at_end: "fire" to fire at the end of input as if time went on; "drop" for a timer that always sets itself again.

    Example:
        >>> class Silence(bl.Process):
        ...     quiet = bl.EventTimer()
        ...     tick = bl.EventTimer(at_end="drop")
    """

    domain: ClassVar[Domain] = "event"
    at_end: AtEnd = attrs.field(default="fire", validator=_one_of("fire", "drop"), kw_only=True)


@attrs.frozen(eq=False)
class ProcessingTimer(Timer):
    """Fires when processing time reaches its time, at most once in a batch, and once at the end of input.

    By default it does not hold the watermark, and the rows that it emits have the output watermark as their time. If it
    is set with an `output=`, it holds the watermark and emits at that time.

    Args:
        hold: If the timer holds the watermark at the time of the row that set it, and emits at that time.

    Example:
        >>> class Flush(bl.Process):
        ...     flush = bl.ProcessingTimer(hold=True)
    """

    domain: ClassVar[Domain] = "processing"
    hold: bool = attrs.field(default=False, validator=_kind_of(bool, "True or False"), kw_only=True)


@attrs.frozen(eq=False)
class EventTimers(EventTimer):
    """A family of event timers, one per tag: `self.retries.after("5s", tag="a")`.

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
class ProcessingTimers(ProcessingTimer):
    """A family of processing-time timers, one per tag.

    Args:
        hold: If the timers hold the watermark, as for `ProcessingTimer`.

    Example:
        >>> class Retries(bl.Process):
        ...     retry = bl.ProcessingTimers()
    """

    family: ClassVar[bool] = True


Rows = Iterable[Mapping[str, Any] | TimestampedValue] | None
"""The result of a method: any number of rows, as dicts, or None."""


class Process:
    """Keyed state and timers: a subclass declares the state of a key, and methods for each row and each firing.

    State fields and timers are attributes of the class; in the methods they are plain values of the current key. The
    attributes that the constructor sets are parameters, which all keys share: a method that sets one raises.

    A row on which a method raises is a dead letter, and leaves no trace in state, timers or output; so is a firing that
    raises. The methods of the key are then called again without it, so they must have no other effects, such as writing
    to a database.

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

    _call: Call

    def element(self, row: dict[str, Any]) -> Rows:
        """Processes a row, a dict of the user's columns. Emitted rows have the event time of that row."""
        raise NotImplementedError

    def expire(self) -> Rows:
        """Emits the last rows of a key when its window is collected, before its state is removed."""
        return None

    @property
    def key(self) -> Any:
        """The current key: a named tuple of the columns of `group_by`."""
        return self._call.key

    @property
    def time(self) -> datetime:
        """The event time of the row or timer; for a processing-time timer, the time of the rows that it emits."""
        return to_datetime(self._call.now)

    @property
    def window(self) -> Window | None:
        """The window of the row; None in the global window."""
        return self._call.window

    @property
    def late(self) -> bool:
        """True if the row arrived after the watermark had passed its time."""
        return self._call.late

    @property
    def at_end(self) -> bool:
        """True if the input is over."""
        return self._call.at_end

    @property
    def retracted(self) -> bool:
        """True if the row retracts an earlier one."""
        return self._call.retracted

    @property
    def watermark(self) -> datetime | None:
        """The input watermark, which depends on how the input was cut into batches; None before there is one."""
        return self._call.shown_watermark

    @property
    def processing_time(self) -> datetime:
        """The processing time of the batch."""
        return self._call.shown_processing_time


def fields_of(process: Process) -> dict[str, Field]:
    """Returns the state fields that a class declares, in order, those of its bases first."""
    return {name: found for name, found in _declared(process) if isinstance(found, Field)}


def timers_of(process: Process) -> dict[str, Timer]:
    """Returns the timers that a class declares, in order, those of its bases first."""
    return {name: found for name, found in _declared(process) if isinstance(found, Timer)}


def _declared(process: Process) -> list[tuple[str, Any]]:
    found: dict[str, Any] = {}
    for base in reversed(type(process).__mro__):
        found.update(vars(base))
    return list(found.items())
