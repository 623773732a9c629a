"""The grouping stage, compared with the model step by step, and the laws that both must keep."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Any

import attrs
import polars as pl
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stages.aggregates.base import Aggregate
from stages.aggregates.builtin import Collect, Count, First, Last, Max, Min, WindowLength
from stages.aggregates.combine_fn import Combine
from stages.aggregates.totals import Mean, Sum
from tests.support.examples import share
from tests.support.model import MAX_TIME, MIN_TIME, Key, Model, Pane, Window, assign
from tests.support.runs import InOrder, StageRun, advance, panes_of, play, sorted_panes
from tests.support.strategies import (
    Auctions,
    Bundle,
    Meetings,
    Stream,
    all_windows,
    bridged_streams,
    bridged_windowings,
    calendar_windows,
    crowded_streams,
    crowded_windowings,
    cumulative_windows,
    elements,
    fixed_windows,
    lasting_windows,
    punctual_streams,
    scattered_streams,
    sessions,
    sliding_windows,
    streams,
    us,
    windowings,
)
from windowing import (
    Accumulation,
    AfterCount,
    CalendarWindows,
    DefaultTrigger,
    FixedWindows,
    Repeatedly,
    Sessions,
    TimestampCombiner,
    Windowing,
)
from windowing.columns import EVENT_TIME, WINDOW_COLUMNS, WINDOW_END, WINDOW_START

some = share(2)

law = share(5)
"""Fewer examples than where stage and model are compared: what holds for one then holds for the other."""

WindowOf = tuple[Key, Window]
default_trigger = st.builds(DefaultTrigger)
retracting = st.just(Accumulation.RETRACTING)
no_lateness = st.just(us(0))
no_closing_panes = st.just("if_non_empty")


def with_accumulation(windowing: Windowing, accumulation: Accumulation) -> Windowing:
    return attrs.evolve(windowing, accumulation=accumulation)


def closes_sessions(windowing: Windowing) -> bool:
    """True if sessions may finish; only then can a later session have the window of an earlier one."""
    return isinstance(windowing.windows, Sessions) and windowing.trigger.may_finish()


def by_window(panes: list[Pane]) -> dict[WindowOf, list[Pane]]:
    """Returns the panes of each window, without panes that only retract."""
    groups = defaultdict(list)
    for pane in panes:
        if not pane.retracted:
            groups[pane.key, pane.window].append(pane)
    return groups


def assert_same_steps(windowing: Windowing, stream: Stream) -> None:
    model, stage = Model(windowing), StageRun(windowing)
    for bundle in stream:
        assert play(stage, [bundle]) == play(model, [bundle])


def test_an_element_whose_window_is_over_when_it_has_merged_is_late() -> None:
    windowing = Windowing(
        Meetings(10),
        trigger=Repeatedly(AfterCount(1)),
        accumulation=Accumulation.RETRACTING,
        timestamp_combiner=TimestampCombiner.LATEST,
        allowed_lateness=timedelta(days=2),
        allow_data_loss=True,
    )
    steps = [([("c", 0, -16)], -3), ([("c", 2, 1)], 2), ([("c", -8, -16)], 5)]
    assert_same_steps(windowing, tuple(Bundle(tuple(elements), to) for elements, to in steps))


def test_a_window_that_ends_earlier_after_a_merge_holds_the_output_earlier() -> None:
    windowing = Windowing(
        Auctions(6), trigger=Repeatedly(AfterCount(9)), accumulation=Accumulation.DISCARDING
    )
    steps = [([("a", 17, 16)], 0), ([("a", 9, 8), ("a", 9, 8)], 4), ([("a", 9, 8)], 8)]
    assert_same_steps(windowing, tuple(Bundle(tuple(elements), to) for elements, to in steps))


@given(windowings(), streams())
def test_stage_agrees_with_the_model(windowing: Windowing, stream: Stream) -> None:
    assert_same_steps(windowing, stream)


@some
@given(crowded_windowings, crowded_streams())
def test_stage_agrees_with_the_model_on_crowded_sessions(windowing: Windowing, stream: Stream) -> None:
    assert_same_steps(windowing, stream)


@given(bridged_windowings, bridged_streams())
def test_stage_agrees_with_the_model_on_bridged_windows(windowing: Windowing, stream: Stream) -> None:
    assert_same_steps(windowing, stream)


@some
@given(windowings(), scattered_streams())
def test_stage_agrees_with_the_model_on_scattered_windows(windowing: Windowing, stream: Stream) -> None:
    assert_same_steps(windowing, stream)


@given(calendar_windows, st.datetimes(datetime(1900, 1, 1), datetime(2090, 1, 1)))
def test_calendar_windows_agree_with_the_model(windows: CalendarWindows, moment: datetime) -> None:
    time = (moment - datetime(1970, 1, 1)) // timedelta(microseconds=1)
    assigned = windows.assign(pl.DataFrame({EVENT_TIME: [time]}))
    assert assigned.select(WINDOW_COLUMNS).rows() == assign(windows, time)


@law
@given(windowings(windows=sessions, trigger=default_trigger), st.lists(elements, max_size=12), st.data())
def test_sessions_do_not_depend_on_the_order_of_arrival(
    windowing: Windowing, arrivals: list[tuple[str, int, int]], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(arrivals))
    end = Bundle((), MAX_TIME)
    at_once = panes_of(windowing, (Bundle(tuple(arrivals), MIN_TIME), end))
    one_by_one = panes_of(windowing, (*(Bundle((element,), MIN_TIME) for element in shuffled), end))
    assert [attrs.evolve(pane, values=sorted(pane.values)) for pane in at_once] == [
        attrs.evolve(pane, values=sorted(pane.values)) for pane in one_by_one
    ]


@law
@given(windowings(), streams())
def test_watermarks_never_regress_and_output_is_at_most_input(windowing: Windowing, stream: Stream) -> None:
    run = StageRun(windowing)
    marks = []
    for bundle in stream:
        step = advance(run, bundle)
        assert step.output_watermark <= run.input_watermark == bundle.watermark
        marks.append((run.input_watermark, step.output_watermark))
    for column in zip(*marks, strict=True):
        assert list(column) == list(accumulate(column, max))


@law
@given(windowings(), streams())
def test_only_late_and_retracted_panes_are_behind_the_output_watermark(
    windowing: Windowing, stream: Stream
) -> None:
    run, output = StageRun(windowing), MIN_TIME
    for bundle in stream:
        step = advance(run, bundle)
        in_time = [pane for pane in step.panes if pane.timing != "late" and not pane.retracted]
        assert all(pane.timestamp >= output for pane in in_time)
        output = step.output_watermark


@law
@given(windowings(lasting_windows), streams(drained=True))
def test_discarding_panes_concatenate_to_the_last_accumulating_one(
    windowing: Windowing, stream: Stream
) -> None:
    assume(not closes_sessions(windowing))  # the content of a closed session is removed with it
    discarding = panes_of(with_accumulation(windowing, Accumulation.DISCARDING), stream)
    accumulating = panes_of(with_accumulation(windowing, Accumulation.ACCUMULATING), stream)
    for (key, window), panes in by_window(accumulating).items():
        if became_part((key, window), by_window(accumulating), windowing):
            continue
        parts = [pane for pane in discarding if pane.key == key and within(pane.window, window, windowing)]
        assert sorted(panes[-1].values) == sorted(value for pane in parts for value in pane.values)


@law
@given(windowings(lasting_windows, accumulation=retracting), streams(drained=True))
def test_retractions_net_out_to_the_last_value(windowing: Windowing, stream: Stream) -> None:
    assume(not closes_sessions(windowing))
    net: list[Pane] = []
    for pane in emitted(windowing, stream):
        if pane.retracted:
            net.remove(attrs.evolve(pane, retracted=False))  # as it was emitted
        else:
            net.append(pane)
    accumulating = by_window(panes_of(with_accumulation(windowing, Accumulation.ACCUMULATING), stream))
    lasting = [
        panes[-1] for at, panes in accumulating.items() if not became_part(at, accumulating, windowing)
    ]
    # An accumulating pane has the time of new elements, a retracting one that of all.
    untimed = [[attrs.evolve(pane, timestamp=0) for pane in panes] for panes in (net, lasting)]
    assert sorted_panes(untimed[0]) == sorted_panes(untimed[1])


@law
@given(windowings(accumulation=retracting), streams(drained=True))
def test_a_pane_comes_after_the_retraction_of_what_it_replaces(windowing: Windowing, stream: Stream) -> None:
    latest: dict[WindowOf, Pane] = {}
    for pane in emitted(windowing, stream):
        at = pane.key, pane.window
        if pane.retracted:
            assert latest.pop(at) == attrs.evolve(pane, retracted=False)
            continue
        spanned = [part for key, part in latest if key == pane.key and within(part, pane.window, windowing)]
        assert not spanned
        if not pane.last:
            latest[at] = pane


def emitted(windowing: Windowing, stream: Stream) -> list[Pane]:
    """Returns the panes of the stage in order of emission, unsorted."""
    run = StageRun(windowing)
    return [pane for bundle in stream for pane in advance(run, bundle).panes]


def became_part(at: WindowOf, windows: Iterable[WindowOf], windowing: Windowing) -> bool:
    """True if this is a session that merged into another of these."""
    return any(at != other and at[0] == other[0] and within(at[1], other[1], windowing) for other in windows)


def within(part: Window, window: Window, windowing: Windowing) -> bool:
    """True if the first window's content went into the second."""
    spans = window[0] <= part[0] and part[1] <= window[1]
    return part == window or (isinstance(windowing.windows, Sessions) and spans)


