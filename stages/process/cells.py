"""The conversion of cells between columns and attributes: a user's object has the state of one cell after another.

A cell is the state of one key and window: its fields and timers, a row of the frame `cells`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy, deepcopy
from types import MappingProxyType
from typing import Any, Final

import polars as pl

from stages.errors import UnreadableState
from stages.process.attribute_fields import ExpiringField, FailedSide, LazyField
from stages.process.calls import Call
from stages.process.columns import MISFITS, as_column, one_by_one
from stages.process.declarations import Process
from stages.process.fields import FieldColumn
from stages.process.layout import CellLayout
from stages.process.stateful import Unavailable
from stages.process.timers import Family, Single
from windowing.python_values import values_of

NO_SIDES: Final[Mapping[str, Any]] = MappingProxyType({})
"""The values of the sides of a process that has none."""


class CellState:
    """The user's object, `process`, whose attributes are the fields and timers of the current cell.

    For each cell: `load`, calls of methods with `after_call` after each, `store`. Then `after` returns all cells.
    """

    def __init__(
        self,
        process: Process,
        layout: CellLayout,
        cells: pl.DataFrame,
        call: Call,
        sides: Mapping[str, Any] = NO_SIDES,
    ) -> None:
        self.layout, self.cells, self.call, self.sides = layout, cells, call, sides
        self.unreadable: UnreadableState | None = None
        """The error of a field that could not be loaded. It is raised after the call even if the method caught it."""
        self.timers: list[Single | Family] = [
            (Family if declared.family else Single)(
                name, declared, call, [cells[column].to_list() for column in self._columns_of(name)]
            )
            for name, declared in layout.timers.items()
        ]
        self.expiring = [ExpiringField(field, call) for field in layout.fields if field.ttl is not None]
        self._containers = [one for one in self.expiring if not one.field.immutable]
        self.plain = [field for field in layout.fields if field.plain and field.ttl is None]
        self._defaults = [(field.name, field.default) for field in self.plain if field.default is not None]
        self.lazy = [field for field in layout.fields if not field.plain and field.ttl is None]
        self.process = self._object(process)
        self._attributes = vars(self.process)
        self._declared = frozenset(self._attributes)
        own = {field.name for field in self.plain}
        self._fixed = [(name, value) for name, value in self._attributes.items() if name not in own]
        self._values = [(field, _values(cells[field.column], field)) for field in self.plain]
        # Cells are many, so what is done for each of them looks only at names and lists.
        self._immutable = [(field.name, values) for field, values in self._values if field.immutable]
        self._mutable = [(field.name, values) for field, values in self._values if not field.immutable]
        self._changed: dict[str, dict[int, Any]] = {field.name: {} for field in self.lazy}
        self._expiring = [
            (one, values_of(cells[one.field.column]), cells[one.field.written].to_list())
            for one in self.expiring
        ]

    def _columns_of(self, timer: str) -> list[str]:
        return [*self.layout.timer_columns(timer), *self.layout.hold_columns(timer)]

    def _object(self, declared: Process) -> Process:
        process = copy(declared)
        own: dict[str, Any] = {field.name: LazyField(field.name, self._loading(field)) for field in self.lazy}
        own |= {one.field.name: one for one in self.expiring}
        own |= dict.fromkeys([field.name for field in self.plain])  # so a deleted field reads as None
        failed = {name: one for name, one in self.sides.items() if isinstance(one, Unavailable)}
        own |= {name: FailedSide(one.error) for name, one in failed.items()}
        # State fields can be set even if the user's class is frozen.
        own["__setattr__"] = object.__setattr__
        object.__setattr__(process, "__class__", type(type(process).__name__, (type(process),), own))
        for name in (*own, *self.layout.timers):
            vars(process).pop(name, None)  # in a dataclass, the declaration is also an instance attribute
        vars(process).update({timer.name: timer for timer in self.timers}, _call=self.call)
        vars(process).update({field.name: None for field in self.plain})
        vars(process).update({name: one for name, one in self.sides.items() if name not in failed})
        return process

    def _loading(self, field: FieldColumn) -> Any:
        column = self.cells[field.column]

        def load() -> Any:
            raw = column[self.call.cell]
            try:
                return field.load(raw.to_list() if isinstance(raw, pl.Series) else raw)
            except UnreadableState as error:
                self.unreadable = error
                raise

        return load

    def load(self, cell: int) -> None:
        """Sets the attributes of the user's object to the fields and timers of this cell."""
        attributes = self._attributes
        for field in self.lazy:
            attributes.pop(field.name, None)
        for name, values in self._immutable:
            attributes[name] = values[cell]
        for name, values in self._mutable:
            attributes[name] = deepcopy(values[cell])
        for one, values, written in self._expiring:
            one.load(values[cell], written[cell])
        for timer in self.timers:
            timer.load(cell)

    def store(self, cell: int) -> None:
        """Stores the attributes of the user's object as this cell. If one cannot be stored, raises and stores none."""
        attributes = self._attributes
        loaded = [field for field in self.lazy if field.name in attributes] if self.lazy else ()
        changed = (
            [(field.name, field.store(attributes.pop(field.name))) for field in loaded] if loaded else ()
        )
        stored = [one.stored() for one in self.expiring] if self.expiring else ()
        self._require_no_other_attribute()
        # Everything that may raise is above, and all writes are below: a cell is stored completely or not at all.
        for name, values in self._immutable:
            values[cell] = attributes.get(name)
        for name, values in self._mutable:
            values[cell] = attributes.get(name)
        for name, value in changed:
            self._changed[name][cell] = value
        for (one, values, written), value in zip(self._expiring, stored, strict=True):
            values[cell], written[cell] = value, one.written
        for timer in self.timers:
            timer.store(cell)

    def reset_parameters(self) -> None:
        """Resets all attributes that are not state fields to their declared values."""
        for name in self._attributes.keys() - self._declared:
            del self._attributes[name]
        self._attributes.update(self._fixed)

    def after_call(self) -> None:
        """Completes a call of a method. A field with a default that was set to None gets the default."""
        if self.unreadable is not None:
            raise self.unreadable
        attributes = self._attributes
        for name, default in self._defaults:
            if attributes.get(name) is None:
                attributes[name] = deepcopy(default)
        for one in self._containers:
            one.after_call()

    def saved(self) -> Any:
        """Returns a copy of all fields and timers of the current cell, for `restore`."""
        names = [field.name for field in (*self.plain, *self.lazy) if field.name in self._attributes]
        return (
            {name: deepcopy(self._attributes[name]) for name in names},
            [one.saved() for one in self.expiring],
            [timer.saved() for timer in self.timers],
        )

    def restore(self, saved: Any) -> None:
        """Resets all fields and timers of the current cell to a copy that `saved` returned."""
        fields, expiring, timers = saved
        self._attributes.clear()
        self._attributes.update(self._fixed, **fields)
        for one, was in zip(self.expiring, expiring, strict=True):
            one.restore(was)
        for timer, was in zip(self.timers, timers, strict=True):
            timer.restore(was)

    def require_fitting(self) -> None:
        """Raises `TypeError` if a value does not fit the type of its field, or if an undeclared attribute was set."""
        for field in (*self.plain, *self.lazy):
            if field.name in self._attributes:
                _require(field, lambda field=field: field.store(self._attributes[field.name]))  # type: ignore[misc]
        for one in self.expiring:
            _require(one.field, one.stored)
        self._require_no_other_attribute()

    def _require_no_other_attribute(self) -> None:
        """Raises `TypeError` if a method has set an attribute that is no state field."""
        attributes = self._attributes
        for name, value in self._fixed:
            if attributes.get(name, self) is not value:
                kind = "timer" if name in self.layout.timers else "parameter"
                kind = "side input" if name in self.sides else kind
                raise TypeError(
                    f"self.{name} is a {kind}, and all keys have it in common; it must not be set in a method"
                )
        if len(attributes) != len(self._declared):
            known = {*self._declared, *(field.name for field in self.lazy)}
            for name in attributes.keys() - known:
                raise TypeError(
                    f"self.{name} is no state field, so it would be lost; declare it in the class, as in "
                    f"{name} = bl.Value(int)"
                )

    def after(self, dead: Iterable[int]) -> tuple[pl.DataFrame, set[int]]:
        """Returns all cells except the `dead` ones, and the numbers of cells with a value that does not fit its column.

        Such a value is null in the returned cells.
        """
        misfits = set[int]()
        columns = [self._series(field, values, misfits) for field, values in self._values]
        for one, values, written in self._expiring:
            columns += [
                self._series(one.field, values, misfits),
                pl.Series(one.field.written, written, dtype=pl.Int64),
            ]
        columns += [self._merged(field, misfits) for field in self.lazy if self._changed[field.name]]
        for timer in self.timers:
            columns += [
                pl.Series(name, values, dtype=self.layout.cells[name])
                for name, values in zip(self._columns_of(timer.name), timer.columns, strict=True)
            ]
        cells = self.cells.with_columns(columns)
        dead = list(dead)
        return (cells.filter(~pl.int_range(pl.len()).is_in(dead)) if dead else cells), misfits

    def _merged(self, field: FieldColumn, misfits: set[int]) -> pl.Series:
        """Returns the new column of a lazily loaded field: the old column with the values that methods have read or
        set.
        """
        changed, column = self._changed[field.name], self.cells[field.column]
        found = self._series(field, list(changed.values()), misfits, list(changed))
        places = list(range(len(column)))
        for number, cell in enumerate(changed):
            places[cell] = len(column) + number
        return pl.concat([column, found]).gather(places)

    def _series(
        self, field: FieldColumn, values: list[Any], misfits: set[int], cells: Sequence[int] | None = None
    ) -> pl.Series:
        try:
            return as_column(field.column, values, field.dtype)
        except MISFITS:
            column, wrong = one_by_one(field.column, values, field.dtype)
        misfits.update(wrong if cells is None else (cells[number] for number in wrong))
        return column


def _values(column: pl.Series, field: FieldColumn) -> list[Any]:
    """Returns the values of a field by cell, with its default in place of null."""
    values = values_of(column)
    if field.default is not None:
        return [field.default if value is None else value for value in values]
    return values


def _require(field: FieldColumn, stored: Callable[[], Any]) -> None:
    """Raises `TypeError`, which names the field, if the result of `stored` does not fit the column of the field."""
    try:
        as_column(field.column, [stored()], field.dtype)
    except (MemoryError, UnreadableState):
        raise
    except Exception as error:  # pickle raises errors of many kinds
        known = isinstance(error, MISFITS)
        why = str(error).partition("\n")[0] if known else f"{type(error).__name__}: {error}"
        what = field.dtype if field.plain else f"a {field.kind}"
        raise TypeError(f"state field {field.name!r} is {what}: {why}") from None
