"""Common mistakes in classes with state and timers: each is reported, and does not affect other keys."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import attrs
import polars as pl
import pytest

import beamlike as bl
from beamlike.errors import PlanError

SCHEMA = {"seen": str}
ROWS = (("a", 0), ("b", 1), ("a", 2))


def played(process: bl.Process, rows: tuple[tuple[Any, int], ...] = ROWS, key: str = "k") -> Any:
    given = [{key: value, "v": minute, "at": f"2026-01-01T12:{minute:02}:00Z"} for value, minute in rows]
    p = bl.Pipeline("classes")
    read = p.read("rows", bl.Rows(given), timestamp="at", watermark=bl.MonotonousTimestamps())
    return read.group_by(key).process(process, SCHEMA)


def seen(process: bl.Process, **options: Any) -> list[str]:
    return sorted(played(process, **options).collect()["seen"].to_list())


def errors(process: bl.Process, **options: Any) -> list[str]:
    return [str(error) for error in played(process, **options).dead_letters().collect()["error"]]


def class_of(element: Any, **declared: Any) -> bl.Process:
    process: bl.Process = type("Mine", (bl.Process,), {"element": element, **declared})()
    return process


def showing(change: Any, **declared: Any) -> bl.Process:
    """Returns a process that emits its field before each change."""

    def element(self: Any, row: dict[str, Any]) -> Any:
        before = str(self.field)
        change(self, row)
        yield {"seen": before}

    return class_of(element, **declared)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda self, row: setattr(self, "limit", 2), "self.limit is a parameter"),
        (lambda self, row: setattr(self, "quiet", 2), "self.quiet is a timer"),
        (lambda self, row: setattr(self, "other", 2), "self.other is no state field"),
        (lambda self, row: setattr(self, "bag", None), "state field 'bag' is a List: it was set to None"),
        (lambda self, row: setattr(self, "any", lambda: 1), "state field 'any' is a Value: "),
        (lambda self, row: setattr(self, "deep", {"a": ["x"]}), "state field 'deep' is Struct"),
        (lambda self, row: setattr(self, "day", datetime(2026, 1, 1)), "state field 'day' is Date"),
    ],
)
def test_a_wrong_change_refuses_its_row_alone(change: Any, told: str) -> None:
    def make() -> bl.Process:
        process = showing(
            lambda self, row: change(self, row) if row["v"] == 1 else setattr(self, "field", row["v"]),
            field=bl.Value(int),
            bag=bl.List(int),
            any=bl.Value(object),
            deep=bl.Value({"a": list[int]}),
            day=bl.Value(pl.Date),
            quiet=bl.EventTimer(),
            on_quiet=lambda self: None,
        )
        process.limit = 1  # type: ignore[attr-defined]
        return process

    rows = (("a", 0), ("a", 1), ("a", 2), ("b", 3))
    assert seen(make(), rows=rows) == ["0", "None", "None"]
    [error] = errors(make(), rows=rows)
    assert told in error


@pytest.mark.parametrize(
    "aggregate", [bl.collect("v"), bl.top("v", 5), bl.collect_set("v"), bl.bottom("v", 5)]
)
def test_a_combining_of_lists_gives_lists(aggregate: Any) -> None:
    def element(self: Any, row: dict[str, Any]) -> Any:
        self.field.add(row)
        self.field.add(row | {"v": 9})
        yield {"seen": str(sorted(set(self.field.read())))}

    assert seen(class_of(element, field=bl.Combining(aggregate))) == ["[0, 2, 9]", "[0, 9]", "[1, 9]"]


def test_a_field_that_is_deleted_is_forgotten() -> None:
    def element(self: Any, row: dict[str, Any]) -> Any:
        yield {"seen": str(self.field)}
        self.field = row["v"]
        if row["v"] == 1:
            del self.field
            assert self.field is None
        if row["v"] == 4:
            del self.field
            raise ValueError("no")

    rows = (("a", 0), ("a", 1), ("a", 2), ("a", 4), ("a", 5))
    assert seen(class_of(element, field=bl.Value(int)), rows=rows) == ["0", "2", "None", "None"]


def test_parameters_may_be_frozen_and_annotated() -> None:
    @dataclass(frozen=True)
    class Data(bl.Process):
        limit: int
        field: int = bl.Value(int, default=0)  # type: ignore[assignment]
        bag: list[int] = bl.List(int)  # type: ignore[assignment]  # noqa: RUF009

        def element(self, row: dict[str, Any]) -> Any:
            object.__getattribute__(self, "bag").append(1)
            self.field += self.limit  # type: ignore[misc]
            yield {"seen": f"{self.field} {len(self.bag)}"}

    @attrs.frozen
    class Attrs(bl.Process):
        limit: int
        field = bl.Value(int, default=0)

        def element(self, row: dict[str, Any]) -> Any:
            self.field += self.limit  # type: ignore[operator,assignment,misc]
            yield {"seen": str(self.field)}

    assert seen(Data(5)) == ["10 2", "5 1", "5 1"]
    assert seen(Attrs(5)) == ["10", "5", "5"]


class SetsField(bl.Process):
    field = bl.Value(int)

    def __init__(self) -> None:
        self.field = 7  # type: ignore[assignment]

    def element(self, row: dict[str, Any]) -> None: ...


class DeclaresLate(bl.Process):
    def __init__(self) -> None:
        self.field = bl.Value(int)

    def element(self, row: dict[str, Any]) -> None: ...


@attrs.define
class Slotted(bl.Process):
    field: int = bl.Value(int)  # type: ignore[assignment]

    def element(self, row: dict[str, Any]) -> None: ...


class Async(bl.Process):
    async def element(self, row: dict[str, Any]) -> None: ...  # type: ignore[override]


@pytest.mark.parametrize(
    ("process", "told"),
    [
        (SetsField(), "the constructor sets it to 7"),
        (DeclaresLate(), "declare it in the class"),
        (Slotted(), "declare it in the class"),
        (Async(), "must not be async"),
        (class_of(bl.Value(int)), "hides self.element"),
        (showing(None, field=bl.Value(int), _call=bl.Value(int)), "hides self._call"),
        (showing(None, field=bl.Set(list[int])), "not hashable"),
        (showing(None, field=bl.Map({"a": int}, int)), "not hashable"),
        (showing(None, field=bl.List(object)), "can be kept"),
        (showing(None, field=bl.Combining(bl.last("v"))), "event times"),
        (showing(None, field=bl.Combining(bl.sample("v", 2))), "event times"),
    ],
)
def test_what_cannot_be_meant_is_refused_when_it_is_declared(process: bl.Process, told: str) -> None:
    with pytest.raises(PlanError, match=told):
        played(process)


class Note:
    """An object without an equality of its own."""

    def __init__(self) -> None:
        self.text = ""

    def __str__(self) -> str:
        return self.text


@pytest.mark.parametrize(
    ("field", "change", "after"),
    [
        (
            lambda **ttl: bl.OrderedList(int, **ttl),
            lambda self, row: self.field.add(self.time, 1),
            "Ordered([",
        ),
        (
            lambda **ttl: bl.Map(str, list[int], **ttl),
            lambda self, row: self.field.setdefault("x", []).append(1),
            "{'x': [1]}",
        ),
        (lambda **ttl: bl.Value(list[int], default=[], **ttl), lambda self, row: self.field.append(1), "[1]"),
        (
            lambda **ttl: bl.Value(object, default=Note(), **ttl),
            lambda self, row: setattr(self.field, "text", "x"),
            "x",
        ),
    ],
)
def test_a_change_within_a_value_is_a_write(field: Any, change: Any, after: str) -> None:
    process = showing(change, field=field(ttl="3m"))
    assert any(text.startswith(after) for text in seen(process, rows=(("a", 0), ("a", 2))))


def test_looking_at_an_object_is_no_write() -> None:
    def look(self: Any, row: dict[str, Any]) -> None:
        if row["v"] == 0:
            self.field.text = "x"

    process = showing(look, field=bl.Value(object, default=Note(), ttl="3m"))
    assert seen(process, rows=(("a", 0), ("a", 2), ("a", 4))) == ["", "", "x"]


def test_a_timer_that_raises_is_told_beside_keys_of_its_names() -> None:
    def on_retry(self: Any, tag: str) -> None:
        raise ValueError("no")

    process = class_of(
        lambda self, row: self.retry.after("1m", tag=""), retry=bl.EventTimers(), on_retry=on_retry
    )
    [row, *_] = played(process, rows=(("x", 0),), key="tag").dead_letters().collect()["row"]
    assert row == '{"tag":"x","timer":"retry","timer_tag":"","time":"2026-01-01T12:01:00.000000Z"}'


def test_a_processing_timer_may_be_set_beyond_all_time() -> None:
    process = class_of(
        lambda self, row: self.flush.after("9999999999999d"),
        flush=bl.ProcessingTimer(),
        on_flush=lambda self: [{"seen": self.key.k}],
    )
    assert seen(process) == ["a", "b"]


@pytest.mark.parametrize("order", ["time", "arrival"])
def test_what_a_timer_gives_at_the_end_of_all_time_is_not_lost_downstream(order: Any) -> None:
    def element(self: Any, row: dict[str, Any]) -> None:
        self.field = row["v"]
        self.quiet.after("9999999999999d")

    def on_quiet(self: Any) -> Any:
        yield {"seen": f"{self.key.k} {self.field}"}
        self.quiet.after("1h")

    process = class_of(element, field=bl.Value(int), quiet=bl.EventTimer(), on_quiet=on_quiet)
    again = class_of(lambda self, row: [row])
    passed_on = played(process).group_by("seen").process(again, SCHEMA, order=order)
    assert sorted(passed_on.group_by("seen").running(n=bl.count()).collect()["seen"]) == ["a 2", "b 1"]


@pytest.mark.parametrize(
    ("declare", "told"),
    [
        (
            lambda: bl.Combining(3),
            r'^Combining: aggregate must be an aggregate such as bl.sum\("points"\), not 3$',
        ),  # type: ignore[arg-type]
        (lambda: bl.ProcessingTimer(hold=1), "^ProcessingTimer: hold must be True or False, not 1$"),  # type: ignore[arg-type]
    ],
)
def test_what_is_given_to_a_field_or_timer_is_told_in_words(declare: Any, told: str) -> None:
    with pytest.raises(TypeError, match=told):
        declare()
