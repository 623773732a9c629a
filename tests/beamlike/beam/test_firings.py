"""Side inputs that fire more than once: an element reads the newest firing of each window and key, on each runner."""

from __future__ import annotations

from ast import literal_eval
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

beam = pytest.importorskip("apache_beam")

from apache_beam.options.pipeline_options import PipelineOptions  # noqa: E402
from apache_beam.pvalue import AsDict, AsIter, AsList, AsMultiMap  # noqa: E402
from apache_beam.testing.test_stream import TestStream  # noqa: E402
from apache_beam.transforms.trigger import (  # noqa: E402
    AccumulationMode,
    AfterAny,
    AfterCount,
    AfterProcessingTime,
    AfterWatermark,
    Repeatedly,
)
from apache_beam.transforms.userstate import BagStateSpec  # noqa: E402

import beamlike as bl  # noqa: E402
from beamlike.beam import BeamlikeRunner  # noqa: E402
from beamlike.observe import History  # noqa: E402
from tests.beamlike.beam.killed import Counting  # noqa: E402
from tests.beamlike.beam.pipelines import see, seen  # noqa: E402
from tests.support.examples import share  # noqa: E402

ACCUMULATING, DISCARDING = AccumulationMode.ACCUMULATING, AccumulationMode.DISCARDING
GLOBAL, TENS = beam.window.GlobalWindows(), beam.window.FixedWindows(10)
EACH = Repeatedly(AfterCount(1))
EARLY = AfterWatermark(early=AfterCount(1), late=AfterCount(1))
CLOCK = Repeatedly(AfterAny(AfterProcessingTime(5), AfterCount(100)))
Step = tuple[str, int] | tuple[str, int, str, int]
"""An element of the side: "side", its time, key and value; or one that reads it: "main", its time."""


class Stateful(beam.DoFn):  # type: ignore[misc, name-defined, unused-ignore]
    """Emits what an element reads, and has state."""

    SO_FAR = BagStateSpec("so far", beam.coders.VarIntCoder())

    def process(self, element: Any, side: Any, so_far: Any = beam.DoFn.StateParam(SO_FAR)) -> Iterator[Any]:
        so_far.add(1)
        yield element[1], shown(side)


class Splittable(beam.DoFn):  # type: ignore[misc, name-defined, unused-ignore]
    """Emits what an element reads, and is splittable."""

    def process(
        self, element: int, side: Any, tracker: Any = beam.DoFn.RestrictionParam(Counting())
    ) -> Iterator[Any]:
        at = tracker.current_restriction().start
        while tracker.try_claim(at):
            at += 1
        yield element, shown(side)


@attrs.frozen
class Case:
    """A side, and the function that reads it.

    Attributes:
        view: How the side is read.
        mode: The accumulation mode.
        window: Its windows.
        trigger: Its trigger; None for the default one with allowed lateness.
        group: The grouping.
        total: What the grouping makes of the values in a pane.
        after: What is made of a key and a pane before the side: a list of elements.
        by: The function that reads the side.
    """

    view: Any = AsList
    mode: Any = ACCUMULATING
    window: Any = GLOBAL
    trigger: Any = EACH
    group: Callable[[], Any] = lambda: beam.CombinePerKey(sum)
    total: Callable[[Any], Any] = sum
    after: Callable[[Any], list[Any]] = lambda pane: [pane]
    by: str = "map"


def grouped() -> Any:
    return beam.GroupByKey() | "sorted" >> beam.MapTuple(lambda key, values: (key, sorted(values)))


def summed_globally() -> Any:
    return beam.Values() | beam.CombineGlobally(sum).without_defaults()


CASES = {
    "values of keys": Case(),
    "values of keys, discarding": Case(mode=DISCARDING),
    "a dictionary": Case(AsDict),
    "a dictionary, discarding": Case(AsDict, DISCARDING),
    "a multimap": Case(AsMultiMap),
    "an iterable of groups": Case(AsIter, group=grouped, total=sorted),
    "other keys": Case(AsMultiMap, after=lambda pane: [("same", pane[1])]),
    "no keys": Case(after=lambda pane: [pane[1]]),
    "several elements of a pane": Case(DISCARDING, after=lambda pane: [pane[0]] * pane[1]),
    "windows that fire early": Case(AsDict, window=TENS, trigger=EARLY),
    "windows that fire early, discarding": Case(mode=DISCARDING, window=TENS, trigger=EARLY),
    "a trigger by the clock": Case(AsDict, trigger=CLOCK),
    "state": Case(AsDict, by="state"),
    "a multimap and state": Case(AsMultiMap, by="state"),
    "a splittable function": Case(by="splittable"),
    "a splittable function and windows": Case(AsDict, window=TENS, trigger=EARLY, by="splittable"),
}
CASES["several elements of a pane"] = attrs.evolve(CASES["several elements of a pane"], view=AsList)
STEPS: list[Step] = [
    ("side", 1, "a", 1),
    ("main", 1),
    ("side", 2, "b", 2),
    ("side", 3, "a", 3),
    ("main", 2),
    ("side", 14, "a", 4),
    ("main", 13),
    ("side", 5, "b", 5),
    ("main", 9),
]


