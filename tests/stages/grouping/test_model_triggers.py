"""Every trigger on cases derived by hand, for the stage and the model: firing, finishing and merging."""

from __future__ import annotations

import pytest

from tests.support.by_hand import TEN, New, add, brief, new
from tests.support.model import GLOBAL_WINDOW, MAX_TIME
from tests.support.strategies import us
from windowing import (
    AfterAll,
    AfterAny,
    AfterCount,
    AfterEach,
    AfterProcessingTime,
    AfterSynchronizedProcessingTime,
    AfterWatermark,
    Always,
    GlobalWindows,
    Never,
    Repeatedly,
    Sessions,
)

__all__ = ["new"]

SESSIONS = Sessions(us(10))
IN_FIVE = AfterProcessingTime(us(5))
END = AfterWatermark()
AHEAD = AfterWatermark(percentile=66)

# Processing time


def test_a_processing_time_target_must_be_passed(new: New) -> None:
    m = new(trigger=IN_FIVE)
    add(m, 1, now=10)  # the target is 15: elements arrive at the processing time of their step
    add(m, 2, now=12)  # which later elements do not move
    assert brief(add(m, now=15)) == []
    step = add(m, now=16)
    assert brief(step) == [((0, 10), [1, 2], "early", 0, -1)]
    assert step.panes[0].last


def test_a_target_that_is_passed_when_elements_come_fires_with_them(new: New) -> None:
    m = new(trigger=Repeatedly(IN_FIVE))
    add(m, 1, now=10)
    assert brief(add(m, 2, now=16)) == [((0, 10), [1, 2], "early", 0, -1)]
    assert brief(add(m, 3, now=17)) == []  # target 22
    assert brief(add(m, now=23)) == [((0, 10), [3], "early", 1, -1)]


@pytest.mark.parametrize(("comes", "target"), [(10, 13), (11, 13), (12, 23), (21, 23)])
def test_targets_are_aligned_after_the_delay(new: New, comes: int, target: int) -> None:
    m = new(trigger=AfterProcessingTime(us(2), align_to=us(10), offset=us(3)))
    add(m, 1, now=comes)
    assert brief(add(m, now=target)) == []
    assert len(brief(add(m, now=target + 1))) == 1


def test_synchronized_processing_time_fires_at_the_next_move(new: New) -> None:
    m = new(trigger=AfterSynchronizedProcessingTime())
    assert brief(add(m, 1, now=10, to=3)) == []
    assert brief(add(m, to=4)) == []  # another clock
    assert brief(add(m, now=11)) == [((0, 10), [1], "early", 0, -1)]


def test_merging_sessions_wait_for_the_least_of_their_targets(new: New) -> None:
    m = new(SESSIONS, IN_FIVE)
    add(m, 0, now=10)
    add(m, 16, now=12)
    add(m, 8, now=14)
    assert brief(add(m, now=15)) == []
    assert brief(add(m, now=16)) == [((0, 26), [0, 16, 8], "early", 0, -1)]


def test_a_session_whose_part_has_waited_does_not_wait_again(new: New) -> None:
    m = new(SESSIONS, AfterEach(IN_FIVE, AfterCount(2)))
    add(m, 0, now=10)
    assert len(add(m, now=16).panes) == 1
    assert brief(add(m, 8, now=17)) == []  # the count is 1
    assert brief(add(m, 9, now=17)) == [((0, 19), [8, 9], "early", 0, -1)]


def test_only_windows_that_get_elements_may_fire_before_the_clocks_move(new: New) -> None:
    # Both windows of the key have waited; the first one is over when it is evaluated, the second is not.
    m = new(SESSIONS, AfterWatermark(early=AfterSynchronizedProcessingTime()))
    add(m, 0)
    assert brief(add(m, 20, to=10, now=1)) == [((0, 10), [0], "on_time", 0, 0)]


# Percentile watermarks


def test_a_percentile_watermark_that_passes_the_window_is_an_early_trigger(new: New) -> None:
    m = new(trigger=AfterWatermark(early=AHEAD), late=5)
    assert brief(add(m, 1, to=2, percentiles={33: 10, 66: 9})) == []
    assert brief(add(m, percentiles={33: 10, 66: 10})) == [((0, 10), [1], "early", 0, -1)]
    assert brief(add(m, 2, to=3)) == [((0, 10), [2], "early", 1, -1)]  # it is repeated, and still past
    assert brief(add(m, to=10)) == [((0, 10), [], "on_time", 2, 0)]


def test_a_percentile_watermark_alone_finishes(new: New) -> None:
    m = new(trigger=AHEAD)
    assert add(m, 1, percentiles={66: 10}).panes[0].last
    assert add(m, 2).closed == 1


