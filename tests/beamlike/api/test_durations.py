"""Durations have one notation everywhere: in windows, triggers, joins, strategies, steps, sources and runners."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import beamlike as bl
from beamlike.cli.settings import duration
from beamlike.runtime.run.options import seconds
from beamlike.spark.runner import SparkRunner

WAYS = [
    "5 minutes",
    "5 min",
    "5m",
    "5 MINUTES",
    "300 seconds",
    "4m60s",
    "0.05h 2 mins",
    timedelta(minutes=5),
    300,
    300.0,
]
FIVE_MINUTES = 300_000_000


def rows() -> bl.Collection:
    schema = {"user": str, "at": int, "until": int}
    stream = bl.TestStream(schema)
    return bl.Pipeline("p").read("rows", stream, timestamp="at", timestamp_unit="s")


def silence(given: Any) -> object:
    class Silence(bl.Process):
        seen = bl.Value(int, ttl=given)

    return Silence.__dict__["seen"].ttl


PLACES: dict[str, Callable[[Any], object]] = {
    "FixedWindows": lambda given: bl.FixedWindows(given),
    "SlidingWindows": lambda given: bl.SlidingWindows(given, period=given),
    "Sessions": lambda given: bl.Sessions(given),
    "AfterProcessingTime": lambda given: bl.AfterProcessingTime(given, align_to=given),
    "BoundedOutOfOrderness": lambda given: bl.BoundedOutOfOrderness(given, idle_after=given),
    "ProcessingTimeLag": lambda given: bl.ProcessingTimeLag(given),
    "Value(ttl=)": silence,
    "Calls(timeout=)": lambda given: bl.Calls(rows=1, timeout=given),
    "Refreshed(every=)": lambda given: bl.Refreshed(bl.Rows([{"a": 1}]), every=given).every,
    "TestStream": lambda given: bl.TestStream({"at": int}).advance_processing_time(given).steps,
    "allowed_lateness": lambda given: rows().window_into(allowed_lateness=given).windowing,
    "allowed_skew": lambda given: (
        rows().with_timestamps("until", timestamp_unit="s", allowed_skew=given).node.origin.allowed_skew
    ),
    "max_future": lambda given: (
        bl.Pipeline("p")
        .read(
            "r", bl.Rows([{"at": "x"}]), timestamp="at", max_future=given, watermark=bl.MonotonousTimestamps()
        )
        .node.origin
    ),
    "join(within=)": lambda given: _text(
        rows(), lambda one, other: one.join(other, on="user", within=("0s", given))
    ),
    "join_asof": lambda given: _text(
        rows(), lambda one, other: one.join_asof(other, on="user", tolerance=given)
    ),
    "dedup": lambda given: _text(rows(), lambda one, _: one.dedup("user", within=given)),
    "group_into_batches": lambda given: _text(
        rows(), lambda one, _: one.group_into_batches(size=2, max_wait=given)
    ),
    "LocalRunner(trigger=)": lambda given: seconds(bl.LocalRunner(checkpoint="c", trigger=given).trigger),
    "SparkRunner(trigger=)": lambda given: seconds(SparkRunner(trigger=given).trigger),
}


def _text(before: bl.Collection, step: Callable[[bl.Collection, bl.Collection], bl.Collection]) -> str:
    step(before, before.filter(bl.col("user") == "ada")).write("out", bl.Memory())
    return before.pipeline.explain()


@pytest.mark.parametrize("place", PLACES)
def test_each_way_to_write_a_duration_is_the_same_in_every_place(place: str) -> None:
    expected = repr(PLACES[place](timedelta(minutes=5)))
    for way in WAYS:
        assert repr(PLACES[place](way)) == expected, way
    assert repr(PLACES[place]("6m")) != expected


@pytest.mark.parametrize("place", PLACES)
def test_what_is_no_duration_is_named_in_every_place(place: str) -> None:
    with pytest.raises((ValueError, bl.errors.PlanError), match=r"'5 fortnights'.*write for example '90s'"):
        PLACES[place]("5 fortnights")


@pytest.mark.parametrize("text", ["1M", "1h 5M", "-2 M"])
def test_months_are_not_taken_for_minutes(text: str) -> None:
    """Pandas and ISO 8601 write months like this, and durations are read in any case."""
    with pytest.raises(ValueError, match=r"'M' may be minutes, which are 'm', or months"):
        bl.FixedWindows(text)
    assert bl.FixedWindows("1H") == bl.FixedWindows("1h")


@pytest.mark.parametrize("way", ["5 minutes", "5 min", "5m", "300", "300.0", "4m 60s"])
def test_a_command_line_reads_the_same_and_a_number_as_seconds(way: str) -> None:
    assert duration(way) == FIVE_MINUTES


@pytest.mark.parametrize("runner", [bl.LocalRunner, SparkRunner])
@pytest.mark.parametrize(
    ("trigger", "message"),
    [
        ("avaliable_now", r"'available_now' or an interval .* did you mean 'available_now'\?"),
        ("-5s", "trigger must not be negative: '-5s'"),
        (None, "trigger must be 'available_now' or an interval such as '10 seconds', not None"),
    ],
)
def test_a_trigger_that_is_none_is_refused(runner: Any, trigger: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        runner(checkpoint="c", trigger=trigger)
