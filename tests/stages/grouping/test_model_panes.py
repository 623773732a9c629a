"""Empty panes, retractions, chosen timestamps and users' windows, derived by hand, for the stage and the model."""

from __future__ import annotations

import attrs

from tests.support.by_hand import ACCUMULATING, COUNTS, EARLIEST, LATEST, RETRACTING, New, add, brief, new
from tests.support.model import MAX_TIME
from tests.support.runs import sorted_panes
from tests.support.strategies import Auctions, Meetings, us
from windowing import (
    AfterCount,
    AfterEach,
    AfterWatermark,
    CalendarWindows,
    Repeatedly,
    Sessions,
    SlidingWindows,
    TimestampOf,
)

__all__ = ["new"]


def test_an_empty_on_time_pane_may_be_left_out(new: New) -> None:
    # 4.2: then the next pane is late, the first that is not speculative.
    m = new(trigger=COUNTS, late=100, on_time="if_non_empty")
    assert brief(add(m, 1, 2)) == [((0, 10), [1, 2], "early", 0, -1)]
    assert brief(add(m, to=10)) == []
    assert brief(add(m, 5)) == [((0, 10), [5], "late", 1, 0)]


def test_a_last_pane_may_be_asked_for(new: New) -> None:
    m = new(trigger=COUNTS, late=5, closing="always", accumulation=ACCUMULATING)
    assert brief(add(m, 1, to=10)) == [((0, 10), [1], "on_time", 0, 0)]
    step = add(m, to=15)
    assert (brief(step), step.panes[0].last) == ([((0, 10), [1], "late", 1, 1)], True)


def test_a_trigger_that_finishes_with_nothing_new_gives_a_last_pane_if_asked(new: New) -> None:
    choices = {"late": 5, "on_time": "if_non_empty", "closing": "always"}
    m = new(trigger=AfterEach(AfterCount(1), AfterWatermark()), **choices)
    assert len(add(m, 1).panes) == 1
    step = add(m, to=10)
    assert (brief(step), step.panes[0].last) == ([((0, 10), [], "on_time", 1, 0)], True)


def test_a_closed_window_asks_for_no_last_pane(new: New) -> None:
    m = new(trigger=AfterCount(1), late=5, closing="always")
    assert add(m, 1).panes[0].last
    assert brief(add(m, to=15)) == []


def test_a_pane_is_taken_back_before_the_next(new: New) -> None:
    m = new(trigger=COUNTS, late=100, accumulation=RETRACTING, timestamp_combiner=EARLIEST)
    early = add(m, 1, 2).panes
    assert [(pane.values, pane.retracted, pane.timestamp) for pane in early] == [([1, 2], False, 1)]
    again, on_time = add(m, 4, to=10).panes
    assert again == attrs.evolve(early[0], retracted=True)
    assert (on_time.values, on_time.retracted, on_time.timestamp) == ([1, 2, 4], False, 1)
    again, late = add(m, 5).panes
    assert again == attrs.evolve(on_time, retracted=True)
    assert (late.values, late.index) == ([1, 2, 4, 5], 2)
    assert brief(add(m, to=MAX_TIME)) == []


def test_an_empty_pane_takes_back_what_it_repeats(new: New) -> None:
    m = new(trigger=COUNTS, accumulation=RETRACTING)
    add(m, 1, 2)
    again, on_time = add(m, to=10).panes
    assert (again.retracted, again.values) == (True, [1, 2])
    assert (on_time.retracted, on_time.values, on_time.last) == (False, [1, 2], True)


def test_a_session_takes_back_the_panes_of_those_it_absorbs(new: New) -> None:
    m = new(Sessions(us(10)), Repeatedly(AfterCount(2)), accumulation=RETRACTING)
    first, second = add(m, 0, 1).panes[0], add(m, 20, 21).panes[0]
    assert brief(add(m, 10)) == []  # they have merged; nothing is retracted before the new pane
    *again, merged = add(m, 15).panes
    assert sorted_panes(again) == [attrs.evolve(pane, retracted=True) for pane in (first, second)]
    assert (merged.window, merged.values) == ((0, 31), [0, 1, 20, 21, 10, 15])


def test_a_chosen_element_gives_the_timestamp(new: New) -> None:
    # Even values are chosen, and values are times here.
    m = new(trigger=COUNTS, late=100, timestamp_combiner=TimestampOf("chosen"))
    assert add(m, 3, to=7).hold is None
    step = add(m, 8)
    assert (step.panes[0].timestamp, step.output_watermark) == (8, 7)
    step = add(m, 8, 9, 7, 5, to=9)
    assert step.panes[0].timestamp == 8
    assert add(m, 9, to=10).panes[0].timestamp == 9  # none is chosen: the window's end
    assert add(m, 8).panes[0].timestamp == 9  # a late one does not count


def test_the_first_chosen_element_of_merged_sessions_counts(new: New) -> None:
    m = new(Sessions(us(10)), timestamp_combiner=TimestampOf("chosen"))
    add(m, 1)
    add(m, 16)
    assert add(m, 8, to=5).output_watermark == 5
    assert add(m, to=12).output_watermark == 8
    assert add(m, to=MAX_TIME).panes[0].timestamp == 8


def test_latest_holds_of_overlapping_windows_are_not_adjusted(new: New) -> None:
    m = new(SlidingWindows(us(10), us(5)), timestamp_combiner=LATEST)
    add(m, 7)
    assert [pane.timestamp for pane in add(m, to=MAX_TIME).panes] == [7, 7]


def test_bids_become_part_of_their_auction(new: New) -> None:
    # Values that are multiples of 3 open an auction of 20, others are bids of 10.
    #   [2-------12)        [14-----24)   [31-----41)
    #          [9----------------29)
    m = new(Auctions(10), Repeatedly(AfterCount(3)))
    assert brief(add(m, 2, 14, 31)) == []
    step = add(m, 9)
    assert brief(step) == [((9, 29), [2, 14, 9], "early", 0, -1)]
    assert brief(add(m, to=MAX_TIME)) == [
        ((9, 29), [], "on_time", 1, 0),
        ((31, 41), [31], "on_time", 0, 0),
    ]


def test_a_hold_after_the_end_of_its_window_counts_as_the_end(new: New) -> None:
    #   [-10-----0------10)
    #             [5------15------25)
    #             [5----10)
    m = new(Meetings(10), timestamp_combiner=LATEST)
    add(m, 0, 15)
    assert brief(add(m, to=10)) == [((5, 10), [0, 15], "on_time", 0, 0)]
    m = new(Meetings(10), timestamp_combiner=LATEST)
    assert add(m, 0, 15).hold == 15
    assert add(m, to=10).panes[0].timestamp == 9


def test_dropped_elements_are_told_with_the_reason_and_their_own_window(new: New) -> None:
    m = new(Sessions(us(10)), AfterCount(2), late=5)
    add(m, 0, 1)
    assert add(m, 0, 1).dropped == [("k", 0, 0, (0, 10), "closed"), ("k", 1, 1, (1, 11), "closed")]
    add(m, to=15)
    assert add(m, 0).dropped == [("k", 0, 0, (0, 10), "late")]


def test_calendar_windows_follow_the_clocks(new: New) -> None:
    hour = 3_600_000_000
    begins = 1_711_839_600_000_000  # 2024-03-31T00:00 in Berlin, a day of 23 hours
    m = new(CalendarWindows.days(1, timezone="Europe/Berlin"))
    add(m, begins, begins + 23 * hour - 1, begins + 23 * hour)
    assert [pane.window for pane in add(m, to=begins + 23 * hour).panes] == [(begins, begins + 23 * hour)]
