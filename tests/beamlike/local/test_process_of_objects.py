"""A Process whose methods receive, keep and emit objects of classes, in process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import beamlike as bl
from beamlike.errors import PlanError
from tests.support.row_classes import Flat, Latest, Score, scored

ROWS = [
    {"user": "ada", "points": 3, "at": 0},
    {"user": None, "points": 4, "at": 1},
    {"user": "bob", "points": -1, "at": 2},
    {"user": "ada", "points": 4, "at": 3},
]


def latest(process: bl.Process, rows: list[Any] = ROWS, **options: Any) -> tuple[bl.Pipeline, bl.Collection]:
    p = bl.Pipeline("p", max_dead_letters=100)
    source = bl.Rows(rows, rows_per_batch=2)
    plays = p.read("rows", source, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    return p, plays.map(scored).group_by("user").process(process, **options)


def test_a_process_takes_keeps_and_gives_objects(tmp_path: Path) -> None:
    p, found = latest(Latest())
    out = bl.Memory()
    found.write("out", out)
    # A batch a run, so that all state is written and read again.
    for _ in range(2):
        p.run(bl.LocalRunner(checkpoint=tmp_path / "checkpoint"))
    p.run(bl.LocalRunner(checkpoint=tmp_path / "checkpoint", drain=True))
    first = {"user": "ada", "points": 3, "note": None}
    last = {"user": "ada", "points": 4, "note": None}
    assert out.frame()[["user", "points", "last"]].to_dicts() == [
        {"user": "ada", "points": 3, "last": None},
        {"user": "ada", "points": 7, "last": first},
        {"user": "ada", "points": 2, "last": last},
    ]


class Kept(bl.Process):
    """A process with fields of every kind, some with a time to live, and a default."""

    one = bl.Value(Flat, default=Flat("nobody", 0), ttl="1h")
    several = bl.List(Flat, ttl="1h")
    by_name = bl.Map(str, Score)
    ordered = bl.OrderedList(Flat)

    def element(self, row: Score) -> Iterator[Score]:
        assert all(type(one) is Flat for one in (self.one, *self.several))
        assert all(type(one) is Score for one in self.by_name.values())
        assert all(type(one) is Flat for _, one in self.ordered)
        total = self.one.points + len(self.several) + len(self.by_name) + len(self.ordered)
        yield Score(user=row.user, points=total, last=self.one)
        self.one = Flat(row.user, row.points)
        self.several.append(self.one)
        self.by_name[str(row.points)] = row
        self.ordered.add(self.time, self.one)


def test_every_kind_of_state_keeps_objects() -> None:
    _, found = latest(Kept(), keep_forever=True)
    assert found.collect()[["points", "last"]].to_dicts() == [
        {"points": 0, "last": {"user": "nobody", "points": 0, "note": None}},
        {"points": 6, "last": {"user": "ada", "points": 3, "note": None}},
    ]


class Refusing(bl.Process):
    """A process whose state one of the rows makes invalid."""

    one = bl.Value(Flat)

    def element(self, row: Score) -> Iterator[Score]:
        self.one = row if row.points == 4 else Flat("a", 1)
        yield row


def test_state_that_is_no_object_refuses_its_row() -> None:
    _, found = latest(Refusing(), keep_forever=True)
    assert found.collect()["points"].to_list() == [3]
    (why,) = found.dead_letters().collect()["error"]
    assert why.startswith("TypeError: state field 'one' is a Value: expected an object of Flat, got Score(")


class Returning(bl.Process):
    def element(self, row):
        return Flat("a", 1)


def test_a_row_that_is_returned_in_place_of_rows_is_refused() -> None:
    _, found = latest(Returning(), schema=Flat, keep_forever=True)
    errors = found.dead_letters().collect()["error"].to_list()
    assert "expected several dicts, as a method with yield gives, got Flat(" in errors[0]
    assert errors[0].endswith("write yield in place of return")


class Two(bl.Process):
    quiet = bl.EventTimer()

    def element(self, row: Score) -> Iterator[Score]: ...

    def on_quiet(self) -> Iterator[Flat]: ...


class Untold(bl.Process):
    def element(self, row): ...


class Unfitting(bl.Process):
    def element(self, row: Flat) -> None: ...


def test_a_process_whose_classes_do_not_fit_is_refused() -> None:
    with pytest.raises(
        PlanError, match=r"the methods of Two emit Flat and Score; the rows of a step are of one class"
    ):
        latest(Two())
    with pytest.raises(
        PlanError, match=r"give it a schema=, or Untold's methods an annotation .* -> Iterator\[Alert\]"
    ):
        latest(Untold())
    with pytest.raises(PlanError, match=r"schema= has no 'points', and Score has"):
        latest(Latest(), schema={"user": str})
    p = bl.Pipeline("p")
    plays = p.read(
        "rows", bl.Rows(ROWS), timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps()
    )
    with pytest.raises(PlanError, match=r"there is no column 'points'; .* Flat.points needs it"):
        plays.drop("points").group_by("user").process(Unfitting(), {"user": str}, keep_forever=True)