@law
@given(windowings(all_windows, default_trigger, closing=no_closing_panes), punctual_streams())
def test_bundling_does_not_change_default_panes_if_nothing_is_late(
    windowing: Windowing, stream: Stream
) -> None:
    together = Bundle(tuple(element for bundle in stream for element in bundle.elements), MIN_TIME)
    as_is = contents(windowing, stream)
    assert as_is == contents(windowing, (together, Bundle((), MAX_TIME)))
    assert as_is == contents(windowing, tuple(one_by_one(stream)))


def contents(windowing: Windowing, stream: Stream) -> list[Pane]:
    """Returns all panes, with equal `last`: that flag depends on how far the watermark leapt."""
    return sorted_panes(attrs.evolve(pane, last=True) for pane in panes_of(windowing, stream))


def one_by_one(stream: Stream) -> list[Bundle]:
    """Returns the same elements in bundles of one; the watermark moves where it moved before."""
    bundles, watermark = [], MIN_TIME
    for bundle in stream:
        bundles += [Bundle((element,), watermark) for element in bundle.elements]
        watermark = bundle.watermark
        bundles.append(Bundle((), watermark))
    return bundles


@given(windowings(), streams())
def test_sharding_changes_neither_panes_nor_the_output_watermark(
    windowing: Windowing, stream: Stream
) -> None:
    shards = [play(StageRun(windowing), only(stream, keys)) for keys in ({"a"}, {"b", "c"})]
    for whole, *parts in zip(play(StageRun(windowing), stream), *shards, strict=True):
        assert sorted_panes(pane for part in parts for pane in part.panes) == whole.panes
        assert min(part.output_watermark for part in parts) == whole.output_watermark