def played(steps: list[Step], *, clock: bool) -> Any:
    """Returns a stream in which each step is an event, after which the processing time moves if there is a `clock`."""
    stamp, stream = beam.window.TimestampedValue, TestStream()
    for tag in ("side", "main"):
        stream = stream.advance_watermark_to(0, tag=tag)
    for number, (tag, at, *pair) in enumerate(steps):
        element = stamp(tuple(pair) if tag == "side" else number, at)
        stream = stream.add_elements([element], tag=tag)
        if clock:
            stream = stream.advance_processing_time(10)
    for tag in ("side", "main"):
        stream = stream.advance_watermark_to_infinity(tag=tag)
    return stream


def read(case: Case, steps: list[Step], runner: BeamlikeRunner, name: str = "read") -> list[Any]:
    """Returns what each element of the main stream reads, by the number of its step."""
    seen.clear()
    with beam.Pipeline(runner=runner, options=PipelineOptions(["--streaming"])) as p:
        streams = p | played(steps, clock=case.trigger is CLOCK)
        windows = beam.WindowInto(case.window, trigger=case.trigger, accumulation_mode=case.mode)
        panes = streams["side"] | "side windows" >> windows | "totals" >> case.group()
        side = case.view(panes | "after" >> beam.FlatMap(case.after))
        main = streams["main"] | "main windows" >> beam.WindowInto(case.window)
        if case.by == "state":
            main = main | beam.WithKeys(lambda number: number % 2)
        function = {"state": Stateful, "splittable": Splittable}.get(case.by)
        seeing = beam.ParDo(function(), side) if function else beam.Map(mapped, side)
        main | name >> seeing | beam.Map(see)
    return sorted(seen)


def mapped(element: int, side: Any) -> Any:
    return element, shown(side)


def shown(side: Any) -> Any:
    """Returns the content of a side, for comparison."""
    if hasattr(side, "items"):
        return {key: sorted(value) if isinstance(value, list) else value for key, value in side.items()}
    if not hasattr(side, "__iter__"):  # a multimap, of which keys are read one by one
        return {key: found for key in ("a", "b", "c", "same") if (found := sorted(side[key]))}
    return sorted(side)


def model(case: Case, steps: list[Step]) -> list[Any]:
    """Returns what a naive interpreter reads."""
    values, newest = defaultdict[Any, list[int]](list), dict[Any, Any]()
    waiting, found = list[tuple[int, Any]](), list[Any]()
    for number, (tag, at, *pair) in enumerate(steps):
        window = at // 10 if case.window is TENS else 0
        if tag == "main":
            waiting.append((number, window))
        else:
            key, value = pair
            kept = values[window, key] if case.mode is ACCUMULATING else []
            values[window, key] = [*kept, value]  # type: ignore[list-item]
            newest[window, key] = case.total(values[window, key])
        ready = [each for each in waiting if any(each[1] == own for own, _ in newest)]
        for row, own in ready:
            panes = [(key, total) for (other, key), total in newest.items() if other == own]
            elements = [element for pane in panes for element in case.after(pane)]
            found.append((row, viewed(case, elements)))
        waiting = [each for each in waiting if each not in ready]
    assert not waiting
    return sorted(found)


def viewed(case: Case, elements: list[Any]) -> Any:
    if case.view is AsDict:
        return dict(elements)
    if case.view is AsMultiMap:
        return {key: sorted(value for own, value in elements if own == key) for key, _ in elements}
    return sorted(elements)


@pytest.mark.parametrize("case", CASES)
def test_an_element_reads_the_newest_firing_of_each_key(case: str) -> None:
    assert read(CASES[case], STEPS, BeamlikeRunner()) == model(CASES[case], STEPS)


def test_a_plan_reads_what_a_run_in_process_reads() -> None:
    case = CASES["a dictionary"]
    assert read(case, STEPS, BeamlikeRunner(spark=bl.LocalRunner(quiet=True))) == model(case, STEPS)


