"""Windows, compared with their definition, and the valid and invalid declarations of triggers and windowings."""

from __future__ import annotations

import pickle
from datetime import timedelta
from typing import Any

import attrs
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from tests.support.strategies import all_windows, nested_triggers, windowings
from windowing import (
    Accumulation,
    AfterCount,
    AfterWatermark,
    CumulativeWindows,
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
from windowing.columns import EVENT_TIME, WINDOW_END, WINDOW_START
from windowing.custom import assigned_columns
from windowing.time import GLOBAL_WINDOW_END, MIN_TIME
from windowing.windows import RUN

Placed = list[tuple[int, int, int]]
"""(number of the element, start, end), in order."""

times = st.integers(-100, 100) | st.integers(-(10**16), 10**16)
sizes = st.integers(1, 30)
offsets = st.integers(-70, 70)


def us(count: int) -> timedelta:
    return timedelta(microseconds=count)


def placed(windows: WindowFn, at: list[int]) -> Placed:
    """Returns the windows that `assign` assigns to elements at these times."""
    frame = pl.DataFrame({"n": range(len(at)), EVENT_TIME: at}, schema={"n": pl.Int64, EVENT_TIME: pl.Int64})
    assigned = windows.assign(frame)
    assert assigned.columns == ["n", EVENT_TIME, *assigned_columns(windows)]
    assert assigned[EVENT_TIME].to_list() == [at[n] for n in assigned["n"]]
    return assigned.select("n", WINDOW_START, WINDOW_END).rows()


def by_definition(at: list[int], size: int, period: int, offset: int) -> Placed:
    """Returns the windows that contain each element, out of all windows of the grid."""
    return [
        (n, start, start + size)
        for n, time in enumerate(at)
        for start in range(time - size + 1, time + 1)
        if (start - offset) % period == 0
    ]


# Windows


@given(st.lists(times, max_size=6), sizes, offsets)
def test_an_element_is_in_the_one_fixed_window_that_contains_it(
    at: list[int], size: int, offset: int
) -> None:
    expected = by_definition(at, size, size, offset)
    assert placed(FixedWindows(us(size), us(offset)), at) == expected
    assert len(expected) == len(at)


@given(
    st.lists(times | st.none() | st.integers(GLOBAL_WINDOW_END - 40, GLOBAL_WINDOW_END - 1), max_size=6),
    sizes,
)
def test_fixed_windows_of_rows_at_hand_are_those_of_a_query(at: list[int | None], size: int) -> None:
    frame = pl.DataFrame({EVENT_TIME: at}, schema={EVENT_TIME: pl.Int64})
    windows = FixedWindows(us(size), us(3))
    assert_frame_equal(windows.assign(frame), windows.assign(frame.lazy()).collect())


@given(st.lists(times, max_size=6), sizes, st.integers(1, 50), offsets)
def test_an_element_is_in_every_sliding_window_that_contains_it_earliest_first(
    at: list[int], size: int, period: int, offset: int
) -> None:
    # With a period longer than the size, an element between two windows is in none.
    assert placed(SlidingWindows(us(size), us(period), us(offset)), at) == by_definition(
        at, size, period, offset
    )


@given(st.lists(times, max_size=6), st.integers(1, 20), st.integers(1, 4), offsets)
def test_an_element_is_in_every_cumulative_window_that_ends_after_it_shortest_first(
    at: list[int], step: int, steps: int, offset: int
) -> None:
    starts = [time - (time - offset) % (step * steps) for time in at]
    expected = [
        (n, start, start + length)
        for n, (time, start) in enumerate(zip(at, starts, strict=True))
        for length in range(step, step * steps + 1, step)
        if start + length > time
    ]
    assert placed(CumulativeWindows(us(step * steps), us(step), us(offset)), at) == expected


def test_at_the_end_of_time_cumulative_windows_are_distinct() -> None:
    last = GLOBAL_WINDOW_END - 1
    (window,) = {(start, end) for _, start, end in placed(CumulativeWindows("1h", "1m"), [last])}
    assert window[1] == GLOBAL_WINDOW_END
    assert len(placed(CumulativeWindows("1h", "1m"), [last])) == 1


@given(st.lists(times, max_size=6), sizes)
def test_an_element_begins_a_session_that_ends_a_gap_later(at: list[int], gap: int) -> None:
    assert placed(Sessions(us(gap)), at) == [(n, time, time + gap) for n, time in enumerate(at)]


def merged(windows: WindowFn, rows: pl.DataFrame) -> pl.DataFrame:
    """Returns the windows of keys after merging."""
    runs = windows.merge(rows, ["k"]).group_by(RUN, maintain_order=True)
    return runs.agg(pl.col("k").first(), **windows.run_bounds()).drop(RUN)


key_times = st.lists(st.tuples(st.sampled_from("ab"), st.integers(-20, 20)), max_size=8)


@given(key_times, key_times, sizes)
def test_sessions_merge_in_parts(first: list[tuple[str, int]], then: list[tuple[str, int]], gap: int) -> None:
    schema = pl.Schema({"k": pl.String(), EVENT_TIME: pl.Int64()})
    sessions = Sessions(us(gap))
    one, two = (
        sessions.assign(pl.DataFrame(part, schema, orient="row")).drop(EVENT_TIME) for part in (first, then)
    )
    at_once = merged(sessions, pl.concat([one, two]))
    assert_frame_equal(merged(sessions, pl.concat([merged(sessions, one), two])), at_once)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(-20, 20)), max_size=12), sizes)
