"""The side inputs of Beam pipelines: what an element reads and when, compared with a model, and what is stored."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

beam = pytest.importorskip("apache_beam")

from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions  # noqa: E402
from apache_beam.testing.test_stream import TestStream  # noqa: E402
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, Repeatedly  # noqa: E402
from apache_beam.transforms.userstate import BagStateSpec  # noqa: E402

import beamlike as bl  # noqa: E402
from beamlike.beam import BeamlikeRunner, checkpoint  # noqa: E402
from beamlike.observe import History  # noqa: E402
from stages.dropped import LATE  # noqa: E402
from stages.state.store import DictStore  # noqa: E402
from tests.beamlike.beam.killed import Counting  # noqa: E402
from tests.beamlike.beam.pipelines import pairs, see, seen, streaming, timed  # noqa: E402
from tests.support.examples import share  # noqa: E402

SIZE = 10
"""The length of a window, in seconds."""
Step = tuple[str, int | list[tuple[int, str, int]]]
"""A stream, "main" or "side", and elements (time, key, value) of it, or its watermark."""
EARLY = {"trigger": Repeatedly(AfterCount(1)), "accumulation_mode": AccumulationMode.DISCARDING}


@attrs.frozen
class Case:
    """A function that reads a side.

    Attributes:
        stateful: True if the function has state.
        early: True if the side has an early trigger.
        by_key: True if the side is a multimap.
    """

    stateful: bool = False
    early: bool = False
    by_key: bool = False


class Reader(beam.DoFn):  # type: ignore[misc, name-defined, unused-ignore]
    """Emits the value of an element with the values of its key in the side."""

    def __init__(self, *, by_key: bool) -> None:
        self.by_key = by_key

    def process(self, element: Any, side: Any) -> Iterator[Any]:
        key, value = element
        found = side[key] if self.by_key else [number for own, number in side if own == key]
        yield value, sorted(found)


class StatefulReader(Reader):
    """A `Reader` with the number of elements of the key so far."""

    SO_FAR = BagStateSpec("so far", beam.coders.VarIntCoder())

    def process(self, element: Any, side: Any, so_far: Any = beam.DoFn.StateParam(SO_FAR)) -> Iterator[Any]:
        so_far.add(1)
        for found in super().process(element, side):
            yield *found, len([*so_far.read()])


def play(steps: list[Step], case: Case, runner: BeamlikeRunner) -> list[Any]:
    """Returns what the elements of the main stream read."""
    coder = beam.coders.TupleCoder([beam.coders.StrUtf8Coder(), beam.coders.VarIntCoder()])
    stream = TestStream(coder=coder, output_tags={"main", "side"})
    for tag in ("main", "side"):
        stream = stream.advance_watermark_to(-1, tag=tag)
    for tag, step in steps:
        if isinstance(step, int):
            stream = stream.advance_watermark_to(step, tag=tag)
        else:
            stream = stream.add_elements([timed(*each) for each in step], tag=tag)
    for tag in ("side", "main"):
        stream = stream.advance_watermark_to_infinity(tag=tag)
    options, windows = PipelineOptions([]), beam.window.FixedWindows(SIZE)
    options.view_as(StandardOptions).streaming = True
    seen.clear()
    with beam.Pipeline(runner=runner, options=options) as pipeline:
        streams = pipeline | stream
        named = EARLY if case.early else {}
        side = streams["side"] | "side windows" >> beam.WindowInto(windows, **named)
        view = beam.pvalue.AsMultiMap(side) if case.by_key else beam.pvalue.AsIter(side)
        reader = StatefulReader if case.stateful else Reader
        main = streams["main"] | "main windows" >> beam.WindowInto(windows)
        main | "read" >> beam.ParDo(reader(by_key=case.by_key), view) | beam.Map(see)
    return sorted(seen)


def model(steps: list[Step], case: Case) -> list[Any]:
    """Returns what a naive interpreter reads."""
    at, content = {"main": -1, "side": -1}, defaultdict[int, list[tuple[str, int]]](list)
    waiting, found, counts = list[tuple[int, str, int]](), list[Any](), defaultdict[Any, int](int)

    def read(element: tuple[int, str, int]) -> bool:
        time, key, value = element
        window = time // SIZE
        if at["side"] < (window + 1) * SIZE and not (case.early and content[window]):
            return False
        counts[window, key] += 1
        values = sorted(number for own, number in content[window] if own == key)
        found.append((value, values, *([counts[window, key]] if case.stateful else [])))
        return True

    for tag, step in [*steps, ("side", 1_000), ("main", 1_000)]:
        if isinstance(step, int):
            at[tag] = step
        elif tag == "side":
            for time, key, value in step:
                content[time // SIZE].append((key, value))
        else:
            ends = at["main"] if case.stateful else min(at.values())
            waiting += [each for each in step if (each[0] // SIZE + 1) * SIZE > ends]
        waiting = [each for each in waiting if not read(each)]
    return sorted(found)


def advancing(steps: list[Step]) -> list[Step]:
    """Leaves out watermarks that do not advance, and numbers the elements."""
    at, kept, number = {"main": -1, "side": -1}, list[Step](), 0
    for tag, step in steps:
        if not isinstance(step, int):
            elements = []
            for time, key, _ in step:
                number += 1
                elements.append((time, key, number))
            kept.append((tag, elements))
        elif step > at[tag]:
            at[tag] = step
            kept.append((tag, step))
    return kept


_elements = st.tuples(st.integers(0, 35), st.sampled_from("ab"), st.just(0))
_steps = st.tuples(
    st.sampled_from(["main", "side"]), st.lists(_elements, min_size=1, max_size=3) | st.integers(0, 45)
)
_cases = st.builds(Case, stateful=st.booleans(), early=st.booleans(), by_key=st.booleans())


@pytest.mark.parametrize("planned", [False, True], ids=["in process", "as a plan"])
@share(3)
@given(steps=st.lists(_steps, min_size=4, max_size=14), case=_cases)
def test_elements_read_what_the_model_reads(planned: bool, steps: list[Step], case: Case) -> None:
    steps = advancing(steps)
    runner = BeamlikeRunner(spark=bl.LocalRunner(quiet=True)) if planned else BeamlikeRunner()
    assert play(steps, case, runner) == model(steps, case)


@pytest.mark.parametrize("planned", [False, True], ids=["in process", "as a plan"])
def test_an_element_is_late_when_the_content_that_it_would_read_is_gone(planned: bool) -> None:
    runner = BeamlikeRunner(spark=bl.LocalRunner(quiet=True)) if planned else BeamlikeRunner()
    steps: list[Step] = [("side", [(1, "a", 7)]), ("main", 12), ("main", [(2, "a", 1)]), ("side", 12)]
    # The watermark of its stream is past the window, but the side is not.
    assert play([*steps, ("main", [(3, "a", 2)])], Case(), runner) == [(1, [7])]


def test_late_elements_are_counted_one_by_one(tmp_path: Path) -> None:
    steps: list[Step] = [("side", [(1, "a", 7)]), ("main", [(2, "a", 1)]), ("main", 12), ("side", 12)]
    late: Step = ("main", [(3, "a", 2), (4, "b", 3), (5, "b", 4)])
    records = tmp_path / "records.jsonl"
    play([*steps, late], Case(), BeamlikeRunner(records=records))
    stages = [batch.stages["read"] for batch in History.open(records).batches]
    assert sum(stage.dropped.get(LATE, 0) for stage in stages) == 3


class Stores:
    """The stores of runs, and the sizes of all values that are written to them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stores, self.written = list[DictStore](), list[int]()
        stores, written = self.stores, self.written

        class Counting(DictStore):
            def __init__(self) -> None:
                super().__init__()
                stores.append(self)

            def put(self, stage: str, key: str, value: bytes) -> None:
                written.append(len(value))
                super().put(stage, key, value)

        monkeypatch.setattr(checkpoint, "DictStore", Counting)

    @property
    def size(self) -> int:
        """The size of all values in the stores."""
        return sum(len(value) for store in self.stores for value in store.values.values())


