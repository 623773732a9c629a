"""The plan that both runners execute: sources, stages and sinks, with the routes between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import chain
from typing import Protocol

import attrs
import polars as pl

from beamlike.errors import WrongType
from beamlike.io.base import Sink, Source
from beamlike.io.complete import is_complete
from beamlike.io.in_process import InProcess
from beamlike.io.refreshed import Refreshed
from beamlike.io.sources import ReadBySpark, ReadInFiles
from beamlike.logical.node import Kind
from beamlike.logical.origins import EventTime, Promise
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
    """A source, the event time of its rows, and the routes over which they are sent.

    Attributes:
        time: The column with the event time; None if it is assigned at ingest, or if rows have no event time.
        raw: The columns of the source itself.
        schema: The user's columns after all steps.
        steps_before_time: The steps that run before the event time is read.
        steps_after_time: The steps that run after the event time is read, and before the watermark is computed.
        max_future: The microseconds by which an event time may be ahead of processing time; None for no limit.
        on_error: The treatment of rows that cannot be used.
        whole: True if only side inputs read the source, and need all of it. The first batch then reads it to its end.
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
    """True if the user gave the name, False if it was derived."""
    observers: tuple[str, ...] = ()
    """The stages that need the lateness of the source, to compute the completeness of their windows."""

    @property
    def timed(self) -> bool:
        """True if the rows have an event time."""
        return not isinstance(self.watermark, NoEventTime)

    @property
    def complete(self) -> bool:
        """True if the watermark goes to the end of time when the input is read that exists when a run begins."""
        return is_complete(self.source) and not self.whole

    @property
    def system(self) -> tuple[str, ...]:
        """The system columns of the rows."""
        return (EVENT_TIME,) if self.timed else ()

    @property
    def python(self) -> bool:
        """True if rows pass a user's Python function before they reach a stage or sink."""
        steps = chain(self.steps_before_time, self.steps_after_time, *(route.path for route in self.routes))
        return any(step.python for step in steps)

    def only(self, routes: Iterable[Route]) -> SourcePlan:
        """Returns the source with only these routes. They deliver all their rows."""
        # In the plan of the run itself, these routes deliver only dead letters, because a lookup table
        # already has the rows.
        carrying = tuple(attrs.evolve(route, dead_letters_only=False) for route in routes)
        return attrs.evolve(self, routes=carrying)

    @cached_property
    def reads_files(self) -> bool:
        """True if the source lists files, which a batch reads."""
        return isinstance(self.source, ReadInFiles)

    @cached_property
    def needed(self) -> tuple[str, ...]:
        """The event time, and the user's columns that the routes or the watermark need."""
        wanted = frozenset(self.watermark.columns).union(*(route.needed for route in self.routes))
        return (*self.system, *(column for column in self.schema if column in wanted))


@attrs.frozen
class TablePlan:
    """A lookup table: a side that is the same for all rows of a run, and is read once, before the first batch.

    `sources` are the sources of its rows, with the routes to the table. The first batch reads them again, to count
    their rows. A lookup in a table needs no state.
    """

    name: str
    side: Side
    sources: tuple[SourcePlan, ...]
    named: bool = True
    """True if the user gave the name, False if it was derived."""

    @property
    def schema(self) -> pl.Schema:
        """The columns of the side, and the event time of its rows, which is null if they have none."""
        return pl.Schema({**self.side.schema, EVENT_TIME: pl.Int64()})


