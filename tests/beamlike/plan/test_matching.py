"""Unnamed stages are matched by their computation and by their inputs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import beamlike as bl
from beamlike.errors import PlanError
from beamlike.plan.differences import Remedy
from beamlike.plan.manifest import describe
from beamlike.plan.matching import Fit, fitted, require_told_apart
from beamlike.plan.model import Plan
from tests.support.pipelines import Declared

Build = Callable[[bl.Collection], None]
SECOND = 1_000_000


def plan(*builds: Build, source: str = "plays") -> Plan:
    """Plans these declarations, in order, on one source."""
    p = bl.Pipeline("p")
    rows = p.read(source, Declared(), timestamp="at", watermark=bl.BoundedOutOfOrderness("5s"))
    for build in builds:
        build(rows)
    return p.plan()


def fit(now: Plan, before: Plan) -> Fit:
    """Returns the plan as a continuation of the other one's run, whose manifest was written and read."""
    return fitted(now, json.loads(json.dumps(describe(before, 2))), 2)


def consumers(plan: Plan) -> dict[str, str]:
    """Returns the stage that feeds each sink."""
    return {name: sink.inputs[0] for name, sink in plan.sinks.items()}


def minutes(user: str, **named: Any) -> Build:
    """Declares counts of the rows of a user."""

    def build(rows: bl.Collection) -> None:
        chosen = rows.filter(bl.col("user") == user).window_into(bl.FixedWindows("1m"))
        chosen.group_by("user", **named).aggregate(n=bl.count()).write(user, bl.Memory())

    return build


def of_kind(kind: str) -> Callable[[str], Build]:
    """Returns a function that declares a stage of this kind for the rows of a user."""

    def of(user: str) -> Build:
        def build(rows: bl.Collection) -> None:
            made = STAGES[kind](rows.filter(bl.col("user") == user))
            made.write(user, bl.Memory())

        return build

    return of


class Totals(bl.Process):
    points = bl.Value(int, default=0)

    def element(self, row):  # type: ignore[no-untyped-def]
        self.points += row["score"]
        yield {"user": self.key.user, "points": self.points}


def unchanged(rows, state, due):  # type: ignore[no-untyped-def]
    return rows.select("user", "event_time"), state


def windowed(rows: bl.Collection) -> bl.Collection:
    return rows.window_into(bl.FixedWindows("1m"))


STAGES: dict[str, Callable[[bl.Collection], bl.Collection]] = {
    "aggregate": lambda rows: windowed(rows).group_by("user").aggregate(n=bl.count()),
    "sessions": lambda rows: rows.window_into(bl.Sessions("1m")).group_by("user").aggregate(n=bl.count()),
    "process": lambda rows: windowed(rows).group_by("user").process(Totals(), {"user": str, "points": int}),
    "process_batches": lambda rows: windowed(rows).group_by("user").process_batches(unchanged, {"user": str}),
    "running": lambda rows: windowed(rows).group_by("user").running(n=bl.count()),
    "dedup": lambda rows: rows.dedup("user", within="1h"),
    "distinct": lambda rows: windowed(rows).select("user").distinct(),
    "latest": lambda rows: windowed(rows).latest("user"),
    "group_into_batches": lambda rows: windowed(rows).group_by("user").group_into_batches(size=3),
    "cogroup": lambda rows: bl.cogroup(ours=windowed(rows), theirs=windowed(rows)).by("user"),
    "join": lambda rows: windowed(rows).join(windowed(rows), on="user"),
    "interval join": lambda rows: rows.join(rows, on="user", within=("0s", "5s")),
    "join_asof": lambda rows: rows.join_asof(rows, on="user"),
    "sides": lambda rows: windowed(rows).filter(
        lambda row, seen: True, side={"seen": bl.as_list(windowed(rows))}
    ),
}


@pytest.mark.parametrize("kind", STAGES)
def test_a_stage_of_any_kind_keeps_its_state_where_another_is_declared_before(kind: str) -> None:
    one = of_kind(kind)
    before = plan(one("ada"))
    both = fit(plan(one("bob"), one("ada")), before)
    assert both.differences == ()
    assert consumers(both.plan)["ada"] == consumers(before)["ada"]
    assert consumers(both.plan)["bob"] not in before.stages
    again = fit(plan(one("ada"), one("bob")), both.plan)
    assert again.differences == ()
    assert consumers(again.plan) == consumers(both.plan)
    assert again.described["stages"] == both.described["stages"]


def test_swapped_lines_swap_no_state() -> None:
    before, now = plan(minutes("ada"), minutes("bob")), plan(minutes("bob"), minutes("ada"))
    assert consumers(now)["bob"] == consumers(before)["ada"]
    assert consumers(fit(now, before).plan) == consumers(before)


