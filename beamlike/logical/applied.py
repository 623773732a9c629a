"""Operators of a user's own: their checks at `apply`, and the node of the rows that they emit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import attrs
import polars as pl

from beamlike.errors import PlanError, WrongType, listed, nearest, unknown_column
from beamlike.logical.event_time import require_event_time
from beamlike.logical.grouping import require_keys
from beamlike.logical.keyed import given_columns
from beamlike.logical.node import Node
from beamlike.logical.origins import Apply
from beamlike.rows.dtypes import schema_text, type_name
from beamlike.steps.infer import Shape
from stages.custom import REQUIRED, CustomOperator
from stages.operator import HOLD, MAIN, PENDING, Input
from stages.stage import Stage
from stages.state.store import DictStore
from stages.state_tables import KINDS, StateTable, Table
from windowing.clocks import Times
from windowing.columns import EVENT_TIME, PANE_RETRACTED, WINDOW_COLUMNS
from windowing.time import MIN_TIME
from windowing.timestamp_combiners import TimestampCombiner
from windowing.windowing import Windowing
from windowing.windows import GlobalWindows

T = TypeVar("T")

_GROUPING = "windows"
"""The fact by which the records of a run tell a grouping from other stages."""


def applied(before: Node, operator: object, others: Mapping[str, Node], step: str) -> Node:
    """Returns the rows that an operator emits; `others` are the nodes of its inputs beside the main one, by role."""
    given = require_operator(operator, step)
    require_event_time(before, step)
    fitted = _asked(given, "fitted", lambda: given.fitted(before.schema), step)
    if type(fitted) is not type(given):
        raise WrongType(f"{_name(given)}.fitted(rows) must return the operator, not {fitted!r}", step=step)
    nodes = {MAIN: before, **others}
    _require_inputs(fitted, nodes, step)
    _require_tables(fitted, step)
    _require_facts(fitted, step)
    shape = _shape(fitted, before, step)
    _require_output(fitted, shape, step)
    return Node(
        step,
        Apply(fitted),
        tuple(nodes[role] for role in fitted.inputs),
        shape,
        _windowing(before, shape),
        base=step,
        merged=before.merged,
        bounded=all(node.bounded for node in nodes.values()),
        repeats=before.repeats,
    )


def require_operator(operator: object, step: str) -> CustomOperator:
    """Returns the operator. Raises `PlanError` or `WrongType` if it is none, or lacks a member."""
    if isinstance(operator, type) and issubclass(operator, CustomOperator):
        kind = operator.__name__
        raise WrongType(f"{kind} is a class; make an object of it: apply({kind}(...))", step=step)
    if not isinstance(operator, CustomOperator):
        instead = ""
        if callable(operator):
            instead = (
                "; a function of rows goes into map(...), one of frames into map_batches(...), and one with state into "
                "group_by(...).process_batches(...)"
            )
        raise WrongType(
            f"apply needs an object of a class that extends bl.CustomOperator, not {operator!r}{instead}",
            step=step,
        )
    own = type(operator)
    lacking = [name for name in REQUIRED if getattr(own, name) is getattr(CustomOperator, name)]
    if lacking:
        hints = "".join(nearest(name, [one for one in vars(own) if one not in REQUIRED]) for name in lacking)
        raise PlanError(
            f"{own.__name__} does not define {listed(lacking)}, which every operator needs{hints}", step=step
        )
    return operator


def _name(operator: object) -> str:
    return type(operator).__name__


def _asked(operator: CustomOperator, member: str, ask: Callable[[], T], step: str) -> T:
    """Returns what a member of the operator returns. Raises `PlanError` if it fails."""
    try:
        return ask()
    except PlanError:
        raise
    except Exception as error:  # code of the user's may raise anything
        reason = f"{type(error).__name__}: {error}"
        raise PlanError(f"{_name(operator)}.{member} fails with {reason}", step=step) from error


def _require_inputs(operator: CustomOperator, nodes: Mapping[str, Node], step: str) -> None:
    name = _name(operator)
    inputs = _asked(operator, "inputs", lambda: operator.inputs, step)
    if not isinstance(inputs, Mapping) or not all(isinstance(one, Input) for one in inputs.values()):
        raise WrongType(f"{name}.inputs must be a dict of Input by role, not {inputs!r}", step=step)
    if next(iter(inputs), None) != MAIN:
        raise PlanError(
            f"the first role of {name}.inputs must be {MAIN!r}, that of the collection it is applied to",
            step=step,
        )
    if inputs.keys() != nodes.keys():
        roles, given = (listed(map(repr, [*names][1:])) or "none" for names in (inputs, nodes))
        raise PlanError(f"{name} has the further inputs {roles}, and others= has {given}", step=step)
    for role, node in nodes.items():
        require_event_time(node, step)
        _require_columns(inputs[role], node, f"{name}.inputs[{role!r}]", step)
    if nodes[MAIN].retracting and PANE_RETRACTED not in inputs[MAIN].schema:
        raise PlanError(
            f"its rows may retract earlier ones (accumulation retracting), and {name}.inputs[{MAIN!r}] does not have "
            f"the column {PANE_RETRACTED!r}, which says which; give another accumulation before",
            step=step,
        )


def _require_columns(given: Input, node: Node, what: str, step: str) -> None:
    """Raises an error unless the collection has the columns of an input, with these types."""
    known = node.shape.everything()
    for column, dtype in given.schema.items():
        if column not in known:
            raise unknown_column(column, node.schema, step, note=f"; {what} declares it")
        if known[column] != dtype:
            raise WrongType(
                f"{what} declares {column!r} as {type_name(dtype)}, and the collection {node.name!r} has it as "
                f"{type_name(known[column])}",
                step=step,
            )
    if given.keys:
        require_keys(given.schema, given.keys, step)


def _require_tables(operator: CustomOperator, step: str) -> None:
    name = _name(operator)
    tables = _asked(operator, "tables", lambda: [*operator.tables], step)
    if not tables:
        raise PlanError(
            f"{name}.tables is empty; without state, map_batches(...) does the same and needs no stage",
            step=step,
        )
    for kept in tables:
        _require_table(operator, kept, step)
    if len({kept.table.name for kept in tables}) < len(tables):
        raise PlanError(f"two tables of {name} have the same name; give each another one", step=step)


def _require_table(operator: CustomOperator, kept: StateTable[Table], step: str) -> None:
    name = _name(operator)
    if StateTable not in type(kept).__mro__:
        raise WrongType(
            f"{name}.tables must have objects of classes that extend StateTable, not {kept!r}", step=step
        )
    table = _asked(operator, f"{type(kept).__name__}.table", lambda: kept.table, step)
    if not isinstance(table, KINDS):
        kinds = ", ".join(kind.__name__ for kind in KINDS)
        raise WrongType(f"{type(kept).__name__}.table must be one of {kinds}, not {table!r}", step=step)
    lacking = [column for column in (PENDING, HOLD) if column not in table.schema]
    if lacking:
        raise PlanError(
            f"the rows of {name}'s table {table.name or table.row!r} have no column {listed(map(repr, lacking))}, from "
            "which the output watermark is computed",
            step=step,
        )


def _require_facts(operator: CustomOperator, step: str) -> None:
    facts = _asked(operator, "facts", lambda: operator.facts(repr), step)
    if not facts or _GROUPING in facts:
        raise PlanError(
            f"{_name(operator)}.facts must return at least one fact, and none with the name {_GROUPING!r}, by which "
            "groupings are known",
            step=step,
        )


def _shape(operator: CustomOperator, before: Node, step: str) -> Shape:
    output = _asked(operator, "output", lambda: operator.output, step)
    if not isinstance(output, Mapping):
        raise WrongType(
            f"{_name(operator)}.output must be the columns with their types, not {output!r}", step=step
        )
    windows = tuple(column for column in WINDOW_COLUMNS if column in output)
    if windows and (windows != WINDOW_COLUMNS or not {*windows} <= {*before.shape.system}):
        raise PlanError(
            f"{_name(operator)}.output has {listed(map(repr, windows))}, and rows only stay in windows that the input "
            "is in: call window_into(...) before, or leave them out",
            step=step,
        )
    user = {name: dtype for name, dtype in output.items() if name not in (EVENT_TIME, *windows)}
    return Shape(given_columns(user, step), (EVENT_TIME, *windows))


def _require_output(operator: CustomOperator, shape: Shape, step: str) -> None:
    """Raises `PlanError` unless a step without arrivals emits no rows, with the columns that were declared."""
    arrivals = {role: one.no_arrivals() for role, one in operator.inputs.items()}
    stage, now = Stage(step, operator), Times.of(MIN_TIME)
    result = _asked(operator, "step", lambda: stage.step(DictStore(), arrivals, now), step)
    expected, panes = shape.everything(), result.panes
    for column in _differing(expected, panes.schema):
        declared = f"{column} {type_name(expected[column])}"
        got = f"is {type_name(panes.schema[column])}" if column in panes.schema else "is not there"
        raise PlanError(
            f"{_name(operator)}.output declares {declared}, which {got} in the rows that step returns: "
            f"{schema_text(panes.schema)}",
            step=step,
        )


def _differing(expected: pl.Schema, got: pl.Schema) -> Iterator[str]:
    yield from (name for name, dtype in expected.items() if got.get(name) != dtype)


def _windowing(before: Node, shape: Shape) -> Windowing:
    """Returns the windowing of the emitted rows: that of the input, if they stay in windows."""
    windows = before.windowing.windows if {*WINDOW_COLUMNS} <= {*shape.system} else GlobalWindows()
    windowing = attrs.evolve(before.windowing, windows=windows)
    if (
        windowing.timestamp_combiner.columns
    ):  # It chooses from the input rows, which the operator has replaced.
        windowing = attrs.evolve(windowing, timestamp_combiner=TimestampCombiner.EARLIEST)
    return windowing