def test_keys_with_one_hash_have_sessions_of_their_own(rows: list[tuple[str, int]], gap: int) -> None:
    sessions = Sessions(us(gap))
    schema = pl.Schema({"k": pl.String(), EVENT_TIME: pl.Int64()})
    elements = sessions.assign(pl.DataFrame(rows, schema, orient="row")).drop(EVENT_TIME)
    expected = merged(sessions, elements).sort(pl.all())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pl.DataFrame, "hash_rows", lambda frame: pl.zeros(len(frame), pl.UInt64, eager=True))
        assert_frame_equal(merged(sessions, elements).sort(pl.all()), expected)


@given(st.lists(times, max_size=6))
def test_all_elements_are_in_the_global_window(at: list[int]) -> None:
    assert placed(GlobalWindows(), at) == [(n, MIN_TIME, GLOBAL_WINDOW_END) for n in range(len(at))]


@given(all_windows, st.lists(times, max_size=4))
def test_a_lazy_frame_gets_the_same_windows(windows: WindowFn, at: list[int]) -> None:
    frame = pl.DataFrame({EVENT_TIME: at}, schema={EVENT_TIME: pl.Int64})
    assert_frame_equal(windows.assign(frame.lazy()).collect(), windows.assign(frame))


@given(sizes, offsets, st.integers(-3, 3), st.lists(times, max_size=4))
def test_an_offset_counts_modulo_the_size(size: int, offset: int, turns: int, at: list[int]) -> None:
    turned = FixedWindows(us(size), us(offset + turns * size))
    assert placed(turned, at) == placed(FixedWindows(us(size), us(offset)), at)


def test_sliding_windows_that_do_not_overlap_are_fixed_windows() -> None:
    at = list(range(-20, 20))
    assert placed(SlidingWindows(us(7), us(7), us(3)), at) == placed(FixedWindows(us(7), us(3)), at)


