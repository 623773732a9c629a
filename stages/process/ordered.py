"""The value of an `OrderedList` field: a list of values sorted by time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from datetime import datetime
from typing import Generic, TypeVar

from stages.process.time_conversion import from_datetime, to_datetime

ValueT = TypeVar("ValueT")


class Ordered(Generic[ValueT]):
    """A list of values sorted by time; values of the same time are in the order in which they were added."""

    __slots__ = ("times", "values")

    def __init__(self, times: list[int] | None = None, values: list[ValueT] | None = None) -> None:
        self.times, self.values = times or [], values or []

    def add(self, time: datetime, value: ValueT) -> None:
        """Adds a value at this time; a datetime without a zone is in UTC."""
        at = from_datetime(time)
        place = bisect_left(self.times, at + 1)
        self.times.insert(place, at)
        self.values.insert(place, value)

    def range(
        self, start: datetime | None = None, end: datetime | None = None
    ) -> list[tuple[datetime, ValueT]]:
        """Returns the times and values with `start <= time < end`; without bounds, all of them."""
        first, last = self._places(start, end)
        times = map(to_datetime, self.times[first:last])
        return list(zip(times, self.values[first:last], strict=True))

    def clear(self, start: datetime | None = None, end: datetime | None = None) -> None:
        """Removes the values with `start <= time < end`; without bounds, all of them."""
        first, last = self._places(start, end)
        del self.times[first:last], self.values[first:last]

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[tuple[datetime, ValueT]]:
        return iter(self.range())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ordered) and (self.times, self.values) == (other.times, other.values)

    def __copy__(self) -> Ordered[ValueT]:
        return Ordered(self.times.copy(), self.values.copy())

    def __repr__(self) -> str:
        return f"Ordered({self.range()!r})"

    def _places(self, start: datetime | None, end: datetime | None) -> tuple[int, int]:
        first = 0 if start is None else bisect_left(self.times, from_datetime(start))
        last = len(self.times) if end is None else bisect_left(self.times, from_datetime(end))
        return first, last
