"""The rules of column lineage: for each kind of step and operator, the columns from which it computes a column.

A path is a column, or a field of a column of structs. Joins pack the rows of both sides into structs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from functools import singledispatch
from typing import Literal

import attrs

from beamlike.expressions.tree import columns_by_output, columns_read, copied, copied_field
from beamlike.io.refreshed import CONTENT as READINGS
from beamlike.steps.base import Filter, NotRetracted, Select, Step, WindowInto, WithColumns
from beamlike.steps.joins import AsSide, Paired
from beamlike.steps.lists import Explode
from beamlike.steps.lookup import LookUp
from beamlike.steps.python import PythonStep
from beamlike.steps.readings import RowsOfReadings
from beamlike.steps.sides import (
    CONTENT,
    ROW,
    AsContent,
    CallWithSides,
    Dropped,
    FilterByFunction,
    InPanes,
)
from beamlike.steps.timestamps import WithTimestamps
from beamlike.steps.windows import SpreadWindows
from stages.aggregates.base import Aggregate
from stages.aggregates.builtin import WindowLength
from stages.grouping.grouping import Grouping
from stages.joins.base import LEFT, RIGHT, TimeJoin
from stages.operator import MAIN, Operator
from stages.process.cumulative import OfAggregate, Previous
from stages.process.dedup import Dedup
from stages.process.dedup_of_changes import DedupOfChanges
from stages.process.into_batches import ROWS, IntoBatches
from stages.process.keyed import Keyed
from stages.process.newest_of_key import NewestOfKey
from stages.process.running import Running
from stages.process.watermarked import Watermarked
from stages.sides.declarations import ROLE_PREFIX
from stages.sides.lookup import LookedUp, Lookup
from stages.sides.operator import SideInputs
from windowing.columns import (
    EVENT_TIME,
    PANE_COLUMNS,
    PREVIOUS_END,
    RESERVED_PREFIX,
    SYSTEM_COLUMNS,
    WINDOW_COLUMNS,
    WINDOW_START,
)
from windowing.windows import GlobalWindows

Path = tuple[str, ...]

Effect = Literal["FILTER", "JOIN", "GROUP_BY", "WINDOW", "CONDITIONAL"]
"""The effect of a column on which rows exist. It need not be part of their values."""


class Use(IntEnum):
    """The use of a column in the computation of another one. In a chain of computations, the greatest use counts."""

    IDENTITY = 0
    TRANSFORMATION = 1
    AGGREGATION = 2
    CONDITIONAL = 3
    """The column decides only which values count."""


@attrs.frozen
class Root:
    """A column from which another column is computed.

    `at`: the input of an operator, or the lookup table of a step; empty if it is a column of the step's own input.
    """

    path: Path
    use: Use = Use.IDENTITY
    at: str = ""


@attrs.frozen
class Effects:
    """Columns that decide which rows exist. `at` has the meaning that it has in `Root`."""

    effect: Effect
    columns: tuple[str, ...]
    at: str = ""


def _all(columns: Iterable[str], use: Use = Use.TRANSFORMATION, at: str = "") -> Iterator[Root]:
    return (Root((column,), use, at) for column in columns)


# Steps


@singledispatch
def roots(step: Step, path: Path) -> Iterable[Root]:
    """Returns the columns from which a step computes a column."""
    return _all(step.needs(frozenset({path[0]})))


@singledispatch
def effects(step: Step) -> Iterable[Effects]:
    """Returns the columns that decide which rows a step emits."""
    return ()


@roots.register
def _(step: Filter, path: Path) -> Iterable[Root]:
    return (Root(path),)


@effects.register
def _(step: Filter) -> Iterable[Effects]:
    yield Effects("FILTER", tuple(dict.fromkeys(c for one in step.predicates for c in columns_read(one))))


@roots.register(Select)
@roots.register(WithColumns)
def _(step: Select | WithColumns, path: Path) -> Iterable[Root]:
    name, *field = path
    for column, names in zip(step.columns, step.gives, strict=True):
        if name not in names:
            continue
        place = names.index(name)
        if same := copied(column):
            return (Root((same[place], *field)),)
        if found := copied_field(column):
            return (Root((*found, *field)),)
        return _all(columns_by_output(column, len(names))[place])
    return (Root(path),)


@roots.register
def _(step: WindowInto, path: Path) -> Iterable[Root]:
    if path[0] in (*WINDOW_COLUMNS, PREVIOUS_END):
        return _all((EVENT_TIME, *step.windowing.windows.columns))
    return (Root(path),)


@roots.register(SpreadWindows)
@roots.register(NotRetracted)
def _(step: Step, path: Path) -> Iterable[Root]:
    return (Root(path),)


@roots.register
def _(step: Explode, path: Path) -> Iterable[Root]:
    if path[0] in (step.number, step.column):
        return (Root((step.column, *path[1:]), Use.TRANSFORMATION),)
    return (Root(path),)


@roots.register
def _(step: PythonStep, path: Path) -> Iterable[Root]:
    return (Root(path),) if path[0] in SYSTEM_COLUMNS else _all(step.received)


@roots.register
def _(step: FilterByFunction, path: Path) -> Iterable[Root]:
    return (Root(path),)


@effects.register
def _(step: FilterByFunction) -> Iterable[Effects]:
    yield Effects("FILTER", step.received)


@roots.register
def _(step: LookUp, path: Path) -> Iterable[Root]:
    return _looked_up(step.use, path, step.tables)


@effects.register
def _(step: LookUp) -> Iterable[Effects]:
    return _lookups(step.use, step.tables)


def _looked_up(use: LookedUp, path: Path, tables: Mapping[str, str] | None) -> Iterable[Root]:
    for lookup in use.lookups:
        if path[0] in lookup.columns:
            at = _place(lookup, tables)
            return (Root((lookup.columns[path[0]], *path[1:]), at=at),)
        if path[0] == lookup.found:
            return _all(lookup.keys, at=_place(lookup, tables))
    return (Root(path),)


def _lookups(use: LookedUp, tables: Mapping[str, str] | None) -> Iterator[Effects]:
    for lookup in use.lookups:
        yield Effects("JOIN", lookup.on)
        yield Effects("JOIN", lookup.keys, _place(lookup, tables))


def _place(lookup: Lookup, tables: Mapping[str, str] | None) -> str:
    """Returns the lookup table that a step reads; or, without `tables`, the role of the side that an operator reads."""
    return f"{ROLE_PREFIX}{lookup.side}" if tables is None else tables[lookup.side]


@roots.register
def _(step: AsSide, path: Path) -> Iterable[Root]:
    name, *field = path
    if name in step.keys:
        return (Root((step.keys[name],)),)
    if name not in step.sides:
        return (Root(path),)
    if name != step.side:
        return ()
    return (Root(tuple(field)),) if field else _all(step.sides[name], Use.IDENTITY)


@roots.register
def _(step: Paired, path: Path) -> Iterable[Root]:
    name, *field = path
    if name in step.right:
        return (Root((RIGHT, step.right[name], *field)),)
    if name in step.left and name not in step.keys:
        return (Root((LEFT, name, *field)),)
    return (Root(path),)


@effects.register
def _(step: Paired) -> Iterable[Effects]:
    yield Effects("JOIN", step.keys)


@roots.register
def _(step: AsContent, path: Path) -> Iterable[Root]:
    if path[0] != ROW:
        return (Root(path),)
    return (Root(path[1:]),) if path[1:] else _all(step.columns, Use.IDENTITY)


@roots.register
def _(step: InPanes, path: Path) -> Iterable[Root]:
    if path[0] in (*step.columns, EVENT_TIME):
        return (Root((CONTENT, *path)),)
    return (Root(path),) if path[0] in WINDOW_COLUMNS else ()


@roots.register
def _(step: Dropped, path: Path) -> Iterable[Root]:
    return (Root((ROW, *path) if path[0] in step.columns else path),)


@roots.register
def _(step: WithTimestamps, path: Path) -> Iterable[Root]:
    return _all((step.column,)) if path[0] == EVENT_TIME else (Root(path),)


@roots.register
def _(step: RowsOfReadings, path: Path) -> Iterable[Root]:
    return (Root(path if path[0] == EVENT_TIME else (READINGS, *path)),)


# Operators


@singledispatch
def operator_roots(operator: Operator, path: Path) -> Iterable[Root]:
    """Returns the columns from which an operator computes a column; for an unknown operator, all columns that
    it reads.
    """
    found: list[Root] = []
    for role, read in operator.inputs.items():
        if path[0] in read.keys:
            return (Root(path, at=role),)
        found += _all((name for name in read.schema if not name.startswith(RESERVED_PREFIX)), at=role)
    return () if path[0] in PANE_COLUMNS else _timed(path, found)


def _timed(path: Path, others: Iterable[Root]) -> Iterable[Root]:
    """Returns the roots of a column. Event time and windows are those of the main input; other columns have the roots
    `others`.
    """
    if path[0] == EVENT_TIME:
        return (Root((EVENT_TIME,), Use.TRANSFORMATION, MAIN),)
    return (Root(path, at=MAIN),) if path[0] in (*WINDOW_COLUMNS, PREVIOUS_END) else others


@singledispatch
def operator_effects(operator: Operator) -> Iterable[Effects]:
    """Returns the columns that decide which rows an operator emits."""
    for role, read in operator.inputs.items():
        yield Effects("GROUP_BY", read.keys, role)


@operator_roots.register
def _(operator: Grouping, path: Path) -> Iterable[Root]:
    name, *field = path
    if name in operator.aggregates:
        aggregate = operator.aggregates[name]
        if field:  # A field of a struct that the aggregate returns unchanged.
            return [Root((column, *field), at=MAIN) for column in aggregate.reads]
        return _aggregated(aggregate)
    if name in operator.keys:
        return (Root(path, at=MAIN),)
    return () if name in PANE_COLUMNS else _timed(path, ())


def _aggregated(aggregate: Aggregate) -> Iterator[Root]:
    if isinstance(aggregate, WindowLength):
        yield Root((WINDOW_START,), Use.TRANSFORMATION, MAIN)
    yield from _all(aggregate.reads, Use.AGGREGATION, MAIN)
    condition = () if aggregate.where is None else aggregate.where.columns
    yield from _all(condition, Use.CONDITIONAL, MAIN)


@operator_effects.register
def _(operator: Grouping) -> Iterable[Effects]:
    yield Effects("GROUP_BY", operator.keys, MAIN)
    if not isinstance(operator.windowing.windows, GlobalWindows):
        yield Effects("WINDOW", (WINDOW_START,), MAIN)


@operator_roots.register
def _(operator: Keyed, path: Path) -> Iterable[Root]:
    if path[0] in operator.keys:
        return (Root(path, at=MAIN),)
    return _timed(path, _all(operator.schema, at=MAIN))


@operator_roots.register
def _(operator: Dedup | DedupOfChanges | NewestOfKey | Watermarked, path: Path) -> Iterable[Root]:
    return (Root(path, at=MAIN),)


@operator_effects.register
def _(operator: Dedup | DedupOfChanges) -> Iterable[Effects]:
    yield Effects("FILTER", operator.keys, MAIN)


@operator_roots.register
def _(operator: Running, path: Path) -> Iterable[Root]:
    if path[0] not in operator.aggregates:
        return (Root(path, at=MAIN),)
    found = operator.aggregates[path[0]]
    if isinstance(found, OfAggregate):
        return _aggregated(found.aggregate)
    assert isinstance(found, Previous)
    return (Root((found.column, *path[1:]), Use.TRANSFORMATION, MAIN),)


@operator_roots.register
def _(operator: IntoBatches, path: Path) -> Iterable[Root]:
    if path[0] != ROWS:
        return _timed(path, (Root(path, at=MAIN),))
    if path[1:]:
        return (Root(path[1:], at=MAIN),)
    return _all(operator.schema, Use.AGGREGATION, MAIN)


@operator_roots.register
def _(operator: TimeJoin, path: Path) -> Iterable[Root]:
    return _timed(path, (Root(path, at=MAIN),))


@operator_effects.register
def _(operator: TimeJoin) -> Iterable[Effects]:
    yield Effects("JOIN", (*operator.keys, EVENT_TIME), MAIN)


@operator_roots.register
def _(operator: SideInputs, path: Path) -> Iterable[Root]:
    if path[0] in SYSTEM_COLUMNS:
        return (Root(path, at=MAIN),)
    if isinstance(operator.use, LookedUp):
        return [_at_main(root) for root in _looked_up(operator.use, path, None)]
    if not isinstance(operator.use, CallWithSides):
        return _all((*operator.schema,), at=MAIN)
    found = [_at_main(root) for root in roots(operator.use.step, path)]
    if isinstance(operator.use.step, FilterByFunction):
        return found
    return [*found, *(root for side in operator.sides for root in _all(side.schema, at=side.clock))]


@operator_effects.register
def _(operator: SideInputs) -> Iterable[Effects]:
    found: Iterable[Effects] = ()
    if isinstance(operator.use, LookedUp):
        found = _lookups(operator.use, None)
    elif isinstance(operator.use, CallWithSides) and isinstance(operator.use.step, FilterByFunction):
        sides = [Effects("FILTER", tuple(side.schema), side.clock) for side in operator.sides]
        found = [*effects(operator.use.step), *sides]
    return [attrs.evolve(one, at=one.at or MAIN) for one in found]


def _at_main(root: Root) -> Root:
    return attrs.evolve(root, at=root.at or MAIN)
