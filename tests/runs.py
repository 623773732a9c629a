"""The grouping stage behind the model's interface, and whole streams played on either."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import attrs
import polars as pl

from stages.aggregates import Aggregate, Collect, Count, Sum
from stages.grouping import Grouping
from stages.stage import Stage
from stages.state import DictStore
from stages.watermarks import Clock
from tests.model import MIN_TIME, Element, Model, Pane, Step
from tests.strategies import Bundle, Stream
from windowing import Windowing
from windowing.columns import (
    EVENT_TIME,
    PANE_FIRST,
    PANE_INDEX,
    PANE_LAST,
    PANE_NONSPECULATIVE_INDEX,
    PANE_TIMING,
    WINDOW_END,
    WINDOW_START,
)

SCHEMA = pl.Schema({"key": pl.String(), "value": pl.Int64()})
ARRIVALS = {**SCHEMA, EVENT_TIME: pl.Int64()}
AGGREGATES: Mapping[str, Aggregate] = {"values": Collect("value"), "n": Count(), "total": Sum("value")}


class Run(Protocol):
    """The model, or a stage that looks like it."""

    input_watermark: int

    def step(self, elements: Iterable[Element], watermark: int, processing_time: int = 0) -> Step: ...


class StageRun:
    """A stage and its state; `frame` has the panes of the last step as the stage gave them."""

    def __init__(self, windowing: Windowing, aggregates: Mapping[str, Aggregate] = AGGREGATES) -> None:
        grouping = Grouping(keys=("key",), windowing=windowing, aggregates=aggregates, schema=SCHEMA)
        self.stage = Stage("grouping", grouping)
        self.store = DictStore()
        self.input_watermark = MIN_TIME
        self.frame = pl.DataFrame()

    def step(self, elements: Iterable[Element], watermark: int, processing_time: int = 0) -> Step:
        """One bundle, then the clock; the columns `values`, EVENT_TIME, WINDOW_* and PANE_* become panes."""
        arrivals = pl.DataFrame(list(elements), schema=ARRIVALS, orient="row")
        step = self.stage.step(self.store, arrivals, Clock(watermark, processing_time))
        self.frame, self.input_watermark = step.panes, step.watermarks.input
        hold = None if step.holder is None else step.holder.hold
        panes = [_pane(row) for row in step.panes.iter_rows(named=True)]
        late, closed = step.dropped["late"], step.dropped["closed"]
        return Step(panes, late, closed, step.watermarks.output, hold, step.live)


def _pane(row: dict[str, Any]) -> Pane:
    return Pane(
        key=row["key"],
        window=(row[WINDOW_START], row[WINDOW_END]),
        values=sorted(row["values"], key=lambda value: (value is None, value)),
        timestamp=row[EVENT_TIME],
        timing=row[PANE_TIMING],
        index=row[PANE_INDEX],
        nonspeculative_index=row[PANE_NONSPECULATIVE_INDEX],
        first=row[PANE_FIRST],
        last=row[PANE_LAST],
    )


def in_order(step: Step) -> Step:
    """The same with panes sorted: the order of the panes of one step means nothing."""
    return attrs.evolve(step, panes=sorted_panes(step.panes))


def sorted_panes(panes: Iterable[Pane]) -> list[Pane]:
    """By key, window and index."""
    return sorted(panes, key=lambda pane: (pane.key, pane.window, pane.index, pane.values))


def play(run: Run, stream: Sequence[Bundle]) -> list[Step]:
    """What each step of the stream gives."""
    return [in_order(run.step(bundle.elements, bundle.watermark)) for bundle in stream]


def panes_of(windowing: Windowing, stream: Stream, run: type[Model | StageRun] = StageRun) -> list[Pane]:
    """All panes of a stream, in order of emission."""
    return [pane for step in play(run(windowing), stream) for pane in step.panes]
