"""Hypothesis strategies that tests share: windowings, and streams of bundles with watermarks.

Times are small integers of microseconds, so that windows meet, touch and miss each other often.
"""

from __future__ import annotations

from datetime import timedelta

import attrs
from hypothesis import strategies as st

from tests.model import MAX_TIME, MIN_TIME, Element
from windowing import (
    Accumulation,
    AfterCount,
    AfterWatermark,
    DefaultTrigger,
    FixedWindows,
    GlobalWindows,
    Repeatedly,
    Sessions,
    SlidingWindows,
    TimestampCombiner,
    Trigger,
    WindowFn,
    Windowing,
)

FIRST_WATERMARK = -15
"""A little after the least event time, so that even the first watermarks find late elements."""


@attrs.frozen
class Bundle:
    """One step of a stream: elements, which come first, and the watermark after them, in microseconds."""

    elements: tuple[Element, ...]
    watermark: int


Stream = tuple[Bundle, ...]

times = st.integers(-20, 40)
keys = st.sampled_from(["a", "b", "c"])
values = st.integers(-9, 9)
elements = st.tuples(keys, values, times)


def us(count: int) -> timedelta:
    """A duration of so many microseconds, as declarations take it."""
    return timedelta(microseconds=count)


# Declarations

lengths = st.integers(1, 12).map(us)
offsets = st.just(us(0)) | st.integers(-15, 15).map(us)
fixed_windows = st.builds(FixedWindows, size=lengths, offset=offsets)
sliding_windows = st.builds(SlidingWindows, size=lengths, period=lengths, offset=offsets)
sessions = st.builds(Sessions, gap=lengths)
all_windows: st.SearchStrategy[WindowFn] = st.one_of(
    fixed_windows, sliding_windows, sessions, st.builds(GlobalWindows)
)

counts = st.integers(1, 4).map(AfterCount)
accumulations = st.sampled_from(Accumulation)
combiners = st.sampled_from(TimestampCombiner)
lateness = st.just(us(0)) | st.integers(1, 40).map(us) | st.just(timedelta(days=2))
"""Two days are longer than the time between the global window's end and the end of time."""


def _composites(children: st.SearchStrategy[Trigger]) -> st.SearchStrategy[Trigger]:
    optional = st.none() | children
    return st.builds(AfterWatermark, early=optional, late=optional) | st.builds(Repeatedly, children)


repeated_counts = st.builds(Repeatedly, counts)
usual_triggers: st.SearchStrategy[Trigger] = st.one_of(
    st.builds(DefaultTrigger), counts, repeated_counts, _composites(counts | repeated_counts)
)
"""What people write: counts, and early and late counts around the end of the window."""

nested_triggers = st.recursive(st.builds(DefaultTrigger) | counts, _composites, max_leaves=4)
"""Anything in anything."""

triggers = usual_triggers | nested_triggers


def windowings(
    windows: st.SearchStrategy[WindowFn] = all_windows,
    trigger: st.SearchStrategy[Trigger] = triggers,
    accumulation: st.SearchStrategy[Accumulation] = accumulations,
    allowed_lateness: st.SearchStrategy[timedelta] = lateness,
) -> st.SearchStrategy[Windowing]:
    """Windowings of these choices, also such that may lose data."""
    return st.builds(
        Windowing,
        windows=windows,
        trigger=trigger,
        accumulation=accumulation,
        timestamp_combiner=combiners,
        allowed_lateness=allowed_lateness,
        allow_data_loss=st.just(True),
    )


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


@st.composite
def streams(draw: st.DrawFn, drained: bool | None = None) -> Stream:
    """Bundles in any order of time, with watermarks that stand, step or leap.

    The watermark is -inf until it moves for the first time; `drained` (by default either) ends it with +inf.
    """
    watermark = MIN_TIME
    stream = []
    for bundle, step in draw(st.lists(st.tuples(bundles, advances), min_size=1, max_size=9)):
        if step:
            watermark = max(watermark, FIRST_WATERMARK) + step
        stream.append(Bundle(bundle, watermark))
    if draw(st.booleans()) if drained is None else drained:
        stream.append(Bundle((), MAX_TIME))
    return tuple(stream)


@st.composite
def crowded_streams(draw: st.DrawFn) -> Stream:
    """One key, elements around the watermark: sessions meet, grow, close and live again, all the time."""
    watermark = 0
    stream = []
    for _ in range(draw(st.integers(4, 9))):
        ahead = draw(st.lists(st.integers(-12, 8), min_size=1, max_size=3))
        bundle = tuple(("a", index, watermark + time) for index, time in enumerate(ahead))
        watermark += draw(st.integers(0, 7))
        stream.append(Bundle(bundle, watermark))
    return (*stream, Bundle((), MAX_TIME))


scattered_elements = st.tuples(keys, values, st.integers(-300, 300))


@st.composite
def scattered_streams(draw: st.DrawFn) -> Stream:
    """Elements far from each other and from the watermark: many windows live at once."""
    watermark = -300
    stream = []
    for _ in range(draw(st.integers(2, 6))):
        bundle = draw(st.lists(scattered_elements, max_size=15))
        watermark += draw(st.integers(0, 150))
        stream.append(Bundle(tuple(bundle), watermark))
    return (*stream, Bundle((), MAX_TIME))


@st.composite
def punctual_streams(draw: st.DrawFn) -> Stream:
    """Streams whose elements are out of order, but never behind the watermark; drained at the end.

    The watermark after each bundle is at most the least event time still to come.
    """
    batches = [draw(bundles) for _ in range(draw(st.integers(1, 6)))]
    watermark = MIN_TIME
    stream = []
    for index, batch in enumerate(batches):
        to_come = [time for later in batches[index + 1 :] for _, _, time in later]
        if draw(st.booleans()):
            watermark = max(watermark, min(to_come, default=50) - draw(st.integers(0, 3)))
        stream.append(Bundle(batch, watermark))
    return (*stream, Bundle((), MAX_TIME))
