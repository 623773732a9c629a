"""Sinks have names of their own: one may be called as a source or a step is."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import beamlike as bl
from beamlike.errors import DuplicateName
from tests.end_to_end.test_names import RUNNERS, runner_of

PLAYS = [{"user": user, "points": 1, "at": at} for at, user in enumerate("abcab")]
USERS = [("a", 2), ("b", 2), ("c", 1)]


def read(p: bl.Pipeline, name: str = "plays") -> bl.Collection:
    bound = bl.BoundedOutOfOrderness("10s")
    made = p.read(name, bl.Rows(PLAYS, rows_per_batch=2), timestamp="at", timestamp_unit="s", watermark=bound)
    return made.window_into(bl.FixedWindows("1h"), name=f"{name} in hours")


def counts(made: bl.Collection) -> bl.Collection:
    return made.group_by("user").aggregate(n=bl.count())


def of_stage(p: bl.Pipeline, out: Any) -> None:
    counts(read(p)).named("counts").write("counts", out)


def of_stage_named_later(p: bl.Pipeline, out: Any) -> None:
    counts(read(p)).write("counts", out).named("counts")


def of_stage_with_a_sink_before(p: bl.Pipeline, out: Any) -> None:
    rows = read(p)
    rows.write("counts", bl.Memory())
    counts(rows).named("counts").write("out", out)


def of_source(p: bl.Pipeline, out: Any) -> None:
    counts(read(p)).write("plays", out)


def of_all(p: bl.Pipeline, out: Any) -> None:
    rows = read(p)
    rows.write("plays", bl.Memory())
    counts(rows).named("counts").write("counts", out)


def of_step(p: bl.Pipeline, out: Any) -> None:
    counts(read(p).filter(bl.col("points") > 0, name="good")).write("good", out)


def of_derived_name(p: bl.Pipeline, out: Any) -> None:
    counts(read(p)).write("plays.aggregate", out)


def of_stage_with_columns(p: bl.Pipeline, out: Any) -> None:
    counts(read(p)).named("counts").write("counts", out, columns=["user", "n"])


def with_the_marked_name_taken(p: bl.Pipeline, out: Any) -> None:
    rows = read(p)
    rows.write("counts.sink", bl.Memory())
    counts(rows).named("counts").write("counts", out)


def of_process(p: bl.Pipeline, out: Any) -> None:
    class Ones(bl.Process):
        def element(self, row: dict[str, Any]) -> Any:
            yield {"user": row["user"]}

    ones = read(p).group_by("user").process(Ones(), {"user": str}).named("ones")
    counts(ones).write("ones", out)


def of_dead_letters(p: bl.Pipeline, out: Any) -> None:
    rows = read(p)
    rows.map(lambda row: {"x": 1 // 0}, schema={"x": int}, name="bad").dead_letters(name="letters").write(
        "letters", bl.Memory()
    )
    counts(rows).write("bad", out)


Declare = Callable[[bl.Pipeline, Any], None]
DECLARED: dict[str, Declare] = {
    one.__name__: one
    for one in (
        of_stage,
        of_stage_named_later,
        of_stage_with_a_sink_before,
        of_source,
        of_all,
        of_step,
        of_derived_name,
        of_stage_with_columns,
        with_the_marked_name_taken,
        of_process,
        of_dead_letters,
    )
}


@pytest.mark.parametrize("case", DECLARED)
def test_a_sink_may_have_the_name_of_a_source_or_step(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    p, out = bl.Pipeline("p", max_dead_letters=100), bl.Memory()
    DECLARED[case](p, out)
    run = p.run(bl.LocalRunner(quiet=True))
    assert sorted(out.frame()["user", "n"].rows()) == USERS
    assert not {*run.plan.sinks} & {*run.plan.stages, *run.plan.sources}
    assert sum(sum(batch.sinks.values()) for batch in run.batches) >= len(USERS)
    assert all(name in p.explain() for name in run.plan.sinks)


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_run_with_shared_names_is_continued(
    runner: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    for drain in (False, True):
        p = bl.Pipeline("p")
        of_all(p, bl.JSONLines(tmp_path / "out"))
        p.run(runner_of(runner, request, tmp_path / "checkpoint", drain=drain))
    found = bl.Pipeline("again").read("out", bl.JSONLines(tmp_path / "out")).collect()
    assert sorted(found["user", "n"].rows()) == USERS


def test_two_sinks_have_different_names() -> None:
    rows = read(bl.Pipeline("p"))
    rows.write("plays", bl.Memory())
    with pytest.raises(DuplicateName, match="step 'plays': the name is taken in pipeline 'p', by a sink"):
        rows.write("plays", bl.Memory())


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_batch_that_is_repeated_is_in_a_table_once_though_a_step_has_the_name_of_the_sink_now(
    runner: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    def run(step: str, **options: Any) -> None:
        p = bl.Pipeline("p")
        good = read(p).filter(bl.col("points") > 0, name=step)
        good.write("totals", bl.Table(f"sqlite:///{tmp_path / 'a.db'}", "totals", mode="append"))
        p.run(runner_of(runner, request, tmp_path / "checkpoint", **options))

    def fail(record: Any) -> None:
        raise ValueError("the machine is gone")

    with pytest.raises(Exception, match="the machine is gone"):
        run("good", on_batch=fail)
    run("totals", drain=True)
    with closing(sqlite3.connect(tmp_path / "a.db")) as database:
        assert sorted(database.execute("SELECT user FROM totals")) == [
            (play["user"],) for play in sorted(PLAYS, key=str)
        ]
