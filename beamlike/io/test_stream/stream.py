"""A source for tests, defined step by step: bundles of elements, and clocks that move."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import attrs
import polars as pl

from beamlike.errors import nearest
from beamlike.io.base import Declared, declared
from beamlike.io.sources import SourceStep
from beamlike.io.test_stream.fitting import fits
from beamlike.io.test_stream.times import TimeLike, instant
from beamlike.rows.dtypes import SchemaLike, type_name
from beamlike.rows.objects import row_as_dict
from beamlike.system.datasets import Dataset
from stages.strategies.announced import AnnouncedWatermark, announcement
from stages.strategies.base import Summary
from windowing.time import (
    GLOBAL_WINDOW_END,
    MAX_TIME,
    MIN_TIME,
    Duration,
    format_time,
    of_any_length,
)

T = TypeVar("T")


def _columns(schema: SchemaLike | Declared) -> Declared:
    columns = declared(schema)
    if columns is None:
        raise TypeError('TestStream needs a schema such as {"user": str, "at": int}')
    return columns


@attrs.frozen(eq=False)
class TestStream:
    """A source for tests whose elements and clocks are defined step by step:
    `TestStream(schema).add_elements([...])...`

    A stream is immutable: each method returns a new stream with one more step. Every step is a batch. Steps are
    numbered from 0, and step n of every test stream of a pipeline is played in batch n, on either runner. After the
    last step of the longest stream, one more batch moves all watermarks to the end of time.

    Times are datetimes, ISO text or seconds since 1970. A stream has its own clocks: the watermark starts at the
    beginning of time and the processing time at 0. The stream has no end, unless `advance_watermark_to_infinity()`
    defines one. `p.read` defines the event time column, as for every source. If no step announces a watermark, `p.read`
    may define a `watermark=` strategy, too.

    Args:
        schema: Column names and types of the elements, or a class of rows.

    Example:
        >>> stream = bl.TestStream({"user": str, "at": int})
        >>> stream = stream.add_elements([{"user": "ada", "at": 10}]).advance_watermark_to(60)
        >>> stream = stream.add_elements([{"user": "bob", "at": 20}]).advance_watermark_to_infinity()
        >>> plays = bl.Pipeline("p").read("plays", stream, timestamp="at", timestamp_unit="s")
        >>> counts = plays.window_into(bl.FixedWindows("1m"), allowed_lateness="1m").aggregate(n=bl.count())
        >>> counts.collect()[["n", "pane_timing"]].rows()
        [(1, 'on_time'), (1, 'late')]
    """

    __test__: ClassVar[bool] = False  # otherwise pytest would collect the class

    columns: Declared = attrs.field(converter=_columns, alias="schema")
    steps: tuple[SourceStep, ...] = attrs.field(
        default=(), kw_only=True, repr=lambda steps: f"<{len(steps)} steps>"
    )

    def add_elements(self, rows: Sequence[Any]) -> TestStream:
        """Adds a bundle of elements.

        Nothing is converted: 1.7 is not an int, and neither is True; an int fits a float column.

        Args:
            rows: Dicts, or objects of a class such as a dataclass; the list may be empty. A column that a dict lacks is
                null.

        Raises:
            TypeError: A value does not fit its column. The message has the number of the step.
            ValueError: A dict has an unknown column.

        Example:
            >>> bl.TestStream({"at": int}).add_elements([{"at": 1}, {"at": 2}])
            TestStream(columns=(('at', Int64),), steps=<1 steps>)
        """
        self._check_open()
        return self._with(elements=self._frame(rows))

    def advance_watermark_to(
        self, time: TimeLike, percentiles: Mapping[int, TimeLike] | None = None
    ) -> TestStream:
        """Moves the watermark forward: later elements with an earlier event time are late.

        Args:
            time: The new watermark.
            percentiles: Percentile watermarks, such as `{66: time}`: 66 % of the elements before that time have
                arrived.

        Raises:
            ValueError: A watermark would not move forward.

        Example:
            >>> bl.TestStream({"at": int}).advance_watermark_to("2026-01-31T12:00:00Z", percentiles={66: "2026-02-01"})
            TestStream(columns=(('at', Int64),), steps=<1 steps>)
        """
        self._check_open()
        if not isinstance(percentiles, Mapping | None):
            raise TypeError(f"{self._next}: percentiles= is a dict such as {{66: time}}, not {percentiles!r}")
        shares = {share: self._time(given) for share, given in (percentiles or {}).items()}
        watermark = self._watermark_after(time)
        self._check_percentiles(shares, watermark)
        return self._with(summary=announcement(watermark, shares))

    def advance_watermark_to_infinity(self) -> TestStream:
        """Ends the stream. A further step raises `ValueError`.

        Example:
            >>> bl.TestStream({"at": int}).advance_watermark_to_infinity().bounded
            True
        """
        self._check_open()
        return self._with(summary=announcement(MAX_TIME))

    def advance_processing_time(self, duration: Duration) -> TestStream:
        """Moves the processing time of the stream forward.

        Raises:
            ValueError: The duration is not positive.

        Example:
            >>> bl.TestStream({"at": int}).advance_processing_time("90s").processing_time
            90000000
        """
        self._check_open()
        by = self._read(of_any_length, duration)
        if by <= 0:
            raise ValueError(f"{self._next}: processing time must advance by more than 0s, not {duration!r}")
        if self.processing_time + by > MAX_TIME:
            raise ValueError(f"{self._next}: processing time would be out of range after {duration!r}")
        return self._with(processing_time=self.processing_time + by)

    @property
    def bounded(self) -> bool:
        """True if the stream has an end."""
        return self._announced == MAX_TIME

    @cached_property
    def percentiles(self) -> tuple[int, ...]:
        """The percentiles whose watermarks some step announces, sorted."""
        return tuple(
            sorted({int(share) for step in self.steps for share in step.summary.get("percentiles", ())})
        )

    @property
    def announces(self) -> bool:
        """True if any step announces a watermark. If none does, `p.read` may define a strategy."""
        return any(step.summary for step in self.steps)

    @property
    def watermark(self) -> AnnouncedWatermark:
        """The strategy that follows the announced watermarks."""
        return AnnouncedWatermark(percentiles=self.percentiles)

    @property
    def processing_time(self) -> int:
        """The processing time after the last step, in microseconds."""
        return self.steps[-1].processing_time if self.steps else 0

    def datasets(self) -> list[Dataset]:
        """Returns no dataset, since the rows are part of the program."""
        return []

    def schema(self) -> pl.Schema:
        """Returns the columns of the elements."""
        return pl.Schema(self.columns)

    def chunks(self, rows: int) -> Iterator[pl.LazyFrame]:
        """Yields the bundles that are not empty. Announcements are left out."""
        return (step.elements.lazy() for step in self.steps if step.elements.height)

    def step(self, number: int) -> SourceStep:
        """Returns the step with this number. After the last step, it is a step without elements and announcements."""
        if number < len(self.steps):
            return self.steps[number]
        # Another stream of the pipeline has more steps.
        return SourceStep(self._frame(()), {}, self.processing_time)

    @property
    def _announced(self) -> int:
        """The last announced watermark."""
        return next((step.summary["watermark"] for step in reversed(self.steps) if step.summary), MIN_TIME)

    @property
    def _next(self) -> str:
        """The name of the step that is being added, for errors."""
        return f"TestStream, step {len(self.steps)}"

    def _with(
        self,
        elements: pl.DataFrame | None = None,
        summary: Summary | None = None,
        processing_time: int | None = None,
    ) -> TestStream:
        step = SourceStep(
            self._frame(()) if elements is None else elements,
            summary or {},
            self.processing_time if processing_time is None else processing_time,
        )
        return attrs.evolve(self, steps=(*self.steps, step))

    def _check_open(self) -> None:
        if self.bounded:
            raise ValueError(f"{self._next}: nothing can follow advance_watermark_to_infinity()")

    def _read(self, convert: Callable[[Any], T], given: object) -> T:
        """Converts a user's value. Errors name the step."""
        try:
            return convert(given)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{self._next}: {error}") from None
        except OverflowError:
            raise ValueError(f"{self._next}: {given!r} lies outside of time") from None

    def _time(self, given: TimeLike) -> int:
        time = self._read(instant, given)
        if not MIN_TIME < time < GLOBAL_WINDOW_END:
            raise ValueError(
                f"{self._next}: {given!r} lies outside of event time; the end is advance_watermark_to_infinity()"
            )
        return time

    def _watermark_after(self, given: TimeLike) -> int:
        time = self._time(given)
        if time <= self._announced:
            raise ValueError(
                f"{self._next}: the watermark must move forward from {format_time(self._announced)}, "
                f"not to {format_time(time)}"
            )
        return time

    def _check_percentiles(self, shares: Mapping[int, int], watermark: int) -> None:
        known = [step.summary.get("percentiles", {}) for step in self.steps]
        for share, time in shares.items():
            if isinstance(share, bool) or not isinstance(share, int) or not 1 <= share <= 99:
                raise ValueError(f"{self._next}: a percentile is a whole number from 1 to 99, not {share!r}")
            least = max([watermark, *(before[str(share)] for before in known if str(share) in before)])
            if time < least:
                raise ValueError(
                    f"{self._next}: percentile {share} must not be behind {format_time(least)}, where it or the "
                    f"watermark is: {format_time(time)}"
                )

    def _frame(self, rows: Sequence[Any]) -> pl.DataFrame:
        schema = self.schema()
        if not isinstance(rows, list | tuple):
            raise TypeError(f"{self._next}: add_elements accepts a list of dicts, not {rows!r}")
        elements = [self._element(row, schema) for row in rows]
        try:
            return pl.from_dicts(elements, schema=schema)
        except (pl.exceptions.PolarsError, TypeError, ValueError, OverflowError) as error:
            reason = str(error).partition("\n")[0].partition(";")[0]
            raise TypeError(f"{self._next}: the elements do not fit the schema: {reason}") from error

    def _element(self, given: Any, schema: pl.Schema) -> dict[str, Any]:
        row = row_as_dict(given)
        if row is None:
            raise TypeError(f"{self._next}: an element is a dict such as {{'user': 'a'}}, not {given!r}")
        for name, value in row.items():
            if name not in schema:
                known = f"the columns are {', '.join(schema)}{nearest(name, schema)}"
                raise ValueError(f"{self._next}: there is no column {name!r} for {row!r}; {known}")
            if not fits(value, schema[name]):
                raise TypeError(
                    f"{self._next}: column {name!r} is {type_name(schema[name])}, not {value!r}, in {row!r}"
                )
        return row
