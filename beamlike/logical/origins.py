"""Origins: what a node declares, with a class for each kind of declaration."""

from __future__ import annotations

import attrs
import polars as pl

from beamlike.io.base import Source
from beamlike.logical.watermark import NoEventTime
from beamlike.steps.base import Step
from stages.aggregates.base import Aggregate
from stages.operator import Operator
from stages.sides.declarations import Side
from stages.sides.lookup import LookedUp
from stages.strategies.base import WatermarkStrategy
from windowing.columns import EVENT_TIME


@attrs.frozen
class EventTime:
    """An event-time column: its name, its type, and the unit if it contains numbers."""

    column: str
    dtype: pl.DataType
    unit: str | None = None


@attrs.frozen
class Read:
    """A source to read.

    Attributes:
        raw: The columns of the source itself.
        time: The column with the event time; None if it is assigned at ingest, or if rows have no event time.
        watermark: The strategy of the watermark.
        steps_before_time: The steps that run before the event time is read.
        steps_after_time: The steps that run after the event time is read, and before the watermark is computed.
        max_future: The microseconds by which an event time may be ahead of processing time; None for no limit.
    """

    source: Source
    raw: pl.Schema
    time: EventTime | None = None
    watermark: WatermarkStrategy = attrs.field(factory=NoEventTime)
    steps_before_time: tuple[Step, ...] = ()
    steps_after_time: tuple[Step, ...] = ()
    max_future: int | None = None

    @property
    def system(self) -> tuple[str, ...]:
        """The system columns of the rows."""
        return () if isinstance(self.watermark, NoEventTime) else (EVENT_TIME,)


@attrs.frozen
class DeadLetters:
    """The rows that a source or step could not use."""


@attrs.frozen
class Flatten:
    """The union of several collections."""


@attrs.frozen
class Configure:
    """The rows of a node in the same windows, with other settings for panes."""


@attrs.frozen
class Promise:
    """A promise about the on-time panes of a grouping: at least the share `complete` of the rows of a window has been
    read when the pane is emitted, at most `within` (us) of event time after the end of the window.

    If `hold`, the grouping waits for the share, for at most `within`.
    """

    complete: float
    within: int
    hold: bool = False


@attrs.frozen
class Group:
    """A grouping: aggregates per key and window."""

    keys: tuple[str, ...]
    aggregates: dict[str, Aggregate]
    promise: Promise | None = None


@attrs.frozen(eq=False)
class SideLookup:
    """The side lookups of a step. `sides` are in the order of the node's inputs, after the main input."""

    use: LookedUp
    sides: tuple[Side, ...]


@attrs.frozen(eq=False)
class Apply:
    """The rows that an operator emits. A node has one input for each role of the operator, in the same order.

    `lookup` is set if the operator does nothing but lookups.
    """

    operator: Operator
    lookup: SideLookup | None = None


@attrs.frozen
class Late:
    """The elements that a grouping dropped as late."""


Origin = Read | DeadLetters | Flatten | Configure | Group | Apply | Late | Step

OfStage = Group | Apply
"""Origins that become a stage of the plan, because they need state."""