@pytest.mark.parametrize("by_key", [False, True], ids=["iterable", "multimap"])
def test_an_element_that_is_added_to_a_large_side_does_not_write_the_side_again(
    by_key: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores, size, steps = Stores(monkeypatch), 200_000, 10
    added: list[Step] = [("side", [(1, "b", number)]) for number in range(steps)]
    large: Step = ("side", [(1, "a", 1_000_000 + number) for number in range(size)])
    read: Step = ("main", [(1, "b", 1)])
    # A run of its own has the large side only.
    play([large], Case(early=True, by_key=by_key), BeamlikeRunner())
    alone = sum(stores.written)
    assert alone > size
    (found,) = play([large, *added, read], Case(early=True, by_key=by_key), BeamlikeRunner())
    assert found == (1, [*range(steps)])
    assert sum(stores.written) - 2 * alone < alone  # each of the steps would write as much again


def test_a_window_of_a_side_is_removed_when_no_element_can_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = list[int]()
    for windows in (2, 20):
        stores, steps = Stores(monkeypatch), list[Step]()
        for window in range(windows):
            start = window * SIZE
            steps += [("side", [(start, "a", number) for number in range(200)]), ("side", start + SIZE)]
            steps += [("main", [(start, "a", window)]), ("main", start + SIZE)]
        assert [value for value, _ in play(steps, Case(), BeamlikeRunner())] == [*range(windows)]
        sizes.append(stores.size)
    few, many = sizes
    assert many < 2 * few


class Numbers(beam.DoFn):  # type: ignore[misc, name-defined, unused-ignore]
    """Emits the numbers below an element with a side, at most three of them in a bundle."""

    def process(
        self, element: int, side: Any, tracker: Any = beam.DoFn.RestrictionParam(Counting())
    ) -> Iterator[Any]:
        start = tracker.current_restriction().start
        for number in count(start):
            if number == start + 3:
                tracker.defer_remainder()
            if not tracker.try_claim(number):
                return
            yield number, dict(side)


def test_a_splittable_function_reads_the_same_window_in_all_parts() -> None:
    seen.clear()
    with streaming() as p:
        tens = beam.WindowInto(beam.window.FixedWindows(SIZE))
        side = p | pairs().add_elements([timed(3, "a", 1)]).advance_watermark_to_infinity() | "side" >> tens
        ten = p | beam.Create([10]) | "timed" >> beam.Map(lambda n: beam.window.TimestampedValue(n, 4)) | tens
        ten | beam.ParDo(Numbers(), beam.pvalue.AsDict(side)) | beam.Map(see)
    assert seen == [(number, {"a": 1}) for number in range(10)]
