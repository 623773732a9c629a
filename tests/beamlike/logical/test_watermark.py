"""Declarations of watermark strategies: their columns exist, invalid ones are refused, and plans print them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import attrs
import polars as pl
import pytest

import beamlike as bl
from beamlike.errors import UnknownColumn, WrongType
from beamlike.expressions.describe import describe
from beamlike.expressions.row_expression import ExpressionOfRows
from beamlike.logical.watermark import require_alignable
from beamlike.plan.manifest import describe as manifest
from beamlike.plan.model import Plan, SourcePlan
from beamlike.plan.route import Route, join
from beamlike.runtime.batch.ingest import ingest
from beamlike.runtime.batch.ingested import Ingested
from beamlike.runtime.batch.reading import ingest_step
from tests.support.pipelines import SCHEMA, Declared, frame
from windowing.columns import EVENT_TIME
from windowing.time import MAX_TIME, MIN_TIME

SECOND = 1_000_000
STREAM = {"user": str, "at": int, "kind": str, "until": date}


def read(watermark: Any, source: Any = None, **changes: Any) -> bl.Collection:
    arguments = {"timestamp": "at", "watermark": watermark} | changes
    return bl.Pipeline("p").read("plays", source or Declared(), **arguments)


def planned(rows: bl.Collection) -> Plan:
    rows.write("out", bl.Memory())
    return rows.pipeline.plan()


def source_of(rows: bl.Collection) -> SourcePlan:
    return planned(rows).sources["plays"]


def take(source: SourcePlan, rows: pl.DataFrame, now: int = 0) -> Ingested:
    return ingest(source, rows.lazy(), now)


# Columns of strategies


def test_the_columns_of_a_strategy_are_kept_on_the_way_to_it() -> None:
    strategy = bl.BoundedOutOfOrderness("5s", per_split="user")
    source = source_of(read(strategy).select("score"))
    assert source.needed == (EVENT_TIME, "user", "score")
    summary = take(source, frame(0, 1, 2, 3).drop(EVENT_TIME)).summary
    assert {name: part["own"]["newest"] // SECOND for name, part in summary.items()} == {
        "user 0": 3,
        "user 1": 1,
        "user 2": 2,
    }


def test_a_count_of_all_rows_needs_no_column_where_event_time_is_assigned(tmp_path: Path) -> None:
    frame(1, 2, 3).drop(EVENT_TIME).write_parquet(tmp_path / "a.parquet")
    frame(1, 2).drop(EVENT_TIME).write_ndjson(tmp_path / "b.jsonl")
    frame(1, 2).drop(EVENT_TIME).write_csv(tmp_path / "c.csv")
    for source, count in ((bl.Parquet, 3), (bl.JSONLines, 2), (bl.CSV, 2)):
        files = tmp_path / source.__name__
        files.mkdir()
        ending = {bl.Parquet: "a.parquet", bl.JSONLines: "b.jsonl", bl.CSV: "c.csv"}[source]
        (tmp_path / ending).rename(files / ending)
        rows, out = read(bl.IngressTimestamps(), source(files), timestamp=None), bl.Memory()
        rows.aggregate(n=bl.count()).write("out", out)
        rows.pipeline.run()
        assert out.frame()["n"].to_list() == [count]


@attrs.frozen
class Oldest(bl.WatermarkStrategy):
    """A user-defined strategy, as in the documentation."""

    reads = ("user",)
    slack: int = 5


WRONG: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "a split that is not there": (
        lambda: read(bl.BoundedOutOfOrderness("5s", per_split="usr")),
        UnknownColumn,
        "step 'plays': there is no column 'usr'; the columns are user, score, rate, at, tick, won; did you mean "
        "'user'?; BoundedOutOfOrderness(bound=5s, per_split=\"usr\") reads it",
    ),
    "a split that has no name": (
        lambda: read(
            bl.TimeOrderedLogs("part"), Declared(pl.Schema({**SCHEMA, "part": pl.List(pl.String())}))
        ),
        WrongType,
        "step 'plays': TimeOrderedLogs(\"part\"): the names of splits are text or numbers, but 'part' is List",
    ),
    "what a user's own reads": (
        lambda: read(Oldest(), Declared(pl.Schema({"usr": pl.String(), "at": pl.Date()}))),
        UnknownColumn,
        "step 'plays': there is no column 'user'; the columns are usr, at; did you mean 'usr'?; Oldest() reads it",
    ),
    "a predicate of another column": (
        lambda: read(bl.Punctuated(bl.col("one") == 1)),
        UnknownColumn,
        "step 'plays': there is no column 'one'",
    ),
    "a predicate that is a number": (
        lambda: read(bl.Punctuated(bl.col("score") + 1)),
        WrongType,
        "step 'plays': the predicate of Punctuated must be Boolean, but score + 1 is Int64",
    ),
    "a predicate that looks at other rows": (
        lambda: read(bl.Punctuated(bl.col("score").max() == bl.col("score"))),
        bl.PlanError,
        "step 'plays': score.max() == score: 'max' reads other rows",
    ),
    "a predicate of several columns": (
        lambda: read(bl.Punctuated(bl.col("won", "score").is_null())),
        bl.PlanError,
        "step 'plays': the predicate of Punctuated: (won, score).is_null() gives 2 columns, not one",
    ),
    "a predicate that is none": (
        lambda: bl.Punctuated(3),
        WrongType,
        "a marker is an expression such as bl.col('kind') == 'mark', not 3",
    ),
    "a predicate of polars": (
        lambda: bl.Punctuated(pl.col("won")),
        WrongType,
        "this is a polars expression, write it with bl.col",
    ),
    "a marker's timestamp that is text": (
        lambda: read(bl.Punctuated("won", "user")),
        WrongType,
        "step 'plays': the timestamp of Punctuated must be a Datetime or a Date, but user is String; convert it",
    ),
    "a timestamp where it is assigned": (
        lambda: read(bl.IngressTimestamps()),
        bl.PlanError,
        "step 'plays': IngressTimestamps makes the event time of an element the processing time at which it "
        "arrives; leave out timestamp='at'",
    ),
    "a unit where it is assigned": (
        lambda: read(bl.IngressTimestamps(), timestamp=None, timestamp_unit="s"),
        bl.PlanError,
        "step 'plays': timestamp_unit='s' is that of a timestamp=, which is not given",
    ),
    "no timestamp": (
        lambda: read(bl.MonotonousTimestamps(), timestamp=None),
        bl.PlanError,
        "step 'plays': give timestamp=, the column with the event time that MonotonousTimestamps reads",
    ),
    "a unit and nothing else": (
        lambda: read(None, timestamp=None, timestamp_unit="s"),
        bl.PlanError,
        "step 'plays': timestamp_unit='s'",
    ),
    "announced, and looked at": (
        lambda: read(
            bl.MonotonousTimestamps(),
            bl.TestStream(STREAM).advance_watermark_to(3),
            timestamp_unit="s",
        ),
        bl.PlanError,
        "step 'plays': TestStream brings its own watermark; leave out watermark=MonotonousTimestamps(), or the steps "
        "of the stream that advance the watermark",
    ),
    "a test stream that waits": (
        lambda: read(bl.MonotonousTimestamps(max_drift="5m"), bl.TestStream(STREAM), timestamp_unit="s"),
        bl.PlanError,
        "step 'plays': TestStream plays one step in every batch, so it cannot wait; leave out max_drift",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_is_refused_with_the_reason(case: str) -> None:
    call, kind, text = WRONG[case]
    with pytest.raises(kind) as caught:
        call()
    assert text in str(caught.value)
    assert isinstance(caught.value, bl.PlanError)


# Markers


def test_markers_are_told_by_expressions_on_the_row() -> None:
    strategy = bl.Punctuated(bl.col("score") > 1, bl.col("at").dt.offset_by("2s"))
    source = source_of(read(strategy).select("user"))
    assert source.needed == (EVENT_TIME, "user", "score", "at")
    summary = take(source, frame(0, 9, 9, 1).drop(EVENT_TIME)).summary
    assert summary == {"": {"own": {"newest": 4 * SECOND}}}


def test_the_time_of_a_marker_is_its_event_time_and_a_predicate_may_read_that() -> None:
    early = bl.Punctuated(bl.col("won") & (bl.event_time().dt.second() < 2))
    summary = take(source_of(read(early)), frame(1, 2, 3).drop(EVENT_TIME)).summary
    assert summary == {"": {"own": {"newest": SECOND}}}
    constant = source_of(read(bl.Punctuated(bl.lit(True))))
    assert take(constant, frame(1, 2).drop(EVENT_TIME)).summary == {"": {"own": {"newest": SECOND}}}


def test_expressions_compare_by_their_text_and_go_to_other_processes() -> None:
    strategies = [bl.Punctuated(bl.col("score") > least, "at") for least in (1, 1, 2)]
    assert strategies[0] == strategies[1] != strategies[2]
    assert hash(strategies[0]) == hash(strategies[1])
    there = pickle.loads(pickle.dumps(read(strategies[0]).node.origin.watermark))
    assert there == strategies[0]
    expression = ExpressionOfRows(bl.col("score") > 1)
    assert (expression.columns, str(expression)) == (("score",), "score > 1")
    assert expression.evaluate(frame(1, 2)).to_list() == [False, True]


# Processing time


def test_an_element_happens_when_it_comes_in() -> None:
    source = source_of(read(bl.IngressTimestamps(), timestamp=None))
    got = take(source, frame(3, 1).drop(EVENT_TIME), now=7 * SECOND)
    assert got.frames["out"][EVENT_TIME].to_list() == [7 * SECOND] * 2
    assert (got.elements, got.lost.total) == (2, 0)


def test_a_stream_in_process_has_windows_of_the_time_at_which_rows_came() -> None:
    stream = (
        bl.TestStream(STREAM)
        .add_elements([{"user": "a"}, {"user": "b"}])
        .advance_processing_time("70s")
        .add_elements([{"user": "c"}])
    )
    rows, out = read(bl.IngressTimestamps(), stream, timestamp=None), bl.Memory()
    rows.window_into(bl.FixedWindows("1m")).aggregate(n=bl.count()).write("out", out)
    run = rows.pipeline.run()
    assert out.frame()["n"].to_list() == [2, 1]
    assert [batch.sources["plays"].watermark for batch in run.batches] == [
        0,
        70 * SECOND,
        70 * SECOND,
        MAX_TIME,
    ]
    assert run.batches[1].stages["plays.aggregate"].panes == {"on_time": 1}


# Test streams that are looked at


def test_a_test_stream_that_announces_nothing_is_looked_at_like_any_source() -> None:
    stream = bl.TestStream(STREAM)
    for seconds in ([5, 3], [61], [130]):
        stream = stream.add_elements([{"user": "a", "at": second} for second in seconds])
    rows = read(bl.BoundedOutOfOrderness("2s"), stream, timestamp_unit="s")
    rows.window_into(bl.FixedWindows("1m")).aggregate(n=bl.count()).write("out", bl.Memory())
    run = rows.pipeline.run()
    marks = [batch.sources["plays"].watermark for batch in run.batches]
    assert marks == [3 * SECOND, 59 * SECOND, 128 * SECOND, MAX_TIME]


def test_what_a_stream_announces_is_a_summary_of_the_whole_source() -> None:
    stream = bl.TestStream(STREAM).advance_watermark_to(5).add_elements([{"user": "a", "at": 9}])
    source = source_of(read(None, stream, timestamp_unit="s"))
    said, _ = ingest_step(source, 0)
    assert said.summary == {"": {"own": {"watermark": 5 * SECOND, "percentiles": {}}}}
    spoke, _ = ingest_step(source, 1)
    assert (spoke.summary, spoke.elements) == ({"": {"own": {}}}, 1)
    assert ingest_step(source, 2)[0].summary == {}


# Rows and dead letters for one consumer


def test_a_consumer_of_rows_and_dead_letters_gets_both() -> None:
    source = source_of(read(bl.MonotonousTimestamps()))
    text = pl.Schema({"error": pl.String()})
    routes = (
        Route("all", planned_steps(read(bl.MonotonousTimestamps()).select(error="user")), ("error",)),
        Route("all", (), tuple(text), "dead_letters"),
    )
    rows = frame(0, 1).drop(EVENT_TIME).with_columns(at=pl.Series([None, 5], dtype=pl.Datetime("us", "UTC")))
    got = take(attrs.evolve(source, routes=routes), rows)
    assert got.frames["all"]["error"].to_list() == ["user 1", "event time column 'at' is null"]
    assert (got.elements, got.lost.total) == (1, 1)


def planned_steps(rows: bl.Collection) -> Any:
    (route,) = source_of(rows).routes
    return route.steps


def test_joining_outputs_keeps_the_rows_of_each() -> None:
    one, other = pl.DataFrame({"n": [1]}), pl.DataFrame({"n": [2]})
    joined = join([{"a": one, "b": one}, {"b": other}])
    assert {name: rows["n"].to_list() for name, rows in joined.items()} == {"a": [1], "b": [1, 2]}
    assert join([]) == {}


# Text in plans


def test_percentiles_are_those_of_the_strategy() -> None:
    early = bl.AfterWatermark(early=bl.AfterWatermark(percentile=66))
    for shares in ((66,), (33, 66)):
        strategy = bl.BoundedOutOfOrderness("5s", percentiles=shares)
        planned(read(strategy).window_into(bl.FixedWindows("1m"), trigger=early).aggregate(n=bl.count()))
    strategy = bl.BoundedOutOfOrderness("5s", percentiles=(33,))
    with pytest.raises(bl.PlanError, match=r"'plays' does not have; give its strategy percentiles=\(66,\)"):
        planned(read(strategy).window_into(bl.FixedWindows("1m"), trigger=early).aggregate(n=bl.count()))


@pytest.mark.parametrize(
    ("strategy", "text"),
    [
        (
            bl.BoundedOutOfOrderness(
                "90s", per_split="user", idle_after="30s", max_drift="5m", percentiles=[66, 33]
            ),
            'BoundedOutOfOrderness(bound=1m30s, per_split="user", idle_after=30s, max_drift=5m, percentiles=(33, 66))',
        ),
        (bl.MonotonousTimestamps(idle_after="30s"), "MonotonousTimestamps(idle_after=30s)"),
        (bl.ProcessingTimeLag("1m"), "ProcessingTimeLag(lag=1m)"),
        (bl.IngressTimestamps(), "IngressTimestamps()"),
        (bl.TimeOrderedLogs("user", expected=8), 'TimeOrderedLogs("user", expected=8)'),
        (
            bl.TimeOrderedLogs("user", expected=["eu", "us"]),
            "TimeOrderedLogs(\"user\", expected=('eu', 'us'))",
        ),
        (bl.PercentileLateness(0.99), "PercentileLateness(0.99)"),
        (bl.PercentileLateness(0.99, half_life="2h"), "PercentileLateness(0.99, half_life=2h)"),
        (bl.Punctuated(bl.col("kind") == "mark", "until"), "Punctuated(kind == 'mark', timestamp=until)"),
        (Oldest(7), "Oldest(slack=7)"),
    ],
)
def test_strategies_are_described_with_their_options(strategy: bl.WatermarkStrategy, text: str) -> None:
    assert describe(strategy) == text


def test_the_manifest_has_the_kind_of_strategy_and_its_split() -> None:
    strategies = [
        bl.BoundedOutOfOrderness("5s"),
        bl.BoundedOutOfOrderness("9s", per_split="user", idle_after="30s"),
        bl.TimeOrderedLogs("user"),
    ]
    found = [
        manifest(planned(read(strategy)), 2)["sources"]["plays"]["text"]["watermark"]
        for strategy in strategies
    ]
    assert found == ["BoundedOutOfOrderness", "BoundedOutOfOrderness per user", "TimeOrderedLogs per user"]
    ingress = manifest(planned(read(bl.IngressTimestamps(), timestamp=None)), 2)["sources"]["plays"]
    assert (ingress["kind"], ingress["event time"]) == ("Declared", None)
    assert ingress["watermark"] == {"kind": "IngressTimestamps"}


def test_a_runner_that_cannot_let_a_source_wait_says_why() -> None:
    require_alignable({"plays": bl.BoundedOutOfOrderness("5s")})
    with pytest.raises(bl.PlanError) as caught:
        require_alignable({"plays": bl.BoundedOutOfOrderness("5s", max_drift="5m")})
    assert str(caught.value) == (
        "step 'plays': BoundedOutOfOrderness(bound=5s, max_drift=5m): Spark itself decides how much of a source a "
        "batch takes, so a source cannot wait for others there; leave out max_drift and bound the batches of the "
        "source with max_files_per_trigger, or run with bl.LocalRunner()"
    )


def test_a_strategy_before_its_first_element_is_at_the_beginning() -> None:
    rows = read(bl.PercentileLateness(0.99), bl.Rows([{"at": 1}], schema={"at": int}), timestamp_unit="s")
    rows.write("out", bl.Memory())
    assert [batch.sources["plays"].watermark for batch in rows.pipeline.run().batches] == [MIN_TIME, MAX_TIME]
