"""Windows, triggers and aggregates."""

# pyright: strict

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date
from typing import Any, assert_type

import beamlike as bl
from tests.typing.project.sources import scores

EVERY: dict[str, bl.WindowFn] = {
    "fixed": bl.FixedWindows("1m", offset="10s"),
    "sliding": bl.SlidingWindows("1h", "10m"),
    "cumulative": bl.CumulativeWindows("1h", step="10m"),
    "sessions": bl.Sessions("10m"),
    "days": bl.CalendarWindows.days(2, timezone="Europe/Berlin", start=date(2026, 1, 1)),
    "global": bl.GlobalWindows(),
}


class UntilBest(bl.CustomWindows):
    """Windows that end `points` seconds after an element."""

    columns = ("points",)

    def assign_windows(self, time: int, row: dict[str, Any]) -> Iterator[tuple[int, int]]:
        yield time, time + row["points"] * 1_000_000

    def merge_windows(
        self, windows: list[tuple[int, int]]
    ) -> Iterable[tuple[Iterable[tuple[int, int]], tuple[int, int]]]:
        return [(windows, (windows[0][0], windows[-1][1]))]


def triggers(p: bl.Pipeline) -> bl.Collection:
    paced = bl.AfterProcessingTime("1m", align_to="1h", offset="5m")
    early = bl.AfterAny(bl.AfterCount(100), bl.AfterAll(paced, bl.AfterSynchronizedProcessingTime()))
    in_turn = bl.Repeatedly(bl.AfterEach(bl.AfterCount(1), bl.OrFinally(bl.Always(), bl.Never())))
    marked = scores(p).with_columns(best=bl.col("points") > 3)
    read = marked.window_into(bl.FixedWindows("1m"), trigger=bl.DefaultTrigger())
    certain = bl.AfterWatermark(early=bl.AfterWatermark(percentile=90))
    read.window_into(trigger=certain)
    read.window_into(
        trigger=bl.AfterWatermark(early=early, late=bl.AfterCount(1)),
        accumulation=bl.RETRACTING,
        timestamp_combiner=bl.timestamp_of("best"),
        allowed_lateness="1h",
        on_time="if_non_empty",
        closing="always",
    )
    read.window_into(
        trigger=in_turn, accumulation="accumulating", timestamp_combiner="earliest", allow_repeats=True
    )
    for accumulation in (bl.ACCUMULATING, bl.DISCARDING, bl.Accumulation.RETRACTING):
        read.window_into(accumulation=accumulation, name=f"{accumulation.value}")
    for combiner in (bl.EARLIEST, bl.LATEST, bl.END_OF_WINDOW, bl.TimestampCombiner.LATEST):
        read.window_into(UntilBest(), timestamp_combiner=combiner, allow_data_loss=True)
    return read


class Spread(bl.CombineFn):
    """The difference between the greatest and the least value."""

    def create_accumulator(self) -> list[int]:
        return []

    def add_input(self, accumulator: list[int], element: int) -> list[int]:
        return [*accumulator, element]

    def merge_accumulators(self, accumulators: list[list[int]]) -> list[int]:
        return [value for one in accumulators for value in one]

    def extract_output(self, accumulator: list[int]) -> int:
        return max(accumulator) - min(accumulator)


def aggregates(p: bl.Pipeline) -> bl.Collection:
    good = bl.col("points") > 3
    minutes = scores(p).with_columns(good=good).window_into(bl.FixedWindows("1m"))
    counts = minutes.group_by("user", name="counts").aggregate(
        n=bl.count(),
        good=bl.count("points", where=good),
        points=bl.sum("points"),
        mean=bl.mean("points"),
        least=bl.min("points"),
        most=bl.max("points"),
        middle=bl.median("points"),
        upper=bl.quantile("points", 0.9),
        near=bl.approx_quantile("points", 0.9),
        spread=bl.combine(Spread(), "points", int),
        sd=bl.std("points"),
        variance=bl.var("points"),
        often=bl.mode("points"),
        some=bl.any("good"),
        every=bl.all("good"),
        users=bl.count_distinct("user"),
        about=bl.approx_count_distinct("user"),
        first=bl.first("points"),
        last=bl.last("points"),
        top=bl.top("user", 3, by="points", ties=True),
        bottom=bl.bottom(["user", "points"], 3, by="points"),
        best=bl.arg_max("user", by="points"),
        worst=bl.arg_min("user", by="points"),
        list=bl.collect("points"),
        set=bl.collect_set("points"),
        drawn=bl.sample("points", 5),
        seconds=bl.window_length(),
    )
    facts = (
        minutes.window_into(accumulation=bl.RETRACTING)
        .aggregate(n=bl.count())
        .with_columns(
            bl.window_start(),
            end=bl.window_end(),
            timing=bl.pane_timing(),
            index=bl.pane_index(),
            certain=bl.pane_nonspeculative_index(),
            first=bl.pane_first(),
            last=bl.pane_last(),
            back=bl.pane_retracted(),
            drained=bl.pane_drained(),
            cause=bl.pane_cause(),
            complete=bl.pane_complete(),
            watermark=bl.pane_watermark(),
        )
    )
    assert_type(facts, bl.Collection)
    assert_type(counts.late(name="too_late"), bl.Collection)
    assert_type(minutes.group_into_batches(size=100, bytes=1 << 20, max_wait="1s"), bl.Collection)
    return assert_type(counts, bl.Collection)
