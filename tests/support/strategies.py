"""Hypothesis strategies that tests share: windowings, and streams of bundles with the clocks after them.

Times are small integers of microseconds, so that windows meet, touch and miss each other often.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from typing import Any

import attrs
from hypothesis import strategies as st

from tests.support.model import MAX_TIME, MIN_TIME, Element, Window
from windowing import (
    Accumulation,
    AfterAll,
    AfterAny,
    AfterCount,
    AfterEach,
    AfterProcessingTime,
    AfterSynchronizedProcessingTime,
    AfterWatermark,
    Always,
    CalendarWindows,
    CumulativeWindows,
    CustomWindows,
    DefaultTrigger,
    FixedWindows,
    GlobalWindows,
    Never,
    OrFinally,
    Repeatedly,
    Sessions,
    SlidingWindows,
    TimestampCombiner,
    TimestampOf,
    Trigger,
    WindowFn,
    Windowing,
)

FIRST_WATERMARK = -15
"""A little after the least event time, so that even the first watermarks find late elements."""


@attrs.frozen
class Bundle:
    """A step of a stream: its elements, and the clocks after them, in microseconds."""

    elements: tuple[Element, ...]
    watermark: int
    processing_time: int = 0
    percentiles: Mapping[int, int] = attrs.field(factory=dict)


Stream = tuple[Bundle, ...]

times = st.integers(-20, 40)
keys = st.sampled_from(["a", "b", "c"])
values = st.integers(-9, 9)
elements = st.tuples(keys, values, times)


def us(count: int) -> timedelta:
    """Returns a duration of `count` microseconds."""
    return timedelta(microseconds=count)


# Windows


@attrs.frozen
class Choosy(CustomWindows):
    """Windows that depend on the value: no window, one, or also a longer one."""

    columns = ("value",)
    size: int

    def assign_windows(self, time: int, row: dict[str, Any]) -> Iterator[Window]:
        start = time - time % self.size
        if row["value"] % 4:
            yield start, start + self.size
        if row["value"] < 0:
            yield start - 1, start + 2 * self.size


@attrs.frozen
class Nested(CustomWindows):
    """A short and a long window for each element; only the class knows which are before the long one."""

    size: int

    def assign_windows(self, time: int, row: dict[str, Any]) -> list[Window]:
        return [(start := time - time % size, start + size) for size in (self.size, 3 * self.size)]

    def previous_end(self, window: Window) -> int | None:
        start, end = window
        return None if end - start == self.size else end - self.size


@attrs.frozen
class Auctions(CustomWindows):
    """Elements whose value is a multiple of 3 open an auction; others are bids, which join an auction.

    An auction merges with the bids that begin before its end, even if they end later; its window stays as it is.
    """

    columns = ("value",)
    bid: int

    def assign_windows(self, time: int, row: dict[str, Any]) -> list[Window]:
        return [(time, time + (self.bid if row["value"] % 3 else 2 * self.bid))]

    def merge_windows(self, windows: list[Window]) -> Iterable[tuple[Iterable[Window], Window]]:
        free = {window for window in windows if window[1] - window[0] == self.bid}
        for auction in [window for window in windows if window not in free]:
            taken = {bid for bid in free if bid[0] < auction[1]}
            free -= taken
            yield {auction, *taken}, auction


@attrs.frozen
class Meetings(CustomWindows):
    """Windows that shrink: overlapping windows merge into their intersection."""

    size: int

    def assign_windows(self, time: int, row: dict[str, Any]) -> list[Window]:
        return [(time - self.size, time + self.size)]

    def merge_windows(self, windows: list[Window]) -> Iterable[tuple[Iterable[Window], Window]]:
        first, *rest = windows
        parts, common = [first], first
        for window in rest:
            shared = max(common[0], window[0]), min(common[1], window[1])
            if shared[0] < shared[1]:
                parts, common = [*parts, window], shared
            else:
                yield parts, common
                parts, common = [window], window
        yield parts, common


lengths = st.integers(1, 12).map(us)
offsets = st.just(us(0)) | st.integers(-15, 15).map(us)
fixed_windows = st.builds(FixedWindows, size=lengths, offset=offsets)
sliding_windows = st.builds(SlidingWindows, size=lengths, period=lengths, offset=offsets)
cumulative_windows = st.builds(
    lambda step, steps, offset: CumulativeWindows(step * steps, step, offset),
    lengths,
    st.integers(1, 4),
    offsets,
)
sessions = st.builds(Sessions, gap=lengths)
calendar_windows = st.builds(
    CalendarWindows,
    st.sampled_from(["days", "weeks", "months", "years"]),
    st.integers(1, 3),
    st.dates(max_value=date(9998, 1, 1)).map(lambda day: day.replace(day=min(day.day, 28))),
    st.sampled_from(["UTC", "Europe/Berlin", "America/Sao_Paulo", "Pacific/Apia"]),
)
custom_windows = st.builds(Choosy, st.integers(1, 12)) | st.builds(Nested, st.integers(1, 12))
own_merges = st.builds(Auctions, st.integers(1, 12)) | st.builds(Meetings, st.integers(1, 12))
all_windows: st.SearchStrategy[WindowFn] = st.one_of(
    fixed_windows, sliding_windows, cumulative_windows, sessions, st.builds(GlobalWindows), calendar_windows
)
"""Windows that need no column except the event time."""

lasting_windows = all_windows | custom_windows
"""Windows that do not change, or merge into one that spans them."""

family = lasting_windows | own_merges

# Triggers and other choices

counts = st.integers(1, 4).map(AfterCount)
accumulations = st.sampled_from(Accumulation)
combiners = st.sampled_from([*TimestampCombiner, TimestampOf("chosen")])
empty_panes = st.sampled_from(["if_non_empty", "always"])
lateness = st.just(us(0)) | st.integers(1, 40).map(us) | st.just(timedelta(days=2))
"""Two days are longer than the time between the global window's end and the end of time."""


