"""Windows, lateness, holds and merging on cases derived by hand, for the stage and the model."""

from __future__ import annotations

import pytest

from tests.support.by_hand import ACCUMULATING, COUNTS, EARLIEST, LATEST, New, add, brief, new
from tests.support.model import GLOBAL_WINDOW, MAX_TIME, MIN_TIME, assign, merge
from tests.support.strategies import us
from windowing import (
    AfterCount,
    AfterWatermark,
    FixedWindows,
    GlobalWindows,
    Repeatedly,
    Sessions,
    SlidingWindows,
    TimestampCombiner,
    WindowFn,
)

__all__ = ["new"]


@pytest.mark.parametrize(
    ("windows", "time", "expected"),
    [
        (FixedWindows(us(10)), 9, [(0, 10)]),
        (FixedWindows(us(10)), 10, [(10, 20)]),
        (FixedWindows(us(10)), -15, [(-20, -10)]),  # 1.3: where truncated % would go wrong
        (FixedWindows(us(10), us(3)), 2, [(-7, 3)]),
        (SlidingWindows(us(10), us(5)), 7, [(5, 15), (0, 10)]),
        (SlidingWindows(us(6), us(2)), -1, [(-2, 4), (-4, 2), (-6, 0)]),
        (SlidingWindows(us(2), us(5)), 1, [(0, 2)]),
        (SlidingWindows(us(2), us(5)), 2, []),  # 1.4: period longer than size
        (Sessions(us(10)), 5, [(5, 15)]),
        (GlobalWindows(), 5, [GLOBAL_WINDOW]),
    ],
)
def test_windows_of_an_element(windows: WindowFn, time: int, expected: list[tuple[int, int]]) -> None:
    assert assign(windows, time) == expected


def test_touching_windows_do_not_merge() -> None:
    #   [0---10)
    #        [10--20)
    #               [21--31)
    #                    [30--40)
    runs = merge([(30, 40), (10, 20), (0, 10), (21, 31)])
    assert [union for _, union in runs] == [(0, 10), (10, 20), (21, 40)]


def test_a_window_is_over_when_the_watermark_reaches_its_end(new: New) -> None:
    m = new()
    assert brief(add(m, 1, 2, to=9)) == []
    step = add(m, to=10)
    assert brief(step) == [((0, 10), [1, 2], "on_time", 0, 0)]
    assert step.panes[0].first
    assert step.panes[0].last  # no lateness: end and collection are one
    assert step.panes[0].timestamp == 9
    assert step.output_watermark == 10


def test_an_element_is_late_only_after_end_and_lateness(new: New) -> None:
    m = new(late=5)
    add(m, to=14)  # gc = 9 + 5 = 14: equality is not late
    step = add(m, 1)
    assert (step.late, brief(step)) == (0, [((0, 10), [1], "late", 0, 0)])
    add(m, to=15)
    assert add(m, 1).late == 1


def test_lateness_is_counted_per_window(new: New) -> None:
    m = new(SlidingWindows(us(10), us(5)))
    add(m, to=10)
    step = add(m, 7, to=MAX_TIME)  # [0, 10) is over, [5, 15) is not
    assert step.late == 1
    assert brief(step) == [((5, 15), [7], "on_time", 0, 0)]


def test_a_count_trigger_sees_whole_bundles(new: New) -> None:
    m = new(trigger=Repeatedly(AfterCount(2)))
    assert brief(add(m, 1, 2, 3)) == [((0, 10), [1, 2, 3], "early", 0, -1)]


def test_a_finished_trigger_closes_the_window_until_it_is_collected(new: New) -> None:
    m = new(trigger=AfterCount(2), late=5)
    pane = add(m, 1, 2).panes[0]
    assert (pane.timing, pane.first, pane.last) == ("early", True, True)
    assert add(m, 3, 4).closed == 2
    step = add(m, to=14)
    assert (brief(step), step.live) == ([], 1)
    step = add(m, to=15)
    assert (brief(step), step.live) == ([], 0)
    assert add(m, 3).late == 1


def test_collection_emits_what_is_buffered(new: New) -> None:
    m = new(trigger=Repeatedly(AfterCount(3)), late=5)
    assert brief(add(m, 1, to=10)) == []  # no watermark part: nothing at the end of the window
    step = add(m, to=15)
    assert brief(step) == [((0, 10), [1], "on_time", 0, 0)]
    assert step.panes[0].last


def test_draining_the_global_window_emits_the_rest_on_time(new: New) -> None:
    m = new(GlobalWindows(), Repeatedly(AfterCount(3)))
    assert brief(add(m, 1, 2, 3, 4)) == [(GLOBAL_WINDOW, [1, 2, 3, 4], "early", 0, -1)]
    add(m, 5)
    assert brief(add(m, to=MAX_TIME)) == [(GLOBAL_WINDOW, [5], "on_time", 1, 0)]


def test_draining_the_global_window_emits_an_empty_on_time_pane(new: New) -> None:
    m = new(GlobalWindows(), Repeatedly(AfterCount(3)))
    add(m, 1, 2, 3)
    assert brief(add(m, to=MAX_TIME)) == [(GLOBAL_WINDOW, [], "on_time", 1, 0)]