def test_a_plan_by_other_names_is_a_whole_plan() -> None:
    """All its parts have the names of the same plan in the old order."""
    ordered = plan(minutes("ada"), minutes("bob"), minutes("eve"))
    found = fit(plan(minutes("eve"), minutes("bob"), minutes("ada")), ordered).plan
    assert (found.levels, found.graph, [*found.stages]) == (ordered.levels, ordered.graph, [*ordered.stages])
    assert [route.consumer for route in found.sources["plays"].routes] == [
        route.consumer for route in ordered.sources["plays"].routes
    ]
    assert {stage.stage.name for stage in found.stages.values()} == {*ordered.stages}


def test_a_changed_way_is_told_and_a_name_keeps_the_state() -> None:
    before = plan(minutes("ada"))
    (told,) = fit(plan(minutes("eve")), before).differences
    assert told.remedy == Remedy.NAME
    assert told.what == (
        "stage 'plays.aggregate', which has no name of yours, has changed: it was of plays -> filter user == 'ada', "
        "now plays -> filter user == 'eve' (name='plays.aggregate' keeps its state)"
    )
    assert fit(plan(minutes("eve", name="plays.aggregate")), before).differences == ()


def test_a_name_of_the_checkpoint_can_be_given_wherever_the_step_is_declared() -> None:
    before = plan(minutes("ada"))
    now = fit(plan(minutes("bob"), minutes("eve", name="plays.aggregate")), before)
    assert now.differences == ()
    assert consumers(now.plan) == {"bob": "plays.aggregate_2", "eve": "plays.aggregate"}


def test_another_name_for_the_same_is_told_with_the_old_one() -> None:
    (told,) = fit(plan(minutes("ada", name="mine")), plan(minutes("ada"))).differences
    assert told.what == (
        "stage 'plays.aggregate', which has no name of yours, is called 'mine' now "
        "(name='plays.aggregate' keeps its state)"
    )


def test_a_named_stage_keeps_its_state_whatever_leads_to_it() -> None:
    assert fit(plan(minutes("eve", name="counts")), plan(minutes("ada", name="counts"))).differences == ()


def test_another_source_and_a_renamed_one_are_told() -> None:
    found = fit(plan(minutes("ada"), source="clicks"), plan(minutes("ada"))).differences
    told = "\n".join(map(str, found))
    assert "source 'clicks' is new" in told
    assert "'plays.aggregate', which has no name of yours, has changed: it was of plays -> " in told


def test_a_step_for_other_consumers_changes_nothing() -> None:
    def shared(*names: str) -> Build:
        def build(rows: bl.Collection) -> None:
            more = rows.with_columns(**{name: bl.col("score") + 1 for name in names})
            windowed(more).group_by("user").aggregate(n=bl.sum("score")).write("out", bl.Memory())
            more.write("rows", bl.Memory())

        return build

    assert fit(plan(shared("one", "two")), plan(shared("one"))).differences == ()


def test_late_rows_that_are_shown_change_nothing() -> None:
    def counted(show: bool) -> Build:
        def build(rows: bl.Collection) -> None:
            counts = (
                windowed(rows.with_columns(more=bl.col("score") + 1)).group_by("user").aggregate(n=bl.count())
            )
            counts.write("out", bl.Memory())
            if show:
                counts.late().write("late", bl.Memory())

        return build

    assert fit(plan(counted(True)), plan(counted(False))).differences == ()


def test_aggregates_may_be_added_where_one_stage_is_meant() -> None:
    def with_aggregates(name: str, **aggregates: Any) -> Build:
        return lambda rows: (
            windowed(rows).group_by("user").aggregate(**aggregates).write(name, bl.Memory()),
            None,
        )[1]

    before = plan(with_aggregates("a", n=bl.count()))
    more = with_aggregates("b", n=bl.count(), most=bl.max("score"))
    assert fit(plan(more), before).differences == ()
    both = fit(plan(more, with_aggregates("a", n=bl.count())), before)
    assert both.differences == ()
    assert consumers(both.plan)["a"] == "plays.aggregate"
    other = with_aggregates("c", n=bl.count(), least=bl.min("score"))
    (told,) = fit(plan(more, other), before).differences
    assert "'plays.aggregate', which has no name of yours, is like several stages of this plan" in told.what


def keep(row: dict[str, Any]) -> dict[str, Any]:
    return row


def only(user: str) -> Callable[[dict[str, Any]], list[dict[str, Any]]]:
    return lambda row: [row] if row["user"] == user else []


def mapped(function: Any, sink: str, step: str | None = None, **named: Any) -> Build:
    def build(rows: bl.Collection) -> None:
        chosen = rows.flat_map(function, schema=dict(rows.schema), name=step)
        windowed(chosen).group_by("user", **named).aggregate(n=bl.count()).write(sink, bl.Memory())

    return build