def _early_and_late(children: st.SearchStrategy[Trigger]) -> st.SearchStrategy[Trigger]:
    optional = st.none() | children
    return st.builds(AfterWatermark, early=optional, late=optional)


def _of_several(
    kind: Callable[..., Trigger], children: st.SearchStrategy[Trigger]
) -> st.SearchStrategy[Trigger]:
    return st.lists(children, min_size=1, max_size=3).map(lambda several: kind(*several))


def _composites(children: st.SearchStrategy[Trigger]) -> st.SearchStrategy[Trigger]:
    return st.one_of(
        _early_and_late(children),
        st.builds(Repeatedly, children),
        *(_of_several(kind, children) for kind in (AfterAny, AfterAll, AfterEach)),
        st.builds(OrFinally, children, children),
    )


repeated_counts = st.builds(Repeatedly, counts)
percentiles = st.sampled_from([33, 66]).map(lambda percentile: AfterWatermark(percentile=percentile))
delays = st.integers(0, 9).map(us)
processing_times = st.one_of(
    st.builds(AfterProcessingTime, delays),
    st.builds(AfterProcessingTime, delays, align_to=lengths, offset=offsets),
    st.builds(AfterSynchronizedProcessingTime),
)
usual_triggers: st.SearchStrategy[Trigger] = st.one_of(
    st.builds(DefaultTrigger),
    counts,
    repeated_counts,
    _early_and_late(counts | repeated_counts | percentiles | processing_times),
    st.builds(Repeatedly, st.builds(AfterAny, counts, processing_times)),
)
"""Usual triggers: early and late panes by count and by processing time around the end of the window."""

nested_triggers = st.recursive(
    st.one_of(
        counts,
        percentiles,
        processing_times,
        st.builds(DefaultTrigger),
        st.builds(AfterWatermark),
        st.builds(Always),
        st.builds(Never),
    ),
    _composites,
    max_leaves=6,
)
"""Anything in anything."""

triggers = usual_triggers | nested_triggers


def windowings(
    windows: st.SearchStrategy[WindowFn] = family,
    trigger: st.SearchStrategy[Trigger] = triggers,
    accumulation: st.SearchStrategy[Accumulation] = accumulations,
    allowed_lateness: st.SearchStrategy[timedelta] = lateness,
    closing: st.SearchStrategy[str] = empty_panes,
) -> st.SearchStrategy[Windowing]:
    """Draws windowings of these choices, including ones that may lose data."""
    return st.builds(
        Windowing,
        windows=windows,
        trigger=trigger,
        accumulation=accumulation,
        timestamp_combiner=combiners,
        allowed_lateness=allowed_lateness,
        on_time=empty_panes,
        closing=closing,
        allow_data_loss=st.just(True),
        allow_repeats=st.just(True),
    )


_waiting = st.one_of(
    st.integers(1, 3).map(AfterCount),
    st.integers(0, 4).map(us).map(AfterProcessingTime),
    st.builds(AfterWatermark),
    percentiles,
)
_parts = _waiting | st.builds(Repeatedly, _waiting)
_pairs = st.one_of(
    *(st.builds(kind, _parts, _parts) for kind in (AfterAny, AfterAll, AfterEach, AfterEach, OrFinally))
)
_progressing = st.one_of(
    _pairs,
    st.builds(Repeatedly, _pairs),
    st.builds(AfterEach, _pairs, _waiting),
    st.builds(AfterEach, _waiting, _pairs, _waiting),
    st.builds(OrFinally, st.builds(Repeatedly, _pairs), _waiting),
    st.builds(AfterWatermark, early=_pairs, late=_pairs),
)
bridged_windowings = windowings(
    windows=st.just(Sessions(us(10))) | st.just(FixedWindows(us(20))) | own_merges,
    trigger=_progressing,
    allowed_lateness=st.just(us(40)),
)
"""Triggers that fire several times and are half done when windows merge, for `bridged_streams`."""