@pytest.mark.spark
@pytest.mark.parametrize("view", [AsDict, AsMultiMap])
def test_each_shard_on_spark_reads_the_newest_firing(view: Any, tmp_path: Path) -> None:
    def note(row: tuple[int, Any]) -> None:
        (tmp_path / f"{row[0]}.txt").write_text(repr(row))

    settings = {"spark.ui.enabled": "false"}
    spark = bl.SparkRunner(master="local[1]", shards=2, quiet=True, config=settings)
    with beam.Pipeline(runner=BeamlikeRunner(spark=spark), options=PipelineOptions(["--streaming"])) as p:
        streams = p | played(STEPS, clock=False)
        windows = beam.WindowInto(GLOBAL, trigger=EACH, accumulation_mode=ACCUMULATING)
        side = streams["side"] | windows | beam.CombinePerKey(sum)
        streams["main"] | beam.Map(mapped, view(side)) | beam.Map(note)
    rows = sorted(literal_eval(file.read_text()) for file in tmp_path.iterdir())
    assert rows == model(Case(view), STEPS)


_keys, _times = st.sampled_from("abc"), st.integers(0, 19)
_steps = st.lists(
    st.tuples(st.just("side"), _times, _keys, st.integers(1, 9)) | st.tuples(st.just("main"), _times),
    min_size=3,
    max_size=9,
)
_cases = st.builds(
    Case,
    view=st.sampled_from([AsList, AsDict, AsMultiMap]),
    mode=st.sampled_from([ACCUMULATING, DISCARDING]),
    window=st.sampled_from([GLOBAL, TENS]),
    trigger=st.just(EARLY),
    by=st.sampled_from(["map", "state", "splittable"]),
)


@share(1)
@given(steps=_steps, case=_cases)
def test_any_order_of_firings_reads_what_the_model_reads(steps: list[Step], case: Case) -> None:
    firings: list[Step] = [("side", at, "a", 1) for at in (1, 11)]
    steps = [*firings, *steps]  # each window has content
    assert read(case, steps, BeamlikeRunner()) == model(case, steps)


@pytest.mark.parametrize("mode", [ACCUMULATING, DISCARDING])
def test_a_late_firing_replaces_the_one_on_time(mode: Any) -> None:
    stamp = beam.window.TimestampedValue
    stream = TestStream().advance_watermark_to(0, tag="main").advance_watermark_to(0, tag="side")
    stream = stream.add_elements([stamp(("a", 3), 1)], tag="side").advance_watermark_to(10, tag="side")
    stream = stream.add_elements([stamp("on time", 2)], tag="main")
    stream = stream.add_elements([stamp(("a", 4), 2)], tag="side")
    stream = stream.add_elements([stamp("late", 3)], tag="main")
    for tag in ("side", "main"):
        stream = stream.advance_watermark_to_infinity(tag=tag)
    seen.clear()
    with beam.Pipeline(runner=BeamlikeRunner(), options=PipelineOptions(["--streaming"])) as p:
        streams = p | stream
        windows = beam.WindowInto(TENS, allowed_lateness=100, accumulation_mode=mode)
        side = streams["side"] | "side windows" >> windows | beam.CombinePerKey(sum)
        main = streams["main"] | "main windows" >> beam.WindowInto(TENS)
        main | beam.Map(lambda row, own: (row, own), AsDict(side)) | beam.Map(see)
    assert seen == [("on time", {"a": 3}), ("late", {"a": 7 if mode is ACCUMULATING else 4})]


class Fails(beam.DoFn):  # type: ignore[misc, name-defined, unused-ignore]
    """Fails at an element until the file exists, which it creates."""

    def __init__(self, file: Path, at: int) -> None:
        self.file, self.at = str(file), at

    def process(self, element: int) -> Iterator[int]:
        if element == self.at and not Path(self.file).exists():
            Path(self.file).touch()
            raise RuntimeError("killed")
        yield element


