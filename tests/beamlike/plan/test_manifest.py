"""A plan, compared with the manifest of a checkpoint: equal plans fit, and each difference is named."""

from __future__ import annotations

import json
import re
from typing import Any

import attrs
import pytest

import beamlike as bl
from beamlike.plan.differences import Difference, Remedy, differences, refusal
from beamlike.plan.manifest import describe
from tests.stages.aggregates.test_combine_fn import Median
from tests.support.pipelines import Declared

MINUTE = bl.FixedWindows("1m")


class Auctions(bl.CustomWindows):
    """User-defined windows."""

    def assign_windows(self, time, row):
        return [(time, time + 1)]


def plan(
    *,
    source: Any = None,
    watermark: Any = None,
    name: str = "plays",
    stage: str = "totals",
    key: str = "user",
    windows: Any = MINUTE,
    aggregates: dict[str, Any] | None = None,
    extra: bool = False,
    beside: bool = False,
    **choices: Any,
) -> Any:
    """Declares a pipeline of one stage; keywords change it, `extra` adds a stage after it, `beside` a separate one."""
    p = bl.Pipeline("p")
    strategy = watermark or bl.BoundedOutOfOrderness("5s")
    rows = p.read(name, source or Declared(), timestamp="at", watermark=strategy)
    grouped = rows.window_into(windows, **choices).group_by(key, name=stage)
    totals = grouped.aggregate(**(aggregates or {"n": bl.count(), "total": bl.sum("score")}))
    totals.write("out", bl.Memory())
    if beside:
        others = rows.window_into(MINUTE).group_by("won", name="others")
        others.aggregate(n=bl.count()).write("won", bl.Memory())
    if extra:
        totals.group_by(key, name="again").aggregate(n=bl.sum("n")).write("more", bl.Memory())
    return p.plan()


def found(now: Any, before: Any = None, shards: int = 4) -> list[Difference]:
    """Returns the differences between the plan and a manifest that has been written and read."""
    saved = json.loads(json.dumps(describe(before or plan(), 4)))
    return differences(saved, describe(now, shards))


def changed(now: Any, before: Any = None, shards: int = 4) -> list[str]:
    """Returns the differences as text."""
    return [difference.what for difference in found(now, before, shards)]


def remedies(now: Any, before: Any = None, shards: int = 4) -> set[Remedy]:
    """Returns the remedies for the differences."""
    return {difference.remedy for difference in found(now, before, shards)}


def test_equal_plans_fit() -> None:
    assert changed(plan()) == []
    assert changed(plan(windows=bl.FixedWindows("60s")), before=plan()) == []


def test_what_state_does_not_depend_on_may_change() -> None:
    assert changed(plan(watermark=bl.BoundedOutOfOrderness("1m"))) == []
    assert changed(attrs.evolve(plan(), name="renamed")) == []


def test_saved_facts_that_a_run_adds_do_not_matter() -> None:
    saved = {**describe(plan(), 4), "run": "1a2b", "drained": False}
    assert differences(saved, describe(plan(), 4)) == []


