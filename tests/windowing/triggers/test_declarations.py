"""Triggers as they are declared: values, text, continuations, whether they may finish, and invalid ones."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest
from hypothesis import given

from beamlike.expressions.describe import describe
from tests.support.trigger_frames import triggers
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
    Repeatedly,
    Trigger,
)


@pytest.mark.parametrize(
    ("trigger", "continuation"),
    [
        (Always(), Always()),
        (Never(), Never()),
        (AfterProcessingTime("5s"), AfterSynchronizedProcessingTime()),
        (AfterSynchronizedProcessingTime(), AfterSynchronizedProcessingTime()),
        (AfterWatermark(percentile=66), AfterWatermark(percentile=66)),
        (AfterAny(AfterCount(3), AfterWatermark()), AfterAny(AfterCount(1), AfterWatermark())),
        (AfterAll(AfterCount(3), AfterWatermark()), AfterAll(AfterCount(1), AfterWatermark())),
        (
            AfterEach(AfterCount(3), AfterProcessingTime("5s")),
            Repeatedly(AfterAny(AfterCount(1), AfterSynchronizedProcessingTime())),
        ),
        (
            Repeatedly(AfterCount(3)).or_finally(AfterCount(9)),
            Repeatedly(Repeatedly(AfterCount(1)).or_finally(AfterCount(1))),
        ),
    ],
)
def test_what_follows_a_paced_grouping(trigger: Trigger, continuation: Trigger) -> None:
    assert trigger.continuation() == continuation


@given(triggers)
def test_a_continuation_is_its_own_continuation(trigger: Trigger) -> None:
    assert trigger.continuation().continuation() == trigger.continuation()


@pytest.mark.parametrize(
    ("trigger", "may_finish"),
    [
        (DefaultTrigger(), False),
        (Always(), False),
        (Never(), False),
        (Repeatedly(AfterCount(1)), False),
        (AfterCount(1), True),
        (AfterProcessingTime(), True),
        (AfterSynchronizedProcessingTime(), True),
        (AfterWatermark(), True),
        (AfterWatermark(percentile=66), True),
        (AfterWatermark(early=AfterCount(1)), True),
        (AfterWatermark(late=AfterCount(1)), False),
        (AfterAny(AfterCount(1), Never()), True),
        (AfterAny(DefaultTrigger(), Never()), True),
        (AfterAny(Repeatedly(AfterCount(1)), Always()), True),
        (AfterAny(Never(), Never()), False),
        (AfterAll(AfterCount(1), Never()), False),
        (AfterAll(AfterCount(1), AfterWatermark()), True),
        (AfterAll(Repeatedly(AfterCount(2)), AfterCount(1)), True),
        (AfterEach(AfterCount(1), Repeatedly(AfterCount(2))), False),
        (AfterEach(AfterCount(1), AfterCount(2)), True),
        (Repeatedly(AfterCount(1)).or_finally(AfterWatermark()), True),
        (Never().or_finally(DefaultTrigger()), False),
    ],
)
def test_what_may_finish(trigger: Trigger, may_finish: bool) -> None:
    assert trigger.may_finish() is may_finish


@pytest.mark.parametrize(
    ("trigger", "text"),
    [
        (AfterAny(AfterCount(2), AfterWatermark()), "AfterAny(AfterCount(2), AfterWatermark())"),
        (AfterWatermark(early=AfterCount(2)), "AfterWatermark(early=AfterCount(2))"),
        (AfterWatermark(percentile=66), "AfterWatermark(percentile=66)"),
        (Repeatedly(AfterProcessingTime("90s")), 'Repeatedly(AfterProcessingTime("1m30s"))'),
        (
            AfterProcessingTime(align_to="10m", offset="1m"),
            'AfterProcessingTime(align_to="10m", offset="1m")',
        ),
        (
            AfterEach(Always(), Never()).or_finally(AfterCount(1)),
            "AfterEach(Always(), Never()).or_finally(AfterCount(1))",
        ),
    ],
)
def test_a_trigger_reads_as_it_is_written(trigger: Trigger, text: str) -> None:
    assert repr(trigger) == describe(trigger) == text


@given(triggers)
def test_a_trigger_is_a_value(trigger: Trigger) -> None:
    again = pickle.loads(pickle.dumps(trigger))
    assert again == trigger
    assert hash(again) == hash(trigger)
    assert eval(repr(trigger)) == trigger


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (
            lambda: AfterAny(AfterCount(1), 3),
            r"AfterAny: argument 2 must be a trigger, not 3; AfterCount\(3\)\?",
        ),
        (lambda: AfterAll(), r"AfterAll: it needs at least one trigger, as in AfterAll\("),
        (
            lambda: AfterEach([AfterCount(1), Never()]),
            r"AfterEach: argument 1 .*not \[AfterCount\(1\), Never\(\)\]; AfterEach\(\*triggers\)\?",
        ),
        (lambda: AfterAny(AfterCount(1), Never), r"not the class Never; Never\(\)\?"),
        (lambda: Repeatedly(None), "Repeatedly: trigger must be a trigger, not None"),
        (
            lambda: AfterCount(1).or_finally(5),
            r"OrFinally: until must be a trigger, not 5; AfterCount\(5\)\?",
        ),
        (lambda: AfterWatermark(late=2), r"AfterWatermark: late must be a trigger, not 2; AfterCount\(2\)\?"),
    ],
)
def test_what_is_no_trigger_is_refused_with_a_hint(declare: Callable[[], Trigger], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        declare()


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: AfterProcessingTime("-1s"), "AfterProcessingTime: delay must not be negative, not -1s"),
        (
            lambda: AfterProcessingTime(align_to="0s"),
            "AfterProcessingTime: align_to must be longer than 0s, not 0s",
        ),
        (lambda: AfterProcessingTime(offset="1s"), "AfterProcessingTime: offset=1s .* give align_to"),
        (lambda: AfterWatermark(percentile=100), "percentile must be a whole number from 1 to 99, not 100"),
        (lambda: AfterWatermark(percentile=True), "percentile must be a whole number from 1 to 99, not True"),
        (lambda: AfterWatermark(AfterCount(1), percentile=5), r"early=AfterWatermark\(percentile=5\)"),
    ],
)
def test_values_that_make_no_sense_are_refused(declare: Callable[[], Trigger], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        declare()
