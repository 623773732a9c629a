"""Declarations of side inputs, invalid ones, and their text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import narwhals as nw
import polars as pl
import pytest

import beamlike as bl
from beamlike.errors import PlanError
from beamlike.runtime.display.summary import lost_rows

ROWS = [{"user": "ada", "points": 3, "at": 1}, {"user": "bob", "points": 5, "at": 2}]


def read(p: bl.Pipeline, name: str, source: Any = None) -> bl.Collection:
    return p.read(
        name,
        source or bl.Rows(ROWS),
        timestamp="at",
        timestamp_unit="s",
        watermark=bl.MonotonousTimestamps(),
    )


class Endless:
    """A source without end."""

    bounded = False

    def schema(self) -> dict[str, Any]:
        return bl.Rows(ROWS).schema()

    def chunks(self, rows: int) -> Any:
        return bl.Rows(ROWS).chunks(rows)


def looked(main: bl.Collection, side: bl.Collection) -> bl.Collection:
    return main.map(lambda row, side: row, side={"side": bl.as_list(side)}, name="looked")


def of_windows(main: bl.Collection, side: bl.Collection) -> Any:
    return looked(main, side.window_into(bl.FixedWindows("1m")))


def of_sessions(main: bl.Collection, side: bl.Collection) -> Any:
    return looked(main.window_into(bl.FixedWindows("1m")), side.window_into(bl.Sessions("1m")))


def of_endless(main: bl.Collection, side: bl.Collection) -> Any:
    return looked(main, read(main.pipeline, "endless", Endless()))  # type: ignore[arg-type]


def of_strangers(main: bl.Collection, side: bl.Collection) -> Any:
    return looked(main, read(bl.Pipeline("other"), "strangers"))


def looked_up_at_strangers(main: bl.Collection, side: bl.Collection) -> Any:
    return main.filter(bl.lookup(read(bl.Pipeline("other"), "strangers"), on="user").found())


@pytest.mark.parametrize(
    ("declare", "told"),
    [
        (of_windows, r"rows of 'main' are in the global window, .* call window_into\(...\) on the rows, too"),
        (of_sessions, "the windows of side 'side.window_into', .* merge, each key having its own"),
        (of_endless, "side 'endless' has no end and is in the global window"),
        (of_strangers, "side 'strangers' is of pipeline 'other', and the rows that read it are of 'p'"),
        (looked_up_at_strangers, "side 'strangers' is of pipeline 'other'"),
        (
            lambda main, side: main.map(lambda row: row, side={"x": side}),
            "side 'x' must be bl.as_dict.*in which form",
        ),
        (lambda main, side: main.map(lambda row: row, side={}), "side must be a dict such as"),
        (
            lambda main, side: main.map(lambda row: row, side={"a b": bl.as_list(side)}),
            "'a b' cannot be a keyword",
        ),
        (
            lambda main, side: main.filter("user", side={"x": bl.as_list(side)}),
            "a function is the only condition of a filter",
        ),
        (lambda main, side: bl.lookup(side, on="usr"), "'usr'.*did you mean 'user'"),
        (lambda main, side: bl.lookup(side), "give on="),
        (lambda main, side: bl.lookup(side, on="user")["pointz"], "'pointz'.*did you mean 'points'"),
        (lambda main, side: bl.lookup(side, on="user").pointz, "'pointz'.*did you mean 'points'"),
        (
            lambda main, side: bl.lookup(side, on="user", default={"points": "x"}),
            "the default of 'points' is 'x'",
        ),
        (
            lambda main, side: bl.lookup(side, on="user", max_bytes=0),
            "max_bytes must be a whole number of bytes",
        ),
        (lambda main, side: bl.as_dict(side, "usr"), "'usr'.*did you mean 'user'"),
        (lambda main, side: bl.as_list(side, "usr"), "'usr'.*did you mean 'user'"),
        (
            lambda main, side: main.map(lambda row: row, side={"x": bl.as_list(side)}),
            r"lambda is called as lambda\(row, x=\.\.\.\): got an unexpected keyword argument 'x'",
        ),
        (lambda main, side: bl.as_dict(side, []), "give it at least one column as the key"),
        (lambda main, side: bl.as_singleton("side"), "as_singleton takes a collection to read"),
        (
            lambda main, side: bl.as_singleton(side, default=5)["points"],
            r"default=5 is for functions; .* such as default=\{'points': \.\.\.\}",
        ),
        (
            lambda main, side: main.aggregate(n=bl.count(where=bl.lookup(side, on="user")["points"] > 3)),
            r"no column 'side.points'.*; what is looked up is a column of with_columns\(\.\.\.\), select",
        ),
        (
            lambda main, side: main.filter(bl.lookup(side, left_on="points", right_on="user").found()),
            "the key 'points' is Int64, and 'user' of side 'side' is String",
        ),
    ],
)
def test_what_cannot_be_looked_at_is_refused(
    declare: Callable[[bl.Collection, bl.Collection], Any], told: str
) -> None:
    p = bl.Pipeline("p")
    with pytest.raises((PlanError, TypeError), match=f"(?s){told}"):
        declare(read(p, "main"), read(p, "side"))


def test_a_side_without_event_time_that_leads_elsewhere_is_refused_as_a_whole() -> None:
    p = bl.Pipeline("p")
    side = p.read("side", bl.Rows(ROWS))
    read(p, "main").filter(bl.lookup(side, on="user").found()).write("out", bl.Memory())
    p.plan()
    side.write("copy", bl.Memory())
    with pytest.raises(
        PlanError, match="side 'side' has no event time, and its source 'side' also leads elsewhere"
    ):
        p.plan()


def test_columns_that_are_looked_up_show_only_in_their_expressions() -> None:
    p = bl.Pipeline("p")
    main, side = read(p, "main"), p.read("side", bl.Rows([{"user": "ada", "points": 7}]))
    found = bl.lookup(side, on="user")
    both = main.with_columns(nw.all(), more=found["points"] + bl.col("points"), other=found.points)
    assert list(both.schema) == ["user", "points", "at", "more", "other"]
    assert both.collect()[["more", "other"]].rows() == [(10, 7), (None, None)]
    assert main.select(found["points"]).collect()["points"].to_list() == [7, None]


@pytest.mark.parametrize("windows", [bl.GlobalWindows(), bl.FixedWindows("1m")])
def test_two_lookups_in_one_side_and_two_sides_are_one_stage_or_none(windows: Any) -> None:
    p = bl.Pipeline("p")
    main = read(p, "main").window_into(windows)
    ages, names = (
        p.read("ages", bl.Rows([{"user": "ada", "age": 36}])),
        p.read("names", bl.Rows([{"id": 3, "name": "three"}])),
    )
    once = main.with_columns(
        age=bl.lookup(ages, on="user").age,
        same=bl.lookup(ages, left_on="user", right_on="user").age,
        name=bl.lookup(names, left_on="points", right_on="id").name,
    )
    once.write("out", out := bl.Memory())
    stages = [] if isinstance(windows, bl.GlobalWindows) else ["main.with_columns.lookup"]
    assert list(p.plan().stages) == stages
    p.run()
    assert out.frame()[["age", "same", "name"]].rows() == [(36, 36, "three"), (None, None, None)]


def test_two_sides_without_rows_keep_their_own_columns() -> None:
    p = bl.Pipeline("p")
    ages, names = (
        p.read(name, bl.Rows([], schema={"user": str, name: dtype}))
        for name, dtype in (("ages", int), ("names", str))
    )
    found = read(p, "main").select(
        "user", age=bl.lookup(ages, on="user")["ages"], name=bl.lookup(names, on="user")["names"]
    )
    assert found.collect()[["user", "age", "name"]].rows() == [("ada", None, None), ("bob", None, None)]
    assert found.collect().schema["name"] == pl.String


def test_columns_of_a_side_may_have_any_name() -> None:
    p = bl.Pipeline("p")
    names = {"limit": 4, "kind": 5, "view": 6, "place": 7}
    one = bl.as_singleton(p.read("limits", bl.Rows([names])))
    by_user = bl.lookup(p.read("users", bl.Rows([{"user": "ada", **names}])), on="user")
    main = read(p, "main").filter(bl.col("points") < one.limit)
    found = main.select(one.kind, one.view, one.place, one.limit, theirs=by_user.place)
    assert found.collect()[["kind", "view", "place", "limit", "theirs"]].rows() == [(5, 6, 7, 4, 7)]


def test_rows_that_look_at_several_where_there_should_be_one_are_dead_letters_of_their_step() -> None:
    p = bl.Pipeline("p", max_dead_letters=4)
    main, limits = read(p, "main"), p.read("limits", bl.Rows([{"most": 1}, {"most": 2}]))
    below = main.filter(bl.col("points") < bl.as_singleton(limits)["most"], name="below")
    assert (
        below.dead_letters().collect()[["step", "error"]].rows()
        == [("below.lookup", "ValueError: side 'limits' has 2 rows where there should be one")] * 2
    )
    ages = p.read("ages", bl.Rows([{"user": "ada", "age": "36"}, {"user": "bob", "age": "old"}]))
    cast = main.with_columns(age=bl.lookup(ages, on="user")["age"].cast(nw.Int64)).named("cast")
    assert cast.dead_letters().collect()["step"].to_list() == ["cast"]


def test_panes_look_at_a_side_and_stay_panes() -> None:
    p = bl.Pipeline("p")
    ages = p.read("ages", bl.Rows([{"user": "ada", "age": 36}]))
    counts = read(p, "main").window_into(bl.FixedWindows("1m")).group_by("user").aggregate(n=bl.count())
    aged = counts.with_columns(age=bl.lookup(ages, on="user")["age"], timing=bl.pane_timing()).named("aged")
    aged.write("out", out := bl.Memory())
    run = p.run()
    assert out.frame()[["user", "n", "age", "timing", "pane_index"]].rows() == [
        ("ada", 1, 36, "on_time", 0),
        ("bob", 1, None, "on_time", 0),
    ]
    assert [batch.stages["aged.lookup"].panes for batch in run.batches][-1] == {"rows": 2}


def test_a_side_that_is_too_large_fails_the_run_and_says_what_else_there_is() -> None:
    p = bl.Pipeline("p")
    side = p.read("side", bl.Rows([{"user": str(number), "age": number} for number in range(100_000)]))
    age = bl.lookup(side, on="user", max_bytes=1_000_000)["age"]
    read(p, "main").with_columns(age=age).write("out", bl.Memory())
    told = (
        r"side 'side' takes \d\.\d MB in the memory of each shard \(100,000 rows\), .* 1\.0 MB .* join_asof"
    )
    with pytest.raises(bl.StepError, match=told):
        p.run()


def test_head_and_collect_see_all_of_a_side() -> None:
    p = bl.Pipeline("p")
    side = p.read("side", bl.Rows([{"user": name, "age": 1} for name in ("x", "y", "ada")]))
    found = read(p, "main").with_columns(age=bl.lookup(side, on="user")["age"])
    assert found.collect(input_rows=1)["age"].to_list() == [1]


def test_what_a_function_raises_with_a_side_is_a_dead_letter_or_fails_the_run() -> None:
    def declared(on_error: Any) -> tuple[bl.Pipeline, bl.Collection]:
        p = bl.Pipeline("p", on_error=on_error)
        side = p.read("side", bl.Rows([{"n": 3}]))
        one = bl.as_singleton(side, "n")
        return p, read(p, "main").map(
            lambda row, n: {"share": 1 / (row["points"] - n)},
            {"share": float},
            side={"n": one},
            name="shares",
        )

    p, shares = declared("dead_letters")
    letters = shares.dead_letters().collect()
    assert letters.select("step", "error").rows() == [("shares", "ZeroDivisionError: division by zero")]
    assert '"points":3' in letters["row"].item().replace(" ", "")
    p, shares = declared("fail")
    shares.write("out", bl.Memory())
    with pytest.raises(ZeroDivisionError):
        p.run()


def looking(how: str) -> tuple[bl.Collection, bl.Collection]:
    """Returns a step that reads a side whose third row is late, and that side."""
    p = bl.Pipeline("p")
    rates = [{"user": "ada", "rate": rate, "at": at} for rate, at in ((1.0, 5), (1.5, 70), (2.0, 6))]
    side = read(p, "rates", bl.Rows(rates, rows_per_batch=1)).window_into(bl.FixedWindows("1m"))
    main = read(p, "plays").window_into(bl.FixedWindows("1m"))
    if how == "a lookup":
        return main.with_columns(rate=bl.lookup(side, on="user")["rate"]), side
    return main.map(lambda row, rates: row, side={"rates": bl.as_list(side)}), side


@pytest.mark.parametrize("how", ["a lookup", "a function"])
def test_late_rows_of_a_side_are_rows_of_that_side(how: str) -> None:
    step, side = looking(how)
    late = step.late(side=side)
    assert late.collect()[["user", "rate", "reason"]].rows() == [("ada", 2.0, "late")]
    assert late.schema == {**side.schema, "reason": pl.String}
    named = step.named("priced").late(side=side, name="lost")
    assert named.collect()["rate"].to_list() == [2.0]
    named.write("lost out", bl.Memory())
    plan = named.pipeline.plan()
    assert (
        list(plan.stages)
        == ["priced.rates", *(["priced.lookup"] if how == "a lookup" else ["priced"])][: len(plan.stages)]
    )


def test_where_rows_of_a_side_are_late_the_log_says_how_to_have_them() -> None:
    for how in ("a lookup", "a function"):
        step, _ = looking(how)
        step.named("priced").write("out", bl.Memory())
        (told,) = lost_rows(step.pipeline.run())
        assert told.startswith("1 of 3 elements that priced.rates dropped, as they arrived later than")
        assert told.endswith("; .late(side=...) of 'priced' gives these rows of 'rates' as a collection")


def test_a_side_that_has_no_late_rows_is_refused() -> None:
    step, side = looking("a lookup")
    other = read(step.pipeline, "other")
    with pytest.raises(PlanError, match=r"does not read 'other'; its sides are 'rates'"):
        step.late(side=other)
    with pytest.raises(PlanError, match=r"has no side; late\(\) returns the rows that it drops"):
        side.late(side=other)
    with pytest.raises(TypeError, match="side must be a collection, not 'rates'"):
        step.late(side="rates")  # type: ignore[arg-type]
    whole = step.with_columns(found=bl.lookup(other, on="user").found())
    with pytest.raises(PlanError, match="no row of side 'other' is late, as it is in the global window"):
        whole.late(side=other)
