"""Processing time passes for groupings while a source runs: on each runner, for each kind of trigger."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

beam = pytest.importorskip("apache_beam")

from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker  # noqa: E402
from apache_beam.options.pipeline_options import PipelineOptions  # noqa: E402
from apache_beam.transforms.trigger import (  # noqa: E402
    AccumulationMode,
    AfterAll,
    AfterAny,
    AfterCount,
    AfterEach,
    AfterProcessingTime,
    AfterWatermark,
    OrFinally,
    Repeatedly,
)
from apache_beam.utils.timestamp import Duration  # noqa: E402

import beamlike as bl  # noqa: E402
from beamlike.beam import BeamlikeRunner  # noqa: E402
from beamlike.beam.columns import InColumns  # noqa: E402
from tests.beamlike.beam.pipelines import see, seen  # noqa: E402

SOON = AfterProcessingTime(0)
GLOBAL, HOURS = beam.window.GlobalWindows(), beam.window.FixedWindows(3600)


class Polls(beam.transforms.core.RestrictionProvider):  # type: ignore[misc, name-defined, unused-ignore]
    """The polls of a source, which ends after the last at the latest."""

    def initial_restriction(self, element: Any) -> Any:
        return OffsetRange(0, 300)

    def create_tracker(self, restriction: Any) -> Any:
        return OffsetRestrictionTracker(restriction)

    def restriction_size(self, element: Any, restriction: Any) -> int:
        return 1


class UntilSeen(beam.DoFn):  # type: ignore[misc, name-defined, unused-ignore]
    """A source that emits an element, and ends when a pane of it has been seen, with another element."""

    @beam.DoFn.unbounded_per_element()
    def process(self, element: Any, tracker: Any = beam.DoFn.RestrictionParam(Polls())) -> Iterator[Any]:
        at = tracker.current_restriction().start
        if not tracker.try_claim(at):
            return
        if at == 0:
            yield beam.window.TimestampedValue(("k", 1), 1_800_000_000)
        if seen or at == 299:
            yield beam.window.TimestampedValue(("k", 2 if seen else 3), 1_800_000_001)
            while tracker.try_claim(at := at + 1):
                pass
        else:
            tracker.defer_remainder(Duration.of(0.01))


def windows(trigger: Any, window: Any = GLOBAL, mode: Any = AccumulationMode.DISCARDING) -> Any:
    return beam.WindowInto(window, trigger=trigger, accumulation_mode=mode)


TRIGGERS: dict[str, Callable[[], Any]] = {
    "repeatedly": lambda: windows(Repeatedly(SOON)),
    "in windows": lambda: windows(Repeatedly(SOON), HOURS),
    "sliding windows": lambda: windows(Repeatedly(SOON), beam.window.SlidingWindows(7200, 3600)),
    "sessions": lambda: windows(Repeatedly(SOON), beam.window.Sessions(3600)),
    "accumulating": lambda: windows(Repeatedly(SOON), mode=AccumulationMode.ACCUMULATING),
    "early": lambda: windows(AfterWatermark(early=SOON), HOURS),
    "any": lambda: windows(Repeatedly(AfterAny(SOON, AfterCount(100)))),
    "all": lambda: windows(Repeatedly(AfterAll(SOON, AfterCount(1)))),
    "or finally": lambda: windows(Repeatedly(OrFinally(Repeatedly(SOON), AfterCount(100)))),
    "each": lambda: windows(AfterEach(SOON, Repeatedly(AfterCount(1)))),
}


def sums(rows: Any) -> Any:
    return rows | beam.CombinePerKey(sum)


def grouped_twice(rows: Any) -> Any:
    groups = rows | beam.GroupByKey() | beam.MapTuple(lambda key, values: (key, sum(values)))
    return groups | "again" >> beam.GroupByKey() | beam.MapTuple(lambda key, values: (key, sum(values)))


def summed_globally(rows: Any) -> Any:
    return rows | beam.Values() | beam.CombineGlobally(sum).without_defaults() | beam.WithKeys("k")


def play(runner: BeamlikeRunner, placed: Any, group: Any = sums) -> list[Any]:
    seen.clear()
    with beam.Pipeline(runner=runner, options=PipelineOptions(["--streaming"])) as p:
        rows = p | beam.Impulse() | beam.ParDo(UntilSeen())
        group(rows | placed) | "see" >> beam.Map(see)
    return list(seen)


@pytest.mark.parametrize("trigger", TRIGGERS)
def test_a_trigger_fires_while_the_source_runs(trigger: str) -> None:
    first, *others = play(BeamlikeRunner(), TRIGGERS[trigger]())
    assert first == ("k", 1)
    assert ("k", 3 if trigger == "accumulating" else 2) in others


@pytest.mark.parametrize("group", [grouped_twice, summed_globally])
def test_each_grouping_has_the_processing_time(group: Any) -> None:
    assert play(BeamlikeRunner(), windows(Repeatedly(SOON)), group) == [("k", 1), ("k", 2)]


def test_a_plan_has_the_processing_time() -> None:
    runner = BeamlikeRunner(spark=bl.LocalRunner(quiet=True))
    assert play(runner, windows(Repeatedly(SOON))) == [("k", 1), ("k", 2)]


def test_a_run_with_a_checkpoint_has_the_processing_time(tmp_path: Path) -> None:
    runner = BeamlikeRunner(checkpoint=tmp_path / "checkpoint", records=tmp_path / "run.jsonl")
    assert play(runner, windows(Repeatedly(SOON))) == [("k", 1), ("k", 2)]


def in_columns(rows: Any) -> Any:
    trigger = bl.Repeatedly(bl.AfterProcessingTime("50ms"))

    def part(elements: bl.Collection) -> bl.Collection:
        windowed = elements.window_into(
            bl.GlobalWindows(), trigger=trigger, accumulation=bl.Accumulation.DISCARDING
        )
        return windowed.group_by("key").aggregate(n=bl.sum("n"))

    summed = rows | InColumns(part, {"key": str, "n": int})
    return summed | beam.Map(lambda row: (row["key"], row["n"]))


def test_a_part_in_columns_has_the_processing_time() -> None:
    assert play(BeamlikeRunner(), beam.WindowInto(GLOBAL), in_columns) == [("k", 1), ("k", 2)]
