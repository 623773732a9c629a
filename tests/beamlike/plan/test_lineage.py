"""Column lineage: examples of each kind of step and operator, and a law on random pipelines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import beamlike as bl
from beamlike.plan.lineage import ColumnLineage, column_lineage

MONOTONOUS = bl.MonotonousTimestamps()
MINUTE = bl.FixedWindows("1m")

PLAYS = {"user": "ada", "team": "red", "points": 3, "bonus": 1, "tags": ["a"], "at": 1}
USERS = {"name": "ada", "age": 36, "town": "Rome", "since": 1}


def read(p: bl.Pipeline, name: str, rows: list[dict[str, Any]], time: str) -> bl.Collection:
    return p.read(name, bl.Rows(rows), timestamp=time, timestamp_unit="s", watermark=MONOTONOUS)


def plays(p: bl.Pipeline) -> bl.Collection:
    return read(p, "plays", [PLAYS], "at")


def users(p: bl.Pipeline) -> bl.Collection:
    return read(p, "users", [USERS], "since")


def lineage(make: Callable[[bl.Pipeline], bl.Collection]) -> ColumnLineage:
    p = bl.Pipeline("p")
    make(p).write("out", bl.Memory())
    return column_lineage(p.plan())["out"]


def columns(found: ColumnLineage, *wanted: str) -> dict[str, set[str]]:
    """Returns the roots of these columns, such as "plays.user" for a copy and "sum plays.points" for others."""
    short = {"IDENTITY": "", "TRANSFORMATION": "of ", "AGGREGATION": "sum ", "CONDITIONAL": "if "}
    return {
        name: {f"{short[root.use]}{root.source}.{root.column}" for root in found.columns[name]}
        for name in wanted
    }


def rows(found: ColumnLineage) -> set[str]:
    return {f"{root.use} {root.source}.{root.column}" for root in found.rows}


def test_steps_copy_compute_rename_and_filter():
    found = lineage(
        lambda p: (
            plays(p)
            .rename({"user": "who"})
            .with_columns(both=bl.col("points") + bl.col("bonus"), fixed=bl.lit(1))
            .filter(bl.col("team") == "red")
            .select("who", "both", "fixed", again=bl.col("team"))
        )
    )
    assert columns(found, "who", "both", "fixed", "again", "event_time") == {
        "who": {"plays.user"},
        "both": {"of plays.points", "of plays.bonus"},
        "fixed": set(),
        "again": {"plays.team"},
        "event_time": {"of plays.at"},
    }
    assert rows(found) == {"FILTER plays.team"}


def test_an_expression_of_several_columns_keeps_them_apart():
    found = lineage(lambda p: plays(p).with_columns(bl.col("points", "bonus") * bl.col("at")))
    assert columns(found, "points", "bonus") == {
        "points": {"of plays.points", "of plays.at"},
        "bonus": {"of plays.bonus", "of plays.at"},
    }


def test_functions_in_python_read_all_that_they_receive():
    made = lineage(
        lambda p: plays(p).select("user", "points").map(lambda row: {"n": row["points"]}, schema={"n": int})
    )
    assert columns(made, "n", "event_time") == {
        "n": {"of plays.user", "of plays.points"},
        "event_time": {"of plays.at"},
    }


@attrs.frozen
class Score:
    """The columns that a function receives."""

    user: str
    points: int


@attrs.frozen
class Named:
    """A row with one column."""

    who: str


def named(row: Score) -> Named:
    return Named(row.user)


def beyond_two(row: Score) -> bool:
    return row.points > 2


def test_a_function_of_a_class_receives_the_columns_of_its_fields():
    found = lineage(lambda p: plays(p).filter(beyond_two).map(named))
    assert columns(found, "who") == {"who": {"of plays.user", "of plays.points"}}
    assert rows(found) == {"FILTER plays.user", "FILTER plays.points"}


def test_lists_and_structs_are_followed():
    found = lineage(lambda p: plays(p).explode("tags", number="place").select("user", "tags", "place"))
    assert columns(found, "user", "tags", "place") == {
        "user": {"plays.user"},
        "tags": {"of plays.tags"},
        "place": {"of plays.tags"},
    }
    rows_of = [{"who": {"name": "ada", "age": 3}, "at": 1}]
    flat = lineage(lambda p: read(p, "rows", rows_of, "at").unnest("who"))
    assert columns(flat, "name") == {"name": {"rows.who"}}


def test_a_grouping_has_keys_aggregates_conditions_and_windows():
    found = lineage(
        lambda p: (
            plays(p)
            .window_into(MINUTE)
            .group_by("user")
            .aggregate(
                points=bl.sum("points", where=bl.col("team") == "red"),
                n=bl.count(),
                length=bl.window_length(),
            )
            .with_columns(mean=bl.col("points") / bl.col("n"))
        )
    )
    assert columns(found, "user", "points", "n", "mean", "length", "window_start", "pane_index") == {
        "user": {"plays.user"},
        "points": {"sum plays.points", "if plays.team"},
        "n": set(),
        "mean": {"sum plays.points", "if plays.team"},
        "length": {"of plays.at"},
        "window_start": {"of plays.at"},
        "pane_index": set(),
    }
    assert rows(found) == {"GROUP_BY plays.user", "WINDOW plays.at"}


def test_groupings_of_groupings_reach_the_source():
    found = lineage(
        lambda p: (
            plays(p)
            .window_into(MINUTE)
            .group_by("user", "team")
            .aggregate(points=bl.sum("points"))
            .window_into(bl.FixedWindows("1h"))
            .group_by("team")
            .aggregate(best=bl.max("points"))
        )
    )
    assert columns(found, "team", "best") == {"team": {"plays.team"}, "best": {"sum plays.points"}}
    assert rows(found) == {"GROUP_BY plays.user", "GROUP_BY plays.team", "WINDOW plays.at"}


BOTH = {
    "user": {"plays.user", "users.name"},
    "points": {"plays.points"},
    "age": {"users.age"},
}


@pytest.mark.parametrize(
    "join",
    [
        lambda a, b: a.window_into(MINUTE).join(
            b.window_into(MINUTE), left_on="user", right_on="name", how="full"
        ),
        lambda a, b: a.join(b, left_on="user", right_on="name", within=("0s", "1m")),
        lambda a, b: a.join(b, left_on="user", right_on="name", keep_forever=True),
        lambda a, b: a.join_asof(b, left_on="user", right_on="name"),
    ],
)
def test_a_join_keeps_the_columns_of_its_sides_apart(join):
    found = lineage(lambda p: join(plays(p), users(p)))
    assert columns(found, *BOTH) == BOTH
    assert {"JOIN plays.user", "JOIN users.name"} <= rows(found)


def test_a_lookup_reads_the_side_by_its_key():
    found = lineage(
        lambda p: plays(p).with_columns(
            age=bl.lookup(p.read("users", bl.Rows([USERS])), left_on="user", right_on="name")["age"]
        )
    )
    assert columns(found, "user", "age") == {"user": {"plays.user"}, "age": {"users.age"}}
    assert rows(found) == {"JOIN plays.user", "JOIN users.name"}


def test_a_lookup_in_panes_goes_through_their_grouping():
    def make(p: bl.Pipeline) -> bl.Collection:
        oldest = users(p).window_into(MINUTE).group_by("name").aggregate(age=bl.max("age"))
        there = bl.lookup(oldest, left_on="user", right_on="name")
        return plays(p).window_into(MINUTE).with_columns(age=there["age"])

    found = lineage(make)
    assert columns(found, "age", "points") == {"age": {"sum users.age"}, "points": {"plays.points"}}
    assert {"JOIN plays.user", "JOIN users.name", "GROUP_BY users.name"} <= rows(found)


def test_a_function_with_a_side_reads_both():
    def make(p: bl.Pipeline) -> bl.Collection:
        side = p.read("users", bl.Rows([USERS])).select("name", "age")
        return (
            plays(p)
            .select("user")
            .map(lambda row, ages: row, schema={"user": str}, side={"ages": bl.as_list(side)})
        )

    found = lineage(make)
    assert columns(found, "user") == {"user": {"of plays.user", "of users.name", "of users.age"}}


def test_rows_that_pass_once_and_the_newest_ones_are_copies():
    once = lineage(lambda p: plays(p).dedup("user", within="1m"))
    assert columns(once, "points") == {"points": {"plays.points"}}
    assert rows(once) == {"FILTER plays.user"}
    newest = lineage(lambda p: plays(p).window_into(MINUTE).latest("user"))
    assert columns(newest, "user", "points") == {"user": {"plays.user"}, "points": {"plays.points"}}


def test_running_aggregates_and_batches_of_rows_are_followed():
    running = lineage(
        lambda p: plays(p).group_by("user").running(total=bl.sum("points"), before=bl.previous("team"))
    )
    assert columns(running, "user", "bonus", "total", "before") == {
        "user": {"plays.user"},
        "bonus": {"plays.bonus"},
        "total": {"sum plays.points"},
        "before": {"of plays.team"},
    }
    batches = lineage(lambda p: plays(p).select("user", "points").group_by("user").group_into_batches(size=2))
    assert columns(batches, "user", "rows")["user"] == {"plays.user"}
    assert columns(batches, "rows")["rows"] == {"sum plays.user", "sum plays.points"}


class Totals(bl.Process):
    """Adds up the points of each user."""

    points = bl.Value(int, default=0)

    def element(self, row):
        self.points += row["points"]
        yield {"user": self.key.user, "so_far": self.points}


def test_a_process_has_its_keys_and_otherwise_reads_all_columns():
    found = lineage(
        lambda p: (
            plays(p)
            .select("user", "points", "team")
            .group_by("user")
            .process(Totals(), {"user": str, "so_far": int})
        )
    )
    assert columns(found, "user", "so_far") == {
        "user": {"plays.user"},
        "so_far": {"of plays.user", "of plays.points", "of plays.team"},
    }
    assert rows(found) == {"GROUP_BY plays.user"}


def test_a_flatten_has_the_roots_of_all_its_inputs():
    def make(p: bl.Pipeline) -> bl.Collection:
        return bl.flatten(
            plays(p).select(name=bl.col("user")), users(p).filter(bl.col("age") > 1).select("name")
        )

    found = lineage(make)
    assert columns(found, "name") == {"name": {"plays.user", "users.name"}}
    assert rows(found) == {"FILTER users.age"}


def test_late_rows_and_dead_letters_have_the_columns_of_the_rows():
    late = lineage(lambda p: plays(p).window_into(MINUTE).group_by("user").aggregate(n=bl.count()).late())
    assert columns(late, "points", "reason") == {"points": {"plays.points"}, "reason": set()}
    letters = lineage(
        lambda p: plays(p).select("user").map(lambda row: row, schema={"user": str}).dead_letters()
    )
    assert columns(letters, "row", "error") == {"row": {"of plays.user"}, "error": {"of plays.user"}}


def test_an_event_time_that_a_step_sets_is_that_of_its_column():
    found = lineage(
        lambda p: (
            plays(p)
            .with_columns(later=bl.col("at") + 60)
            .with_timestamps("later", timestamp_unit="s")
            .window_into(MINUTE)
            .aggregate(n=bl.count())
        )
    )
    assert columns(found, "window_start") == {"window_start": {"of plays.at"}}
    assert rows(found) == {"WINDOW plays.at"}


# A law on random pipelines: what changes with a column of a source is in the lineage of what has changed.

SOURCE: Mapping[str, list[Any]] = {
    "a": [1, 2, 3, 4, 5, 6],
    "b": [5, 3, 1, 2, 4, 0],
    "c": [0, 1, 0, 1, 0, 1],
    "at": [1, 20, 61, 70, 130, 140],
}
OTHER: Mapping[str, list[Any]] = {
    name: values[::-1] if name != "at" else values for name, values in SOURCE.items()
}
NUMBERS = ("a", "b", "c")


@attrs.frozen
class Made:
    """A step, and its text for a failing example."""

    text: str
    apply: Callable[[bl.Collection], bl.Collection] = attrs.field(eq=False, repr=False)


@st.composite
def step(draw: st.DrawFn) -> Made:
    one, other, kind = draw(st.sampled_from(NUMBERS)), draw(st.sampled_from(NUMBERS)), draw(st.integers(0, 6))
    made: dict[int, Callable[[bl.Collection], bl.Collection]] = {
        0: lambda rows: rows.with_columns(bl.col(one).alias(other)),
        1: lambda rows: rows.with_columns((bl.col(one) + bl.col(other)).alias(one)),
        2: lambda rows: rows.filter(bl.col(one) > 1),
        3: lambda rows: (
            rows.window_into(MINUTE)
            .group_by(one)
            .aggregate(**{name: bl.max(other) for name in NUMBERS if name != one})
            .select(*NUMBERS)
        ),
        4: lambda rows: rows.map(lambda row: {**row, one: row[other] * 2}, schema=rows.schema),
        5: lambda rows: rows.select(*NUMBERS).dedup(one, within="1m"),
        6: lambda rows: bl.flatten(
            rows.select(*NUMBERS), rows.select(*(bl.col(one).alias(name) for name in NUMBERS))
        ),
    }
    return Made(f"{kind}({one}, {other})", made[kind])


@given(st.lists(step(), min_size=1, max_size=3))
def test_a_column_that_changes_with_a_column_of_a_source_has_it_in_its_lineage(steps):
    def run(frame: Mapping[str, list[Any]]) -> tuple[pl.DataFrame, ColumnLineage]:
        p, out = bl.Pipeline("p"), bl.Memory()
        source = bl.Rows(pl.DataFrame(frame))
        made = p.read("rows", source, timestamp="at", timestamp_unit="s", watermark=MONOTONOUS)
        for one in steps:
            made = one.apply(made)
        made.select(*NUMBERS).write("out", out)
        p.run()
        return out.frame(), column_lineage(p.plan())["out"]

    before, found = run(SOURCE)
    for changed in NUMBERS:
        after, _ = run({**SOURCE, changed: OTHER[changed]})
        decides = changed in {root.column for root in found.rows}
        for name in NUMBERS:
            if sorted(before[name]) != sorted(after[name]):
                roots = {root.column for root in found.columns[name]}
                assert decides or changed in roots, (name, changed)


def test_the_moment_of_a_reading_is_no_column_of_its_source():
    p = bl.Pipeline("p")
    ages = p.read("ages", bl.Refreshed(bl.Rows([USERS]), every="5m"))
    plays(p).with_columns(age=bl.lookup(ages, left_on="user", right_on="name")["age"]).write(
        "out", bl.Memory()
    )
    found = column_lineage(p.plan())["out"]
    assert columns(found, "age") == {"age": {"ages.age"}}
