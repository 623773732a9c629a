"""Keyed state and timers as they are declared: what must hold of a user's `Process`, and the operator that plays it."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import partial
from typing import Any, get_args

import attrs
import polars as pl

from beamlike.errors import PlanError, UnboundedGrouping, UnknownName, WrongType, listed, nearest
from beamlike.expressions.describe import describe
from beamlike.io.base import SHOWN
from beamlike.logical.event_time import require_event_time
from beamlike.logical.node import Node
from beamlike.logical.origins import Apply
from beamlike.rows.dtypes import SchemaLike, as_dtype, as_schema, type_name
from beamlike.steps.infer import Shape
from beamlike.steps.python_results import as_columns
from stages.process.declarations import NO_TYPE, Combining, Field, Process, Timer, Value, fields_of, timers_of
from stages.process.fields import FieldColumn, field_column
from stages.process.layout import Layout
from stages.process.operator import KeyedProcess, Order
from windowing.columns import EVENT_TIME, WINDOW_COLUMNS
from windowing.timestamp_combiners import TimestampCombiner
from windowing.windows import GlobalWindows

_FIRING = "on_"


def processed(
    before: Node,
    keys: Sequence[str],
    process: Process,
    schema: SchemaLike,
    step: str,
    *,
    order: Order,
    retractions: bool,
    keep_forever: bool,
) -> Node:
    """What a process makes of the rows of each key and window."""
    require_event_time(before, step)
    _require_process(process, step)
    if order not in get_args(Order):
        raise UnknownName(
            f"order must be 'time' or 'arrival', not {order!r}{nearest(order, get_args(Order))}", step=step
        )
    _require_fixed_windows(before, step)
    _require_no_retractions(before, retractions, step)
    layout = _layout(before, keys, process, step)
    _require_bound(before, layout, keep_forever, step)
    user = _given(schema, step)
    windowing = before.windowing
    operator = KeyedProcess(
        layout, windowing, order, partial(as_columns, schema=user), retracted=before.retracting
    )
    windows = tuple(column for column in WINDOW_COLUMNS if column in before.shape.system)
    if windowing.timestamp_combiner.columns:
        # The rows that it chooses are gone.
        windowing = attrs.evolve(windowing, timestamp_combiner=TimestampCombiner.EARLIEST)
    return Node(
        step,
        Apply(tuple(keys), operator, process_facts(operator)),
        (before,),
        Shape(user, (EVENT_TIME, *windows)),
        windowing,
        base=step,
        merged=before.merged,
        bounded=before.bounded,
        repeats=before.repeats,
    )


def process_facts(operator: KeyedProcess) -> dict[str, str]:
    """What a stage of this kind is, in words by what they say."""
    layout = operator.layout
    state = [f"{field.name} {type_name(field.dtype)}" for field in layout.fields]
    timers = [f"{name} {timer.domain}" for name, timer in layout.timers.items()]
    windows = (
        {}
        if isinstance(operator.windowing.windows, GlobalWindows)
        else {"windows": describe(operator.windowing.windows)}
    )
    return {
        "process": type(layout.process).__name__,
        "keys": ", ".join(layout.keys),
        **windows,
        "order": operator.order,
        "state": listed(state),
        "timers": listed(timers),
    }


def _require_process(process: object, step: str) -> None:
    """It is one, and its timers and its methods belong together."""
    if isinstance(process, type) and issubclass(process, Process):
        raise WrongType(f"{process.__name__} is a class; make one of it: {process.__name__}()", step=step)
    if not isinstance(process, Process):
        raise WrongType(
            f"expected an object of a class of your own that extends bl.Process, got {process!r}", step=step
        )
    kind, own = type(process), type(process).__name__
    if kind.element is Process.element:
        raise PlanError(f"{own} has no method element(self, row), which is called for each row", step=step)
    _require_arguments(process.element, ["row"], step)
    fields, timers = fields_of(process), timers_of(process)
    for name in (*fields, *timers):
        if hasattr(Process, name):
            raise PlanError(
                f"{own}.{name} hides self.{name}, which every Process has; choose another name", step=step
            )
    for name in [name for name in dir(kind) if not name.startswith("__")]:
        _require_called(name, getattr(kind, name), own, step)
    _require_methods(process, timers, step)


def _require_called(name: str, value: object, own: str, step: str) -> None:
    if isinstance(value, type) and issubclass(value, Field | Timer):
        example = f"bl.{value.__name__}({'int' if issubclass(value, Field) else ''})"
        raise WrongType(
            f"{own}.{name} is the class bl.{value.__name__}; call it: {name} = {example}", step=step
        )


def _require_methods(process: Process, timers: dict[str, Timer], step: str) -> None:
    own = type(process).__name__
    methods = [name.removeprefix(_FIRING) for name in dir(type(process)) if name.startswith(_FIRING)]
    for name, timer in timers.items():
        if name not in methods:
            others = [method for method in methods if method not in timers]
            raise PlanError(
                f"{own} has a timer {name!r}, and no method {_FIRING}{name}(self), which is called when it fires"
                f"{nearest(_FIRING + name, [_FIRING + other for other in others])}",
                step=step,
            )
        _require_arguments(getattr(process, _FIRING + name), ["tag"] if timer.family else [], step)
    for name in methods:
        if name not in timers:
            raise PlanError(
                f"{own} has a method {_FIRING}{name}, and no timer {name!r}{nearest(name, timers)}; declare it in the "
                f"class, as in {name} = bl.EventTimer()",
                step=step,
            )
    _require_arguments(process.expire, [], step)


def _require_arguments(method: Any, names: list[str], step: str) -> None:
    try:
        inspect.signature(method).bind(*names)
    except TypeError as error:
        called = f"{method.__name__}({', '.join(['self', *names])})"
        raise WrongType(f"{method.__qualname__} is called as {called}: {error}", step=step) from None


def _require_fixed_windows(before: Node, step: str) -> None:
    if before.windowing.windows.merging and not before.merged:
        raise PlanError(
            f"windows of {describe(before.windowing.windows)} merge, and state of two windows cannot become one; group "
            "without windows and let an EventTimer end a session, or aggregate the sessions before",
            step=step,
        )


def _require_no_retractions(before: Node, retractions: bool, step: str) -> None:
    if before.retracting and not retractions:
        raise PlanError(
            "its rows may take back earlier ones (accumulation retracting); give retractions=True, and look at "
            "self.retracted in element, or another accumulation before",
            step=step,
        )


def _require_bound(before: Node, layout: Layout, keep_forever: bool, step: str) -> None:
    """State of an input without end goes some time."""
    lasting = all(field.ttl is not None for field in layout.fields)
    endless = not before.bounded and isinstance(before.windowing.windows, GlobalWindows)
    if endless and not lasting and not layout.timers and not keep_forever:
        raise UnboundedGrouping(
            f"the input has no end and it is in the global window, so {type(layout.process).__name__} would keep the "
            "state of every key for ever; give it a timer that clears it, a ttl=, windows before, or keep_forever=True",
            step=step,
        )


def _layout(before: Node, keys: Sequence[str], process: Process, step: str) -> Layout:
    fields = tuple(
        _column(name, field, process, before.schema, step) for name, field in fields_of(process).items()
    )
    return Layout(
        tuple(keys), before.schema, process, fields, timers_of(process), before.windowing.allowed_lateness
    )


def _column(name: str, field: Field, process: Process, schema: pl.Schema, step: str) -> FieldColumn:
    where = f"state field {type(process).__name__}.{name}"
    if not isinstance(field, Combining) and any(
        value is NO_TYPE for value in attrs.astuple(field, recurse=False)
    ):
        example = "bl.Map(str, int)" if field.kind == "Map" else f"bl.{field.kind}(int)"
        raise WrongType(f"{where} has no type; write for example {name} = {example}", step=step)
    try:
        return field_column(name, field, as_dtype, schema)
    except Exception as error:  # pickle raises errors of many kinds
        why = (
            f"{type(error).__name__}: {error}" if isinstance(field, Value) and field.type is object else error
        )
        raise WrongType(f"{where}: {why}", step=step) from error


def _given(schema: SchemaLike, step: str) -> pl.Schema:
    user = as_schema(schema, step)
    if not user:
        raise PlanError("schema= has no columns; give at least one", step=step)
    for name in user:
        if name in SHOWN:
            raise PlanError(
                f"schema= must not have a column {name!r}, as sinks get one of that name with every row; rename it",
                step=step,
            )
    return user