@pytest.mark.parametrize("planned", [False, True], ids=["in process", "as a plan"])
def test_a_run_that_failed_continues_with_the_firings_before(planned: bool, tmp_path: Path) -> None:
    def runner() -> BeamlikeRunner:
        folder = str(tmp_path / "checkpoint")
        if not planned:
            return BeamlikeRunner(checkpoint=folder)
        return BeamlikeRunner(spark=bl.LocalRunner(checkpoint=folder, drain=True, quiet=True))

    def run() -> list[Any]:
        seen.clear()
        with beam.Pipeline(runner=runner(), options=PipelineOptions(["--streaming"])) as p:
            streams = p | played(STEPS, clock=False)
            windows = beam.WindowInto(GLOBAL, trigger=EACH, accumulation_mode=ACCUMULATING)
            side = streams["side"] | windows | beam.CombinePerKey(sum)
            main = streams["main"] | beam.ParDo(Fails(tmp_path / "failed", 8))
            main | beam.Map(mapped, AsDict(side)) | beam.Map(see)
        return list(seen)

    expected = model(CASES["a dictionary"], STEPS)
    with pytest.raises(Exception, match="killed"):
        run()
    before = list(seen)
    assert before
    assert sorted([*before, *run()]) == expected
    if not planned:
        assert run() == []  # it has ended


def test_the_records_of_such_a_run_have_the_labels_of_its_transforms(tmp_path: Path) -> None:
    read(CASES["a dictionary"], STEPS[:2], BeamlikeRunner(records=tmp_path / "run.jsonl"))
    assert "read" in History.open(tmp_path / "run.jsonl").batches[-1].stages


@pytest.mark.parametrize("how", ["stream", "flattened", "new windows", "reshuffled", "stream, as a plan"])
def test_elements_of_no_firing_are_added(how: str) -> None:
    """A side in the global window, whose arguments Beam's worker would remember from the first bundle on."""
    seen.clear()
    runner = BeamlikeRunner(spark=bl.LocalRunner(quiet=True) if "plan" in how else None)
    with beam.Pipeline(runner=runner, options=PipelineOptions(["--streaming"])) as p:
        streams = p | played(STEPS, clock=False)
        windows = beam.WindowInto(GLOBAL, trigger=EACH, accumulation_mode=DISCARDING)
        side = streams["side"] | windows | beam.Values()
        if how == "flattened":
            side = (side, p | beam.Create([], reshuffle=False)) | beam.Flatten()
        elif how == "new windows":
            side = side | beam.WithKeys("k") | beam.GroupByKey() | beam.FlatMap(lambda row: row[1])
            side = side | "again" >> windows
        elif how == "reshuffled":
            side = side | beam.Reshuffle()
        streams["main"] | beam.Map(mapped, AsList(side)) | beam.Map(see)
    added = [step[3] for step in STEPS if step[0] == "side"]
    expected = [sum(1 for step in STEPS[:number] if step[0] == "side") for number, _ in sorted(seen)]
    assert [values for _, values in sorted(seen)] == [sorted(added[:count]) for count in expected]


def passing(how: str) -> Any:
    """Returns a transform that forgets which firing an element is from."""
    match how:
        case "has state":
            return beam.ParDo(Forgets())
        case "is splittable":
            return beam.Values() | beam.ParDo(Parts())
        case "reads side inputs":
            return lambda rows: (
                rows | beam.Map(lambda row, own: row, AsList(rows.pipeline | beam.Create([1])))
            )
        case _:
            return beam.Reshuffle()


class Forgets(beam.DoFn):  # type: ignore[misc, name-defined, unused-ignore]
    """Emits its elements, and has state."""

    def process(self, element: Any, state: Any = beam.DoFn.StateParam(Stateful.SO_FAR)) -> Iterator[Any]:
        yield element


class Parts(beam.DoFn):  # type: ignore[misc, name-defined, unused-ignore]
    """Emits the numbers below an element."""

    def process(self, element: int, tracker: Any = beam.DoFn.RestrictionParam(Counting())) -> Iterator[int]:
        at = tracker.current_restriction().start
        while tracker.try_claim(at):
            yield at
            at += 1


@pytest.mark.parametrize("how", ["has state", "is splittable", "reads side inputs", "reshuffles"])
def test_a_side_whose_firings_are_not_known_is_refused_by_name(how: str) -> None:
    p = beam.Pipeline(runner=BeamlikeRunner(), options=PipelineOptions(["--streaming"]))
    streams = p | played(STEPS, clock=False)
    windows = beam.WindowInto(GLOBAL, trigger=EACH, accumulation_mode=DISCARDING)
    panes = streams["side"] | windows | "totals" >> beam.CombinePerKey(sum)
    forgotten = passing(how)
    side = forgotten(panes) if how == "reads side inputs" else panes | "forgets" >> forgotten
    streams["main"] | "read" >> beam.Map(mapped, AsList(side))
    with pytest.raises(NotImplementedError, match=rf"cannot run 'read'.*'totals.* may fire .*{how}"):
        p.run()
