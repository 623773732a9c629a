"""Many timers of one key all fire; a timer that sets itself without end is reported by name."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import beamlike as bl
from stages.process.calls import Call
from stages.process.time_conversion import to_datetime
from stages.process.timer_fields import EventTimers
from stages.process.timers import Family

DAY = 86_400


def played(process: bl.Process, *seconds: int, jump: int | None = None, lag: str | None = None) -> list[Any]:
    """Returns the rows emitted for key `a`, which has a row at each of these seconds; `jump` moves the watermark."""
    rows = [{"k": "a", "at": at} for at in seconds] + ([] if jump is None else [{"k": "b", "at": jump}])
    watermark = bl.MonotonousTimestamps() if lag is None else bl.BoundedOutOfOrderness(lag)
    read = bl.Pipeline("p").read("r", bl.Rows(rows), timestamp="at", timestamp_unit="s", watermark=watermark)
    result = bl.Memory()
    read.group_by("k").process(process, {"n": int}, keep_forever=True).write("out", result)
    read.pipeline.run()
    return [row["n"] for row in result.rows()]


class Tagged(bl.Process):
    """Sets a timer of each of `count` tags, all for the end of the day."""

    event = bl.EventTimers()
    processing = bl.ProcessingTimers()

    def __init__(self, kind: str, count: int) -> None:
        self.kind, self.count = kind, count

    def element(self, row: dict[str, Any]) -> Any:
        for tag in range(self.count if row["k"] == "a" else 0):
            if self.kind == "event":
                self.event.at(to_datetime(DAY * 1_000_000), tag=str(tag))
            else:
                self.processing.after("1h", tag=str(tag))
        return
        yield

    def on_event(self, tag: str) -> Any:
        yield {"n": int(tag)}

    def on_processing(self, tag: str) -> Any:
        yield {"n": int(tag)}


@pytest.mark.parametrize(("kind", "jump"), [("event", 2 * DAY), ("event", None), ("processing", None)])
def test_a_hundred_thousand_timers_of_one_key_all_fire_in_linear_time(kind: str, jump: int | None) -> None:
    begun = time.process_time()
    fired = played(Tagged(kind, 100_000), 0, jump=jump)
    assert sorted(fired) == list(range(100_000))
    # Quadratic, it would take minutes.
    assert time.process_time() - begun < 10


class Again(bl.Process):
    """A timer that sets itself, or one of another tag, again after `later` microseconds."""

    own = bl.EventTimer()
    tags = bl.EventTimers()
    processing = bl.ProcessingTimers()

    def __init__(self, kind: str, later: int) -> None:
        self.kind, self.later = kind, timedelta(microseconds=later)

    def element(self, row: dict[str, Any]) -> Any:
        self.again("0")
        return
        yield

    def again(self, tag: str) -> None:
        if self.kind == "own":
            self.own.after(self.later)
        else:
            getattr(self, self.kind).after(self.later, tag=tag)

    def on_own(self) -> Any:
        self.again("")
        yield {"n": 1}

    def on_tags(self, tag: str) -> Any:
        self.again(str(int(tag) + 1))
        yield {"n": 1}

    on_processing = on_tags


@pytest.mark.parametrize(
    ("kind", "later", "jump", "told"),
    [
        ("own", 1, 30 * DAY, "10,000 times in a row with less than 1ms between"),
        ("own", 0, 30 * DAY, "10,000 times in a row with less than 1ms between"),
        ("tags", 1, 30 * DAY, "10,000 times in a row with less than 1ms between"),
        ("own", 1_000, 30 * DAY, "100,000 times in one batch"),
        ("own", 60_000_000, None, "10,000 times at the end of input"),
        ("tags", 60_000_000, None, "10,000 times at the end of input"),
        ("processing", 1, None, "10,000 times at the end of input"),
    ],
)
def test_timers_that_set_each_other_without_end_are_named(
    kind: str, later: int, jump: int | None, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stages.process.executor.MOST_IN_A_STEP", 100_000)
    with pytest.raises(bl.StepError, match=f"timer '{kind}' of key a sets itself .* {told}"):
        played(Again(kind, later), 0, jump=jump)


class Branching(bl.Process):
    """A timer of which each firing sets two others."""

    tick = bl.EventTimers()

    def element(self, row: dict[str, Any]) -> Any:
        self.tick.after("1s", tag="0")
        return
        yield

    def on_tick(self, tag: str) -> Any:
        for each in "01":
            self.tick.after("1s", tag=tag + each)
        return
        yield


def test_timers_that_set_more_and_more_others_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stages.process.executor.MOST_IN_A_STEP", 1_000)
    with pytest.raises(bl.StepError, match=r"timer 'tick' of key a sets itself or others .* in one batch"):
        played(Branching(), 0, jump=DAY)


class Quiet(bl.Process):
    quiet = bl.EventTimer()

    def element(self, row: dict[str, Any]) -> Any:
        self.quiet.after("1s")
        return
        yield

    def on_quiet(self) -> Any:
        yield {"n": 1}


def test_timers_that_rows_set_are_not_counted_together_even_at_the_end() -> None:
    # Nothing is played before the end, as the watermark lags by a year.
    assert len(played(Quiet(), *range(0, 24_000, 2), lag="365d")) == 12_000


class Heartbeat(Quiet):
    """A timer that fires each second for as long as rows follow."""

    quiet = bl.EventTimer(at_end="drop")

    def on_quiet(self) -> Any:
        self.quiet.after("1s")
        yield {"n": 1}


def test_a_heartbeat_may_fire_as_often_as_time_goes_on() -> None:
    assert len(played(Heartbeat(), 0, jump=DAY)) == DAY


TAGS = st.sampled_from("abcd")
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("at"), TAGS, st.integers(0, 9), st.none() | st.integers(0, 9)),
        st.tuples(st.just("clear"), st.none() | TAGS),
        st.tuples(st.just("take")),
        st.tuples(st.just("save")),
        st.tuples(st.just("restore")),
    ),
    max_size=60,
)


@given(CHANGES)
def test_a_family_is_like_a_dict_whatever_is_set_cleared_taken_and_taken_back(changes: list[Any]) -> None:
    family = Family("f", EventTimers(), Call(None, (), 0, False), [[None], [None], [None]])
    family.load(0)
    model: dict[str, tuple[int, int | None]] = {}
    saved: dict[str, tuple[int, int | None]] | None = None
    for what, *how in changes:
        if what == "at":
            tag, time, output = how
            output = None if output is None or output > time else output
            family.at(to_datetime(time), None if output is None else to_datetime(output), tag=tag)
            model[tag] = time, output
        elif what == "clear":
            family.clear(*how)
            model = {} if how == [None] else {tag: one for tag, one in model.items() if tag != how[0]}
        elif what == "take" and model:
            first = min(model, key=lambda tag: (model[tag][0], tag))
            tag, firing = family.take()
            assert (tag, firing[:2]) == (first, model.pop(first))
        elif what == "save":
            family.saved()
            saved = dict(model)
        elif what == "restore" and saved is not None:
            family.restore(None)
            model = dict(saved)
        assert family.time == min((time for time, _ in model.values()), default=None)
        holds = [time if output is None else output for time, output in model.values()]
        assert family.least_hold() == min(holds, default=None)
    assert {tag: firing[:2] for tag, firing in family.by_tag.items()} == model
