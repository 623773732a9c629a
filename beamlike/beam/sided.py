"""A fused stage without state that reads side inputs, as a stage of the engine. Its elements wait for the sides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any, Final, Protocol

import attrs
import polars as pl
from apache_beam.coders.coder_impl import create_OutputStream
from apache_beam.utils.windowed_value import WindowedValue

from beamlike.beam.bundles import Bundles
from beamlike.beam.cells import BUFFER, DATA, ELEMENT, WINDOW
from beamlike.beam.nodes import StageNode
from beamlike.beam.strategies import end_of
from stages.clock import StepClock
from stages.declared import Declaration, Text
from stages.dropped import LATE
from stages.operator import MAIN, Input, Operator, StepOutput
from stages.sides.contents import SideContents
from stages.sides.declarations import Side
from stages.sides.gate import SideGate
from stages.sides.operator import sides_facts
from stages.stage import Stage, StageResult
from stages.state.store import StateStore
from stages.state_tables import State, StateTable, Table
from windowing.clocks import WATERMARK, Times
from windowing.columns import EVENT_TIME, WINDOW_END
from windowing.time import GLOBAL_WINDOW_END, MIN_TIME
from windowing.windows import GlobalWindows

COUNT: Final = "count"
OUTPUT: Final = pl.Schema({BUFFER: pl.Binary(), DATA: pl.Binary()})
"""The columns of output: a buffer, and encoded elements."""
PLACED: Final = pl.Schema(
    {
        ELEMENT: pl.Binary(),
        WINDOW: pl.Binary(),
        EVENT_TIME: pl.Int64(),
        WINDOW_END: pl.Int64(),
        COUNT: pl.Int64(),
    }
)
"""The columns of encoded elements in one window, with the least event time and their number. Elements without a window
never wait, and are not counted, since they are never late.
"""
_ROW_BYTES: Final = 1 << 16
"""The size of encoded elements from which a further row begins."""


class Host(Protocol):
    """The worker that processes elements with side inputs."""

    def process(self, chunks: list[bytes]) -> list[tuple[bytes, bytes]]:
        """Processes elements. Returns the output: buffers and encoded elements."""

    def reading(self, contents: SideContents) -> AbstractContextManager[None]:
        """Lets the worker read this content of side inputs during a `with` block."""


@attrs.frozen(slots=False, eq=False)
class SidesParDo(Operator):
    """The operator of a fused stage without state that reads sides.

    An element is late only if the content that it would read is gone.

    Attributes:
        host: The worker.
        sides: The side inputs.
        side_lateness: The duration (us) after the end of a window for which its content of sides is stored.
        title: The labels of the transforms.
    """

    host: Host
    sides: tuple[Side, ...]
    side_lateness: int
    title: str

    @cached_property
    def gate(self) -> SideGate:
        """The sides, and the elements that wait for them."""
        return SideGate(PLACED, self.sides, self.side_lateness, self.title, window=WINDOW)

    @cached_property
    def inputs(self) -> Mapping[str, Input]:
        return {MAIN: Input((), PLACED, "anywhere"), **self.gate.inputs}

    @property
    def tables(self) -> tuple[StateTable[Table], ...]:
        return self.gate.tables

    @property
    def clocks(self) -> tuple[str, ...]:
        return (WATERMARK, *self.gate.clocks)

    @property
    def python(self) -> bool:
        return True

    @property
    def declared(self) -> Declaration:
        return Declaration("ParDo", {"transforms": self.title, "sides": self.gate.choices}, exact=True)

    def facts(self, text: Text) -> Mapping[str, str]:
        return {"operator": f"ParDo {self.title}", **sides_facts(self.sides, text)}

    def step(self, state: State, arrivals: Mapping[str, pl.DataFrame], clock: StepClock) -> StepOutput:
        arrived = arrivals[MAIN]
        contents = self.gate.updated(state, arrivals, clock)
        gone = self.gate.is_gone(arrived, clock)
        admitted = self.gate.admitted(state, arrived.filter(~gone), contents, clock)
        elements = [each for part in admitted for each in part[ELEMENT]]
        with self.host.reading(contents):
            written = self.host.process(elements) if elements else []
        panes, late = pl.DataFrame(written, OUTPUT, orient="row"), int(arrived.filter(gone)[COUNT].sum())
        dropped = {LATE: late} if late else {}
        return StepOutput(panes, len(arrived), len(arrived), len(elements), dropped)


class SidedNode(StageNode):
    """A fused stage without state that reads sides."""

    def __init__(
        self, stage: Any, manager: Any, inputs: Mapping[str, bytes], bundles: Bundles, store: StateStore
    ) -> None:
        super().__init__(stage, manager, inputs)
        self.bundles, self.store = bundles, store
        (self.name,) = inputs
        self.operator = SidesParDo(self, self.sides.declared(self), self.side_lateness, self.first)
        self.engine = Stage(self.key, self.operator)
        self.clock: Times | None = None
        self.done: StageResult | None = None
        self.waiting = 0
        """The number of rows that wait."""

    def saved(self) -> Iterator[tuple[str, Any]]:
        yield from super().saved()
        yield "clock", None if self.clock is None else (dict(self.clock.times), self.waiting)

    def resume(self, saved: Mapping[str, Any]) -> None:
        super().resume(saved)
        if saved["clock"] is not None:
            times, self.waiting = saved["clock"]
            self.clock = Times(times)

    def step(self, watermark: int, sides: Mapping[str, int]) -> tuple[list[tuple[bytes, bytes]], bool]:
        """Processes the elements that need not wait, then advances the clocks (us) of the stage and of its sides.

        Returns the output, and true if anything has happened.
        """
        self.take_due(self.bundles.now())
        begun = MIN_TIME if self.clock is None else self.clock.watermark
        if self.splittable and (self.has_pending or self.waiting or self.residuals):
            # The rest of an element's input may read the same windows of the sides.
            watermark = begun
        to = Times.of(watermark, sides=sides)
        arrived = self.has_pending or any(self.side_pending.values())
        if not arrived and self.clock is not None and self.clock.advance(to) == self.clock:
            return [], False
        (chunks,), self.pending = self.pending.values(), {name: [] for name in self.inputs}
        ended = all(time >= GLOBAL_WINDOW_END for time in sides.values())
        stays = begun == MIN_TIME or all(
            isinstance(side.windows, GlobalWindows) for side in self.operator.sides
        )
        rows = undivided(chunks) if ended and stays else self.placed(chunks)
        done = self.done = self.engine.step(self.store, {MAIN: rows, **self.side_arrivals()}, to)
        self.clock, self.waiting, self.held = to, done.pending, done.holder
        moved = self.advance(done.watermarks.output)
        return list(done.panes.iter_rows()), bool(arrived or len(done.panes)) or moved

    def placed(self, chunks: Iterable[bytes]) -> pl.DataFrame:
        """Decodes elements to a row for each run of elements in the same window."""
        coder, rows = self.manager.get_input_coder_impl(self.name), list[tuple[bytes, bytes, int, int, int]]()
        out, window, earliest, count = create_OutputStream(), None, 0, 0
        for element in coder.decode_all(b"".join(chunks)):
            for own in element.windows:
                if out.size() and (own != window or out.size() > _ROW_BYTES):
                    rows.append((*self._run(out, window, earliest), count))
                    out, count = create_OutputStream(), 0
                time = element.timestamp_micros
                earliest = min(earliest, time) if out.size() else time
                window, count = own, count + 1
                alone = element if len(element.windows) == 1 else in_window(element, own)
                coder.encode_to_stream(alone, out, True)
        if out.size():
            rows.append((*self._run(out, window, earliest), count))
        return pl.DataFrame(rows, PLACED, orient="row")

    def _run(self, out: Any, window: Any, earliest: int) -> tuple[bytes, bytes, int, int]:
        return out.get(), self.window_coder.encode_nested(window), earliest, end_of(window)

    def process(self, chunks: list[bytes]) -> list[tuple[bytes, bytes]]:
        return self.bundles.process(self, {self.name: chunks}, {})


def in_window(element: Any, window: Any) -> Any:
    """Returns an element in one of its windows."""
    return WindowedValue(element.value, element.timestamp, (window,), element.pane_info)


def undivided(chunks: Iterable[bytes]) -> pl.DataFrame:
    """Returns rows of elements that need not wait, whatever their windows are."""
    rows = [(chunk, None, MIN_TIME, GLOBAL_WINDOW_END, 0) for chunk in chunks]
    return pl.DataFrame(rows, PLACED, orient="row")
