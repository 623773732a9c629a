"""A plan against the manifest of a checkpoint: equal plans fit, and whatever does not is named."""

from __future__ import annotations

import json
import re
from typing import Any

import attrs
import pytest

import beamlike as bl
from beamlike.manifest import describe, differences
from stages import state
from tests.pipelines import Declared
from tests.test_aggregates import Median

MINUTE = bl.FixedWindows("1m")


class Auctions(bl.CustomWindows):
    """Windows as a user writes them."""

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
    **choices: Any,
) -> Any:
    """A pipeline of one stage, with what the keywords change; `extra` adds a second stage after it."""
    p = bl.Pipeline("p")
    strategy = watermark or bl.BoundedOutOfOrderness("5s")
    rows = p.read(name, source or Declared(), timestamp="at", watermark=strategy)
    grouped = rows.window_into(windows, **choices).group_by(key, name=stage)
    totals = grouped.aggregate(**(aggregates or {"n": bl.count(), "total": bl.sum("score")}))
    totals.write("out", bl.Memory())
    if extra:
        totals.group_by(key, name="again").aggregate(n=bl.sum("n")).write("more", bl.Memory())
    return p.plan()


def changed(now: Any, before: Any = None, shards: int = 4) -> list[str]:
    """How the plan does not fit, where the manifest has been written and read."""
    saved = json.loads(json.dumps(describe(before or plan(), 4)))
    return differences(saved, describe(now, shards))


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
        ({"windows": bl.FixedWindows("2m")}, "windows was FixedWindows.*, now FixedWindows"),
        ({"windows": bl.FixedWindows("1m", "5s")}, "windows was .*offset=0.*, now .*offset=5000000"),
        ({"windows": bl.Sessions("1m")}, "windows was FixedWindows.*, now Sessions"),
        ({"windows": bl.Sessions("1m")}, "merging was False, now True"),
        ({"trigger": bl.Repeatedly(bl.AfterCount(2))}, "trigger was DefaultTrigger.*, now Repeatedly"),
        ({"accumulation": "accumulating"}, "accumulation was discarding, now accumulating"),
        ({"timestamp_combiner": "latest"}, "timestamp combiner was end_of_window, now latest"),
        ({"allowed_lateness": "1s"}, "allowed lateness was 0 us, now 1000000 us"),
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
        (
            {"aggregates": {"n": bl.count()}},
            r"aggregates was n=count\(\), total=sum\(score\), now n=count\(\)$",
        ),
        (
            {"aggregates": {"n": bl.count(), "total": bl.sum("rate")}},
            r"aggregates was .*total=sum\(score\), now .*total=sum\(rate\)",
        ),
        (
            {"aggregates": {"n": bl.count(), "total": bl.max("score")}},
            r"aggregates was .*, now n=count\(\), total=max\(score\)",
        ),
        ({"aggregates": {"n": bl.count(), "total": bl.sum("rate")}}, "state was .*Int64.*, now .*Float64"),
    ],
)
def test_each_change_of_a_stage_is_named_with_what_it_was_and_is(now: dict[str, Any], message: str) -> None:
    found = changed(plan(**now))
    assert any(re.match(f"stage 'totals': {message}", difference) for difference in found), found


def test_another_column_of_the_same_type_is_a_change() -> None:
    before = plan(aggregates={"most": bl.max("score")})
    assert changed(plan(aggregates={"most": bl.max("tick")}), before) == [
        "stage 'totals': aggregates was most=max(score), now most=max(tick)"
    ]
    mine = plan(aggregates={"m": bl.combine(Median(), "score", int)})
    other = plan(aggregates={"m": bl.combine(type("Mode", (Median,), {})(), "score", int)})
    assert changed(other, mine) == [
        "stage 'totals': aggregates was m=combine(Median, score), now m=combine(Mode, score)"
    ]


def test_stages_and_sources_that_are_new_or_gone_are_named() -> None:
    assert changed(plan(extra=True)) == ["stage 'again' is new"]
    assert changed(plan(), before=plan(extra=True)) == ["stage 'again' is gone"]
    assert changed(plan(stage="sums")) == ["stage 'sums' is new", "stage 'totals' is gone"]
    assert changed(plan(name="clicks")) == [
        "source 'clicks' is new",
        "source 'plays' is gone",
        "stage 'totals': inputs was plays, now clicks",
    ]


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

    found = changed(build(True), build(False))
    assert "stage 'second': level was 1, now 2" in found
    assert "stage 'second': inputs was plays, now first" in found


def test_another_kind_of_source_or_watermark_is_named(tmp_path: Any) -> None:
    schema = dict(Declared().schema())
    assert changed(plan(source=bl.Parquet(tmp_path, schema))) == [
        "source 'plays': kind was Declared, now Parquet"
    ]
    assert changed(plan(watermark=bl.MonotonousTimestamps())) == [
        "source 'plays': watermark was BoundedOutOfOrderness, now MonotonousTimestamps"
    ]


def test_other_shards_and_another_encoding_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert changed(plan(), shards=8) == ["shards: it has 4, this run 8"]
    saved = describe(plan(), 4)
    monkeypatch.setattr("beamlike.manifest.ENCODING", 77)
    expected = f"encoding: it has {state.ENCODING}, this run 77"
    assert differences(saved, describe(plan(), 4)) == [expected]


def test_all_changes_are_told_at_once() -> None:
    assert len(changed(plan(stage="sums", watermark=bl.MonotonousTimestamps()), shards=8)) == 4
