"""The grouping stage behind the model's interface, and streams played on either."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import attrs
import polars as pl

from stages.aggregates.base import Aggregate
from stages.aggregates.builtin import Collect, Count
from stages.aggregates.combine_fn import CombineFn
from stages.aggregates.totals import Sum
from stages.grouping.grouping import Grouping
from stages.operator import MAIN, Refused
from stages.stage import Stage
from stages.state.store import DictStore
from stages.strategies.histogram import Histogram
from tests.support.model import MIN_TIME, Dropped, Element, Model, Pane, Step, chosen
from tests.support.strategies import Bundle, Stream
from windowing import Windowing
from windowing.clocks import Times
from windowing.columns import (
    EVENT_TIME,
    PANE_FIRST,
    PANE_INDEX,
    PANE_LAST,
    PANE_NONSPECULATIVE_INDEX,
    PANE_RETRACTED,
    PANE_TIMING,
    WINDOW_END,
    WINDOW_START,
)

SCHEMA = pl.Schema({"key": pl.String(), "value": pl.Int64(), "chosen": pl.Boolean()})
ARRIVALS = {**SCHEMA, EVENT_TIME: pl.Int64()}
AGGREGATES: Mapping[str, Aggregate] = {"values": Collect("value"), "n": Count(), "total": Sum("value")}


class Run(Protocol):
    """The interface of the model, and of a stage run like it."""

    @property
    def input_watermark(self) -> int: ...

    def step(
        self,
        elements: Iterable[Element],
        watermark: int,
        processing_time: int = 0,
        percentiles: Mapping[int, int] | None = None,
    ) -> Step: ...


class StageRun:
    """A stage and its state; `frame` has the panes of the last step as the stage emitted them."""

    def __init__(self, windowing: Windowing, aggregates: Mapping[str, Aggregate] = AGGREGATES) -> None:
        late_columns = ("key", "value")
        grouping = Grouping(("key",), windowing, aggregates, SCHEMA, late_columns=late_columns)
        self.stage = Stage("grouping", grouping)
        self.store = DictStore()
        self.input_watermark = MIN_TIME
        self.frame = pl.DataFrame()
        self.refused: Refused | None = None

    def step(
        self,
        elements: Iterable[Element],
        watermark: int,
        processing_time: int = 0,
        percentiles: Mapping[int, int] | None = None,
    ) -> Step:
        """Processes one bundle, then moves the clock; `values`, EVENT_TIME, WINDOW_* and PANE_* become panes."""
        step = self.stage.step(
            self.store, {MAIN: arrivals(elements)}, Times.of(watermark, processing_time, percentiles or {})
        )
        self.frame, self.refused, self.input_watermark = step.panes, step.refused, step.watermarks.input
        return Step(
            panes=[_pane(row) for row in step.panes.iter_rows(named=True)],
            dropped=[_dropped(row) for row in step.late.iter_rows(named=True)],
            late=step.dropped["late"],
            closed=step.dropped["closed"],
            nowhere=step.dropped["no window"],
            output_watermark=step.watermarks.output,
            hold=None if step.holder is None else step.holder.hold,
            live=step.live,
            held=_each_time(step.holds) if percentiles else [],
        )


class InOrder(CombineFn):
    """Collects all values in the order of arrival."""

    def create_accumulator(self) -> list[int]:
        return []

    def add_input(self, accumulator: list[int], element: int) -> list[int]:
        return [*accumulator, element]

    def merge_accumulators(self, accumulators: list[list[int]]) -> list[int]:
        return [element for accumulator in accumulators for element in accumulator]

    def extract_output(self, accumulator: list[int]) -> list[int]:
        return accumulator


def arrivals(elements: Iterable[Element]) -> pl.DataFrame:
    """Returns elements as a stage receives them."""
    rows = [(key, value, value is not None and chosen(value), time) for key, value, time in elements]
    return pl.DataFrame(rows, schema=ARRIVALS, orient="row")


def _each_time(holds: Histogram) -> list[int]:
    """Returns the times of an exact histogram."""
    assert holds.get("level", 0) == 0
    counted = zip(holds.get("buckets", ()), holds.get("counts", ()), strict=True)
    return [time for time, count in counted for _ in range(count)]


def _dropped(row: dict[str, Any]) -> Dropped:
    return row["key"], row["value"], row[EVENT_TIME], (row[WINDOW_START], row[WINDOW_END]), row["reason"]


def _pane(row: dict[str, Any]) -> Pane:
    return Pane(
        key=row["key"],
        window=(row[WINDOW_START], row[WINDOW_END]),
        values=row["values"],
        timestamp=row[EVENT_TIME],
        timing=row[PANE_TIMING],
        index=row[PANE_INDEX],
        nonspeculative_index=row[PANE_NONSPECULATIVE_INDEX],
        first=row[PANE_FIRST],
        last=row[PANE_LAST],
        retracted=row[PANE_RETRACTED],
    )


def in_order(step: Step) -> Step:
    """Returns the step with sorted panes and dropped elements: the order of windows in a step has no meaning."""
    return attrs.evolve(step, panes=sorted_panes(step.panes), dropped=sorted(step.dropped, key=repr))


def sorted_panes(panes: Iterable[Pane]) -> list[Pane]:
    """Returns panes by key, window and index, retracted ones first."""
    return sorted(
        panes, key=lambda pane: (pane.key, pane.window, not pane.retracted, pane.index, pane.values)
    )


def advance(run: Run, bundle: Bundle) -> Step:
    """Runs the next step of a stream."""
    return run.step(bundle.elements, bundle.watermark, bundle.processing_time, bundle.percentiles)


def play(run: Run, stream: Sequence[Bundle]) -> list[Step]:
    """Returns the result of each step of the stream."""
    return [in_order(advance(run, bundle)) for bundle in stream]


def panes_of(windowing: Windowing, stream: Stream, run: type[Model | StageRun] = StageRun) -> list[Pane]:
    """Returns all panes of a stream, in order of emission."""
    return [pane for step in play(run(windowing), stream) for pane in step.panes]