def test_windows_say_how_they_lie() -> None:
    fixed, sliding = FixedWindows("1m"), SlidingWindows("1m", "20s")
    assert (fixed.span, fixed.period, fixed.merging) == (60_000_000, None, False)
    assert (sliding.span, sliding.period, sliding.merging) == (60_000_000, 20_000_000, False)
    assert (Sessions("1m").span, Sessions("1m").period, Sessions("1m").merging) == (None, None, True)
    assert (GlobalWindows().span, GlobalWindows().period, GlobalWindows().merging) == (None, None, False)


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: FixedWindows(0), "FixedWindows: size must be longer than nothing, not 0s"),
        (lambda: FixedWindows("-1s"), "FixedWindows: size must be longer than nothing, not -1s"),
        (lambda: SlidingWindows("1m", 0), "SlidingWindows: period must be longer than nothing"),
        (lambda: SlidingWindows("0s", "1m"), "SlidingWindows: size must be longer than nothing"),
        (
            lambda: CumulativeWindows("1h", "25m"),
            "CumulativeWindows: size must be a multiple of step, and 1h is none of 25m",
        ),
        (lambda: CumulativeWindows("1h", 0), "CumulativeWindows: step must be longer than nothing"),
        (lambda: CumulativeWindows("365d", "1ms"), "up to 31,536,000,000 windows, .* take a longer step"),
        (lambda: Sessions(gap=timedelta(0)), "Sessions: gap must be longer than nothing"),
        (lambda: Sessions("a minute"), "not a duration: 'a minute'; write for example '90s'"),
        (lambda: FixedWindows("40000000d"), "a duration must be at most 36500000d, not 40000000d"),
        (lambda: SlidingWindows("1d", 10**400), "a duration must be at most 36500000d"),
        (
            lambda: SlidingWindows("365d", "1ms"),
            "365d and period 1ms each element would be in 31,536,000,000 windows",
        ),
        (
            lambda: SlidingWindows("100001ms", "1ms"),
            "in 100,001 windows, .*: take a period of at least 1ms1us",
        ),
    ],
)
def test_a_window_is_longer_than_nothing_and_ends_before_time_does(declare: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        declare()


def test_a_length_that_is_none_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="expected a duration such as '90s'"):
        FixedWindows(None)  # type: ignore[arg-type]


def test_windows_are_values_however_their_lengths_were_written() -> None:
    same = {FixedWindows("90s"), FixedWindows("1m30s"), FixedWindows(90), FixedWindows(timedelta(seconds=90))}
    assert len(same) == 1
    assert FixedWindows("90s") != FixedWindows("90s", offset="1s")
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        FixedWindows("90s").size = 1  # type: ignore[misc]


@given(windowings())
def test_a_changed_copy_keeps_its_durations(windowing: Windowing) -> None:
    assert attrs.evolve(windowing.windows) == windowing.windows
    assert attrs.evolve(windowing) == windowing
    changed = attrs.evolve(windowing, windows=FixedWindows("1m"))
    assert changed.allowed_lateness == windowing.allowed_lateness
    assert attrs.evolve(FixedWindows("1m"), offset="5s") == FixedWindows("1m", "5s")
    assert pickle.loads(pickle.dumps(windowing)) == windowing


# Triggers


