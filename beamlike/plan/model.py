"""The plan: what both runners run. Sources, stages and sinks, with routes between them."""

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
    """A source, how its rows get their event time, and where they go. `schema` has the user's columns.

    `raw` are the columns of the source itself. Its rows go through the `prelude`; then their event time is read from
    `time`, if there is one; then they go through the `interlude`, and the watermark sees them. No event time may be
    further than `max_future` microseconds after processing time, if that is given. `on_error` says what becomes of
    rows that cannot be used. `whole`: only side inputs read it, and need all of it, so it is read in the first batch,
    and is over then.
    """

    name: str
    source: Source
    time: EventTime | None
    watermark: WatermarkStrategy
    raw: pl.Schema
    schema: pl.Schema
    routes: tuple[Route, ...]
    prelude: tuple[Step, ...] = ()
    interlude: tuple[Step, ...] = ()
    max_future: int | None = None
    on_error: OnError = "dead_letters"
    whole: bool = False
    named: bool = True
    """Whether the user has given the name."""

    @property
    def timed(self) -> bool:
        """Whether its rows have an event time."""
        return not isinstance(self.watermark, NoEventTime)

    @property
    def system(self) -> tuple[str, ...]:
        """The system columns of its rows."""
        return (EVENT_TIME,) if self.timed else ()

    @property
    def python(self) -> bool:
        """Whether functions of the user's are called with its rows, before a stage or sink has them."""
        steps = chain(self.prelude, self.interlude, *(route.path for route in self.routes))
        return any(step.python for step in steps)

    def only(self, routes: Iterable[Route]) -> SourcePlan:
        """With these routes alone, and all that comes on them."""
        return attrs.evolve(self, routes=tuple(attrs.evolve(route, silent=False) for route in routes))

    @cached_property
    def needed(self) -> tuple[str, ...]:
        """The event time, then those of the user's columns that its routes or its watermark need."""
        wanted = frozenset(self.watermark.columns).union(*(route.needed for route in self.routes))
        return (*self.system, *(column for column in self.schema if column in wanted))


@attrs.frozen
class TablePlan:
    """A side that is the same for all rows of a run, and so is read once, before the first batch.

    `sources` are those of the plan from which it is made, with the routes that lead to it, by its name; they are read
    in the first batch, too, where what they have is counted. Looking a row up in it takes no state, only the table.
    """

    name: str
    side: Side
    sources: tuple[SourcePlan, ...]
    named: bool = True
    """Whether the user has given the name."""

    @property
    def schema(self) -> pl.Schema:
        """The columns of the side, and the event time of its rows, null where they have none."""
        return pl.Schema({**self.side.schema, EVENT_TIME: pl.Int64()})


@attrs.frozen(kw_only=True)
class StagePlan:
    """A stage, the names of what it reads from, and where its panes go. `schema` has their user columns.

    `level` is the length of the longest way from a source. `keyed` says that shards can share the work. `skews`: by
    how many microseconds event times may be set back on the way from an input, where that is so at all. `on_error`
    says what becomes of rows that it cannot use, and of panes that a step after it cannot use. `roles`: what it reads
    at which of its inputs, if it has several.
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
    """Whether the user has given the name."""
    part: str = ""
    """What its name has after that of its step, if that makes several things: `.pairs`."""

    @property
    def python(self) -> bool:
        """Whether its steps, or those after it, call functions of the user's."""
        steps = chain.from_iterable(route.path for route in self.routes)
        return self.stage.operator.python or any(step.python for step in steps)

    def reads(self, role: str) -> tuple[str, ...]:
        """The names of what it reads at this input."""
        return self.roles.get(role, self.inputs if role == MAIN else ())


@attrs.frozen
class SinkPlan:
    """A sink and the names of what it is fed from. `schema` has the user's columns, then the system's."""

    name: str
    sink: Sink
    inputs: tuple[str, ...]
    schema: pl.Schema


@attrs.frozen(kw_only=True)
class Plan:
    """What both runners run. `stages` are in order: a stage comes after all that it reads from.

    `graph` has sources and stages; `levels` has the names of the stages, level 1 first. More than `max_dead_letters`,
    a count or a share of the rows that were read, fail the run. `tables` are the sides that steps look rows up in.
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
        """True if the end of a run may come before that of its input: it was `asked` to, or a source has no end."""
        return asked or not all(
            one.source.bounded or isinstance(one.source, Refreshed) for one in self.sources.values()
        )

    @property
    def ends(self) -> bool:
        """True if a run without a checkpoint can come to the end of all sources, as none is Spark's own without one."""
        sources = [plan.source for plan in self.sources.values()]
        own = [one for one in sources if isinstance(one, ReadBySpark) and not isinstance(one, InProcess)]
        return all(one.bounded for one in own)

    @property
    def producers(self) -> dict[str, SourcePlan | StagePlan]:
        """All that has routes, by name: sources, then stages in order."""
        return {**self.sources, **self.stages}


class Planned(Protocol):
    """Something that has a plan, as a pipeline has."""

    def plan(self) -> Plan:
        """The plan."""


def plan_of(given: Plan | Planned, taker: str) -> Plan:
    """The plan that `taker` is given, itself or as that of a pipeline. Raises `WrongType` for anything else."""
    if isinstance(given, Plan):
        return given
    made = given.plan() if callable(getattr(given, "plan", None)) else None
    if not isinstance(made, Plan):
        raise WrongType(f"{taker} takes a pipeline or its plan, not {given!r}")
    return made
