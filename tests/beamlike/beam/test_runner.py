"""Beam pipelines on `BeamlikeRunner`: groupings, state across bundles, timers, side inputs, and refusals."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

beam = pytest.importorskip("apache_beam")

from apache_beam.options.pipeline_options import PipelineOptions  # noqa: E402
from apache_beam.testing.util import assert_that, equal_to  # noqa: E402

import beamlike.beam  # noqa: E402
from beamlike.beam import BeamlikeRunner  # noqa: E402
from beamlike.beam.cells import StatefulParDo  # noqa: E402
from beamlike.beam.stateful import StatefulNode  # noqa: E402
from beamlike.observe import History, why  # noqa: E402
from tests.beamlike.beam.pipelines import AtTheEnd, RunningSum, Sorted, in_bundles, pairs, streaming, timed  # noqa: E402
from tests.docs.site.public_paths import entries  # noqa: E402
from tests.support.places import ROOT  # noqa: E402


def without_worker_cache(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Checks that Beam's servicer has no user state between bundles. Returns a list with an item for each check."""
    checks = list[int]()
    step = StatefulParDo.step

    def checked(self: Any, state: Any, arrivals: Any, clock: Any) -> Any:
        servicer: Any = self.host.servicer
        assert not [key for key in servicer._state if b"total" in key]
        checks.append(1)
        return step(self, state, arrivals, clock)

    monkeypatch.setattr(StatefulParDo, "step", checked)
    return checks


def test_a_grouping_emits_a_pane_for_each_window() -> None:
    with streaming() as p:
        timed = [("a", 1), ("b", 2), ("a", 3), ("a", 12)]
        rows = p | beam.Create(timed) | beam.Map(lambda row: beam.window.TimestampedValue(row, row[1]))
        sums = rows | beam.WindowInto(beam.window.FixedWindows(10)) | beam.CombinePerKey(sum)
        assert_that(sums, equal_to([("a", 4), ("b", 2), ("a", 12)]))


def test_state_lasts_from_bundle_to_bundle_in_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = without_worker_cache(monkeypatch)
    with streaming() as p:
        sums = (
            p | in_bundles([("a", 1), ("b", 5)], [("a", 2)], [("a", 4), ("b", 6)]) | beam.ParDo(RunningSum())
        )
        assert_that(sums, equal_to([("a", 1), ("b", 5), ("a", 3), ("a", 7), ("b", 11)]))
    assert len(checks) >= 3


def test_an_ordered_list_lasts_from_bundle_to_bundle() -> None:
    bundles = in_bundles([("a", 5), ("b", 7)], [("a", 9), ("a", 3)], [("a", 6), ("b", 4)], [("a", 8)])
    with streaming() as p:
        lists = p | bundles | beam.ParDo(Sorted())
        expected = [[5], [5, 9], [3, 9], [3, 6, 9], [6, 8, 9]]
        assert_that(lists, equal_to([("b", [7]), ("b", [4, 7]), *(("a", each) for each in expected)]))


def test_state_that_the_engine_forgets_is_not_read_from_the_cache_of_the_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    save = StatefulNode.save
    monkeypatch.setattr(StatefulNode, "save", lambda node, watermark: save(node, watermark) and [])
    with streaming() as p:
        sums = p | in_bundles([("a", 1)], [("a", 2)], [("a", 4)]) | beam.ParDo(RunningSum())
        assert_that(sums, equal_to([("a", 1), ("a", 2), ("a", 4)]))


def test_a_timer_fires_when_the_watermark_reaches_it() -> None:
    with streaming() as p:
        fired = p | in_bundles([("a", 2)], [("a", 1), ("b", 3)]) | beam.ParDo(AtTheEnd())
        assert_that(fired, equal_to([("a", [1, 2]), ("b", [3])]))


