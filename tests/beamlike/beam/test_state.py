"""State and timers of Beam pipelines, compared with a naive model on one and three shards; seeded faults are found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

beam = pytest.importorskip("apache_beam")

from apache_beam.transforms.timeutil import TimeDomain  # noqa: E402
from apache_beam.transforms.userstate import BagStateSpec, TimerSpec, on_timer  # noqa: E402

from beamlike.beam import checkpoint, stateful  # noqa: E402
from beamlike.beam import run as beam_run  # noqa: E402
from beamlike.beam.cells import KEY  # noqa: E402
from beamlike.beam.stateful import StatefulNode  # noqa: E402
from stages.keys import hashed  # noqa: E402
from stages.operator import MAIN  # noqa: E402
from stages.sides.gate import SideGate  # noqa: E402
from stages.stage import StageResult  # noqa: E402
from stages.state.store import DictStore  # noqa: E402
from tests.beamlike.beam.pipelines import AtTheEnd, pairs, see, seen, streaming, timed  # noqa: E402
from tests.support.examples import share  # noqa: E402
from windowing.clocks import Times  # noqa: E402

SHARDS = 3
Step = list[tuple[int, str, int]] | int
"""A bundle of elements (time, key, value), or a watermark, in seconds."""


class Tally(beam.DoFn):  # type: ignore[misc, name-defined, unused-ignore]
    """Emits the running sum of a key with each value, and the values at the end of the value's ten seconds.

    A multiple of 5 clears the other values, and a multiple of 3 sets the timer.
    """

    VALUES = BagStateSpec("values", beam.coders.VarIntCoder())
    FLUSH = TimerSpec("flush", TimeDomain.WATERMARK)

    def process(
        self,
        element: Any,
        time: Any = beam.DoFn.TimestampParam,
        values: Any = beam.DoFn.StateParam(VALUES),
        flush: Any = beam.DoFn.TimerParam(FLUSH),
    ) -> Iterator[Any]:
        key, value = element
        if value % 5 == 0:
            values.clear()
        values.add(value)
        if value % 3 == 0:
            flush.set(ten(int(time)))
        yield key, sum(values.read())

    @on_timer(FLUSH)
    def fire(
        self, key: Any = beam.DoFn.KeyParam, values: Any = beam.DoFn.StateParam(VALUES)
    ) -> Iterator[Any]:
        yield key, tuple(sorted(values.read()))
        values.clear()


def ten(time: int) -> int:
    """Returns the end of the ten seconds that contain a time."""
    return (time // 10 + 1) * 10


def modelled(steps: list[Step]) -> Counter[Any]:
    """Returns the output of `Tally` by a naive model."""
    state, timers, emitted, watermark = dict[str, list[int]](), dict[str, int](), Counter[Any](), -1
    for step in [*steps, 1_000_000]:
        for time, key, value in step if isinstance(step, list) else []:
            state[key] = [*([] if value % 5 == 0 else state.get(key, [])), value]
            emitted[key, sum(state[key])] += 1
            if value % 3 == 0:
                timers[key] = ten(time)
        watermark = max(watermark, step) if isinstance(step, int) else watermark
        for key in [key for key, due in timers.items() if due <= watermark]:
            emitted[key, tuple(sorted(state.pop(key, [])))] += 1
            del timers[key]
    return emitted


def played(steps: list[Step]) -> Counter[Any]:
    """Returns the output of `Tally` on the runner."""
    stream = pairs().advance_watermark_to(-1)
    for step in steps:
        if isinstance(step, int):
            stream = stream.advance_watermark_to(step)
        else:
            stream = stream.add_elements([timed(*each) for each in step])
    seen.clear()
    with streaming() as p:
        p | stream.advance_watermark_to_infinity() | beam.ParDo(Tally()) | beam.Map(see)
    return Counter(seen)


class OnShards(StatefulNode):
    """A fused stage whose state is on three shards, each with a store of its own."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.stores = [DictStore() for _ in range(SHARDS)]

    def shards(self, rows: pl.DataFrame) -> pl.Series:
        """Returns the shard of each row."""
        return hashed(rows, [KEY]) % SHARDS

    def processed(self, arrivals: Mapping[str, pl.DataFrame], times: Times) -> StageResult:
        rows = arrivals[MAIN]
        shards = self.shards(rows)
        done = [
            self.engine.step(store, {**arrivals, MAIN: rows.filter(shards == n)}, times)
            for n, store in enumerate(self.stores)
        ]
        least = min(done, key=lambda one: one.watermarks.output)
        panes, fired = pl.concat([one.panes for one in done]), sum(one.fired for one in done)
        return attrs.evolve(least, panes=panes, fired=fired)

    def due_by_clock(self) -> list[int | None]:
        return [self._least_wake(store) for store in self.stores]


class MixedUp(OnShards):
    """A faulty fused stage that forgets the shard of a key."""

    def shards(self, rows: pl.DataFrame) -> pl.Series:
        self.steps = getattr(self, "steps", 0) + 1
        return (hashed(rows, [KEY]) + self.steps) % SHARDS


_times = st.integers(0, 40)
_elements = st.tuples(_times, st.sampled_from("abcdef"), st.integers(1, 30))
_steps = st.lists(st.lists(_elements, min_size=1, max_size=6) | _times, min_size=2, max_size=10)
EXAMPLE: list[Step] = [
    [(1, "a", 3), (2, "b", 4), (3, "c", 6)],
    [(4, "a", 7), (5, "d", 9), (6, "b", 1)],
    12,
    [(14, "a", 2), (15, "b", 10), (16, "c", 3)],
    [(17, "e", 4), (18, "a", 6), (19, "b", 12)],
]


