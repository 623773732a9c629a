"""Column lineage: for each column of a sink, the columns of sources from which it is computed, according to
the plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import attrs
import polars as pl

from beamlike.io.base import output_schema
from beamlike.io.refreshed import CONTENT as READINGS
from beamlike.plan.column_rules import (
    Effect,
    Path,
    Root,
    Use,
    effects,
    operator_effects,
    operator_roots,
    roots,
)
from beamlike.plan.model import Plan, SourcePlan, StagePlan
from beamlike.plan.route import Output, Route
from beamlike.steps.base import Step
from stages.operator import MAIN
from windowing.columns import EVENT_TIME, RESERVED_PREFIX, WINDOW_COLUMNS


@attrs.frozen(order=True)
class SourceColumn:
    """A column of a source, and how it is used: the name of a `Use`, or an `Effect`."""

    source: str
    column: str
    use: str


@attrs.frozen
class ColumnLineage:
    """The lineage of a sink. `columns`: the source columns from which each column is computed. `rows`: those that
    decide which rows the sink receives.
    """

    columns: Mapping[str, tuple[SourceColumn, ...]]
    rows: tuple[SourceColumn, ...]


Steps = tuple[Step, ...]

_Found = dict[tuple[str, str], Use]
"""The use of each column of a source, by source and column."""

_Decides = tuple[Path, Effect]
"""A column, and how it decides which rows a step emits."""


def column_lineage(plan: Plan) -> dict[str, ColumnLineage]:
    """Returns the lineage of each sink. Columns have the names that they have in the sink."""
    lineage = _Lineage(plan)
    return {name: lineage.of_sink(name) for name in plan.sinks}


def sources_of_column(plan: Plan, stage: str, column: str) -> dict[str, str] | None:
    """Returns the column of each source that arrives at a stage unchanged as this column of its main input.

    None if the column is computed, or if it is one of several columns of a source.
    """
    found = _Lineage(plan)._arriving(stage, MAIN, (column,))
    columns = dict(found.keys())
    if len(columns) < len(found) or any(use != Use.IDENTITY for use in found.values()):
        return None
    return columns


@attrs.define
class _Lineage:
    """The lineage of the outputs of a plan. Each output is computed once."""

    plan: Plan
    _columns: dict[tuple[str, Output, Path], _Found] = attrs.field(factory=dict)
    _rows: dict[tuple[str, Output], set[SourceColumn]] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        # Stages are computed in topological order, so that a long pipeline needs no deep recursion.
        for name, stage in self.plan.stages.items():
            for route in stage.routes:
                for path in _paths(stage.schema, route.needed):
                    self._column(name, _output(route), path)
                self._rows_of(name, _output(route))

    def of_sink(self, name: str) -> ColumnLineage:
        sink = self.plan.sinks[name]
        columns = dict[str, tuple[SourceColumn, ...]]()
        for shown in output_schema(sink.schema):
            column = shown if shown in sink.schema else f"{RESERVED_PREFIX}{shown}"
            found = self._arriving(name, MAIN, (column,))
            columns[shown] = _sorted(SourceColumn(*place, use.name) for place, use in found.items())
        return ColumnLineage(columns, _sorted(self._rows_arriving(name)))

    def _routes(self, consumer: str, role: str) -> Iterator[tuple[str, Route]]:
        for name, producer in self.plan.producers.items():
            for route in producer.routes:
                if route.consumer == consumer and route.role == role and not route.dead_letters_only:
                    yield name, route
        if consumer in self.plan.tables:
            for source in self.plan.tables[consumer].sources:
                yield from ((source.name, route) for route in source.routes if route.consumer == consumer)

    def _arriving(self, consumer: str, role: str, path: Path) -> _Found:
        """Returns the source columns from which a column of the input of a stage, sink or lookup table is computed."""
        found: _Found = {}
        for producer, route in self._routes(consumer, role):
            if path[0] in WINDOW_COLUMNS and path[0] not in route.columns:
                # The stage assigns the windows itself.
                before = self._along(producer, route, (EVENT_TIME,))
                _add(found, before, Use.TRANSFORMATION)
            else:
                _add(found, self._along(producer, route, path), Use.IDENTITY)
        return found

    def _along(self, producer: str, route: Route, path: Path) -> _Found:
        """Returns the source columns from which a column at the end of a route is computed."""
        found: _Found = {}
        for root in self._before(route.steps, path, found):
            if route.before:
                # A dead letter has the whole row that the step could not use, so each of its columns depends
                # on all columns.
                for column in route.shown:
                    before = self._produced(producer, route.of, route.before[:-1], (column,))
                    _add(found, before, Use.TRANSFORMATION)
            else:
                _add(found, self._column(producer, route.output, root.path), root.use)
        return found

    def _before(self, steps: Steps, path: Path, found: _Found) -> list[Root]:
        """Returns the columns before `steps` from which a column after them is computed.

        Columns of lookup tables are added to `found` instead.
        """
        current = [Root(path)]
        for step in reversed(steps):
            before = dict[Path, Use]()
            for root in current:
                for own in roots(step, root.path):
                    use = max(own.use, root.use)
                    if own.at:
                        _add(found, self._arriving(own.at, MAIN, own.path), use)
                    else:
                        before[own.path] = min(use, before.get(own.path, use))
            current = [Root(path, use) for path, use in before.items()]
        return current

    def _column(self, producer: str, output: Output, path: Path) -> _Found:
        """Returns the source columns from which a column of a source or of the output of a stage is computed."""
        key = (producer, output, path)
        if key not in self._columns:
            self._columns[key] = {}
            one = self.plan.producers[producer]
            if isinstance(one, SourcePlan):
                self._columns[key] = self._of_source(one, output, path)
            else:
                self._columns[key] = self._of_stage(one, output, path)
        return self._columns[key]

    def _of_source(self, source: SourcePlan, output: Output, path: Path) -> _Found:
        if output == "dead_letters":
            return {(source.name, column): Use.TRANSFORMATION for column in source.raw}
        found: _Found = {}
        for root in self._before(source.steps_after_time, path, found):
            own, use = root.path, root.use
            if own == (EVENT_TIME,):
                if source.time is None:
                    continue
                own, use = (source.time.column,), max(use, Use.TRANSFORMATION)
            for first in self._before(source.steps_before_time, own, found):
                _add(found, _in_source(source, first.path, first.use), use)
        return found

    def _of_stage(self, stage: StagePlan, output: Output, path: Path) -> _Found:
        found: _Found = {}
        operator = stage.stage.operator
        if output == "main":
            wanted = [*operator_roots(operator, path)]
        elif output == "late":
            wanted = [Root(path, at=MAIN)]
        else:
            wanted = [
                Root((column,), Use.TRANSFORMATION, role)
                for role, one in operator.inputs.items()
                for column in one.schema
            ]
        for root in wanted:
            _add(found, self._arriving(stage.name, root.at, root.path), root.use)
        return found

    def _rows_arriving(self, consumer: str, role: str = MAIN) -> set[SourceColumn]:
        """Returns the source columns that decide which rows a stage, sink or lookup table receives."""
        found = set[SourceColumn]()
        for producer, route in self._routes(consumer, role):
            output = _output(route)
            found |= self._rows_of(producer, output)
            for path, effect in self._deciding(route.before or route.steps, set(), found):
                found |= _with_effect(self._column(producer, output, path), effect)
        return found

    def _produced(self, producer: str, output: Output, before: Steps, path: Path) -> _Found:
        """Returns the source columns from which a column after the first steps of a route is computed."""
        found: _Found = {}
        for root in self._before(before, path, found):
            _add(found, self._column(producer, output, root.path), root.use)
        return found

    def _rows_of(self, producer: str, output: Output) -> set[SourceColumn]:
        key = (producer, output)
        if key not in self._rows:
            self._rows[key] = set()
            one = self.plan.producers[producer]
            self._rows[key] = self._rows_read(one) if isinstance(one, SourcePlan) else self._rows_emitted(one)
        return self._rows[key]

    def _rows_read(self, source: SourcePlan) -> set[SourceColumn]:
        found = set[SourceColumn]()
        timed = self._deciding(source.steps_after_time, set(), found)
        time = None if source.time is None else (source.time.column,)
        before = {(time if path == (EVENT_TIME,) else path, effect) for path, effect in timed}
        read = {(path, effect) for path, effect in before if path is not None}
        for path, effect in self._deciding(source.steps_before_time, read, found):
            found |= _with_effect(_in_source(source, path, Use.IDENTITY), effect)
        return found

    def _rows_emitted(self, stage: StagePlan) -> set[SourceColumn]:
        operator = stage.stage.operator
        found = set[SourceColumn]().union(
            *(self._rows_arriving(stage.name, role) for role in operator.inputs)
        )
        for one in operator_effects(operator):
            for column in one.columns:
                found |= _with_effect(self._arriving(stage.name, one.at, (column,)), one.effect)
        return found

    def _deciding(self, steps: Steps, later: set[_Decides], found: set[SourceColumn]) -> set[_Decides]:
        """Returns the columns before `steps` that decide which rows these steps emit, and those that decide by `later`.

        `later` has columns after the steps. Columns of lookup tables are added to `found` instead.
        """
        current = later
        for step in reversed(steps):
            before = set[_Decides]()
            for path, effect in current:
                for root in roots(step, path):
                    if root.at:
                        found |= _with_effect(self._arriving(root.at, MAIN, root.path), effect)
                    else:
                        before.add((root.path, effect))
            for one in effects(step):
                if one.at:
                    found |= self._rows_arriving(one.at)
                for column in one.columns:
                    if one.at:
                        found |= _with_effect(self._arriving(one.at, MAIN, (column,)), one.effect)
                    else:
                        before.add(((column,), one.effect))
            current = before
        return current


def _in_source(source: SourcePlan, path: Path, use: Use) -> _Found:
    """Returns the column of a source at a path before its steps; nothing for a column of the engine."""
    if path[0] not in source.raw:
        return {}
    # The readings of a refreshed source are a column of structs.
    return {(source.name, path[1] if path[0] == READINGS and path[1:] else path[0]): use}


def _add(found: _Found, others: _Found, use: Use) -> None:
    """Adds columns whose use is at least `use`. If a column is used in two ways, the more direct one counts."""
    for place, own in others.items():
        both = max(use, own)
        found[place] = min(both, found.get(place, both))


def _with_effect(found: _Found, effect: Effect) -> set[SourceColumn]:
    return {SourceColumn(*place, effect) for place in found}


def _sorted(found: Iterable[SourceColumn]) -> tuple[SourceColumn, ...]:
    return tuple(sorted(found))


def _output(route: Route) -> Output:
    """Returns the output of the producer at which the route begins."""
    return route.of if route.before else route.output


def _paths(schema: pl.Schema, columns: Iterable[str]) -> Iterator[Path]:
    """Yields the columns, and the fields of columns that are structs or lists of structs."""
    for column in columns:
        yield (column,)
        dtype = schema.get(column)
        inner = dtype.inner if isinstance(dtype, pl.List) else dtype
        if isinstance(inner, pl.Struct):
            yield from ((column, field.name) for field in inner.fields)
