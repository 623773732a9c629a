"""The declaration of a user's `Process`, with keyed state and timers, and its checks."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from types import MemberDescriptorType
from typing import Any

import attrs
import polars as pl

from beamlike.errors import PlanError, WrongType, nearest
from beamlike.logical.keyed import corrects, given_columns, keyed, require_bound, require_placed
from beamlike.logical.node import Node
from beamlike.rows.dtypes import SchemaLike, as_dtype
from beamlike.rows.objects import class_of_results
from beamlike.rows.row_classes import is_row_class
from beamlike.rows.state_values import conversions
from beamlike.rows.taken import Taking
from beamlike.steps.class_checks import require_defaults, require_made, require_same
from beamlike.steps.declared import given, taken
from beamlike.steps.python_results import as_columns
from stages.process.declarations import Process, fields_of, timers_of
from stages.process.fields import FieldColumn, field_column
from stages.process.keyed import Order
from stages.process.layout import CellLayout
from stages.process.operator import KeyedProcess
from stages.process.replayed import ProcessOfChanges
from stages.process.state_fields import NO_TYPE, Combining, Field, Value
from stages.process.timer_fields import Timer

_FIRING = "on_"

_OPTIONS: Mapping[str, tuple[type | tuple[type, ...], str]] = {
    "order": (str, "process(..., order=...)"),
    "keep_forever": (bool, "process(..., keep_forever=...)"),
    "retractions": (bool, "process(..., retractions=...)"),
    "state": (
        (dict, list, tuple),
        "a state field: n = bl.Value(int); state= is an argument of process_batches",
    ),
    "timers": (
        (dict, list, tuple),
        "a timer: quiet = bl.EventTimer(); timers= is an argument of process_batches",
    ),
    "output": (object, "the call that sets a timer: self.quiet.after('10m', output=...)"),
    "hold": (bool, "the timer: bl.ProcessingTimer(hold=...)"),
    "ttl": ((str, timedelta), "the state field: bl.Value(int, ttl=...)"),
    "allowed_lateness": (object, "window_into(allowed_lateness=...) before the process"),
    "watermark": (object, "read(..., watermark=...)"),
    "at_end": (object, "the timer: bl.EventTimer(at_end=...)"),
}
"""Options that have no effect as attributes of a Process class: the types that reveal the mistake, and where the option
belongs.
"""


def processed(
    before: Node,
    keys: Sequence[str],
    process: Process,
    schema: SchemaLike | None,
    step: str,
    *,
    order: Order,
    retractions: bool,
    keep_forever: bool,
) -> Node:
    """Declares `process`: a user's object whose methods are called for the rows and timers of each key and window.

    Arguments are those of `Grouped.process`, after the node and keys of the input.
    """
    require_placed(before, order, step, retractions=retractions)
    _require_process(process, step)
    own = type(process)
    fields = [
        _column(name, field, process, before.schema, step) for name, field in fields_of(process).items()
    ]
    layout = CellLayout(
        tuple(keys),
        before.schema,
        tuple(fields),
        timers_of(process),
        before.windowing.allowed_lateness,
        expires=own.expire is not Process.expire,
    )
    forgets = bool(layout.timers) or all(field.ttl is not None for field in layout.fields)
    if not forgets and not keep_forever:
        require_bound(
            before, own.__name__, "a timer that clears it, a ttl=, windows before, or keep_forever=True", step
        )
    kind = _given(process, timers_of(process), schema, step)
    user = given_columns(kind if schema is None else schema, step)  # type: ignore[arg-type]
    if kind is not None and schema is not None:
        require_same(kind, user, step)
    gives = class_of_results(kind)
    replays = corrects(before, retractions=retractions)
    if replays:
        _require_replayable(layout, own.__name__, step)
    operator = (ProcessOfChanges if replays else KeyedProcess)(
        tuple(keys),
        before.schema,
        before.windowing,
        layout,
        process,
        partial(as_columns, schema=user, kind=gives),
        objects=taken(process.element, before.schema, step),
        taking=Taking(user, gives),
        order=order,
        title=own.__name__,
        retracted=before.retracting and retractions,
        sums=before.retracting and not retractions,
    )
    return keyed(before, operator, user, step)


def _require_replayable(layout: CellLayout, own: str, step: str) -> None:
    """Raises `PlanError` for a timer or a time to live of processing time."""
    timers = [name for name, timer in layout.timers.items() if timer.domain == "processing"]
    fields = [field.name for field in layout.fields if field.ttl is not None and not field.by_event]
    for names, kind, what, other in (
        (timers, "a ProcessingTimer", "at which it fired", "an EventTimer"),
        (fields, "a field with a ttl of processing time", "at which it expired", 'by="event"'),
    ):
        if names:
            raise PlanError(
                f"its rows may retract earlier ones (accumulation retracting), and with allowed lateness the methods "
                f"are called again for corrected rows, but {own}.{names[0]} is {kind}, and the moment {what} cannot be "
                f"repeated; give {other}, process(..., retractions=True), where self.retracted marks retractions, or "
                "no allowed lateness",
                step=step,
            )


def _given(
    process: Process, timers: Mapping[str, Timer], schema: SchemaLike | None, step: str
) -> type | None:
    """Returns the class of the rows that the methods emit, by their annotations or by `schema`; None for dicts."""
    methods = [process.element, process.expire, *(getattr(process, _FIRING + name) for name in timers)]
    found = {kind for method in methods if (kind := given(method, step, several=True)) is not None}
    own = type(process).__name__
    if len(found) > 1:
        names = " and ".join(sorted(kind.__name__ for kind in found))
        raise WrongType(f"the methods of {own} emit {names}; the rows of a step are of one class", step=step)
    if not found and schema is None:
        raise PlanError(
            f"give it a schema=, or {own}'s methods an annotation with a class of rows, such as -> Iterator[Alert]",
            step=step,
        )
    declared: Any = schema if is_row_class(schema) else None
    return next(iter(found), declared)


def _require_process(process: object, step: str) -> None:
    """Raises `PlanError` unless `process` is an object of a subclass of `Process` with a method for rows and for each
    timer, and without methods for other timers.
    """
    if isinstance(process, type) and issubclass(process, Process):
        raise WrongType(f"{process.__name__} is a class; make one of it: {process.__name__}()", step=step)
    if not isinstance(process, Process):
        raise WrongType(f"expected an object of a class that extends bl.Process, got {process!r}", step=step)
    kind, own = type(process), type(process).__name__
    declared: dict[str, Field | Timer] = {**fields_of(process), **timers_of(process)}
    for name in declared:
        if hasattr(Process, name) or name in Process.__annotations__:
            raise PlanError(
                f"{own}.{name} hides self.{name}, which every Process has; choose another name", step=step
            )
    _require_no_options(kind, step)
    _require_parameters(process, declared, step)
    if kind.element is Process.element:
        raise PlanError(f"{own} has no method element(self, row), which is called for each row", step=step)
    _require_arguments(process.element, ["row"], step)
    for name in [name for name in dir(kind) if not name.startswith("__")]:
        _require_called(name, getattr(kind, name), own, step)
    _require_methods(process, timers_of(process), step)


def _require_no_options(kind: type[Process], step: str) -> None:
    """Raises `PlanError` for a class attribute that is meant as an option, or that hides a member of `Process`."""
    # Only the classes of the user, which are before `Process` in this order.
    for base in kind.__mro__[: kind.__mro__.index(Process)]:
        for name, value in vars(base).items():
            if isinstance(value, Field | Timer | property) or callable(value):
                continue
            what, belongs = _OPTIONS.get(name, ((), ""))
            if isinstance(value, what):
                raise PlanError(
                    f"{base.__name__}.{name} = {value!r} does nothing as an attribute of the class: it belongs into "
                    f"{belongs}",
                    step=step,
                )
            if isinstance(getattr(Process, name, None), property):
                raise PlanError(
                    f"{base.__name__}.{name} hides self.{name}, which every Process has; choose another name",
                    step=step,
                )


def _require_parameters(process: Process, declared: Mapping[str, object], step: str) -> None:
    """Raises `PlanError` if the constructor sets an attribute that is a state field or a timer."""
    own = type(process).__name__
    for name, value in _set_attributes(process):
        if isinstance(value, Field | Timer) and declared.get(name) is not value:
            kind = type(value).__name__
            raise PlanError(
                f"{own}.{name} is a bl.{kind} of one object; declare it in the class, without an annotation and not in "
                f"__init__: {name} = bl.{kind}(...)",
                step=step,
            )
        if name in declared and declared[name] is not value:
            raise PlanError(
                f"{own}.{name} is a {'timer' if isinstance(declared[name], Timer) else 'state field'}, and the "
                f"constructor sets it to {value!r}, which no key would see; give a bl.Value its default=, or choose "
                "another name for the parameter",
                step=step,
            )


def _set_attributes(process: Process) -> Iterator[tuple[str, object]]:
    yield from vars(process).items()
    # `vars` of the object does not have the attributes of classes with `__slots__`.
    for base in type(process).__mro__:
        for name, slot in vars(base).items():
            if isinstance(slot, MemberDescriptorType) and hasattr(process, name):
                yield name, getattr(process, name)


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
    if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
        raise WrongType(f"{method.__qualname__} must not be async: runners do not await it", step=step)
    if not callable(method):
        raise WrongType(f"expected a method of the Process, found {method!r}", step=step)
    try:
        inspect.signature(method).bind(*names)
    except TypeError as error:
        called = f"{method.__name__}({', '.join(['self', *names])})"
        raise WrongType(f"{method.__qualname__} is called as {called}: {error}", step=step) from None


def _column(name: str, field: Field, process: Process, schema: pl.Schema, step: str) -> FieldColumn:
    where = f"state field {type(process).__name__}.{name}"
    if not isinstance(field, Combining) and any(
        value is NO_TYPE for value in attrs.astuple(field, recurse=False)
    ):
        example = "bl.Map(str, int)" if field.kind == "Map" else f"bl.{field.kind}(int)"
        raise WrongType(f"{where} has no type; write for example {name} = {example}", step=step)
    for option in ("type", "key", "value"):
        require_made(getattr(field, option, None), step)
        require_defaults(getattr(field, option, None), step)
    try:
        return field_column(name, field, as_dtype, schema, conversions)
    except Exception as error:  # pickle raises many kinds of errors
        why = (
            f"{type(error).__name__}: {error}" if isinstance(field, Value) and field.type is object else error
        )
        raise WrongType(f"{where}: {why}", step=step) from error