crowded_windowings = windowings(
    windows=st.builds(Sessions, gap=st.integers(5, 10).map(us)),
    trigger=st.builds(AfterWatermark, early=counts | repeated_counts, late=counts | repeated_counts)
    | triggers,
    allowed_lateness=st.integers(3, 40).map(us),
)
"""Sessions whose trigger has an early and a late phase, for `crowded_streams`."""


# Streams

advances = st.just(0) | st.integers(1, 12)
bundles = st.lists(elements, max_size=5).map(tuple)


def _with_clocks(
    draw: st.DrawFn, stream: Sequence[Bundle], passing: st.SearchStrategy[int] = advances
) -> Stream:
    """Adds processing time to the stream and, for half of the examples, percentile watermarks.

    Percentile watermarks are at or after the watermark; a lower percentile is further ahead.
    """
    now, sixty_six, thirty_three = 0, MIN_TIME, MIN_TIME
    told = draw(st.booleans())
    moves = draw(st.lists(st.tuples(passing, advances, advances), min_size=len(stream), max_size=len(stream)))
    steps = []
    for bundle, (passes, *ahead) in zip(stream, moves, strict=True):
        now += passes
        sixty_six = max(sixty_six, _ahead(bundle.watermark, ahead[0]))
        thirty_three = max(thirty_three, _ahead(sixty_six, ahead[1]))
        known = {33: thirty_three, 66: sixty_six} if told else {}
        steps.append(attrs.evolve(bundle, processing_time=now, percentiles=known))
    return tuple(steps)


def _ahead(watermark: int, step: int) -> int:
    return min(max(watermark, FIRST_WATERMARK) + step, MAX_TIME) if step else watermark


@st.composite
def streams(draw: st.DrawFn, drained: bool | None = None) -> Stream:
    """Draws bundles in any order of time, with watermarks that stay, step or leap.

    The watermark is -inf until it first moves; `drained` (by default either) ends the stream with +inf.
    """
    watermark = MIN_TIME
    stream = []
    for bundle, step in draw(st.lists(st.tuples(bundles, advances), min_size=1, max_size=9)):
        if step:
            watermark = max(watermark, FIRST_WATERMARK) + step
        stream.append(Bundle(bundle, watermark))
    if draw(st.booleans()) if drained is None else drained:
        stream.append(Bundle((), MAX_TIME))
    return _with_clocks(draw, stream)


@st.composite
def crowded_streams(draw: st.DrawFn) -> Stream:
    """Draws elements of one key around the watermark: sessions meet, grow, close and reopen all the time."""
    watermark = 0
    stream = []
    for _ in range(draw(st.integers(4, 9))):
        ahead = draw(st.lists(st.integers(-12, 8), min_size=1, max_size=3))
        bundle = tuple(("a", index, watermark + time) for index, time in enumerate(ahead))
        watermark += draw(st.integers(0, 7))
        stream.append(Bundle(bundle, watermark))
    return _with_clocks(draw, (*stream, Bundle((), MAX_TIME)))


@st.composite
def bridged_streams(draw: st.DrawFn) -> Stream:
    """Draws elements of one key whose sessions start apart, fire, and are then bridged; clocks move slowly."""
    stream, watermark = [], 0
    for _ in range(draw(st.integers(5, 10))):
        apart = draw(st.lists(st.sampled_from([0, 8, 16, 24]), max_size=2))
        watermark += draw(st.sampled_from([0, 0, 0, 4, 12]))
        stream.append(Bundle(tuple(("a", time + 1, time) for time in apart), watermark))
    return _with_clocks(draw, stream, st.integers(0, 3))


scattered_elements = st.tuples(keys, values, st.integers(-300, 300))


@st.composite
def scattered_streams(draw: st.DrawFn) -> Stream:
    """Draws elements far from each other and from the watermark: many windows are open at once."""
    watermark = -300
    stream = []
    for _ in range(draw(st.integers(2, 6))):
        bundle = draw(st.lists(scattered_elements, max_size=15))
        watermark += draw(st.integers(0, 150))
        stream.append(Bundle(tuple(bundle), watermark))
    return _with_clocks(draw, (*stream, Bundle((), MAX_TIME)))


@st.composite
def punctual_streams(draw: st.DrawFn) -> Stream:
    """Draws elements out of order but never behind the watermark; drained at the end.

    The watermark after each bundle is at most the least event time of the following bundles.
    """
    batches = [draw(bundles) for _ in range(draw(st.integers(1, 6)))]
    watermark = MIN_TIME
    stream = []
    for index, batch in enumerate(batches):
        to_come = [time for later in batches[index + 1 :] for _, _, time in later]
        if draw(st.booleans()):
            watermark = max(watermark, min(to_come, default=50) - draw(st.integers(0, 3)))
        stream.append(Bundle(batch, watermark))
    return _with_clocks(draw, (*stream, Bundle((), MAX_TIME)))