def test_two_that_cannot_be_told_apart_need_a_name() -> None:
    same = plan(mapped(lambda row: [row], "a"), mapped(lambda row: [row, row], "b"))
    with pytest.raises(
        PlanError, match=r"plays.aggregate_2': it cannot be told apart from 'plays.aggregate"
    ) as told:
        require_told_apart(same)
    assert "name='plays.aggregate' and name='plays.aggregate_2'" in str(told.value)
    require_told_apart(
        plan(mapped(lambda row: [row], "a"), mapped(lambda row: [row, row], "b", name="twice"))
    )
    # A name before it is enough, and so are values that a function was made with.
    require_told_apart(
        plan(mapped(lambda row: [row], "a"), mapped(lambda row: [row, row], "b", step="twice"))
    )
    require_told_apart(plan(mapped(only("ada"), "a"), mapped(only("bob"), "b")))


def test_functions_are_told_apart_by_name_and_by_what_they_were_given() -> None:
    assert fit(plan(mapped(only("ada"), "a")), plan(mapped(only("ada"), "a"))).differences == ()
    (told,) = fit(plan(mapped(only("bob"), "a")), plan(mapped(only("ada"), "a"))).differences
    assert '"given": {"user": "ada"}' in told.what
    (told,) = fit(plan(mapped(keep, "a")), plan(mapped(only("ada"), "a"))).differences
    assert "flat_map lambda" in told.what
    swapped = fit(plan(mapped(only("bob"), "b"), mapped(only("ada"), "a")), plan(mapped(only("ada"), "a")))
    assert (swapped.differences, consumers(swapped.plan)["a"]) == ((), "plays.aggregate")


def test_a_stage_after_a_changed_one_is_not_told_as_well() -> None:
    def chained(user: str) -> Build:
        def build(rows: bl.Collection) -> None:
            counts = windowed(rows.filter(bl.col("user") == user)).group_by("user").aggregate(n=bl.count())
            counts.group_by("user").aggregate(n=bl.sum("n")).write("out", bl.Memory())

        return build

    (told,) = fit(plan(chained("eve")), plan(chained("ada"))).differences
    assert told.what.startswith("stage 'plays.aggregate',")


def test_sources_with_a_watermark_of_their_own_are_known_again() -> None:
    def timed(user: str) -> Build:
        def build(rows: bl.Collection) -> None:
            own = rows.filter(bl.col("user") == user).with_watermark(bl.MonotonousTimestamps())
            windowed(own).group_by("user").aggregate(n=bl.count()).write(user, bl.Memory())

        return build

    before, now = plan(timed("ada"), timed("bob")), plan(timed("bob"), timed("ada"))
    found = fit(now, before)
    assert found.differences == ()
    assert consumers(found.plan) == consumers(before)
    assert {n: s.inputs for n, s in found.plan.stages.items()} == {
        n: s.inputs for n, s in before.stages.items()
    }
    (told,) = fit(plan(timed("eve")), plan(timed("ada"))).differences
    assert told.what.startswith("source 'plays.with_watermark', which has no name of yours, has changed: ")


def looked_up(*users: str, name: str | None = None) -> Plan:
    """Plans rows that are looked up in tables: the users of another source, one table each."""
    p = bl.Pipeline("p")
    rows = p.read("plays", Declared(), timestamp="at", watermark=bl.BoundedOutOfOrderness("5s"))
    people = p.read("people", bl.Rows([{"user": "ada", "age": 36}, {"user": "bob", "age": 30}]))
    found = {}
    for user in users:
        side = people.filter(bl.col("user") == user, name=name)
        found[user] = bl.lookup(side, on="user", default={"age": 0})["age"]
    rows.with_columns(**{user: found[user] for user in sorted(users)}).write("out", bl.Memory())
    return p.plan()


def test_tables_are_known_again_and_read_anew_if_what_leads_to_them_has_changed() -> None:
    before, now = looked_up("ada", "bob"), looked_up("bob", "ada")
    found = fit(now, before)
    assert found.differences == ()
    assert [found.described["tables"][name]["ways"] for name in before.tables] == [
        describe(before, 2)["tables"][name]["ways"] for name in before.tables
    ]
    other = fit(looked_up("eve"), looked_up("ada"))
    assert other.differences == ()
    assert not {*other.plan.tables} & {*looked_up("ada").tables}
    (told,) = fit(
        looked_up("eve", name="people on file"), looked_up("ada", name="people on file")
    ).differences
    assert told.remedy == Remedy.TABLE
    assert told.what == (
        "side 'people on file': it keeps the rows of people -> filter user == 'ada', now people -> filter user == 'eve'"
    )


def test_a_name_that_reads_as_a_part_of_the_state_of_another_stage_is_refused() -> None:
    def joined(rows: bl.Collection) -> None:
        rows.join(rows, on="user", within=("0s", "5s"), name="both").write("both out", bl.Memory())

    with pytest.raises(
        PlanError, match=r"both.pairs/right': its state would be confused with that of 'both.pairs'"
    ):
        require_told_apart(plan(joined, minutes("ada", name="both.pairs/right")))
    require_told_apart(plan(joined, minutes("ada", name="both.pairs/other")))
