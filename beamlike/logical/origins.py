"""Where collections come from: the declarations behind them, and what must hold where event time begins."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import attrs
import polars as pl

from beamlike.errors import PlanError, unknown_column
from beamlike.io.test_stream.stream import TestStream
from beamlike.logical.watermark import NoEventTime, fitted, require_watermark
from beamlike.rows.event_time import check_event_time_type
from beamlike.steps.base import Select, Step, WindowInto, WithColumns
from beamlike.steps.infer import Shape
from beamlike.steps.timestamps import WithTimestamps, not_negative
from stages.aggregates.builtin import Aggregate
from stages.strategies.base import WatermarkStrategy
from windowing.columns import EVENT_TIME
from windowing.time import Duration

if TYPE_CHECKING:
    from beamlike.api.collection import Collection
    from beamlike.io.base import Source


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


@attrs.frozen
class Late:
    """The elements that a grouping dropped."""


Origin = Read | DeadLetters | Flatten | Configure | Group | Late | Step


def read(
    source: Any,
    raw: pl.Schema,
    timestamp: Any,
    unit: str | None,
    watermark: object,
    step: str,
    max_future: Duration | None = None,
) -> Read:
    """What `pipeline.read` declares; without timestamp and watermark, rows that have no event time yet."""
    limit = None if max_future is None else not_negative("max_future", max_future, step)
    if isinstance(source, TestStream):
        limit = None  # its processing time is its own, and need have nothing to do with its event time
    if timestamp is None and watermark is None:
        _require_no_unit(unit, step)
        return Read(source, raw, max_future=limit)
    if timestamp is not None:
        event_time_column(raw, timestamp, unit, step)
    strategy = require_watermark(source, watermark, step)
    time = event_time(raw, timestamp, unit, strategy, step)
    strategy = fitted(strategy, Shape(raw, (EVENT_TIME,)), step)
    return Read(source, raw, time, strategy, max_future=limit)


def reread(before: Collection, watermark: object, timestamp: Any, unit: str | None, step: str) -> Read:
    """What `with_watermark` declares: the source once more, with the steps since then in front."""
    origin, since = _since_read(before, step)
    if watermark is None:
        raise PlanError("give it a watermark strategy such as bl.BoundedOutOfOrderness('5s')", step=step)
    strategy = require_watermark(origin.source, watermark, step)
    shape = Shape(before.schema, (EVENT_TIME,))
    if timestamp is None and not strategy.assigns_event_time and origin.time is not None:
        _require_no_unit(unit, step)
        interlude = (*origin.interlude, *since)
        return attrs.evolve(origin, watermark=fitted(strategy, shape, step), interlude=interlude)
    time = event_time(before.schema, timestamp, unit, strategy, step)
    steps = (_without_time(taken, step) for taken in (*origin.prelude, *origin.interlude, *since))
    strategy = fitted(strategy, shape, step)
    return Read(origin.source, origin.raw, time, strategy, tuple(steps), max_future=origin.max_future)


def event_time(
    schema: pl.Schema, column: Any, unit: str | None, strategy: WatermarkStrategy, step: str
) -> EventTime | None:
    """Where it is: in a column that is there, and whose type can be read as a time, unless it is assigned."""
    if strategy.assigns_event_time:
        if column is not None:
            kind = type(strategy).__name__
            raise PlanError(
                f"{kind} makes the event time of an element the processing time at which it comes in; "
                f"leave out timestamp={column!r}",
                step=step,
            )
        _require_no_unit(unit, step)
        return None
    if column is None:
        raise PlanError(
            f"give timestamp=, the column with the event time that {type(strategy).__name__} goes by",
            step=step,
        )
    return event_time_column(schema, column, unit, step)


def event_time_column(schema: pl.Schema, column: Any, unit: str | None, step: str) -> EventTime:
    """The event time in a column, which must be there and have a type that can be read as a time."""
    if column not in schema:
        note = "; timestamp= names the column with the event time"
        raise unknown_column(column, schema, step, note=note)
    check_event_time_type(schema[column], unit, column=column, step=step)
    return EventTime(column, schema[column], unit)


def _require_no_unit(unit: str | None, step: str) -> None:
    if unit is not None:
        raise PlanError(f"timestamp_unit={unit!r} is that of a timestamp=, which is not given", step=step)


def _since_read(collection: Collection, step: str) -> tuple[Read, tuple[Step, ...]]:
    """The source of a collection, and the steps from there; what is no step in between is refused."""
    steps: tuple[Step, ...] = ()
    collection = collection.pipeline.latest(collection)
    while not isinstance(collection.origin, Read):
        origin = collection.origin
        if not isinstance(origin, Step) or isinstance(origin, WindowInto):
            raise PlanError(_refusal(origin, collection.name), step=step)
        steps = (origin, *steps)
        (before,) = collection.inputs
        collection = before.pipeline.latest(before)
    return collection.origin, steps


def _refusal(origin: Origin, name: str) -> str:
    """Why no watermark can be set after it."""
    match origin:
        case Group() | Late():
            return (
                f"{name!r} is a grouping, whose watermark follows from what it reads and holds; call with_watermark "
                "on what it reads"
            )
        case Flatten():
            return f"{name!r} has rows of several collections; call with_watermark on each of them before flatten"
        case DeadLetters():
            return f"{name!r} has dead letters, which have no event time"
        case _:
            return f"{name!r} has put the rows in windows, by their event time; call with_watermark before it"


def _without_time(taken: Step, step: str) -> Step:
    """The step as it is before there is an event time, which it must not read."""
    if isinstance(taken, Select):
        taken = attrs.evolve(taken, kept=())
    gives = frozenset(chain(*taken.gives)) if isinstance(taken, Select | WithColumns) else frozenset[str]()
    if isinstance(taken, WithTimestamps) or EVENT_TIME in taken.needs(gives):
        raise PlanError(
            f"the event time is only read here, and {taken.name!r} needs one before; leave out timestamp= to keep "
            "the one that the rows have, or change that step",
            step=step,
        )
    return taken