@pytest.mark.parametrize("count", [0, -1, 1.0, True, "3", None])
def test_a_count_is_a_whole_number_of_at_least_one(count: Any) -> None:
    with pytest.raises(
        ValueError, match="AfterCount: count must be a whole number of at least 1, not"
    ) as caught:
        AfterCount(count)
    assert repr(count) in str(caught.value)


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (
            lambda: AfterWatermark(early=3),
            r"AfterWatermark: early must be a trigger, not 3; AfterCount\(3\)\?",
        ),
        (lambda: AfterWatermark(late="x"), "AfterWatermark: late must be a trigger, not 'x'; write"),
        (
            lambda: AfterWatermark(late=AfterCount),
            "AfterWatermark: late must be a trigger, not the class AfterCount",
        ),
        (lambda: Repeatedly(10), r"Repeatedly: trigger must be a trigger, not 10; AfterCount\(10\)\?"),
        (lambda: Repeatedly(None), "Repeatedly: trigger must be a trigger, not None; write"),
    ],
)
def test_what_is_no_trigger_is_named_with_what_was_perhaps_meant(declare: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        declare()


def nodes(trigger: Trigger) -> list[Trigger]:
    return [trigger, *(node for child in trigger.children() for node in nodes(child))]


@given(nested_triggers)
def test_every_trigger_of_a_composite_has_cells_of_its_own(trigger: Trigger) -> None:
    assert len(trigger.cells()) == sum(len(node.own_cells()) for node in nodes(trigger))
    assert all(name.startswith("__trigger") for name in trigger.cells())


@pytest.mark.parametrize(
    ("trigger", "continuation"),
    [
        (DefaultTrigger(), DefaultTrigger()),
        (AfterCount(7), AfterCount(1)),
        (Repeatedly(AfterCount(7)), Repeatedly(AfterCount(1))),
        (AfterWatermark(), AfterWatermark()),
        (
            AfterWatermark(early=AfterCount(3), late=Repeatedly(AfterCount(2))),
            AfterWatermark(early=AfterCount(1), late=Repeatedly(AfterCount(1))),
        ),
    ],
)
def test_what_follows_a_paced_grouping_counts_single_panes(trigger: Trigger, continuation: Trigger) -> None:
    assert trigger.continuation() == continuation


@given(nested_triggers)
def test_a_continuation_is_its_own_continuation_and_loses_no_more(trigger: Trigger) -> None:
    once = trigger.continuation()
    assert once.continuation() == once
    assert trigger.may_finish() or not once.may_finish()


# Windowings


@pytest.mark.parametrize(
    ("trigger", "lateness", "remedy"),
    [
        (
            AfterCount(3),
            "0s",
            r"AfterCount\(3\) may lose data.*come later would be .*Repeatedly\(\.\.\.\)",
        ),
        (AfterCount(3), "10m", r"come later \(until 10m after the window's end\) would be dropped"),
        (
            AfterWatermark(),
            "10m",
            r"give it a late trigger such as late=AfterCount\(1\), or give allow_data_loss",
        ),
        (AfterWatermark(early=AfterCount(2)), "1s", "until 1s after .* give it a late trigger"),
    ],
)
def test_a_trigger_that_may_lose_data_is_refused_with_a_remedy(
    trigger: Trigger, lateness: str, remedy: str
) -> None:
    with pytest.raises(ValueError, match=remedy):
        Windowing(FixedWindows("1m"), trigger, allowed_lateness=lateness)
    lossy = Windowing(FixedWindows("1m"), trigger, allowed_lateness=lateness, allow_data_loss=True)
    assert lossy.may_lose_data()


@pytest.mark.parametrize(
    ("trigger", "lateness"),
    [
        (DefaultTrigger(), "10m"),
        (AfterWatermark(), "0s"),  # it finishes when its window is over, and accepts nothing more
        (AfterWatermark(early=AfterCount(2)), "0s"),
        (AfterWatermark(late=AfterCount(1)), "10m"),
        (Repeatedly(AfterCount(3)), "10m"),
        (Repeatedly(AfterWatermark()), "10m"),
    ],
)
def test_a_trigger_that_loses_nothing_is_taken(trigger: Trigger, lateness: str) -> None:
    assert not Windowing(FixedWindows("1m"), trigger, allowed_lateness=lateness).may_lose_data()


def test_choices_may_be_given_by_their_name() -> None:
    named: Any = {"accumulation": "accumulating", "timestamp_combiner": "earliest"}
    windowing = Windowing(Sessions("1m"), **named)
    assert windowing.accumulation is Accumulation.ACCUMULATING
    assert windowing.timestamp_combiner is TimestampCombiner.EARLIEST


@pytest.mark.parametrize(
    ("choice", "error", "message"),
    [
        (
            {"accumulation": "acumulating"},
            ValueError,
            "no Accumulation; it may be 'discarding', 'accumulating'",
        ),
        ({"timestamp_combiner": "last"}, ValueError, "it may be 'end_of_window', 'earliest', 'latest'"),
        ({"allowed_lateness": "-1s"}, ValueError, "allowed_lateness must not be negative: -1s"),
        ({"allowed_lateness": "soon"}, ValueError, "not a duration: 'soon'"),
        ({"windows": "1m"}, TypeError, "'windows' must be .*WindowFn"),
        ({"windows": FixedWindows}, TypeError, "'windows' must be .*WindowFn"),
        ({"trigger": "default"}, TypeError, "trigger must be a trigger, not 'default'"),
    ],
)
def test_a_choice_that_is_none_is_refused(
    choice: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Windowing(**choice)


@pytest.mark.parametrize(
    "windows", [FixedWindows("7d"), SlidingWindows("3d", "1d"), Sessions("3d"), SlidingWindows("30d", "7d")]
)
def test_windows_end_with_time_itself(windows: WindowFn) -> None:
    last = GLOBAL_WINDOW_END - 1
    assigned = placed(windows, [last])
    assert assigned
    assert all(start <= last < end <= GLOBAL_WINDOW_END for _, start, end in assigned)