def only(stream: Stream, keys: set[str]) -> Stream:
    """Returns the stream of a shard with these keys: their elements, and every move of the clocks."""
    return tuple(
        attrs.evolve(bundle, elements=tuple(element for element in bundle.elements if element[0] in keys))
        for bundle in stream
    )


@law
@given(windowings(lasting_windows), streams())
def test_a_window_has_at_most_one_on_time_pane_after_early_and_before_late_ones(
    windowing: Windowing, stream: Stream
) -> None:
    assume(not closes_sessions(windowing))
    order = ["early", "on_time", "late"]
    for panes in by_window(panes_of(windowing, stream)).values():
        timings = [order.index(pane.timing) for pane in panes]
        assert timings == sorted(timings)
        assert timings.count(1) <= 1


@law
@given(windowings(lasting_windows), streams(drained=True))
def test_a_window_that_emitted_its_last_pane_emits_nothing_more(windowing: Windowing, stream: Stream) -> None:
    assume(not closes_sessions(windowing))
    for panes in by_window(panes_of(windowing, stream)).values():
        assert not any(pane.last for pane in panes[:-1])
        assert [pane.index for pane in panes] == list(range(len(panes)))
        assert [pane.first for pane in panes] == [True] + [False] * (len(panes) - 1)


@law
@given(windowings(windows=fixed_windows | sliding_windows | cumulative_windows), streams(drained=True))
def test_every_element_is_emitted_once_or_counted_as_dropped(windowing: Windowing, stream: Stream) -> None:
    steps = play(StageRun(with_accumulation(windowing, Accumulation.DISCARDING)), stream)
    dropped = sum(step.late + step.closed for step in steps)
    emitted = sum(len(pane.values) for step in steps for pane in step.panes)
    nothing_dropped = Windowing(windowing.windows, allowed_lateness=us(10**9))
    assigned = sum(len(pane.values) for pane in panes_of(nothing_dropped, stream, Model))
    assert emitted + dropped == assigned


