"""What rows come from: a declaration for each kind of node."""

from __future__ import annotations

import attrs
import polars as pl

from beamlike.io.base import Source
from beamlike.logical.watermark import NoEventTime
from beamlike.steps.base import Step
from stages.aggregates.base import Aggregate
from stages.joins.base import TimeJoin
from stages.process.keyed import Keyed
from stages.sides.operator import SideInputs
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
class Apply:
    """What an operator makes of the rows of its inputs: of the first, and of the sides that it has."""

    operator: Keyed | TimeJoin | SideInputs


@attrs.frozen
class Late:
    """The elements that a grouping dropped."""


Origin = Read | DeadLetters | Flatten | Configure | Group | Apply | Late | Step

OfStage = Group | Apply
"""What makes a stage of the plan: it looks at rows that have come before."""
