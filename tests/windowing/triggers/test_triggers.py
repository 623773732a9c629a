"""Each trigger alone: on elements, when ready, after a pane, after a merge (BEAM_MODEL.md 4.3)."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pytest

from tests.support.trigger_frames import END, Frame, moment
from windowing import (
    AfterAll,
    AfterAny,
    AfterCount,
    AfterEach,
    AfterProcessingTime,
    AfterSynchronizedProcessingTime,
    AfterWatermark,
    Always,
    DefaultTrigger,
    Never,
    OrFinally,
    Repeatedly,
    Trigger,
)
from windowing.clocks import PROCESSING_TIME, WATERMARK

S = 1_000_000
OVER = moment(END)
SESSIONS = moment(merging=True)
SESSIONS_OVER = moment(END, merging=True)
P66 = "percentile_66"


# Single triggers


def test_default_emits_at_the_end_and_from_then_on() -> None:
    w = Frame.of(DefaultTrigger(), 10, 11)
    assert w.ready(OVER) == [True, False]
    assert w.fire(OVER) == [True, False]
    assert w.ready(OVER) == [True, False]
    assert w.finished() == [False, False]
    assert w.deadline(moment(), WATERMARK) == [10, 11]
    assert w.deadline(OVER, WATERMARK) == [None, 11]


def test_always_is_ready_and_owes_a_pane_at_the_end() -> None:
    w = Frame.of(Always())
    assert w.fire(moment()) == [True]
    assert w.ready(moment()) == [True]
    assert w.deadline(moment(), WATERMARK) == [END]


def test_never_is_never_ready() -> None:
    w = Frame.of(Never()).add(100, OVER)
    assert w.ready(OVER) == [False]
    assert w.trigger.clocks() == frozenset()


def test_a_count_emits_once() -> None:
    w = Frame.of(AfterCount(3), 10, 10, 10).add([2, 3, 4], moment())
    assert w.fire(moment()) == [False, True, True]
    assert w.finished() == [False, True, True]
    assert w.add(3, moment()).ready(moment()) == [True, False, False]


def test_counts_add_up_in_a_merge() -> None:
    w = Frame.of(AfterCount(5), 10, 10).add([2, 3], SESSIONS)
    assert w.merge(SESSIONS).ready(SESSIONS) == [True]


def test_a_count_that_is_finished_in_any_part_is_finished() -> None:
    w = Frame.of(AfterCount(2), 10, 10).add([2, 1], SESSIONS)
    w.fire(SESSIONS)
    assert w.merge(SESSIONS).finished() == [True]
    assert w.rows["__trigger.count"].to_list() == [0]


def test_the_end_of_the_window_emits_once() -> None:
    w = Frame.of(AfterWatermark(), 10, 11)
    assert w.fire(OVER) == [True, False]
    assert w.finished() == [True, False]
    assert w.deadline(OVER, WATERMARK) == [None, 11]


@pytest.mark.parametrize(
    ("fired", "end", "finished"), [([9, 10], 10, True), ([9, 10], 11, False), ([9, 11], 10, False)]
)
def test_the_end_stays_past_in_a_merge_if_it_is_past_in_all_parts_and_the_whole(
    fired: list[int], end: int, finished: bool
) -> None:
    w = Frame.of(AfterWatermark(), *fired)
    w.fire(SESSIONS_OVER)
    assert w.merge(SESSIONS_OVER, end).finished() == [finished]


def test_a_percentile_passes_the_end_before_the_watermark() -> None:
    w = Frame.of(AfterWatermark(percentile=66))
    assert w.trigger.clocks() == {WATERMARK, P66}
    assert w.deadline(moment(), P66) == [END]
    assert w.ready(moment(percentile_66=9)) == [False]
    assert w.fire(moment(percentile_66=10)) == [True]
    assert w.finished() == [True]
    assert Frame.of(AfterWatermark(percentile=66)).ready(OVER) == [False]


def test_a_percentile_as_the_early_trigger() -> None:
    w = Frame.of(AfterWatermark(early=AfterWatermark(percentile=66)))
    assert w.fire(moment(percentile_66=10)) == [True]
    assert w.finished() == [False]
    assert w.fire(moment(10, percentile_66=10)) == [True]
    assert w.finished() == [True]


# Early and late


def test_early_counts_before_the_end_and_late_after_it() -> None:
    w = Frame.of(AfterWatermark(early=AfterCount(2), late=AfterCount(1)))
    assert w.add(1, moment()).fire(moment()) == [False]
    assert w.add(1, moment()).fire(moment()) == [True]
    assert w.add(1, moment()).fire(OVER) == [True]
    assert w.ready(OVER) == [False]
    assert w.add(1, OVER).fire(OVER) == [True]
    assert w.ready(OVER) == [False]
    assert w.finished() == [False]


def test_a_session_that_grows_after_its_end_is_early_again_with_a_void_count() -> None:
    w = Frame.of(AfterWatermark(early=AfterCount(2), late=AfterCount(1)), 10, 20)
    w.fire(SESSIONS_OVER)
    w.add(1, SESSIONS_OVER)
    merged = w.merge(SESSIONS_OVER, 20)
    assert merged.rows["__trigger.past"].to_list() == [False]
    assert merged.ready(SESSIONS_OVER) == [False]
    assert merged.add(2, SESSIONS_OVER).ready(SESSIONS_OVER) == [True]


def test_an_early_processing_time_is_void_where_a_part_was_past_its_end() -> None:
    w = Frame.of(AfterWatermark(early=AfterProcessingTime("1s"), late=AfterCount(1)), 10, 20)
    w.fire(SESSIONS_OVER)
    w.add(1, SESSIONS_OVER).merge(SESSIONS_OVER, 20)
    assert w.ready(moment(END, 9 * S, merging=True)) == [False]


def test_late_counts_add_up_where_all_parts_are_past_their_end() -> None:
    w = Frame.of(AfterWatermark(late=AfterCount(2)), 9, 10)
    w.fire(SESSIONS_OVER)
    assert w.add(1, SESSIONS_OVER).merge(SESSIONS_OVER).ready(SESSIONS_OVER) == [True]


# Processing time


def test_processing_time_is_reached_when_the_target_has_been_passed() -> None:
    w = Frame.of(AfterProcessingTime("5s"), 10, 10).add([1, 0], moment(now=2 * S))
    w.add(1, moment(now=3 * S))
    assert w.ready(moment(now=7 * S)) == [False, False]
    assert w.deadline(moment(now=7 * S), PROCESSING_TIME) == [7 * S + 1, 8 * S + 1]
    assert w.fire(moment(now=7 * S + 1)) == [True, False]
    assert w.finished() == [True, False]
    assert w.deadline(moment(now=9 * S), PROCESSING_TIME) == [None, None]
    assert w.deadline(moment(now=3 * S), WATERMARK) == [None, None]


@pytest.mark.parametrize(
    ("trigger", "now", "target"),
    [
        (AfterProcessingTime("3s"), 4, 7),
        (AfterProcessingTime("3s", align_to="10s"), 4, 10),
        (AfterProcessingTime("6s", align_to="10s"), 4, 10),
        (AfterProcessingTime("7s", align_to="10s"), 4, 20),
        (AfterProcessingTime(align_to="10s", offset="3s"), 4, 13),
        (AfterProcessingTime(align_to="10s", offset="13s"), 3, 3),
        (AfterProcessingTime(align_to="10s"), -4, 0),
        (AfterSynchronizedProcessingTime(), 4, 4),
    ],
)
def test_the_target_is_the_next_aligned_time_after_the_delay(
    trigger: AfterProcessingTime, now: int, target: int
) -> None:
    w = Frame.of(trigger).add(1, moment(now=now * S))
    assert w.rows["__trigger.target"].to_list() == [target * S]


def test_merged_windows_have_the_earliest_target() -> None:
    w = Frame.of(AfterProcessingTime("5s"), 10, 10, 10)
    w.add([0, 1, 0], moment(now=2 * S)).add([1, 0, 0], moment(now=1 * S)).merge(SESSIONS)
    assert w.deadline(SESSIONS, PROCESSING_TIME) == [6 * S + 1]


def test_a_processing_time_that_has_fired_in_any_part_is_finished() -> None:
    w = Frame.of(AfterProcessingTime("5s"), 10, 10)
    w.add([1, 0], SESSIONS).fire(moment(now=6 * S))
    w.add([0, 1], moment(now=6 * S)).merge(SESSIONS)
    assert w.finished() == [True]
    assert w.ready(moment(now=99 * S)) == [False]


def test_repeated_processing_time_begins_with_the_first_element_after_a_pane() -> None:
    w = Frame.of(Repeatedly(AfterProcessingTime("5s"))).add(1, moment(now=0))
    assert w.fire(moment(now=6 * S)) == [True]
    assert w.ready(moment(now=60 * S)) == [False]
    w.add(1, moment(now=60 * S))
    assert w.deadline(moment(now=60 * S), PROCESSING_TIME) == [65 * S + 1]


# Composites


def test_any_emits_once_when_the_first_is_ready() -> None:
    w = Frame.of(AfterAny(AfterCount(3), AfterWatermark()), 10, 20).add([1, 3], moment())
    assert w.fire(moment()) == [False, True]
    assert w.fire(OVER) == [True, False]
    assert w.finished() == [True, True]


def test_any_clears_those_that_were_not_ready() -> None:
    w = Frame.of(AfterAny(AfterCount(3), AfterWatermark())).add(2, moment())
    w.fire(OVER)
    assert w.rows["__trigger.0.count"].to_list() == [0]
    assert w.rows["__trigger.0.done"].to_list() == [False]


def test_any_finishes_even_if_what_fired_does_not() -> None:
    w = Frame.of(AfterAny(Repeatedly(AfterCount(1)), Never())).add(1, moment())
    w.fire(moment())
    assert w.finished() == [True]


def test_any_merged_is_finished_if_one_of_its_triggers_is() -> None:
    w = Frame.of(AfterAny(Repeatedly(AfterCount(2)), AfterCount(3)), 10, 10).add([2, 0], SESSIONS)
    w.fire(SESSIONS)
    assert w.finished() == [True, False]
    assert w.merge(SESSIONS).finished() == [False]
    w = Frame.of(AfterAny(AfterCount(2), AfterCount(9)), 10, 10).add([2, 0], SESSIONS)
    w.fire(SESSIONS)
    assert w.merge(SESSIONS).finished() == [True]


def test_all_emits_once_when_all_are_ready() -> None:
    w = Frame.of(AfterAll(AfterCount(2), AfterProcessingTime("5s")), 10, 10).add([2, 1], moment())
    assert w.ready(moment()) == [False, False]
    assert w.fire(moment(now=6 * S)) == [True, False]
    assert w.finished() == [True, False]
    assert w.add(1, moment(now=6 * S)).fire(moment(now=6 * S)) == [False, True]


def test_all_merged_is_finished_only_if_all_its_triggers_are() -> None:
    w = Frame.of(AfterAll(AfterCount(1), AfterWatermark()), 10, 10).add(1, SESSIONS)
    w.fire(SESSIONS_OVER)
    assert w.finished() == [True, True]
    w.merge(SESSIONS_OVER, 20)
    assert w.finished() == [False]
    # The count has fired, so only the end of the window is missing.
    assert w.ready(moment(19, merging=True)) == [False]
    assert w.ready(moment(20, merging=True)) == [True]


def test_each_emits_in_turn_and_only_the_current_one_counts() -> None:
    w = Frame.of(AfterEach(AfterCount(2), AfterCount(1))).add(5, moment())
    assert w.fire(moment()) == [True]
    assert w.ready(moment()) == [False]
    assert w.add(1, moment()).fire(moment()) == [True]
    assert w.finished() == [True]


def test_each_counts_with_all_in_sessions_and_forgets_with_every_pane() -> None:
    w = Frame.of(AfterEach(AfterCount(2), AfterCount(3))).add(2, SESSIONS)
    assert w.rows["__trigger.1.count"].to_list() == [2]
    w.fire(SESSIONS)
    assert w.rows["__trigger.1.count"].to_list() == [0]
    assert w.add(3, SESSIONS).fire(SESSIONS) == [True]
    assert w.finished() == [True]


def test_each_merged_goes_back_to_what_is_not_finished_in_the_whole() -> None:
    w = Frame.of(AfterEach(AfterWatermark(), AfterCount(2)), 10, 20)
    w.fire(SESSIONS_OVER)
    w.add([1, 0], SESSIONS_OVER).merge(SESSIONS_OVER, 20)
    assert w.rows["__trigger.1.count"].to_list() == [0]
    assert w.ready(SESSIONS_OVER) == [False]
    assert w.ready(moment(20, merging=True)) == [True]


def test_each_merged_goes_on_where_all_parts_had_finished() -> None:
    w = Frame.of(AfterEach(AfterWatermark(), AfterCount(2)), 9, 10)
    w.fire(SESSIONS_OVER)
    assert w.add(1, SESSIONS_OVER).merge(SESSIONS_OVER).ready(SESSIONS_OVER) == [True]


def test_one_that_is_ready_again_at_once_asks_for_no_look() -> None:
    # No timer is due then: as in Beam, it waits for the next element, or for the window's end.
    each = Frame.of(AfterEach(AfterCount(1), AfterWatermark(), AfterCount(3))).add(1, OVER)
    each.fire(OVER)
    finally_ = Frame.of(AfterWatermark().or_finally(AfterWatermark(late=AfterCount(1))))
    finally_.fire(OVER)
    for w in (each, finally_):
        assert (w.ready(OVER), w.finished(), w.deadline(OVER, WATERMARK)) == ([True], [False], [None])


def test_repeatedly_begins_anew_only_when_its_trigger_has_finished() -> None:
    w = Frame.of(Repeatedly(AfterEach(AfterCount(2), AfterCount(1)))).add(2, moment())
    assert w.fire(moment()) == [True]
    assert w.add(1, moment()).fire(moment()) == [True]
    assert w.add(1, moment()).fire(moment()) == [False]
    assert w.finished() == [False]


def test_or_finally_counts_all_elements_until_the_last_pane() -> None:
    w = Frame.of(Repeatedly(AfterCount(2)).or_finally(AfterCount(5)))
    assert w.add(2, moment()).fire(moment()) == [True]
    assert w.add(2, moment()).fire(moment()) == [True]
    assert w.finished() == [False]
    assert w.add(1, moment()).fire(moment()) == [True]
    assert w.finished() == [True]


def test_or_finally_finishes_with_its_first_trigger() -> None:
    w = Frame.of(AfterCount(2).or_finally(AfterWatermark())).add(2, moment())
    w.fire(moment())
    assert w.finished() == [True]


def test_or_finally_clears_what_was_pending_when_it_ends() -> None:
    w = Frame.of(Repeatedly(AfterCount(2)).or_finally(Repeatedly(AfterWatermark()))).add(1, moment())
    assert w.fire(OVER) == [True]
    assert w.finished() == [False]
    assert w.rows["__trigger.0.0.count"].to_list() == [0]


def test_or_finally_merged_is_finished_if_either_is() -> None:
    w = Frame.of(Repeatedly(AfterCount(9)).or_finally(AfterCount(2)), 10, 10).add([2, 1], SESSIONS)
    w.fire(SESSIONS)
    assert w.merge(SESSIONS).finished() == [True]
    w = Frame.of(Never().or_finally(AfterWatermark()), 9, 10)
    w.fire(SESSIONS_OVER)
    assert w.merge(SESSIONS_OVER, 20).finished() == [False]


# Size


def _bushy(composite: Callable[[Trigger, Trigger], Trigger], depth: int) -> Trigger:
    if depth == 0:
        return AfterCount(3)
    return composite(_bushy(composite, depth - 1), _bushy(composite, depth - 1))


@pytest.mark.parametrize("composite", [AfterAny, AfterAll, AfterEach, OrFinally, AfterWatermark])
def test_expressions_of_nested_triggers_stay_small(composite: Callable[[Trigger, Trigger], Trigger]) -> None:
    """The text is as long as the tree that polars plans; doubling at each of four levels would show."""
    trigger, at = _bushy(composite, 4), moment(merging=True)
    w = Frame.of(trigger)
    env = w.trigger.on_fire(w.env, "__trigger", pl.lit(True), at)
    assert max(len(str(env[name])) for name in w.env) < 20_000