@attrs.frozen(kw_only=True)
class StagePlan:
    """A stage, the names of its inputs, and the routes of the rows that it emits.

    Attributes:
        level: The length of the longest path from a source to the stage.
        keyed: True if several shards can share the work.
        schema: The user's columns of the emitted rows.
        skews: By input, the microseconds by which steps on the way from it may move event times back.
        on_error: The treatment of rows that the stage, or a step after it, cannot use.
        roles: The names of the sources and stages that each input reads, if there are several inputs.
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
    """True if the user gave the name, False if it was derived."""
    part: str = ""
    """The suffix of the name after the step's name, such as `.pairs`, if the step consists of several parts."""
    kind: Kind = "rows"
    """The relation of the rows that it emits to earlier ones."""
    observes: Mapping[str, int] = attrs.field(factory=dict)
    """The sources whose lateness decides the completeness of its windows, directly before it or further upstream.

    Each has the microseconds by which steps on the way may move event times back.
    """
    promise: Promise | None = None

    @property
    def python(self) -> bool:
        """True if the stage, or a step after it, calls a user's Python function."""
        steps = chain.from_iterable(route.path for route in self.routes)
        return self.stage.operator.python or any(step.python for step in steps)

    @property
    def hears(self) -> tuple[str, ...]:
        """The names of the sources and stages that report to it: its inputs, and sources whose lateness it needs."""
        return tuple(dict.fromkeys((*self.inputs, *self.observes)))

    def reads(self, role: str) -> tuple[str, ...]:
        """Returns the names of the sources and stages that this input reads."""
        return self.roles.get(role, self.inputs if role == MAIN else ())


@attrs.frozen
class SinkPlan:
    """A sink, and the names of the sources and stages that feed it. `schema` has the user's columns, then the
    system's. `kind` is the relation of the rows to earlier ones. `own_name` is the name that the user gave, if it is
    another one.
    """

    name: str
    sink: Sink
    inputs: tuple[str, ...]
    schema: pl.Schema
    kind: Kind = "rows"
    own_name: str = ""


@attrs.frozen(kw_only=True)
class Plan:
    """The plan of a pipeline, which both runners execute.

    Attributes:
        stages: The stages in topological order.
        graph: The graph of sources and stages.
        levels: The names of the stages of each level, from level 1.
        max_dead_letters: The number of dead letters, or their share of all rows, above which the run fails.
        tables: The lookup tables.
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
        """True if a run may end before its input does: a drain was `asked` for, or a source is unbounded."""
        return asked or not all(
            one.source.bounded or isinstance(one.source, Refreshed) for one in self.sources.values()
        )

    @cached_property
    def complete(self) -> frozenset[str]:
        """The names of the complete sources, and of the stages all of whose input is from such sources.

        Their end is that of the input, also in a run that may end before its input does.
        """
        found = {name for name, source in self.sources.items() if source.complete}
        for name in chain.from_iterable(self.levels):
            if found.issuperset(self.stages[name].inputs):
                found.add(name)
        return frozenset(found)

    @property
    def ends(self) -> bool:
        """True if a run without a checkpoint can reach the end of all sources, as none is unbounded and read by Spark
        itself.
        """
        sources = [plan.source for plan in self.sources.values()]
        own = [one for one in sources if isinstance(one, ReadBySpark) and not isinstance(one, InProcess)]
        return all(one.bounded for one in own)

    def own_names(self) -> dict[str, str]:
        """Returns the names that the user gave to sinks, by which their targets know them, if a plan calls them by
        another one. These do not change when a step gets the name of a sink.
        """
        return {name: sink.own_name for name, sink in self.sinks.items() if sink.own_name}

    @property
    def producers(self) -> dict[str, SourcePlan | StagePlan]:
        """The sources, then the stages in topological order, by name."""
        return {**self.sources, **self.stages}


class Planned(Protocol):
    """An object that can be compiled to a plan, such as a pipeline."""

    def plan(self) -> Plan:
        """Returns the compiled plan."""


def plan_of(given: Plan | Planned, taker: str) -> Plan:
    """Returns the given plan, or the plan of a given pipeline. Raises `WrongType`, with the name `taker`, for anything
    else.
    """
    if isinstance(given, Plan):
        return given
    made = given.plan() if callable(getattr(given, "plan", None)) else None
    if not isinstance(made, Plan):
        raise WrongType(f"{taker} takes a pipeline or its plan, not {given!r}")
    return made