def test_a_timer_by_processing_time_reads_the_state_of_a_window_that_is_over() -> None:
    stream = pairs().add_elements([timed(1, "a", 2), timed(2, "a", 1), timed(3, "b", 3)])
    stream = stream.advance_watermark_to(20).advance_processing_time(61).advance_watermark_to_infinity()
    with streaming() as p:
        windows = p | stream | beam.WindowInto(beam.window.FixedWindows(10))
        assert_that(windows | beam.ParDo(AtTheEnd(by_clock=True)), equal_to([("a", [1, 2]), ("b", [3])]))


def test_a_function_reads_a_side_input() -> None:
    with streaming() as p:
        names = p | "names" >> beam.Create([(1, "one"), (2, "two")])
        read = p | beam.Create([2, 1]) | beam.Map(lambda n, names: names[n], beam.pvalue.AsDict(names))
        assert_that(read, equal_to(["one", "two"]))


def test_an_element_waits_for_the_window_of_a_side_that_it_reads_and_not_longer(tmp_path: Path) -> None:
    log = tmp_path / "log"

    def write(word: str) -> None:
        with log.open("a") as file:
            file.write(f"{word} ")

    with streaming() as p:
        tens = beam.WindowInto(beam.window.FixedWindows(10))
        stream = pairs().add_elements([timed(3, "red", 1)]).advance_watermark_to(12)
        events = p | stream.add_elements([timed(13, "blue", 2)]).advance_watermark_to_infinity()
        events | "log" >> beam.Map(lambda row: write(row[0]))
        totals = events | "tens" >> tens | beam.CombinePerKey(sum)
        four = p | beam.Create([4]) | "timed" >> beam.Map(lambda n: beam.window.TimestampedValue(n, n))
        read = beam.Map(lambda n, sides: write(str(sides)), beam.pvalue.AsDict(totals))
        four | "in tens" >> tens | "read" >> read
    assert log.read_text() == "red {'red': 1} blue "


def test_the_runner_has_a_name_for_the_command_line() -> None:
    options = PipelineOptions(["--runner=beamlike.beam.BeamlikeRunner"])
    with beam.Pipeline(options=options) as p:
        assert type(p.runner) is BeamlikeRunner
        assert_that(p | beam.Create([1, 2]), equal_to([1, 2]))


def test_a_requirement_that_it_does_not_support_is_refused_by_name() -> None:
    proto = beam.Pipeline().to_runner_api()
    proto.requirements.append("beam:requirement:pardo:stable_input:v1")
    with pytest.raises(
        NotImplementedError, match="does not support the requirement 'beam:requirement:pardo:stable"
    ):
        BeamlikeRunner().run_via_runner_api(proto, PipelineOptions([]))


def blocks(kind: str) -> list[str]:
    """Returns the blocks of a kind in docs/beam.md."""
    page = (ROOT / "docs" / "beam.md").read_text()
    return [part.split("```")[0] for part in page.split(f"```{kind}\n")[1:]]


def test_the_programs_of_the_docs_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    exec("".join(blocks("python beam")), {"__name__": "__main__"})
    printed = ["('blue', 2)", "('blue', 2)", "('cellar', 9)", "('kitchen', 20)", "('red', 5)", "('red', 8)"]
    assert (
        "CalculateTeamScores/ExtractAndSumScore/CombinePerKey(sum)" in History.open("game.jsonl").plan.stages
    )
    printed += ["bob 7", "eve 1", "red 10", "red 12", "tea 2", "tea 5"]
    assert sorted(capsys.readouterr().out.splitlines()) == printed
    read = History.open("rooms.jsonl")
    until = next(n for n, batch in enumerate(read.batches, 1) if batch.stages["show"].output == 45_000_000)
    del read.batches[until:]
    (text,) = blocks("text rooms")
    assert text in "".join(f"{line}\n" for line in why(read, stage="show"))


def test_each_public_name_has_an_entry_in_the_reference() -> None:
    described = [path for path in entries() if path.startswith("beamlike.beam.")]
    assert {f"beamlike.beam.{name}" for name in beamlike.beam.__all__} <= {*described}
    for path in described:
        module, _, name = path.rpartition(".")
        assert getattr(import_module(module), name).__doc__
