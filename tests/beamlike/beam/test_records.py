"""The records of Beam pipelines: each transform by its label, its watermarks, and what holds them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

beam = pytest.importorskip("apache_beam")

from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker  # noqa: E402
from apache_beam.options.pipeline_options import PipelineOptions  # noqa: E402
from apache_beam.portability import python_urns  # noqa: E402
from apache_beam.transforms.core import RestrictionProvider  # noqa: E402
from apache_beam.utils.timestamp import Duration  # noqa: E402

from beamlike.beam import BeamlikeRunner  # noqa: E402
from beamlike.beam.units import units_of  # noqa: E402
from beamlike.observe import History, why  # noqa: E402
from tests.beamlike.beam.pipelines import AtTheEnd, pairs, streaming, timed  # noqa: E402

FIXED = beam.window.FixedWindows(10)


class Offsets(RestrictionProvider):  # type: ignore[misc, unused-ignore]
    """A restriction provider of the numbers 0 to 2."""

    def initial_restriction(self, element: Any) -> Any:
        return OffsetRange(0, 3)

    def create_tracker(self, restriction: Any) -> Any:
        return OffsetRestrictionTracker(restriction)

    def restriction_size(self, element: Any, restriction: Any) -> int:
        size: int = restriction.size()
        return size


class OneByOne(beam.DoFn):  # type: ignore[misc, name-defined, unused-ignore]
    """Emits one number in each bundle, and defers the others."""

    def process(self, element: Any, tracker: Any = beam.DoFn.RestrictionParam(Offsets())) -> Iterator[int]:
        at = tracker.current_restriction().start
        if tracker.try_claim(at):
            yield at
            tracker.defer_remainder(Duration(0))


def history(path: Path, batches: int | None = None) -> History:
    """Returns the records of a run after some of its batches."""
    read = History.open(path)
    del read.batches[len(read.batches) if batches is None else batches :]
    return read


def sums(p: Any) -> Any:
    """Returns a grouping whose first window ends at 10, of events with two keys."""
    stream = pairs().add_elements([timed(3, "red", 1)]).advance_watermark_to(5)
    stream = stream.add_elements([timed(6, "blue", 2), timed(7, "red", 3)]).advance_watermark_to(8)
    events = p | "events" >> stream.advance_watermark_to_infinity()
    return events | "tens" >> beam.WindowInto(FIXED) | "sums" >> beam.CombinePerKey(sum)


def test_each_transform_has_its_watermark_and_counts_by_its_label(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with streaming(records=path) as p:
        sums(p) | "kept" >> beam.Filter(lambda row: row[0] == "red")
    read = history(path)
    assert list(read.plan.sources) == ["events"]
    assert {name: stage.inputs for name, stage in read.plan.stages.items()} == {
        "tens": ("events",),
        "sums": ("tens",),
        "kept": ("sums",),
    }
    assert read.closed == "ended"
    eight = next(batch for batch in read.batches if batch.sources["events"].watermark == 8_000_000)
    assert {name: (stage.input, stage.output) for name, stage in eight.stages.items()} == dict.fromkeys(
        ("tens", "sums", "kept"), (8_000_000, 8_000_000)
    )
    totals = [
        (sum(batch.stages[name].elements for batch in read.batches), read.batches[-1].stages[name].output)
        for name in ("tens", "sums", "kept")
    ]
    end = read.batches[-1].sources["events"].watermark
    assert totals == [(3, end), (3, end), (2, end)]
    assert sum(batch.stages["sums"].panes.get("on_time", 0) for batch in read.batches) == 2
    assert sum(batch.stages["kept"].panes.get("rows", 0) for batch in read.batches) == 1


def test_why_names_the_key_and_window_that_hold_the_watermark_of_a_transform(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with streaming(records=path) as p:
        earliest = beam.window.TimestampCombiner.OUTPUT_AT_EARLIEST
        early = beam.WindowInto(FIXED, timestamp_combiner=earliest)
        events = pairs().advance_watermark_to(1).add_elements([timed(3, "red", 1)])
        p | "events" >> events.advance_watermark_to(8) | "tens" >> early | "sums" >> beam.CombinePerKey(sum)
    text = " ".join(why(history(path, -1), stage="sums"))
    assert "stage `sums` holds its output watermark at 1970-01-01T00:00:03Z: key red in [1970" in text
    assert "that window waits for the input watermark of stage `sums` to reach 1970-01-01T00:00:10Z" in text


def test_why_names_the_timer_that_holds_the_watermark_of_a_do_fn(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with streaming(records=path) as p:
        events = pairs().add_elements([("red", 1)]).advance_watermark_to(5).advance_processing_time(3)
        p | events | "at the end" >> beam.ParDo(AtTheEnd(by_clock=True)) | "after" >> beam.Map(str)
    text = " ".join(why(history(path, -1), stage="at the end"))
    assert "timer 'clock' of key red, set for 1970-01-01T00:01:00Z, has this output timestamp" in text
    assert "that timer waits for processing time to reach 1970-01-01T00:01:00Z" in text
    assert "`after` waits for stage `at the end`" in " ".join(why(history(path, -1), stage="after"))


def test_why_names_the_side_input_that_an_element_waits_for(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with streaming(records=path) as p:
        slow = pairs().add_elements([timed(3, "red", 1)]).advance_watermark_to(5)
        totals = p | "slow" >> slow | "tens" >> beam.WindowInto(FIXED) | "totals" >> beam.CombinePerKey(sum)
        names = p | beam.Create([4]) | "timed" >> beam.Map(lambda n: beam.window.TimestampedValue(n, n))
        names = names | "named" >> beam.WindowInto(FIXED)
        names | "both" >> beam.Map(lambda name, totals: (name, totals), beam.pvalue.AsDict(totals))
    read = history(path)
    waiting = next(n for n, each in enumerate(read.batches, 1) if each.stages["totals"].input == 5_000_000)
    text = " ".join(why(history(path, waiting), stage="both"))
    assert (
        "holds its output watermark at 1970-01-01T00:00:04Z: a row of 'both' waits for side 'totals'" in text
    )
    assert (
        "or for the watermark of that side to reach 1970-01-01T00:00:10Z, which is at 1970-01-01T00:00:05Z"
        in text
    )
    assert "stage `both` waits for stage `totals`" in text


def test_why_names_a_splittable_function_that_has_input_left(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with beam.Pipeline(runner=BeamlikeRunner(records=path)) as p:
        p | beam.Create(["x"]) | "split" >> beam.ParDo(OneByOne()) | "after" >> beam.Map(str)
    read = history(path)
    first = next(n for n, batch in enumerate(read.batches, 1) if batch.stages["split"].elements)
    assert "the rest of the input of a splittable DoFn" in " ".join(why(history(path, first), stage="after"))
    assert sum(batch.stages["after"].elements for batch in read.batches) == 3


def test_a_composite_is_one_transform_unless_its_parts_have_state() -> None:
    class Words(beam.PTransform):  # type: ignore[misc, name-defined, unused-ignore]
        def expand(self, lines: Any) -> Any:
            return lines | "split" >> beam.FlatMap(str.split) | "lower" >> beam.Map(str.lower)

    class Counts(beam.PTransform):  # type: ignore[misc, name-defined, unused-ignore]
        def expand(self, words: Any) -> Any:
            return words | "pair" >> beam.Map(lambda word: (word, 1)) | "sum" >> beam.CombinePerKey(sum)

    p = beam.Pipeline()
    p | "lines" >> beam.Create(["a b"]) | "words" >> Words() | "counts" >> Counts() | beam.Reshuffle()
    units = units_of(p.to_runner_api())
    assert [unit.label for unit in units] == ["lines", "words", "counts/pair", "counts/sum", "Reshuffle"]


def test_combinations_that_beam_packs_into_one_have_their_own_labels(tmp_path: Path) -> None:
    class Range(beam.PTransform):  # type: ignore[misc, name-defined, unused-ignore]
        def annotations(self) -> dict[str, bytes]:
            return {python_urns.APPLY_COMBINER_PACKING: b""}

        def expand(self, numbers: Any) -> Any:
            return (
                numbers | "least" >> beam.CombineGlobally(min),
                numbers | "most" >> beam.CombineGlobally(max),
            )

    path = tmp_path / "run.jsonl"
    with beam.Pipeline(runner=BeamlikeRunner(records=path)) as p:
        p | "numbers" >> beam.Create([1, 2, 3]) | "range" >> Range()
    read = history(path)
    end = read.batches[-1].sources["numbers"].watermark
    for name in ("least/KeyWithVoid", "least/CombinePerKey", "most/KeyWithVoid", "most/CombinePerKey"):
        name = f"range/{name}"
        assert read.batches[-1].stages[name].output == end
        assert sum(batch.stages[name].panes.get("on_time", 0) for batch in read.batches) == name.endswith(
            "Key"
        )


def test_a_run_that_fails_says_so_in_its_records(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with pytest.raises(ZeroDivisionError), beam.Pipeline(runner=BeamlikeRunner(records=path)) as p:
        p | beam.Create([0]) | beam.Map(lambda n: 1 // n)
    assert history(path).closed == "failed"


def test_the_command_line_names_the_records(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    options = PipelineOptions(["--runner=beamlike.beam.BeamlikeRunner", f"--beamlike_records={path}"])
    with beam.Pipeline(options=options) as p:
        p | "some" >> beam.Create([1, 2]) | "same" >> beam.Map(lambda n: n)
    assert list(history(path).plan.stages) == ["same"]


def test_a_run_in_progress_shows_the_transforms_that_work(tmp_path: Path) -> None:
    path, seen = tmp_path / "run.jsonl", tmp_path / "seen"

    def look(element: Any) -> None:
        read = History.open(path)
        assert read.alive
        assert read.in_hand is not None
        seen.write_text(", ".join(map(str, read.in_hand.works)))

    with beam.Pipeline(runner=BeamlikeRunner(records=path)) as p:
        p | "one" >> beam.Create([1]) | "look" >> beam.Map(look)
    assert seen.read_text() == "stage `one + look`"
