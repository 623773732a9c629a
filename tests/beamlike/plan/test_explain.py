"""Plans as text, compared with the files in `tests/golden`; `UPDATE_GOLDEN=1 pytest` rewrites them."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime
from typing import Any

import polars as pl
import pytest

import beamlike as bl
from beamlike.expressions.describe import aggregate_text, describe
from examples.session_lengths import pipeline as flagship
from tests.support.pipelines import plays
from tests.support.places import ROOT

GOLDEN = ROOT / "tests" / "golden"
PLAYS = {"user": str, "event_time": datetime}


def sessions() -> bl.Pipeline:
    """Declares the flagship example, over files that need not exist."""
    p = bl.Pipeline("average-session-length")
    lengths = []
    for platform in ("mobile", "console"):
        source = bl.Parquet(f"data/{platform}", schema=PLAYS)
        rows = p.read(platform, source, timestamp="event_time", watermark=bl.BoundedOutOfOrderness("5s"))
        windowed = rows.window_into(bl.Sessions("1m"), timestamp_combiner=bl.EARLIEST)
        lengths.append(windowed.group_by("user").aggregate(length=bl.window_length()))
    average = bl.flatten(*lengths).window_into(bl.FixedWindows("2m"))
    average.aggregate(mean=bl.mean("length"), sessions=bl.count()).write(
        "averages", bl.Parquet("out/averages")
    )
    return p


def shout(row: dict[str, object]) -> dict[str, object]:
    return {"user": str(row["user"]).upper(), "score": row["score"]}


def halves(table: pl.DataFrame) -> pl.DataFrame:
    return table


def every_step() -> bl.Pipeline:
    """Declares all kinds of steps, a diamond, dead letters, a lambda, and two paths to one consumer."""
    p = bl.Pipeline("every step")
    source = p.read(
        "live",
        bl.SparkSource(halves, schema={"user": str, "score": int, "ms": int}),
        timestamp="ms",
        timestamp_unit="ms",
        watermark=bl.MonotonousTimestamps(),
    )
    source.dead_letters().select("error").write("lost", bl.JSONLines("out/lost"))
    loud = source.filter(bl.col("score") > 3, ~bl.col("user").is_null()).map(
        shout, schema={"user": str, "score": int}
    )
    windowed = loud.map_batches(halves, name="halved").window_into(
        bl.SlidingWindows("10m", "1m"),
        trigger=bl.AfterWatermark(early=bl.AfterCount(10), late=bl.AfterCount(1)),
        accumulation=bl.ACCUMULATING,
        allow_repeats=True,
        allowed_lateness="1h30m",
        timestamp_combiner=bl.LATEST,
    )
    totals = windowed.group_by("user", name="totals").aggregate(total=bl.sum("score"), best=bl.max("score"))
    split = bl.flatten(totals.filter(bl.pane_last()), totals.filter(bl.col("total") > 100), name="notable")
    split.select("user", "total", hour=bl.window_start().dt.hour()).write("notable users", bl.Console())
    totals.flat_map(lambda row: [row], name="copies").aggregate(users=bl.count()).write("users", bl.Memory())
    return p


def merged_again() -> bl.Pipeline:
    """Declares a second grouping of sessions, which merges them again."""
    p = bl.Pipeline("merged again")
    longest = plays(p).window_into(bl.Sessions("90s")).group_by("user").aggregate(score=bl.last("score"))
    longest.aggregate(scores=bl.collect("score"), span=bl.window_length()).write("out", bl.Memory())
    return p


class Auctions(bl.CustomWindows):
    """User-defined windows."""

    columns = ("expires",)

    def __init__(self, longest: str) -> None:
        self.longest = longest

    def assign_windows(self, time, row):
        return [(time, row["expires"])]


def every_choice() -> bl.Pipeline:
    """Declares a test stream, composites, calendar and custom windows, retracted panes, and dropped elements."""
    p = bl.Pipeline("every choice")
    stream = bl.TestStream({"user": str, "bid": float, "won": bool, "expires": int, "at": datetime})
    stream = stream.advance_watermark_to(0, percentiles={66: 0})
    bids = p.read("bids", stream, timestamp="at")
    auctions = bids.window_into(
        Auctions("1h"), timestamp_combiner=bl.timestamp_of("won"), allowed_lateness="1h"
    ).window_into(
        trigger=bl.AfterWatermark(
            early=bl.AfterAny(bl.AfterProcessingTime("30s"), bl.AfterWatermark(percentile=66)),
            late=bl.Repeatedly(bl.AfterCount(3)).or_finally(bl.AfterCount(9)),
        ),
        accumulation=bl.RETRACTING,
    )
    sold = auctions.group_by("user", name="sold").aggregate(n=bl.count(), total=bl.sum("bid"))
    sold.late().write("too late", bl.JSONLines("out/late"))
    days = bl.CalendarWindows.weeks(starts_on="sunday", timezone="Europe/Berlin")
    more = bids.select("user", n=bl.col("expires"), total=bl.col("bid"))
    windowed = [rows.window_into(days, **_alike(sold)) for rows in (sold, more)]
    weekly = bl.flatten(*windowed, name="all").window_into(on_time="if_non_empty", closing="always")
    weekly.aggregate(sold=bl.sum("n")).write("weekly", bl.Memory())
    return p


def _alike(rows: bl.Collection) -> dict[str, Any]:
    return {
        "trigger": rows.windowing.trigger,
        "accumulation": rows.windowing.accumulation,
        "timestamp_combiner": rows.windowing.timestamp_combiner,
        "allowed_lateness": "1h",
    }


def no_grouping() -> bl.Pipeline:
    """Declares a source and a sink without a stage."""
    p = bl.Pipeline("no grouping")
    plays(p).with_columns(double=bl.col("score") * 2).write("out", bl.CSV("out/plays"))
    return p


@pytest.mark.parametrize("build", [sessions, every_step, every_choice, merged_again, no_grouping])
def test_plans_read_as_in_their_golden_files(build: Callable[[], bl.Pipeline]):
    text = build().explain()
    golden = GOLDEN / f"{build.__name__}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()


def test_the_order_of_declaration_does_not_show():
    def two(names: tuple[str, ...]) -> str:
        p = bl.Pipeline("p")
        for name in names:
            plays(p, name).window_into(bl.FixedWindows("1m")).aggregate(n=bl.count()).write(
                f"{name} out", bl.Memory()
            )
        return p.explain()

    assert two(("a", "b")) == two(("b", "a"))


def test_text_holds_no_ids_and_no_data():
    p = bl.Pipeline("p")
    rows = bl.Rows([{"user": "secret", "at": datetime(2026, 1, 1)}])
    source = p.read("rows", rows, timestamp="at", watermark=bl.MonotonousTimestamps())
    source.map(lambda row: row).write("out", bl.Callback(lambda frame, batch: None))
    assert "0x" not in p.explain()
    assert "secret" not in p.explain()


def test_the_example_explains_itself(tmp_path):
    for platform in ("mobile", "console"):
        bl.Parquet(tmp_path / platform, schema=PLAYS)  # A schema can only be read once there are files.
        (tmp_path / platform).mkdir()
        frame = sessions().plan().sources[platform].schema.to_frame()
        frame.write_parquet(tmp_path / platform / "plays.parquet")
    text = flagship(tmp_path, "out", bl.EARLIEST).explain()
    assert "sessions of mobile  <- mobile" in text
    assert "timestamp earliest" in text


@pytest.mark.parametrize(
    ("declaration", "text"),
    [
        (bl.FixedWindows("2m"), "FixedWindows(size=2m)"),
        (bl.FixedWindows("1h", offset="90s"), "FixedWindows(size=1h, offset=1m30s)"),
        (bl.SlidingWindows(3600, 0.5), "SlidingWindows(size=1h, period=500ms)"),
        (bl.Sessions("1m"), "Sessions(gap=1m)"),
        (bl.GlobalWindows(), "GlobalWindows()"),
        (bl.DefaultTrigger(), "DefaultTrigger()"),
        (bl.AfterWatermark(early=bl.AfterCount(10)), "AfterWatermark(early=AfterCount(10))"),
        (bl.Repeatedly(bl.AfterCount(1)), "Repeatedly(AfterCount(1))"),
        (bl.AfterAny(bl.AfterCount(5), bl.Never()), "AfterAny(AfterCount(5), Never())"),
        (bl.Always().or_finally(bl.AfterCount(5)), "Always().or_finally(AfterCount(5))"),
        (bl.AfterWatermark(percentile=66), "AfterWatermark(percentile=66)"),
        (bl.CalendarWindows.days(2), 'CalendarWindows("days", count=2)'),
        (
            bl.CalendarWindows.months(day=15, timezone="Europe/Berlin"),
            """CalendarWindows("months", start='1970-01-15', timezone="Europe/Berlin")""",
        ),
        (Auctions("1h"), 'Auctions(longest="1h")'),
        (bl.timestamp_of("won"), 'timestamp_of("won")'),
        (bl.RETRACTING, "retracting"),
        (bl.BoundedOutOfOrderness("5s"), "BoundedOutOfOrderness(bound=5s)"),
        (bl.MonotonousTimestamps(), "MonotonousTimestamps()"),
        (bl.EARLIEST, "earliest"),
        (bl.Parquet("data"), 'Parquet("data")'),
        (bl.JSONLines("data", schema={"a": int}), 'JSONLines("data")'),
        (bl.Rows([{"a": 1}]), "Rows(<1 rows>)"),
        (bl.Callback(print), "Callback(print)"),
    ],
)
def test_declarations_are_described_as_they_were_written(declaration, text):
    assert describe(declaration) == text


def test_aggregates_are_described_as_they_were_called():
    class Median(bl.CombineFn):
        pass

    called = [bl.count(), bl.count("x"), bl.window_length(), bl.mean("x"), bl.combine(Median(), "x", float)]
    called += [
        bl.count(where=bl.col("x") > 3),
        bl.quantile("x", 0.5, where=~bl.col("y")),
        bl.top("x", 3),
        bl.top(["x", "y"], 3, by="z", where=bl.col("x") == "a"),
        bl.arg_max("x", by="y"),
        bl.approx_count_distinct("x"),
        bl.any("x"),
    ]
    assert [aggregate_text(each) for each in called] == [
        "count()",
        "count(x)",
        "window_length()",
        "mean(x)",
        "combine(Median, x)",
        "count(where=x > 3)",
        "quantile(x, 0.5, where=~y)",
        "top(x, 3)",
        "top([x, y], 3, by=z, where=x == 'a')",
        "arg_max(x, by=y)",
        "approx_count_distinct(x)",
        "any(x)",
    ]
