"""The panes of a stage that is played with counts of elements, in place of a run with another trigger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import attrs
import polars as pl

from beamlike.errors import ViewError
from beamlike.observe.tuning.stages import Range, windows_of
from beamlike.records.emission import emission
from beamlike.records.graph import StageDescription
from stages.aggregates.builtin import Count
from stages.grouping.grouping import Grouping
from stages.operator import MAIN
from stages.stage import Stage
from stages.state.store import DictStore
from windowing.clocks import Times
from windowing.columns import EVENT_TIME, PANE_FIRST, PANE_RETRACTED, PANE_TIMING
from windowing.time import MIN_TIME, Microseconds
from windowing.windowing import Windowing
from windowing.windows import GlobalWindows

RETRACTED = "retracted"


@attrs.frozen
class StagePanes:
    """The panes of a stage in a run: how many windows emitted, and the counts of their panes.

    Attributes:
        windows: The windows, each of a key, that emitted.
        panes: The panes, without retractions.
        rows: The emitted rows, with retractions.
        corrections: The panes that follow an earlier pane of their window.
        timings: The panes by timing, "early", "on_time" or "late"; empty if they are not known exactly.
    """

    windows: Range
    panes: Range
    rows: Range
    corrections: Range
    timings: Mapping[str, int]

    @property
    def exact(self) -> bool:
        """True if all counts are known exactly."""
        return self.panes.exact and self.rows.exact and self.corrections.exact


def windowing_of(name: str, stage: StageDescription) -> Windowing:
    """Returns the windowing of a stage. Raises `ViewError` if the records do not have it."""
    windows = windows_of(stage) or (GlobalWindows() if stage.global_window else None)
    if windows is None:
        raise ViewError(
            f"stage {name!r} has {stage.choices.get('windows', 'no windows')}: only fixed, sliding, calendar and "
            "session windows and the global window are predicted from records"
        )
    if (choices := emission(stage.emission)) is None:
        raise ViewError(
            f"the records do not have the trigger of stage {name!r} as data: an earlier version wrote them, or its "
            "timestamp combiner chooses an element by a column; run it again with this version"
        )
    # The run has accepted the loss of data and repeated elements, if its windowing has any.
    return Windowing(
        windows,
        allowed_lateness=Microseconds(stage.allowed_lateness),
        allow_data_loss=True,
        allow_repeats=True,
        **choices,
    )


@attrs.define(eq=False)
class PlayedStage:
    """A stage that is played with counts, all elements of a window together, whatever their keys.

    `columns` are those of its elements. `output` is its output watermark (us). `batches` has the rows of each batch by
    timing, or as `RETRACTED`.
    """

    stage: Stage
    windowing: Windowing
    columns: tuple[str, ...]
    store: DictStore = attrs.field(factory=DictStore)
    output: int = MIN_TIME
    batches: list[dict[str, int]] = attrs.field(factory=list)
    windows: int = 0

    @classmethod
    def of(cls, name: str, windowing: Windowing, *, changes: bool = False) -> PlayedStage:
        """Creates the stage. `changes`: its elements may retract earlier ones."""
        columns = {EVENT_TIME: pl.Int64(), **({PANE_RETRACTED: pl.Boolean()} if changes else {})}
        grouping = Grouping((), windowing, {"n": Count()}, pl.Schema(columns), retractions=changes)
        return cls(Stage(name, grouping), windowing, tuple(columns))

    def step(self, arrivals: pl.DataFrame, times: Times) -> pl.DataFrame:
        """Plays a batch with elements at these event times, and returns the panes."""
        result = self.stage.step(self.store, {MAIN: arrivals}, times)
        self.output = result.watermarks.output
        if result.panes.is_empty():
            self.batches.append({})
            return result.panes
        kind = pl.when(PANE_RETRACTED).then(pl.lit(RETRACTED)).otherwise(PANE_TIMING)
        self.batches.append(dict(result.panes.select(kind).to_series().value_counts().rows()))
        self.windows += result.panes.filter(pl.col(PANE_FIRST) & ~pl.col(PANE_RETRACTED)).height
        return result.panes

    @property
    def counts(self) -> StagePanes:
        """The counts of all batches so far."""
        found = sum(map(Counter, self.batches), Counter[str]())
        rows, panes = found.total(), found.total() - found.pop(RETRACTED, 0)
        return StagePanes(
            Range(self.windows, self.windows),
            Range(panes, panes),
            Range(rows, rows),
            Range(panes - self.windows, panes - self.windows),
            dict(found),
        )
