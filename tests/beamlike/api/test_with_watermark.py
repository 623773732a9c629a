"""Watermarks that are set after steps, as after a parse: they make a new source that includes the steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import beamlike as bl
from beamlike.plan.manifest import describe as manifest
from beamlike.plan.model import Plan
from tests.support.pipelines import Declared, plays
from windowing.columns import EVENT_TIME
from windowing.time import MAX_TIME

SECOND = 1_000_000
MINUTES = bl.FixedWindows("1m")
STRATEGY = bl.BoundedOutOfOrderness("5s")
PARSED = {"user": str, "at": int}


def parse(row: dict[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(row["line"])
    return fields


def lines(*times: int | None) -> bl.Rows:
    """Returns a line of JSON for each time, each in a batch of its own."""
    texts = [json.dumps({"user": f"user {number}", "at": time}) for number, time in enumerate(times)]
    return bl.Rows([{"line": text} for text in texts], schema={"line": str}, rows_per_batch=1)


def parsed(source: Any, **changes: Any) -> bl.Collection:
    rows = bl.Pipeline("p").read("raw", source).map(parse, schema=PARSED)
    return rows.with_watermark(STRATEGY, **({"timestamp": "at", "timestamp_unit": "s"} | changes))


def planned(rows: bl.Collection) -> Plan:
    rows.write("out", bl.Memory())
    return rows.pipeline.plan()


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


# After a parse


def test_after_a_parse_there_is_an_event_time_and_a_watermark() -> None:
    rows, out = parsed(lines(1, 2, 70, 3)), bl.Memory()
    rows.window_into(MINUTES).aggregate(n=bl.count()).write("out", out)
    run = rows.pipeline.run()
    marks = [batch.sources["raw.with_watermark"].watermark for batch in run.batches]
    assert marks == [-4 * SECOND, -3 * SECOND, 65 * SECOND, 65 * SECOND, MAX_TIME]
    assert out.frame()["n"].to_list() == [2, 1]
    assert run.batches[3].stages["raw.aggregate"].dropped == {"late": 1}


def test_it_is_a_source_of_its_own_with_the_steps_in_front() -> None:
    rows = parsed(lines(1)).filter(bl.event_time().dt.second() < 9)
    plan = planned(rows.select("user"))
    (source,) = plan.sources.values()
    assert (source.name, [step.name for step in source.steps_before_time]) == (
        "raw.with_watermark",
        ["raw.map"],
    )
    assert source.steps_after_time == ()
    assert (list(source.raw), list(source.schema)) == (["line"], ["user", "at"])
    assert source.needed == (EVENT_TIME, "user")
    assert [step.name for route in source.routes for step in route.steps] == ["raw.filter", "raw.select"]
    facts = manifest(plan, 2)["sources"]["raw.with_watermark"]
    assert (facts["named"], facts["kind"], facts["files listed by"]) == (False, "Rows", "the driver")
    assert facts["event time"] == {"kind": "EventTime", "column": "at", "dtype": "Int64", "unit": "s"}
    assert facts["watermark"] == {"kind": "BoundedOutOfOrderness"}
    assert [step["kind"] for step in facts["ways"][0]] == ["map"]
    text = rows.pipeline.explain()
    assert "before event time\n│     │  └─ raw.map  parse\n" in text
    assert "event time  at Int64 in s\n" in text


def test_rows_whose_time_cannot_be_read_after_the_parse_are_dead_letters() -> None:
    rows, lost = parsed(lines(1, None, 3), name="plays"), bl.Memory()
    rows.dead_letters().write("lost", lost)
    rows.write("out", bl.Memory())
    rows.pipeline.run()
    assert lost.frame().rows(named=True) == [
        {
            "step": "plays",
            "error": "event time column 'at' is null",
            "row": '{"user":"user 1","at":null}',
        }
    ]


def test_all_kinds_of_steps_can_be_in_front() -> None:
    rows = bl.Pipeline("p").read("raw", lines(1, None, 3, 100)).map(parse, schema=PARSED)
    rows = rows.flat_map(lambda row: [row, row]).map_batches(lambda table: table)
    rows = rows.filter(~bl.col("at").is_null()).with_columns(late=bl.col("at") > 50).select("at", "late")
    timed, out = rows.with_watermark(STRATEGY, "at", "s"), bl.Memory()
    timed.window_into(MINUTES).group_by("late").aggregate(n=bl.count()).write("out", out)
    run = rows.pipeline.run()
    assert out.frame().select("late", "n").rows() == [(False, 4), (True, 2)]
    assert sum(batch.sources["raw.with_watermark"].elements for batch in run.batches) == 6


def test_event_time_may_be_assigned_after_steps() -> None:
    stream = bl.TestStream({"user": str}).advance_processing_time("90s").add_elements([{"user": "a"}])
    rows = bl.Pipeline("p").read("raw", stream).filter(bl.col("user") == "a")
    timed, out = rows.with_watermark(bl.IngressTimestamps()), bl.Memory()
    timed.write("out", out)
    rows.pipeline.run()
    assert [time.second for time in out.frame()["event_time"]] == [30]


# Replaced


def test_without_a_timestamp_rows_keep_their_event_time() -> None:
    rows = plays().filter(bl.event_time().dt.second() < 9).select("user")
    again = rows.with_watermark(bl.TimeOrderedLogs("user"), name="per user")
    plan = planned(again.select(n=bl.lit(1)))
    (source,) = plan.sources.values()
    assert source.time is not None
    assert (source.time.column, source.steps_before_time) == ("at", ())
    assert [step.name for step in source.steps_after_time] == ["plays.filter", "plays.select"]
    assert source.needed == (EVENT_TIME, "user")
    assert "after event time\n│     │  ├─ plays.filter" in rows.pipeline.explain()


def test_the_watermark_sees_the_rows_after_the_steps_and_the_source_is_read_twice() -> None:
    p, source = bl.Pipeline("p"), bl.Rows([{"n": n} for n in (1, 50, 20)], schema={"n": int})
    rows = p.read("all", source, timestamp="n", timestamp_unit="s", watermark=STRATEGY)
    few = rows.filter(bl.col("n") < 30).with_watermark(STRATEGY, name="few")
    for found in (rows, few):
        found.write(f"{found.name} out", bl.Memory())
    run = p.run()
    assert [run.batches[0].sources[name].watermark for name in ("all", "few")] == [45 * SECOND, 15 * SECOND]
    assert [run.batches[0].sources[name].elements for name in ("all", "few")] == [3, 2]


def test_a_python_step_between_is_called_once_for_each_row() -> None:
    calls: list[Any] = []
    p = bl.Pipeline("p")
    rows = p.read("all", lines(1, 2), watermark=bl.IngressTimestamps())
    source = bl.Rows([{"n": 1}, {"n": None}, {"n": 3}], schema={"n": int})
    timed = p.read("numbers", source, timestamp="n", timestamp_unit="s", watermark=STRATEGY)
    again = timed.map(lambda row: calls.append(row["n"]) or row).with_watermark(STRATEGY)
    for found in (rows, again, again.dead_letters()):
        found.write(f"{found.name} out", bl.Memory())
    calls.clear()
    p.run()
    assert calls == [1, 3]


def test_a_skew_before_it_is_seen_by_the_watermark_and_not_counted_twice() -> None:
    rows = plays().with_timestamps("tick", timestamp_unit="s", allowed_skew="5s").with_watermark(STRATEGY)
    plan = planned(rows.window_into(MINUTES).aggregate(n=bl.count()))
    (stage,) = plan.stages.values()
    assert stage.skews == {}


def test_a_watermark_may_be_set_again_and_again() -> None:
    rows = (
        parsed(lines(1))
        .filter(bl.col("user") == "user 0")
        .with_watermark(bl.MonotonousTimestamps(), name="b")
    )
    (source,) = planned(rows).sources.values()
    assert [step.name for step in source.steps_before_time] == ["raw.map"]
    assert [step.name for step in source.steps_after_time] == ["raw.filter"]
    anew = (
        parsed(lines(1)).select("user", "at").with_watermark(bl.MonotonousTimestamps(), "at", "ms", name="c")
    )
    (source,) = planned(anew).sources.values()
    assert [step.name for step in source.steps_before_time] == ["raw.map", "raw.select"]
    anew.pipeline.run()


# Without event time


def test_rows_without_event_time_can_be_written() -> None:
    p, out = bl.Pipeline("p"), bl.Memory()
    raw = p.read("raw", lines(1, 2))
    raw.map(parse, schema=PARSED).write("out", out)
    run = p.run()
    assert out.frame()["at"].to_list() == [1, 2]
    assert out.frame().columns == ["user", "at"]
    assert "event time" not in p.explain()
    assert run.batches[0].sources["raw"].elements == 1


def test_rows_without_event_time_hold_back_nobody() -> None:
    rows, out = parsed(lines(1, 2, 70)), bl.Memory()
    rows.pipeline.read("other", lines(5)).write("copy", bl.Memory())
    rows.window_into(MINUTES).aggregate(n=bl.count()).write("out", out)
    run = rows.pipeline.run()
    assert run.batches[2].stages["raw.aggregate"].panes == {"on_time": 1}


@pytest.mark.parametrize(
    "call",
    [
        lambda rows: rows.window_into(MINUTES),
        lambda rows: rows.group_by("user"),
        lambda rows: rows.aggregate(n=bl.count()),
        lambda rows: rows.filter("won").aggregate(n=bl.count()),
        lambda rows: bl.flatten(rows, rows.filter("won")).group_by("user"),
    ],
)
def test_windows_and_groupings_need_an_event_time(call: Any) -> None:
    with pytest.raises(bl.PlanError) as caught:
        call(bl.Pipeline("p").read("raw", Declared()))
    hint = "call with_watermark(bl.BoundedOutOfOrderness('5s'), timestamp='at') before, or give both in read(...)"
    assert f"its rows have no event time yet; {hint}" in str(caught.value)


# Refusals


def untimed() -> bl.Collection:
    return bl.Pipeline("p").read("raw", Declared())


REFUSED = {
    "no time": (
        lambda: untimed().with_watermark(STRATEGY),
        "give timestamp=, the column .* BoundedOutOfOrderness",
    ),
    "no strategy": (lambda: untimed().with_watermark(None, "at"), "give it a watermark strategy such as"),
    "no strategy but text": (
        lambda: untimed().with_watermark("5s", "at"),
        r"bl.BoundedOutOfOrderness\('5s'\)",
    ),
    "no such column": (
        lambda: untimed().with_watermark(STRATEGY, "att"),
        "no column 'att'.*did you mean 'at'",
    ),
    "a column that is gone": (
        lambda: plays().select("user", "at").with_watermark(bl.TimeOrderedLogs("score")),
        "no column 'score'; the columns are user, at",
    ),
    "a unit alone": (lambda: plays().with_watermark(STRATEGY, timestamp_unit="s"), "timestamp_unit='s'"),
    "a time after a grouping": (
        lambda: plays().group_by("user", name="totals").aggregate(n=bl.count()).with_watermark(STRATEGY, "n"),
        r"rows of 'totals' have event times, .* set others with with_timestamps\('n', allowed_skew=...\) before",
    ),
    "no strategy after a grouping": (
        lambda: plays().aggregate(n=bl.count()).with_watermark("5s"),  # type: ignore[arg-type]
        "with_watermark takes a strategy such as",
    ),
    "a strategy of sources after a grouping": (
        lambda: plays().aggregate(n=bl.count()).with_watermark(bl.IngressTimestamps(max_drift="5m")),
        "has a max_drift, with which a source waits and makes event times of the times of arrival, which is for "
        "sources",
    ),
    "a column that is gone after a grouping": (
        lambda: plays().aggregate(n=bl.count()).with_watermark(bl.TimeOrderedLogs("score")),
        "no column 'score'; the only column is 'n'|no column 'score'",
    ),
    "dead letters": (lambda: plays().dead_letters().with_watermark(STRATEGY), "which have no event time"),
    "a time that is read before it is there": (
        lambda: plays().filter(bl.event_time().dt.second() > 1).with_watermark(STRATEGY, "at"),
        "the event time is only read here, and 'plays.filter' needs one before; leave out timestamp=",
    ),
    "a time that is set before it is there": (
        lambda: plays().with_timestamps("at").with_watermark(STRATEGY, "at"),
        "'plays.with_timestamps' needs one before",
    ),
    "its name": (
        lambda: plays().with_watermark(STRATEGY).named("x"),
        r"is given in read.* or with_watermark",
    ),
    "event time before there is one": (
        lambda: untimed().filter(bl.event_time().is_null()),
        r"bl.event_time\(\): its rows have no event time",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_with_the_reason(case: str) -> None:
    call, text = REFUSED[case]
    with pytest.raises(bl.PlanError, match=text):
        call()


def test_after_a_stage_the_watermark_is_estimated_from_its_rows() -> None:
    stream = bl.TestStream({"user": str, "score": int, "at": int})
    for second in (5, 70, 200):
        stream = stream.add_elements([{"user": "ada", "score": 1, "at": second}])
        stream = stream.advance_watermark_to(second)
    stream = stream.advance_watermark_to(400).advance_watermark_to_infinity()
    p, out = bl.Pipeline("p"), bl.Memory()
    read = p.read("plays", stream, timestamp="at", timestamp_unit="s")
    totals = read.window_into(MINUTES).group_by("user").aggregate(n=bl.sum("score"))
    late = totals.with_watermark(bl.BoundedOutOfOrderness("1m"), name="later")
    late.window_into(bl.FixedWindows("2m")).aggregate(n=bl.sum("n")).write("out", out)
    assert "BoundedOutOfOrderness(bound=1m), or what is known, if that is less" in p.explain()
    assert late.windowing.windows == bl.GlobalWindows()
    records = [batch.stages["later"] for batch in p.run().batches]
    seconds = [None if abs(one.output) > 10**15 else one.output / 1_000_000 for one in records]
    # Totals of 59.999999, 119.999999 and 239.999999 s arrive with the watermarks of 70, 200 and 400 s.
    bound = [-0.000001, 59.999999, 179.999999]
    assert list(dict.fromkeys(second for second in seconds if second is not None)) == bound
    assert out.frame()["n"].to_list() == [2, 1]
    assert records[-1].live == 0


def test_a_strategy_that_is_idle_after_a_stage_does_not_hold_the_watermark() -> None:
    stream = bl.TestStream({"at": int}).add_elements([{"at": 5}]).advance_watermark_to(100)
    stream = stream.advance_processing_time("10s").advance_processing_time("30s").advance_watermark_to(120)
    p = bl.Pipeline("p")
    read = p.read("plays", stream.advance_watermark_to_infinity(), timestamp="at", timestamp_unit="s")
    counts = read.window_into(MINUTES).aggregate(n=bl.count())
    strategy = bl.BoundedOutOfOrderness("1m", idle_after="20s")
    counts.with_watermark(strategy, name="later").write("out", bl.Memory())
    outputs = [batch.stages["later"].output / 1_000_000 for batch in p.run().batches]
    assert -0.000001 in outputs
    assert 120.0 in outputs
