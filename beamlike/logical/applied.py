"""Users' own operators: the checks at `apply`, and the node of the rows that an operator emits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import attrs
import polars as pl

from beamlike.errors import PlanError, WrongType, listed, nearest, unknown_column
from beamlike.logical.applied_tables import require_tables
from beamlike.logical.event_time import require_event_time
from beamlike.logical.grouping import require_keys
from beamlike.logical.keyed import given_columns
from beamlike.logical.node import Node
from beamlike.logical.origins import Apply
from beamlike.rows.dtypes import schema_text, type_name
from beamlike.steps.infer import Shape
from stages.custom import REQUIRED, CustomOperator
from stages.operator import MAIN, Input
from windowing.clocks import Times
from windowing.columns import EVENT_TIME, PANE_RETRACTED, WINDOW_COLUMNS
from windowing.time import MIN_TIME
from windowing.timestamp_combiners import TimestampCombiner
from windowing.windowing import Windowing
from windowing.windows import GlobalWindows

T = TypeVar("T")

_GROUPING = "windows"
"""The key in `facts` by which records of a run distinguish groupings from other stages."""


def applied(before: Node, operator: object, others: Mapping[str, Node], step: str) -> Node:
    """Declares a user's operator. `others` are the nodes of its inputs other than the main one, by role."""
    given = require_operator(operator, step)
    require_event_time(before, step)
    fitted = _asked(given, "fitted", lambda: given.fitted(before.schema), step)
    if type(fitted) is not type(given):
        raise WrongType(f"{_name(given)}.fitted(rows) must return the operator, not {fitted!r}", step=step)
    nodes = {MAIN: before, **others}
    _require_inputs(fitted, nodes, step)
    tables = _asked(fitted, "tables", lambda: [*fitted.tables], step)
    require_tables(_name(fitted), tables, step)
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
        retracting=_asked(fitted, "gives_changes", lambda: fitted.gives_changes, step),
    )


def require_operator(operator: object, step: str) -> CustomOperator:
    """Returns the operator. Raises `PlanError` or `WrongType` if it is no operator, or lacks a member."""
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
    """Calls `ask`, which evaluates a member of the operator, and returns its result. Raises `PlanError` if
    that fails.
    """
    try:
        return ask()
    except PlanError:
        raise
    except Exception as error:  # The user's code may raise any exception.
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
    for role, node in nodes.items():
        if node.retracting and not operator.accepts_changes(role):
            raise PlanError(
                f"its rows may retract earlier ones (accumulation retracting), and {name}.inputs[{role!r}] does not "
                f"have the column {PANE_RETRACTED!r}, which says which; give another accumulation before",
                step=step,
            )


def _require_columns(given: Input, node: Node, what: str, step: str) -> None:
    """Raises `UnknownColumn` or `WrongType` unless the node has the columns that the input `given` declares, with the
    declared types. `what` names the input in errors.
    """
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
    user = {
        name: dtype for name, dtype in output.items() if name not in (EVENT_TIME, *windows, PANE_RETRACTED)
    }
    changes = (PANE_RETRACTED,) if operator.gives_changes else ()
    return Shape(given_columns(user, step), (EVENT_TIME, *windows, *changes))


def _require_output(operator: CustomOperator, shape: Shape, step: str) -> None:
    """Raises `PlanError` unless a step without arrivals returns the declared columns, and no rows."""
    from stages.stage import Stage
    from stages.state.store import DictStore

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
    """Returns the windowing of the emitted rows. If they stay in windows, it is the windowing of the input."""
    windows = before.windowing.windows if {*WINDOW_COLUMNS} <= {*shape.system} else GlobalWindows()
    windowing = attrs.evolve(before.windowing, windows=windows)
    if windowing.timestamp_combiner.columns:
        # The combiner chooses among input rows, which the output does not contain.
        windowing = attrs.evolve(windowing, timestamp_combiner=TimestampCombiner.EARLIEST)
    return windowing