def test_a_session_that_grows_beyond_its_percentile_watermark_waits_again(new: New) -> None:
    m = new(SESSIONS, AfterEach(AHEAD, AfterCount(1)))
    assert len(add(m, 0, percentiles={66: 10}).panes) == 1
    assert brief(add(m, 5)) == []
    assert brief(add(m, percentiles={66: 15})) == [((0, 15), [5], "early", 0, -1)]


# Any, all, each


def test_after_any_fires_with_the_first_and_forgets_the_others(new: New) -> None:
    m = new(trigger=Repeatedly(AfterAny(AfterCount(2), AfterProcessingTime(us(10)))))
    assert len(add(m, 1, 2, now=1).panes) == 1
    add(m, 3, now=5)  # target 15
    assert brief(add(m, now=12)) == []
    assert brief(add(m, now=16)) == [((0, 10), [3], "early", 1, -1)]
    assert brief(add(m, 4, now=17)) == []  # the count of 3 is forgotten, too


def test_after_any_finishes(new: New) -> None:
    m = new(trigger=AfterAny(Repeatedly(AfterCount(1)), Never()))
    assert add(m, 1).panes[0].last


def test_after_all_waits_for_the_last(new: New) -> None:
    m = new(trigger=AfterAll(AfterCount(2), IN_FIVE))
    assert brief(add(m, 1, now=10)) == []
    assert brief(add(m, now=16)) == []
    step = add(m, 2, now=17)
    assert (brief(step), step.panes[0].last) == ([((0, 10), [1, 2], "early", 0, -1)], True)


def test_counts_of_all_add_up_when_sessions_merge(new: New) -> None:
    m = new(SESSIONS, AfterAll(AfterCount(3), IN_FIVE))
    add(m, 0, now=10)
    add(m, 16, now=12)
    assert brief(add(m, 8, now=14)) == []
    assert brief(add(m, now=16)) == [((0, 26), [0, 16, 8], "early", 0, -1)]


def test_after_each_goes_on_to_the_next_and_then_finishes(new: New) -> None:
    m = new(trigger=AfterEach(AfterCount(2), AfterCount(1)))
    assert brief(add(m, 1, 2)) == [((0, 10), [1, 2], "early", 0, -1)]
    step = add(m, 3)
    assert (brief(step), step.panes[0].last) == ([((0, 10), [3], "early", 1, -1)], True)
    assert add(m, 4).closed == 1


def test_in_sessions_all_of_each_count_but_forget_when_one_fires(new: New) -> None:
    m = new(SESSIONS, AfterEach(AfterCount(2), AfterCount(3)))
    assert len(add(m, 0, 0).panes) == 1
    assert brief(add(m, 0, 0)) == []
    assert brief(add(m, 0)) == [((0, 10), [0, 0, 0], "early", 1, -1)]


def test_a_session_is_as_far_in_each_as_its_parts_are(new: New) -> None:
    m = new(SESSIONS, AfterEach(AfterCount(1), AfterCount(3)))
    assert len(add(m, 0).panes) == len(add(m, 16).panes) == 1
    assert brief(add(m, 8, 8)) == []
    assert brief(add(m, 8)) == [((0, 26), [8, 8, 8], "early", 0, -1)]


def test_a_session_that_grows_goes_back_in_each(new: New) -> None:
    m = new(SESSIONS, AfterEach(END, AfterCount(1)), late=100)
    assert brief(add(m, 0, to=10)) == [((0, 10), [0], "on_time", 0, 0)]
    assert brief(add(m, 9)) == []  # [0, 19) is not over
    assert brief(add(m, to=19)) == [((0, 19), [9], "on_time", 0, 0)]
    assert brief(add(m, 0)) == [((0, 19), [0], "late", 1, 1)]


def test_the_next_of_each_waits_for_a_clock_or_an_element(new: New) -> None:
    m = new(trigger=AfterEach(AfterCount(1), END), late=100)
    add(m, to=20)
    first = add(m, 1)  # one decision per phase, and no clock moves
    assert (brief(first), first.panes[0].last) == ([((0, 10), [1], "late", 0, 0)], False)
    assert add(m, 2).panes[0].last


def test_a_clock_that_moves_closes_no_window_that_did_not_wait_for_it(new: New) -> None:
    m = new(trigger=AfterEach(AfterCount(1), END), late=100)
    add(m, to=20)
    add(m, 1)
    assert brief(add(m, now=1)) == []
    last = add(m, 2)
    assert (brief(last), last.panes[0].last, last.closed) == ([((0, 10), [2], "late", 1, 1)], True, 0)


# Or finally, repeatedly


def test_until_counts_all_elements_and_finishes(new: New) -> None:
    m = new(trigger=Repeatedly(AfterCount(2)).or_finally(AfterCount(5)))
    assert not add(m, 1, 2).panes[0].last
    assert not add(m, 3, 4).panes[0].last
    assert add(m, 5).panes[0].last
    assert add(m, 6).closed == 1


