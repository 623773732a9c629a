"""The plan that both runners run: sources, stages and sinks, with routes between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import chain
from typing import Protocol

import attrs
import polars as pl

from beamlike.errors import WrongType
from beamlike.io.base import Sink, Source
from beamlike.io.in_process import InProcess
from beamlike.io.refreshed import Refreshed
from beamlike.io.sources import ReadBySpark
from beamlike.logical.origins import EventTime
from beamlike.logical.watermark import NoEventTime
from beamlike.plan.route import Route
from beamlike.rows.dead_letters import OnError
from beamlike.steps.base import Step
from stages.graph import StageGraph
from stages.operator import MAIN
from stages.sides.declarations import Side
from stages.stage import Stage
from stages.strategies.base import WatermarkStrategy
from windowing.columns import EVENT_TIME


@attrs.frozen(kw_only=True)
class SourcePlan:
    """A source, the event time of its rows, and the routes on which they are sent.

    Attributes:
        time: The column with the event time; None if it is assigned at ingest or the rows have none.
        raw: The columns of the source itself.
        schema: The user's columns after all steps.
        steps_before_time: Steps before the event time is read.
        steps_after_time: Steps between the event time and the watermark.
        max_future: The microseconds that an event time may be after processing time; None for no limit.
        on_error: The treatment of rows that cannot be used.
        whole: True if only side inputs read it, and need all of it. It is then read to its end in the first batch.
    """

    name: str
    source: Source
    time: EventTime | None
    watermark: WatermarkStrategy
    raw: pl.Schema
    schema: pl.Schema
    routes: tuple[Route, ...]
    steps_before_time: tuple[Step, ...] = ()
    steps_after_time: tuple[Step, ...] = ()
    max_future: int | None = None
    on_error: OnError = "dead_letters"
    whole: bool = False
    named: bool = True
    """True if the user has given the name."""

    @property
    def timed(self) -> bool:
        """True if the rows have an event time."""
        return not isinstance(self.watermark, NoEventTime)

    @property
    def system(self) -> tuple[str, ...]:
        """The system columns of the rows."""
        return (EVENT_TIME,) if self.timed else ()

    @property
    def python(self) -> bool:
        """True if functions of the user's are called with the rows before a stage or sink receives them."""
        steps = chain(self.steps_before_time, self.steps_after_time, *(route.path for route in self.routes))
        return any(step.python for step in steps)

    def only(self, routes: Iterable[Route]) -> SourcePlan:
        """Returns the source with these routes alone, which carry all their rows."""
        # In the run itself, the first batch delivers only the dead letters of these routes: the table has the rows.
        carrying = tuple(attrs.evolve(route, dead_letters_only=False) for route in routes)
        return attrs.evolve(self, routes=carrying)

    @cached_property
    def needed(self) -> tuple[str, ...]:
        """The event time, then the user's columns that the routes or the watermark need."""
        wanted = frozenset(self.watermark.columns).union(*(route.needed for route in self.routes))
        return (*self.system, *(column for column in self.schema if column in wanted))


@attrs.frozen
class TablePlan:
    """A side that is the same for all rows of a run, and is read once, before the first batch.

    `sources` are the sources of its rows, with the routes to the table. The first batch reads them, too, and counts
    their rows. A lookup in a table needs no state.
    """

    name: str
    side: Side
    sources: tuple[SourcePlan, ...]
    named: bool = True
    """True if the user has given the name."""

    @property
    def schema(self) -> pl.Schema:
        """The columns of the side, and the event time of its rows, which is null if they have none."""
        return pl.Schema({**self.side.schema, EVENT_TIME: pl.Int64()})


@attrs.frozen(kw_only=True)
class StagePlan:
    """A stage, the names of the parts that it reads from, and the routes of its panes.

    Attributes:
        level: The length of the longest path from a source.
        keyed: True if shards can share the work.
        schema: The user's columns of the panes.
        skews: The microseconds by which event times may be set back on the way from an input, if any.
        on_error: The treatment of rows that the stage cannot use, and of panes that a step after it cannot use.
        roles: The names of the parts that it reads at each input, if it has several.
    """

    name: str
    stage: Stage
    inputs: tuple[str, ...]
    level: int
    keyed: bool
    schema: pl.Schema
    routes: tuple[Route, ...]
    skews: dict[str, int] = attrs.field(factory=dict)
    on_error: OnError = "dead_letters"
    roles: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)
    named: bool = True
    """True if the user has given the name."""
    part: str = ""
    """The end of the name after that of the step, such as `.pairs`, if the step makes several parts."""

    @property
    def python(self) -> bool:
        """True if the stage, or a step after it, calls functions of the user's."""
        steps = chain.from_iterable(route.path for route in self.routes)
        return self.stage.operator.python or any(step.python for step in steps)

    def reads(self, role: str) -> tuple[str, ...]:
        """Returns the names of the parts that the stage reads at this input."""
        return self.roles.get(role, self.inputs if role == MAIN else ())


@attrs.frozen
class SinkPlan:
    """A sink and the names of the parts that feed it. `schema` has the user's columns, then the system's."""

    name: str
    sink: Sink
    inputs: tuple[str, ...]
    schema: pl.Schema


@attrs.frozen(kw_only=True)
class Plan:
    """The plan of a pipeline, which both runners run.

    Attributes:
        stages: The stages in order: each is after all parts that it reads from.
        graph: Sources and stages.
        levels: The names of the stages by level, from level 1.
        max_dead_letters: The number of dead letters, or their share of all rows, above which the run fails.
        tables: The sides in which steps look rows up.
    """

    name: str
    sources: dict[str, SourcePlan]
    stages: dict[str, StagePlan]
    sinks: dict[str, SinkPlan]
    graph: StageGraph
    levels: tuple[tuple[str, ...], ...]
    max_dead_letters: int | float | None = None
    tables: Mapping[str, TablePlan] = attrs.field(factory=dict)

    def drains(self, *, asked: bool) -> bool:
        """True if a run may end before its input does: a drain was `asked` for, or a source has no end."""
        return asked or not all(
            one.source.bounded or isinstance(one.source, Refreshed) for one in self.sources.values()
        )

    @property
    def ends(self) -> bool:
        """True if a run without a checkpoint can reach the end of all sources: Spark reads no endless source itself."""
        sources = [plan.source for plan in self.sources.values()]
        own = [one for one in sources if isinstance(one, ReadBySpark) and not isinstance(one, InProcess)]
        return all(one.bounded for one in own)

    @property
    def producers(self) -> dict[str, SourcePlan | StagePlan]:
        """The sources, then the stages in order, by name."""
        return {**self.sources, **self.stages}


class Planned(Protocol):
    """An object that has a plan, such as a pipeline."""

    def plan(self) -> Plan:
        """Returns the plan."""


def plan_of(given: Plan | Planned, taker: str) -> Plan:
    """Returns the plan, or that of a pipeline. Raises `WrongType`, with the name of the `taker`, for anything else."""
    if isinstance(given, Plan):
        return given
    made = given.plan() if callable(getattr(given, "plan", None)) else None
    if not isinstance(made, Plan):
        raise WrongType(f"{taker} takes a pipeline or its plan, not {given!r}")
    return made
