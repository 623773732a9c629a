"""Laws of every trigger: it behaves as the model's machine, and it requests every evaluation that it needs in time."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support.model_clocks import Clocks, Now
from tests.support.model_triggers import machine
from tests.support.trigger_frames import END, Frame, moment, triggers
from windowing import Trigger

WINDOWS = 3
SHARE, P66 = 66, "percentile_66"
OVER = moment(END)

counts = st.lists(st.integers(0, 3), min_size=WINDOWS, max_size=WINDOWS)
moves = st.integers(0, 5)
operations = st.one_of(
    st.tuples(st.just("add"), counts),
    st.tuples(st.just("fire"), st.none()),
    st.tuples(st.just("move"), st.tuples(moves, moves, moves)),
    st.tuples(st.just("merge"), st.integers(0, 8)),
)
some_ends = st.lists(st.integers(4, 12), min_size=WINDOWS, max_size=WINDOWS)


@given(triggers, st.lists(operations, max_size=9), some_ends, st.booleans())
def test_cells_do_as_the_machines(
    trigger: Trigger, operations: list[tuple[str, Any]], ends: list[int], merging: bool
) -> None:
    frame, machines = Frame.of(trigger, *ends), [machine(trigger, merging) for _ in ends]
    clocks = Clocks(0, 0, {SHARE: 0})
    for operation, argument in operations:
        at = moment(clocks.watermark, clocks.processing_time, merging, percentile_66=clocks.percentile(SHARE))
        windows = [(each, Now(clocks, (0, end))) for each, end in zip(machines, ends, strict=True)]
        if operation == "move":
            watermark, time, share = argument
            clocks = Clocks(
                clocks.watermark + watermark,
                clocks.processing_time + time,
                {SHARE: clocks.percentile(SHARE) + share},
            )
        elif operation == "add":
            added = [0 if each.finished else count for each, count in zip(machines, argument, strict=False)]
            frame.add(added, at)
            for (each, now), count in zip(windows, added, strict=True):
                for _ in range(count):
                    each.on_element(now)
        elif operation == "fire":
            ready = [not each.finished and each.should_fire(now) for each, now in windows]
            assert frame.fire(at) == ready
            for (each, now), fires in zip(windows, ready, strict=True):
                if fires:
                    each.on_fire(now)
        elif merging and not any(each.finished for each in machines):
            ends = [max(ends) + argument]
            merged = machine(trigger, merging)
            merged.on_merge(machines, Now(clocks, (0, ends[0])))
            frame.merge(at, ends[0])
            machines = [merged]
        assert frame.finished() == [each.finished for each in machines]
        # A grouping computes neither for triggers that declare it.
        assert trigger.may_finish() or not any(frame.finished())
        early = [ready for ready, end in zip(frame.ready(at), ends, strict=True) if at.watermark < end]
        assert not (trigger.waits_for_end and any(early))


steps = st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 4), st.integers(0, 4))


def _panes(
    trigger: Trigger, stream: list[tuple[int, int, int, int]], merging: bool, lazy: bool
) -> list[object]:
    """Returns the panes of a window, step by step; a lazy window is evaluated only when it has requested that.

    The first step has an element: no window begins without one.
    """
    w, watermark, percentile, now = Frame.of(trigger), -5, -5, 0
    pending, punctual, seen = 0, False, []
    for count, *moves in [(1, 0, 0, 0), *stream]:
        before = moment(watermark, now, merging, percentile_66=percentile)
        watermark, percentile, now = watermark + moves[0], percentile + moves[1], now + moves[2]
        phases = [moment(before.watermark, now, merging, percentile_66=before.time(P66))] if count else []
        if count and w.finished() == [False]:
            w.add(count, phases[0])
            pending += count
        after = moment(watermark, now, merging, percentile_66=percentile)
        over = before.watermark < END <= after.watermark
        if (over or w.wakes(before, after)) and (not lazy or count or w.due(before, after)):
            phases.append(after)
        for at in phases:
            if w.fire(at) == [True]:
                on_time = at.watermark >= END and not punctual
                seen.append((pending, on_time) if pending or on_time else None)
                pending, punctual = 0, punctual or on_time
        seen.append((w.rows.rows(), w.finished()))
    return [each for each in seen if each is not None]


@given(triggers, st.lists(steps, max_size=8), st.booleans())
def test_a_window_that_is_not_due_misses_nothing(
    trigger: Trigger, stream: list[tuple[int, int, int, int]], merging: bool
) -> None:
    assert _panes(trigger, stream, merging, lazy=True) == _panes(trigger, stream, merging, lazy=False)


@given(triggers, st.integers(-2, 12), st.integers(1, 3), st.booleans())
def test_more_elements_leave_a_ready_trigger_ready(
    trigger: Trigger, watermark: int, count: int, merging: bool
) -> None:
    at = moment(watermark, merging=merging)
    w = Frame.of(trigger).add(3, at)
    if w.ready(at) == [True]:
        assert w.add(count, at).ready(at) == [True]


@given(triggers)
def test_ready_and_finished_are_known_of_every_window(trigger: Trigger) -> None:
    w = Frame.of(trigger)
    assert None not in [*w.ready(OVER), *w.fire(OVER), *w.finished(), *w.merge(OVER).ready(OVER)]