def test_a_trigger_that_fires_once_finishes_with_its_pane_whatever_until(new: New) -> None:
    assert add(new(trigger=AfterCount(1).or_finally(AfterCount(5))), 1).panes[0].last


def test_until_that_never_finishes_clears_the_other(new: New) -> None:
    m = new(trigger=Repeatedly(AfterCount(3)).or_finally(Repeatedly(IN_FIVE)))
    add(m, 1, 2, now=10)
    assert brief(add(m, now=16)) == [((0, 10), [1, 2], "early", 0, -1)]
    assert brief(add(m, 3, now=16)) == []  # the count is 1, not 3
    assert brief(add(m, 4, 5, now=16)) == [((0, 10), [3, 4, 5], "early", 1, -1)]


def test_sessions_merge_on_both_sides_of_or_finally(new: New) -> None:
    m = new(SESSIONS, Repeatedly(AfterCount(3)).or_finally(AfterCount(4)))
    assert brief(add(m, 0)) == brief(add(m, 16)) == []
    assert not add(m, 8).panes[0].last
    assert add(m, 8).panes[0].last


def test_repeatedly_begins_the_whole_anew(new: New) -> None:
    m = new(trigger=Repeatedly(AfterEach(AfterCount(2), AfterCount(1))))
    assert brief(add(m, 1, 2)) != []
    assert brief(add(m, 3)) != []
    assert brief(add(m, 4)) == []
    assert brief(add(m, 5)) == [((0, 10), [4, 5], "early", 2, -1)]


# Never, always


def test_never_waits_for_collection(new: New) -> None:
    m = new(trigger=Never(), late=5)
    assert brief(add(m, 1, to=10)) == []
    step = add(m, 2, to=15)
    assert (brief(step), step.panes[0].last) == ([((0, 10), [1, 2], "on_time", 0, 0)], True)


def test_late_elements_of_a_late_trigger_that_never_fires_come_at_collection(new: New) -> None:
    m = new(trigger=AfterWatermark(late=Never()), late=5)
    assert len(add(m, 1, to=10).panes) == 1
    assert brief(add(m, 2, 3)) == []
    assert brief(add(m, to=15)) == [((0, 10), [2, 3], "late", 1, 1)]


def test_always_fires_for_every_bundle_and_owes_the_on_time_pane(new: New) -> None:
    m = new(trigger=Always(), late=5)
    assert brief(add(m, 1)) == [((0, 10), [1], "early", 0, -1)]
    assert brief(add(m, to=5)) == []
    assert brief(add(m, to=10)) == [((0, 10), [], "on_time", 1, 0)]
    assert brief(add(m, 2)) == [((0, 10), [2], "late", 2, 1)]
    assert brief(add(m, now=7)) == []


def test_always_and_never_merge_without_a_state(new: New) -> None:
    m = new(SESSIONS, Always())
    assert brief(add(m, 0)) == [((0, 10), [0], "early", 0, -1)]
    assert brief(add(m, 5)) == [((0, 15), [5], "early", 0, -1)]
    m = new(SESSIONS, Never())
    add(m, 0)
    add(m, 5)
    assert brief(add(m, to=MAX_TIME)) == [((0, 15), [0, 5], "on_time", 0, 0)]


# Clocks


def test_a_step_in_which_no_clock_moves_looks_at_no_window_without_elements(new: New) -> None:
    m = new(trigger=AfterEach(AfterCount(1), END), late=100)
    add(m, to=20)
    add(m, 1)
    assert brief(add(m, 11, to=20)) == [((10, 20), [11], "late", 0, 0)]
    assert add(m, 2).panes[0].values == [2]  # [0, 10) has not finished in between


def test_both_clocks_together_give_one_pane_and_collection_comes_first(new: New) -> None:
    m = new(trigger=AfterWatermark(early=IN_FIVE, late=AfterCount(1)), late=5)
    add(m, 1, now=10)
    step = add(m, to=15, now=16)
    assert (brief(step), step.panes[0].last) == ([((0, 10), [1], "on_time", 0, 0)], True)


def test_clocks_that_are_behind_change_nothing(new: New) -> None:
    m = new(TEN, AfterWatermark(early=AHEAD))
    add(m, to=5, now=9, percentiles={66: 9})
    add(m, 1, to=3, now=2, percentiles={66: 4})
    assert brief(add(m, percentiles={66: 10})) == [((0, 10), [1], "early", 0, -1)]


def test_the_global_window_fires_by_processing_time(new: New) -> None:
    m = new(GlobalWindows(), Repeatedly(IN_FIVE))
    add(m, 1, now=1)
    assert brief(add(m, now=7)) == [(GLOBAL_WINDOW, [1], "early", 0, -1)]