# Where users' windows merge, elements of one event time and one bundle have no order.
@law
@given(windowings(lasting_windows), streams(drained=True))
def test_every_aggregate_agrees_with_plain_python_over_the_values(
    windowing: Windowing, stream: Stream
) -> None:
    run = StageRun(windowing, EVERY_AGGREGATE)
    times: list[int] = []  # an element's value is its number, by which its time is found here
    for bundle in stream:
        numbered = [(key, n, time) for n, (key, _, time) in enumerate(bundle.elements, start=len(times))]
        times += [time for _, _, time in numbered]
        advance(run, attrs.evolve(bundle, elements=tuple(numbered)))
        for row in run.frame.iter_rows(named=True):
            assert {name: row[name] for name in EVERY_AGGREGATE} == expected(row, times)


class Spread(InOrder):
    """A user-defined aggregate: the difference between the greatest and the least value."""

    def extract_output(self, accumulator: list[int]) -> int | None:
        return max(accumulator) - min(accumulator) if accumulator else None


EVERY_AGGREGATE: dict[str, Aggregate] = {
    "values": Collect("value"),
    "n": Count(),
    "n_values": Count("value"),
    "total": Sum("value"),
    "least": Min("value"),
    "most": Max("value"),
    "mean": Mean("value"),
    "first": First("value"),
    "last": Last("value"),
    "spread": Combine(Spread(), "value", pl.Int64()),
    "length": WindowLength(),
}


def expected(row: dict[str, Any], times: list[int]) -> dict[str, Any]:
    """Returns the aggregates of a row's `values`, numbered in order of arrival, at these event times."""
    values = row["values"]
    length = (row[WINDOW_END] - row[WINDOW_START]) / 1_000_000
    return {
        "values": sorted(values),
        "n": len(values),
        "n_values": len(values),
        "total": sum(values),
        "least": min(values, default=None),
        "most": max(values, default=None),
        "mean": sum(values) / len(values) if values else None,
        "first": min(values, key=lambda value: (times[value], value), default=None),
        "last": max(values, key=lambda value: (times[value], value), default=None),
        "spread": max(values) - min(values) if values else None,
        "length": length,
    }


def test_aggregates_leave_nulls_out_but_count_and_collect_see_them() -> None:
    run = StageRun(Windowing(FixedWindows(us(10))), {**EVERY_AGGREGATE, "spread": Count()})
    null: Any = None
    run.step([("a", null, 1), ("a", 3, 2)], 5)
    run.step([("a", 5, 6), ("a", null, 7), ("b", null, 1)], MAX_TIME)
    some, none = run.frame.sort("key").select(list(EVERY_AGGREGATE)).iter_rows()
    assert some == ([None, 3, 5, None], 4, 2, 8, 3, 5, 4.0, None, None, 4, pytest.approx(1e-5))
    assert none == ([None], 1, 0, 0, None, None, None, None, None, 1, pytest.approx(1e-5))