def require_model(steps: list[Step]) -> None:
    """Compares the runner with the model."""
    # The watermark of a stream must advance.
    reached, advancing = -1, list[Step]()
    for step in steps:
        if not isinstance(step, int) or step > reached:
            advancing.append(step)
        reached = max(reached, step) if isinstance(step, int) else reached
    assert played(advancing) == modelled(advancing)


@pytest.mark.parametrize("node", [StatefulNode, OnShards])
@pytest.mark.parametrize("chunk", [stateful.CHUNK_BYTES, 2], ids=["in cells", "in chunks"])
@share(4)
@given(_steps)
def test_state_and_timers_last_from_bundle_to_bundle(node: Any, chunk: int, steps: list[Step]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(beam_run, "StatefulNode", node)
        patched.setattr(stateful, "CHUNK_BYTES", chunk)
        require_model(steps)


class Appends(beam.DoFn):  # type: ignore[misc, name-defined, unused-ignore]
    """Adds `value` numbers to a bag. If the value is 0, emits their sum and clears the bag."""

    VALUES = BagStateSpec("values", beam.coders.VarIntCoder())

    def process(self, element: Any, values: Any = beam.DoFn.StateParam(VALUES)) -> Iterator[int]:
        for number in range(element[1]):
            values.add(number)
        if element[1] == 0:
            yield sum(values.read())
            values.clear()


def test_an_append_to_a_large_bag_does_not_write_the_bag_again(monkeypatch: pytest.MonkeyPatch) -> None:
    stores, written = list[DictStore](), list[int]()

    class Counting(DictStore):
        def __init__(self) -> None:
            super().__init__()
            stores.append(self)

        def put(self, stage: str, key: str, value: bytes) -> None:
            written.append(len(value))
            super().put(stage, key, value)

    monkeypatch.setattr(checkpoint, "DictStore", Counting)
    count, appends = 100_000, 20
    stream = pairs().add_elements([timed(1, "red", count)])
    for _ in range(appends):
        stream = stream.add_elements([timed(2, "red", 1)])
    before = stream.add_elements([timed(3, "blue", 1)])
    seen.clear()
    with streaming() as p:
        p | before.add_elements([timed(4, "red", 0)]) | beam.ParDo(Appends()) | beam.Map(see)
    assert seen == [sum(range(count))]
    assert sum(written) < appends * count / 2  # each of the bundles would write at least `count` bytes again
    assert sum(map(len, stores[0].values.values())) < count


def require_holds() -> None:
    """Checks that a grouping waits for the output of a timer that holds the watermark."""
    seen.clear()
    with streaming() as p:
        stream = pairs().add_elements([timed(3, "a", 1)]).advance_watermark_to(75)
        fired = p | stream.advance_processing_time(61).advance_watermark_to_infinity()
        fired = fired | beam.ParDo(AtTheEnd(by_clock=True)) | beam.WindowInto(beam.window.FixedWindows(10))
        fired | beam.GroupByKey() | beam.Map(lambda row: (row[0], list(row[1]))) | beam.Map(see)
    assert seen == [("a", [[1]])]


def require_sides() -> None:
    """Checks that an element waits until the window of a side that it reads is over."""
    seen.clear()
    with streaming() as p:
        tens = beam.WindowInto(beam.window.FixedWindows(10))
        stream = pairs().add_elements([timed(3, "a", 1)]).advance_watermark_to(5)
        sums = p | stream.add_elements([timed(6, "a", 2)]) | "tens" >> tens | beam.CombinePerKey(sum)
        four = p | beam.Create([4]) | "timed" >> beam.Map(lambda n: beam.window.TimestampedValue(n, n))
        read = beam.Map(lambda n, sides: (n, sides), beam.pvalue.AsDict(sums))
        four | "in tens" >> tens | read | beam.Map(see)
    assert seen == [(4, {"a": 3})]


def test_a_timer_of_processing_time_holds_the_watermark() -> None:
    require_holds()


def test_a_side_is_complete_when_it_is_read() -> None:
    require_sides()


def forget_state(node: StatefulNode, watermark: int) -> list[Any]:
    """Saves the timers only."""
    node.servicer._state.clear()
    return SAVE(node, watermark)


def forget_holds(node: StatefulNode, watermark: int) -> list[Any]:
    """Saves rows without holds."""
    return [(*row[:4], None, *row[5:]) for row in SAVE(node, watermark)]


SAVE = StatefulNode.save
FAULTS: dict[str, tuple[Any, str, Any, Callable[[], None]]] = {
    "state is forgotten": (StatefulNode, "save", forget_state, lambda: require_model(EXAMPLE)),
    "timers are never due": (
        StatefulNode,
        "_due",
        lambda node, watermark: {},
        lambda: require_model(EXAMPLE),
    ),
    "shards are mixed up": (beam_run, "StatefulNode", MixedUp, lambda: require_model(EXAMPLE)),
    "nothing holds the watermark": (StatefulNode, "save", forget_holds, require_holds),
    "sides are ready at once": (SideGate, "_is_ready", lambda *arguments: True, require_sides),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_these_tests_find_a_fault_of_the_runner(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, name, wrong, require = FAULTS[fault]
    require()
    monkeypatch.setattr(place, name, wrong)
    with pytest.raises(AssertionError):
        require()