def test_lateness_never_keeps_the_global_window_past_the_end_of_input(new: New) -> None:
    m = new(GlobalWindows(), late=2 * 86_400_000_000)
    assert brief(add(m, 1, to=0)) == []
    step = add(m, to=MAX_TIME)
    assert step.panes[0].last
    assert step.live == 0


def test_panes_are_early_then_on_time_then_late(new: New) -> None:
    m = new(trigger=COUNTS, late=100)
    assert brief(add(m, 1, 2)) == [((0, 10), [1, 2], "early", 0, -1)]
    assert brief(add(m, 3, 4)) == [((0, 10), [3, 4], "early", 1, -1)]
    assert brief(add(m, to=10)) == [((0, 10), [], "on_time", 2, 0)]
    assert brief(add(m, 5)) == [((0, 10), [5], "late", 3, 1)]
    assert brief(add(m, to=MAX_TIME)) == []  # nothing buffered: no closing pane


def test_accumulating_panes_repeat_the_content(new: New) -> None:
    m = new(trigger=COUNTS, late=100, accumulation=ACCUMULATING)
    assert brief(add(m, 1, 2)) == [((0, 10), [1, 2], "early", 0, -1)]
    assert brief(add(m, to=10)) == [((0, 10), [1, 2], "on_time", 1, 0)]
    assert brief(add(m, 5)) == [((0, 10), [1, 2, 5], "late", 2, 1)]


def test_the_first_pane_after_the_output_watermark_passed_is_late(new: New) -> None:
    m = new(trigger=Repeatedly(AfterCount(1)), late=100)
    add(m, to=20)
    assert brief(add(m, 1)) == [((0, 10), [1], "late", 0, 0)]


def test_timestamps_are_of_the_elements_since_the_last_pane(new: New) -> None:
    # 2.2: the window [0, 10) with EARLIEST; late elements do not count; without others: the window's end.
    trigger = AfterWatermark(early=AfterCount(4), late=AfterCount(1))
    m = new(trigger=trigger, late=100, accumulation=ACCUMULATING, timestamp_combiner=EARLIEST)
    step = add(m, 1, 3, 7, 5)
    assert (brief(step)[0][1:3], step.panes[0].timestamp) == (([1, 3, 7, 5], "early"), 1)
    assert add(m, to=2).output_watermark == 2
    assert add(m, 8, 4, to=6).output_watermark == 4
    step = add(m, to=10)
    assert (brief(step)[0][1:3], step.panes[0].timestamp) == (([1, 3, 7, 5, 8, 4], "on_time"), 4)
    assert step.output_watermark == 10
    step = add(m, 1)
    assert (brief(step)[0][2], step.panes[0].timestamp) == ("late", 9)


def test_an_element_behind_the_input_watermark_gives_no_hold(new: New) -> None:
    m = new(timestamp_combiner=EARLIEST)
    add(m, to=5)
    assert add(m, 3).output_watermark == 5
    assert add(m, 7, to=MAX_TIME).panes[0].timestamp == 7


def test_an_element_behind_the_input_watermark_gives_no_hold_where_another_key_holds_the_output(
    new: New,
) -> None:
    m = new(timestamp_combiner=EARLIEST)
    m.step([("other", 2, 2)], 5)
    assert m.step([("a", 3, 3)], 6).output_watermark == 2
    assert {pane.key: pane.timestamp for pane in m.step([], MAX_TIME).panes} == {"other": 2, "a": 9}


def test_latest_holds_move_on(new: New) -> None:
    m = new(timestamp_combiner=LATEST)
    assert add(m, 3, to=8).output_watermark == 3
    assert add(m, 8).output_watermark == 8
    assert add(m, to=10).panes[0].timestamp == 8


def test_overlapping_windows_do_not_hold_each_other(new: New) -> None:
    # 2.3: the element at 7 is in [0, 10) and [5, 15); the later window holds at its last period only.
    m = new(SlidingWindows(us(10), us(5)), timestamp_combiner=EARLIEST)
    assert add(m, 7, to=9).output_watermark == 7
    step = add(m, to=10)
    assert [pane.timestamp for pane in step.panes] == [7]
    assert step.output_watermark == 10
    assert [pane.timestamp for pane in add(m, to=15).panes] == [10]


def test_sessions_are_per_key_and_merge_across_bundles(new: New) -> None:
    m = new(Sessions(us(10)))
    m.step([("a", 1, 1), ("b", 5, 5)], MIN_TIME)
    m.step([("a", 15, 15)], MIN_TIME)
    m.step([("a", 8, 8)], MIN_TIME)
    panes = m.step([], MAX_TIME).panes
    assert {(pane.key, pane.window): pane.values for pane in panes} == {
        ("a", (1, 25)): [1, 15, 8],  # in order of arrival
        ("b", (5, 15)): [5],
    }