@pytest.mark.parametrize(
    ("now", "message"),
    [
        (
            {"windows": bl.FixedWindows("2m")},
            r"windows was FixedWindows\(size=1m\), now FixedWindows\(size=2m\)$",
        ),
        (
            {"windows": bl.FixedWindows("1m", "5s")},
            r"windows was FixedWindows\(size=1m\), now .*size=1m, offset=5s\)$",
        ),
        ({"windows": bl.Sessions("1m")}, "windows was FixedWindows.*, now Sessions"),
        ({"windows": bl.Sessions("1m")}, "merging was False, now True"),
        ({"trigger": bl.Repeatedly(bl.AfterCount(2))}, "trigger was DefaultTrigger.*, now Repeatedly"),
        ({"accumulation": "accumulating"}, "accumulation was discarding, now accumulating"),
        ({"timestamp_combiner": "latest"}, "timestamp combiner was end_of_window, now latest"),
        ({"allowed_lateness": "1s"}, "allowed lateness was 0s, now 1s"),
        ({"accumulation": "retracting"}, "accumulation was discarding, now retracting"),
        (
            {"timestamp_combiner": bl.timestamp_of("won")},
            r'timestamp combiner was .*, now timestamp_of\("won"\)',
        ),
        ({"on_time": "if_non_empty"}, "on_time was always, now if_non_empty"),
        ({"closing": "always"}, "closing was if_non_empty, now always"),
        ({"windows": bl.CalendarWindows.days()}, "windows was FixedWindows.*, now CalendarWindows.*days"),
        ({"windows": Auctions()}, "windows was FixedWindows.*, now Auctions"),
        ({"key": "tick"}, "keys was user: String, now tick: Int64"),
        ({"aggregates": {"n": bl.count()}}, r"aggregate total was sum\(score\), now gone$"),
        (
            {"aggregates": {"n": bl.count(), "total": bl.sum("rate")}},
            r"aggregate total was sum\(score\), now sum\(rate\)$",
        ),
        (
            {"aggregates": {"n": bl.count(), "total": bl.max("score")}},
            r"aggregate total was sum\(score\), now max\(score\)$",
        ),
        (
            {"aggregates": {"n": bl.count(where=bl.col("won")), "total": bl.sum("score")}},
            r"aggregate n was count\(\), now count\(where=won\)$",
        ),
        (
            {"aggregates": {"n": bl.count(), "total": bl.top("user", 3, by="score")}},
            r"aggregate total was sum\(score\), now top\(user, 3, by=score\)$",
        ),
        (
            {"aggregates": {"n": bl.count(), "total": bl.sum("rate")}},
            r"column __acc\.total\.sum was Int128, now Float64$",
        ),
    ],
)
def test_each_change_of_a_stage_is_named_with_what_it_was_and_is(now: dict[str, Any], message: str) -> None:
    told = changed(plan(**now))
    assert any(re.match(f"stage 'totals': {message}", difference) for difference in told), told
    assert remedies(plan(**now)) == {Remedy.ANEW}


@pytest.mark.parametrize(
    "now",
    [
        {"aggregates": {"n": bl.count(), "most": bl.max("score"), "total": bl.sum("score")}},
        {"aggregates": {"n": bl.count(), "total": bl.sum("score"), "users": bl.count_distinct("user")}},
        {"beside": True},
        {"beside": True, "aggregates": {"n": bl.count(), "total": bl.sum("score"), "all": bl.collect("won")}},
    ],
)
def test_aggregates_and_stages_on_a_level_that_is_there_may_be_added(now: dict[str, Any]) -> None:
    assert changed(plan(**now)) == []
    assert changed(plan(), before=plan(**now)) != []


def test_where_panes_are_taken_back_their_columns_are_state() -> None:
    """A new aggregate would be missing in panes that may still be retracted."""
    before = plan(accumulation="retracting")
    more = {"n": bl.count(), "most": bl.max("score"), "total": bl.sum("score")}
    [difference] = found(plan(accumulation="retracting", aggregates=more), before)
    assert re.match("stage 'totals': column __outstanding was List.*, now List.*most", difference.what)
    assert difference.remedy == Remedy.ANEW


def test_another_column_of_the_same_type_is_a_change() -> None:
    before = plan(aggregates={"most": bl.max("score")})
    assert changed(plan(aggregates={"most": bl.max("tick")}), before) == [
        "stage 'totals': aggregate most was max(score), now max(tick)"
    ]
    mine = plan(aggregates={"m": bl.combine(Median(), "score", int)})
    other = plan(aggregates={"m": bl.combine(type("Mode", (Median,), {})(), "score", int)})
    assert changed(other, mine) == [
        "stage 'totals': aggregate m was combine(Median, score), now combine(Mode, score)"
    ]


