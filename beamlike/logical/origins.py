"""What rows come from: a declaration for each kind of node."""

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
    """The column with the event time, its type, and the unit if it has numbers."""

    column: str
    dtype: pl.DataType
    unit: str | None = None


@attrs.frozen
class Read:
    """The rows of a source: after the `prelude` they get their event time, after the `interlude` `watermark` sees them.

    `time` is None where event time is assigned at ingest, or where there is none. `raw` has the source's own columns.
    `max_future`: how many microseconds after processing time event times may be; None if that does not matter.
    """

    source: Source
    raw: pl.Schema
    time: EventTime | None = None
    watermark: WatermarkStrategy = attrs.field(factory=NoEventTime)
    prelude: tuple[Step, ...] = ()
    interlude: tuple[Step, ...] = ()
    max_future: int | None = None

    @property
    def system(self) -> tuple[str, ...]:
        """The system columns of its rows."""
        return () if isinstance(self.watermark, NoEventTime) else (EVENT_TIME,)


@attrs.frozen
class DeadLetters:
    """The rows that a source or a step cannot use."""


@attrs.frozen
class Flatten:
    """The rows of several collections."""


@attrs.frozen
class Configure:
    """The same rows in the same windows, with other choices of when and how they are emitted."""


@attrs.frozen
class Group:
    """Aggregates per key and window."""

    keys: tuple[str, ...]
    aggregates: dict[str, Aggregate]


@attrs.frozen(eq=False)
class SideLookup:
    """The lookups of a step in its sides, in the order of the node's inputs after the first."""

    use: LookedUp
    sides: tuple[Side, ...]


@attrs.frozen(eq=False)
class Apply:
    """The rows that an operator emits. A node has one input for each role of the operator, in this order.

    `lookup`: the lookups that are all that the operator does; None for any other operator.
    """

    operator: Operator
    lookup: SideLookup | None = None


@attrs.frozen
class Late:
    """The elements that a grouping dropped."""


Origin = Read | DeadLetters | Flatten | Configure | Group | Apply | Late | Step

OfStage = Group | Apply
"""What makes a stage of the plan: it looks at rows that have come before."""
