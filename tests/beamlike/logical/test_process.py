"""Invalid declarations of keyed state and timers, with the reason and the likely intention."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

import beamlike as bl

SCHEMA = {"user": str}


def rows(*, bounded: bool = True) -> bl.Collection:
    columns = {"user": str, "at": int}
    stream = bl.TestStream(columns).add_elements([{"user": "a", "at": 1}])
    if bounded:
        stream = stream.advance_watermark_to_infinity()
    return bl.Pipeline("p").read("rows", stream, timestamp="at", timestamp_unit="s")


class Good(bl.Process):
    n = bl.Value(int)

    def element(self, row: dict[str, Any]) -> Any:
        yield {"user": row["user"]}


def made(**attributes: Any) -> bl.Process:
    """Returns a process with these class attributes and a method for rows."""
    return type("Own", (Good,), attributes)()


class Adds(bl.CombineFn):
    def create_accumulator(self) -> int:
        return 0

    def add_input(self, accumulator: int, element: int) -> int:
        return accumulator + element

    def merge_accumulators(self, accumulators: list[int]) -> int:
        return sum(accumulators)

    def extract_output(self, accumulator: int) -> int:
        return accumulator


def on(self: Any) -> None:
    """Emits nothing."""


PROCESSES: dict[str, tuple[Callable[[], Any], str]] = {
    "a class": (lambda: Good, r"Good is a class; make one of it: Good\(\)"),
    "no process": (lambda: 3, "expected an object of a class that extends bl.Process, got 3"),
    "no element": (
        lambda: type("Own", (bl.Process,), {})(),
        r"Own has no method element\(self, row\), which is called for each row",
    ),
    "an element without a row": (
        lambda: made(element=lambda self: None),
        r"is called as <lambda>\(self, row\): too many positional arguments",
    ),
    "a timer without a method": (
        lambda: made(quiet=bl.EventTimer(), on_quite=on),
        r"Own has a timer 'quiet', and no method on_quiet\(self\), which is called when it fires; did you mean 'on_qui",
    ),
    "a method without a timer": (
        lambda: made(quiet=bl.EventTimer(), on_quiet=on, on_silent=on),
        r"Own has a method on_silent, and no timer 'silent'; declare it in the class, as in silent = bl.EventTimer\(\)",
    ),
    "a family without a tag": (
        lambda: made(retry=bl.EventTimers(), on_retry=on),
        r"on is called as on\(self, tag\): too many positional arguments",
    ),
    "a timer with a tag": (
        lambda: made(quiet=bl.EventTimer(), on_quiet=lambda self, tag: None),
        r"is called as <lambda>\(self\): missing a required argument: 'tag'",
    ),
    "a field without a type": (
        lambda: made(n=bl.Value()),
        r"state field Own.n has no type; write for example n = bl.Value\(int\)",
    ),
    "a map without types": (
        lambda: made(n=bl.Map(str)),
        r"state field Own.n has no type; write for example n = bl.Map\(str, int\)",
    ),
    "a field that is not called": (
        lambda: made(n=bl.Value),
        r"Own.n is the class bl.Value; call it: n = bl.Value\(int\)",
    ),
    "a timer that is not called": (
        lambda: made(quiet=bl.EventTimer, on_quiet=on),
        r"Own.quiet is the class bl.EventTimer; call it: quiet = bl.EventTimer\(\)",
    ),
    "a type that is none": (
        lambda: made(n=bl.Value("int")),
        r"state field Own.n: 'int' is text, not a type; did you mean int\?",
    ),
    "a default that does not fit": (
        lambda: made(n=bl.Value(int, default="none")),
        "state field Own.n: the default 'none' is no Int64: ",
    ),
    "a default that cannot be kept": (
        lambda: made(n=bl.Value(object, default=threading.Lock())),
        "state field Own.n: TypeError: cannot pickle '_thread.lock' object",
    ),
    "a name that is taken": (
        lambda: made(key=bl.Value(int)),
        "Own.key hides self.key, which every Process has; choose another name",
    ),
    "an order in the class": (
        lambda: made(order="arrival"),
        r"Own.order = 'arrival' does nothing as an attribute of the class: it belongs into process\(..., order=...\)",
    ),
    "an output in the class": (
        lambda: made(output={"n": int}),
        r"Own.output = .* does nothing as an attribute of the class: it belongs into the call that sets a timer",
    ),
    "state as an argument has it": (
        lambda: made(state={"n": int}),
        r"Own.state = .* it belongs into a state field: n = bl.Value\(int\); state= is an argument of process_batches",
    ),
    "an end of input in the class": (
        lambda: made(at_end="drop"),
        r"Own.at_end = 'drop' .* it belongs into the timer: bl.EventTimer\(at_end=...\)",
    ),
    "a constant that hides what there is": (
        lambda: made(late=True),
        "Own.late hides self.late, which every Process has; choose another name",
    ),
    "a CombineFn in state": (
        lambda: made(n=bl.Combining(bl.combine(Adds(), "at", int))),
        r"a CombineFn such as Adds is for groupings; keep its accumulator in a bl.Value\(object\)",
    ),
    "an aggregate of a column that is not there": (
        lambda: made(total=bl.Combining(bl.sum("points"))),
        "state field Own.total: total reads the column 'points', which the rows do not have",
    ),
}


@pytest.mark.parametrize("case", PROCESSES)
def test_a_process_that_cannot_be_played_is_refused_with_what_was_meant(case: str) -> None:
    process, text = PROCESSES[case]
    with pytest.raises(bl.PlanError, match=text):
        rows().group_by("user").process(process(), SCHEMA)


def test_a_class_may_have_constants_fields_and_methods_of_such_names() -> None:
    own = made(order=bl.Value(str), hold=3, ttl=lambda self: 5, schema=SCHEMA, name="own")
    rows().group_by("user").process(own, SCHEMA, keep_forever=True)


CALLS: dict[str, tuple[Callable[[bl.Collection], Any], str]] = {
    "an order that is none": (
        lambda c: c.group_by("user").process(Good(), SCHEMA, order="tim"),  # type: ignore[arg-type]
        r"order must be 'time' or 'arrival', not 'tim'; did you mean 'time'\?",
    ),
    "a schema that is none": (
        lambda c: c.group_by("user").process(Good(), ["user"]),  # type: ignore[arg-type]
        r"schema= must be a dict such as \{\"user\": str\}, a polars .* and such, not \['user'\]",
    ),
    "no columns": (lambda c: c.group_by("user").process(Good(), {}), "schema= has no columns"),
    "a column that sinks have": (
        lambda c: c.group_by("user").process(Good(), {"event_time": int}),
        "a column must not be named 'event_time', as sinks get one of that name with every row; rename it",
    ),
    "windows that merge": (
        lambda c: c.window_into(bl.Sessions("1m")).group_by("user").process(Good(), SCHEMA),
        r"windows of Sessions\(gap=1m\) merge, and state of two windows cannot become one",
    ),
    "rows that are taken back": (
        lambda c: (
            c.window_into(
                bl.FixedWindows("1m"),
                trigger=bl.AfterWatermark(early=bl.AfterCount(1)),
                accumulation="retracting",
            )
            .group_by("user")
            .aggregate(n=bl.count())
            .group_by("user")
            .process(Good(), SCHEMA, order="arrival")
        ),
        "its rows may retract earlier ones",
    ),
    "no function": (
        lambda c: c.group_by("user").process_batches(3, SCHEMA),  # type: ignore[arg-type]
        "expected a function of rows, state and due timers, got 3",
    ),
    "a timer that is none": (
        lambda c: c.group_by("user").process_batches(print, SCHEMA, timers={"quiet": 3}),  # type: ignore[dict-item]
        r"timer 'quiet' must be bl.EventTimer\(\) or bl.ProcessingTimer\(\), not 3",
    ),
    "a family of timers": (
        lambda c: c.group_by("user").process_batches(print, SCHEMA, timers={"quiet": bl.EventTimers()}),
        "a function of frames has no families of timers",
    ),
    "state with the name of a key": (
        lambda c: c.group_by("user").process_batches(print, SCHEMA, state={"user": int}),
        "'user' is the name of a state field or timer and of another column",
    ),
    "no running aggregates": (
        lambda c: c.group_by("user").running(),
        r"give each aggregate a name, and at least one: running\(plays=bl.count\(\)\)",
    ),
    "a running aggregate of a column that is not there": (
        lambda c: c.group_by("user").running(n=bl.sum("when")),
        "there is no column 'when'",
    ),
    "an aggregate that does not run": (
        lambda c: c.group_by("user").running(n=bl.collect("at")),
        r"n: collect\(at\) has no running form; count, sum, mean, min, max, first, last and previous have one",
    ),
    "a running aggregate with the name of a column": (
        lambda c: c.group_by("user").running(at=bl.count()),
        "the aggregate 'at' has the name of a column; choose another",
    ),
}


@pytest.mark.parametrize("case", CALLS)
def test_what_cannot_be_is_refused_with_the_reason(case: str) -> None:
    call, text = CALLS[case]
    with pytest.raises(bl.PlanError, match=text):
        call(rows())


class WithTimer(Good):
    quiet = bl.EventTimer()
    on_quiet = on


class WithTTL(bl.Process):
    n = bl.Value(int, ttl="1h")
    element = Good.element


class WithoutState(bl.Process):
    element = Good.element


def test_state_that_would_be_kept_for_ever_is_refused() -> None:
    endless = rows(bounded=False)
    text = (
        "would keep the state of every key for ever; give it a timer that clears it, a ttl=, windows before"
    )
    with pytest.raises(bl.errors.UnboundedGrouping, match=f"so Good {text}"):
        endless.group_by("user").process(Good(), SCHEMA)
    with pytest.raises(bl.errors.UnboundedGrouping, match="running"):
        endless.group_by("user").running(n=bl.count())


@pytest.mark.parametrize("process", [WithTimer(), WithTTL(), WithoutState()])
def test_state_that_goes_is_taken(process: bl.Process) -> None:
    assert rows(bounded=False).group_by("user").process(process, SCHEMA).schema == pl.Schema(
        {"user": pl.String}
    )


def test_state_is_kept_for_ever_where_that_is_meant_and_in_windows() -> None:
    endless = rows(bounded=False)
    endless.group_by("user").process(Good(), SCHEMA, keep_forever=True)
    endless.window_into(bl.FixedWindows("1m")).group_by("user").process(Good(), SCHEMA)


@pytest.mark.parametrize(
    ("declare", "text"),
    [
        (lambda: bl.Value(int, ttl="0s"), "ttl must be longer than 0s, not '0s'"),
        (
            lambda: bl.Value(int, ttl="1h", by="event_time"),
            "by must be 'event' or 'processing', not 'event_time'",
        ),
        (lambda: bl.EventTimer(at_end="stop"), "at_end must be 'fire' or 'drop', not 'stop'"),
    ],
)
def test_what_a_field_or_timer_cannot_be_is_refused_at_once(declare: Callable[[], Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        declare()