def test_lists_of_windows_that_merge_without_the_numbers_that_order_them_are_refused() -> None:
    now = plan(windows=bl.Sessions("1m"), aggregates={"all": bl.collect("score")})
    older = json.loads(json.dumps(describe(now, 4)))
    older["stages"]["totals"]["accumulators"]["__acc.all.values"] = "List(Int64)"
    (difference,) = differences(older, describe(now, 4))
    assert str(difference) == (
        "stage 'totals': column __acc.all.values was List(Int64), "
        "now List(Struct({'number': Int64, 'value': Int64}))"
    )
    assert difference.remedy == Remedy.ANEW


def test_stages_and_sources_that_are_new_or_gone_are_named() -> None:
    assert changed(plan(extra=True)) == ["levels: it has 1, this run 2", "stage 'again' is new, on level 2"]
    assert changed(plan(), before=plan(extra=True)) == [
        "levels: it has 2, this run 1",
        "stage 'again' is gone",
    ]
    # A new name for a stage would leave its state behind.
    assert changed(plan(stage="sums")) == ["stage 'totals' is gone"]
    assert changed(plan(name="clicks")) == [
        "source 'clicks' is new",
        "source 'plays' is gone",
        "stage 'totals': inputs was plays, now clicks",
    ]
    assert remedies(plan(extra=True)) == remedies(plan(stage="sums")) == remedies(plan(name="clicks"))
    assert remedies(plan(name="clicks")) == {Remedy.RESTORE}


def test_processing_time_that_begins_to_pass_is_named() -> None:
    """Spark would refuse it later: an operator keeps its time mode."""
    waiting = plan(watermark=bl.BoundedOutOfOrderness("5s", idle_after="1m"))
    assert changed(waiting) == ["batches without input: it has none, this run some, for processing time"]
    assert remedies(waiting) == {Remedy.RESTORE}


def test_a_stage_that_reads_at_another_level_is_named() -> None:
    def build(deep: bool) -> Any:
        p = bl.Pipeline("p")
        rows = p.read("plays", Declared(), timestamp="at", watermark=bl.MonotonousTimestamps()).window_into(
            MINUTE
        )
        first = rows.group_by("user", name="first").aggregate(n=bl.count("score"))
        single = rows.select("user", n=bl.lit(1))
        second = (first if deep else single).group_by("user", name="second").aggregate(n=bl.count("n"))
        for name, collection in (("a", first), ("b", second)):
            collection.write(name, bl.Memory())
        return p.plan()

    told = changed(build(True), build(False))
    assert "stage 'second': level was 1, now 2" in told
    assert "stage 'second': inputs was plays, now first" in told
    assert remedies(build(True), build(False)) == {Remedy.RESTORE}


def test_another_kind_of_source_or_watermark_is_named(tmp_path: Any) -> None:
    schema = dict(Declared().schema())
    assert changed(plan(source=bl.Parquet(tmp_path, schema))) == [
        "source 'plays': kind was Declared, now Parquet"
    ]
    assert changed(plan(watermark=bl.MonotonousTimestamps())) == [
        "source 'plays': watermark was BoundedOutOfOrderness, now MonotonousTimestamps"
    ]


def test_other_shards_are_named() -> None:
    assert changed(plan(), shards=8) == ["shards: it has 4, this run 8"]
    assert remedies(plan(), shards=8) == {Remedy.RESTORE}


def test_all_changes_are_told_at_once_with_what_to_do() -> None:
    told = found(plan(name="clicks", watermark=bl.MonotonousTimestamps(), on_time="if_non_empty"), shards=8)
    assert refusal(told, "the checkpoint c", {Remedy.RESTORE: "beamlike savepoint c s"}).splitlines() == [
        "this plan does not fit the checkpoint c:",
        "  shards: it has 4, this run 8",
        "  source 'clicks' is new",
        "  source 'plays' is gone",
        "  stage 'totals': inputs was plays, now clicks",
        "  -> beamlike savepoint c s",
        "  stage 'totals': on_time was always, now if_non_empty",
        "  -> start again with another checkpoint, or continue with the former plan",
    ]