def test_elements_exactly_a_gap_apart_are_two_sessions(new: New) -> None:
    m = new(Sessions(us(10)))
    add(m, 5)
    add(m, 15, 24)
    assert brief(add(m, to=MAX_TIME)) == [
        ((5, 15), [5], "on_time", 0, 0),
        ((15, 34), [15, 24], "on_time", 0, 0),
    ]


def test_an_element_between_windows_vanishes_without_being_late(new: New) -> None:
    m = new(SlidingWindows(us(2), us(5)))
    step = add(m, 1, 2, 4, -1, -5, to=MAX_TIME)
    assert (step.late, brief(step)) == (
        0,
        [((-5, -3), [-5], "on_time", 0, 0), ((0, 2), [1], "on_time", 0, 0)],
    )


def test_windows_before_the_epoch_contain_their_elements(new: New) -> None:
    assert brief(add(new(), -15, -10, -1, to=MAX_TIME)) == [
        ((-20, -10), [-15], "on_time", 0, 0),
        ((-10, 0), [-10, -1], "on_time", 0, 0),
    ]


def test_sessions_are_judged_late_before_they_merge(new: New) -> None:
    m = new(Sessions(us(10)))
    add(m, 5, 14)
    add(m, to=16)
    assert add(m, 6).late == 1  # its own window [6, 16) is over, though [5, 24) is open


def test_a_merged_session_numbers_its_panes_anew_unless_its_window_is_that_of_a_part(new: New) -> None:
    m = new(Sessions(us(10)), Repeatedly(AfterCount(1)))
    assert brief(add(m, 0, 5)) == [((0, 15), [0, 5], "early", 0, -1)]
    assert brief(add(m, 3)) == [((0, 15), [3], "early", 1, -1)]
    assert brief(add(m, 9)) == [((0, 19), [9], "early", 0, -1)]


def test_a_session_that_grows_beyond_the_watermark_is_early_again(new: New) -> None:
    m = new(Sessions(us(10)), COUNTS, late=100)
    assert brief(add(m, 0, to=10)) == [((0, 10), [0], "on_time", 0, 0)]
    assert brief(add(m, 9)) == []  # [0, 19): the late trigger would have fired
    assert brief(add(m, to=19)) == [((0, 19), [9], "on_time", 0, 0)]


def test_counts_of_an_early_trigger_are_void_once_a_part_was_past_its_end(new: New) -> None:
    # 4.3: merged in the early phase, but finished in any part is finished and its count cleared.
    m = new(Sessions(us(10)), COUNTS, late=100)
    assert brief(add(m, 0, to=10)) == [((0, 10), [0], "on_time", 0, 0)]
    add(m, 18)  # [18, 28) in its early phase, count 1
    assert brief(add(m, 9)) == []  # [0, 28): its count is 1


def test_late_elements_count_for_the_early_trigger_of_a_session_that_grows(new: New) -> None:
    # 4.3: in merging windows the early trigger sees all elements, as a merge may bring its phase back.
    m = new(Sessions(us(10)), AfterWatermark(early=Repeatedly(AfterCount(2)), late=AfterCount(5)), late=100)
    assert brief(add(m, 0, to=10)) == [((0, 10), [0], "on_time", 0, 0)]
    assert brief(add(m, 0)) == []
    assert brief(add(m, 9)) == [((0, 19), [0, 9], "early", 0, -1)]


def test_closed_sessions_do_not_merge(new: New) -> None:
    m = new(Sessions(us(10)), AfterCount(2), late=100)
    assert brief(add(m, 0, 1)) == [((0, 11), [0, 1], "early", 0, -1)]
    step = add(m, 5)
    assert (step.closed, step.live) == (0, 2)
    assert brief(add(m, 5)) == [((5, 15), [5, 5], "early", 0, -1)]


def test_elements_that_make_exactly_a_closed_session_are_dropped(new: New) -> None:
    m = new(Sessions(us(10)), AfterCount(2), late=100)
    add(m, 0, 1)
    assert add(m, 1, 0).closed == 2
    assert add(m, 1, to=MAX_TIME).panes[0].window == (1, 11)


def test_an_open_session_takes_the_place_of_a_closed_one(new: New) -> None:
    m = new(Sessions(us(10)), AfterCount(2), late=100)
    add(m, 0, 5)  # closes [0, 15)
    add(m, 0)  # opens [0, 10)
    step = add(m, 5)
    assert (step.closed, brief(step)) == (0, [((0, 15), [0, 5], "early", 0, -1)])
    assert step.live == 1


def test_holds_of_sessions_fold_when_they_merge(new: New) -> None:
    for combiner, expected in [
        (EARLIEST, 0),
        (LATEST, 16),
        (TimestampCombiner.END_OF_WINDOW, 25),
    ]:
        m = new(Sessions(us(10)), timestamp_combiner=combiner)
        add(m, 0)
        add(m, 16)
        add(m, 8)
        assert add(m, to=MAX_TIME).panes[0].timestamp == expected


def test_watermarks_never_regress(new: New) -> None:
    m = new()
    add(m, to=20)
    assert (add(m, to=5).output_watermark, m.input_watermark) == (20, 20)
