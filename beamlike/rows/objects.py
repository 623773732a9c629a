"""Conversion of rows to objects of a user's class, and of objects to columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from inspect import Parameter, signature
from itertools import starmap
from operator import attrgetter
from typing import Any, Final, is_typeddict

import attrs
import polars as pl

from beamlike.rows.annotations import item_of, unwrapped
from beamlike.rows.converter import AS_THEY_ARE, Hook, from_field, is_as_it_is, to_object
from beamlike.rows.models import is_model
from beamlike.rows.row_class import RowClass
from beamlike.rows.row_classes import NO_DEFAULT, RowField, fields_of_class, is_row_class
from windowing.python_values import dicts_of, tuples_of

_NULL: Final = (
    "column {column!r} is null, and {field} may not be None: give it a default, or the type {type} | None"
)


@attrs.frozen
class RowObjects:
    """The conversion of rows to objects of a user's class. `columns` are the columns that the class has fields for.

    A null becomes None if the field may be None; otherwise it becomes the default of the field. A row with a null in
    any other field is refused. A model of pydantic checks nulls itself.
    """

    row_class: RowClass
    columns: tuple[str, ...]

    @property
    def kind(self) -> type:
        """The class of the objects."""
        return self.row_class.kind

    def refused(self, rows: pl.DataFrame) -> dict[int, str]:
        """Returns the reasons, by row number, for rows with a null in a field that must have a value. Other rows are
        missing.
        """
        if is_model(self.kind) or rows.is_empty():
            return {}
        checks = {
            field: check
            for field in self._fields()
            if (check := _complete(pl.col(field.column), field, rows.schema[field.column])) is not None
            and (rows.schema[field.column].is_nested() or rows[field.column].null_count())
        }
        if not checks:
            return {}
        fits = rows.select(check.alias(field.column) for field, check in checks.items())
        wrong: dict[int, str] = {}
        for field in checks:
            why = _null_text(self.kind, field)
            wrong = {**dict.fromkeys((~fits[field.column]).arg_true().to_list(), why), **wrong}
        return wrong

    def raw(self, rows: pl.DataFrame) -> list[Any]:
        """Converts rows to a list of the arguments of `make`: tuples or dicts."""
        if not self._positional:
            return list(dicts_of(self._named(rows)))
        tuples, defaults = self._tuples(rows)
        return list(map(defaults, tuples_of(tuples)) if defaults else tuples_of(tuples))

    def iterate(self, given: pl.DataFrame) -> Iterator[Any]:
        """Returns an iterator of objects, one for each row. If a row cannot become an object, its `next` raises, and
        the one after that continues with the following row.
        """
        if self._positional:
            tuples, defaults = self._tuples(given)
            rows = tuples_of(tuples)
            return starmap(self.kind, map(defaults, rows) if defaults else rows)
        dicts = dicts_of(self._named(given))
        return dicts if is_plain_dict(self.kind) else map(maker(self.kind), dicts)

    @property
    def make(self) -> Hook:
        """The function that makes an object of an item that `raw` returned."""
        return partial(_of_tuple, self.kind) if self._positional else maker(self.kind)

    def _fields(self) -> list[RowField]:
        return [field for field in fields_of_class(self.kind) if field.column in self.columns]

    @property
    def _positional(self) -> bool:
        return _is_flat(self.kind)

    def _named(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Returns the columns of the objects. Integers become floats for fields of floats."""
        floats = [_numbers(field, rows.schema) for field in self._fields()]
        return rows.select(self.columns).with_columns(floats)

    def _tuples(self, rows: pl.DataFrame) -> tuple[pl.DataFrame, Hook | None]:
        """Returns the columns of all fields, in their order, and a function that replaces nulls in a row by defaults;
        None if there is none to replace.
        """
        fields = fields_of_class(self.kind)
        columns = [_column(field, rows.schema) for field in fields]
        found = rows.with_columns(columns).select(field.column for field in fields)
        defaults = [
            (number, field.default)
            for number, field in enumerate(fields)
            if _may_stand(field, rows.schema) and found[field.column].null_count()
        ]
        return found, partial(_with_defaults, defaults) if defaults else None


def _same(row: Any) -> Any:
    return row


def _of_tuple(kind: type, row: tuple[Any, ...]) -> Any:
    return kind(*row)


@cache
def _is_flat(kind: type) -> bool:
    """True if objects can be made by a positional call of the class with the values of columns, without conversions."""
    if is_model(kind) or is_typeddict(kind) or not _in_order(kind):
        return False
    return all(
        is_as_it_is(field.annotation)
        and (field.default is NO_DEFAULT or field.default is None or type(field.default) in AS_THEY_ARE)
        for field in fields_of_class(kind)
    )


def _in_order(kind: type) -> bool:
    """True if a call of the class has one positional parameter per field, in the order of the fields, and no others."""
    try:
        taken = signature(kind).parameters.values()
    except (TypeError, ValueError):  # some classes have no signature to inspect
        return False
    return all(one.kind is Parameter.POSITIONAL_OR_KEYWORD for one in taken) and [
        one.name for one in taken
    ] == [field.argument or field.name for field in fields_of_class(kind)]


def _numbers(field: RowField, schema: Mapping[str, pl.DataType]) -> pl.Expr:
    value = pl.col(field.column)
    floats = unwrapped(field.annotation).kind is float and schema[field.column].is_integer()
    return value.cast(pl.Float64) if floats else value


def _column(field: RowField, schema: Mapping[str, pl.DataType]) -> pl.Expr:
    return _numbers(field, schema) if field.column in schema else pl.lit(None).alias(field.column)


def _may_stand(field: RowField, schema: Mapping[str, pl.DataType]) -> bool:
    """True if the default of a field replaces nulls of its column, or a missing column."""
    if field.default is NO_DEFAULT or field.default is None:
        return False
    return field.column not in schema or not unwrapped(field.annotation).optional


def _with_defaults(defaults: Sequence[tuple[int, Any]], row: tuple[Any, ...]) -> tuple[Any, ...]:
    # A column may not have the default as it is: of another precision, zone or unit, or no category of an enum.
    found = list(row)
    for number, default in defaults:
        if found[number] is None:
            found[number] = default
    return tuple(found)


@cache
def is_plain_dict(kind: type) -> bool:
    """True for a `TypedDict` whose objects equal the dicts of their columns, so that no conversion is needed."""
    fields = fields_of_class(kind)
    return is_typeddict(kind) and all(one.required and is_as_it_is(one.annotation) for one in fields)


def class_of_results(kind: type | None) -> RowClass | None:
    """Returns the class of a function's results if they must be converted to dicts of columns; otherwise None."""
    return None if kind is None or is_plain_dict(kind) else RowClass(kind)


@cache
def maker(kind: type) -> Hook:
    """Returns the function that makes an object of the class from a dict of columns."""
    if is_plain_dict(kind):
        return _same
    make, leave_out = to_object(kind), _leaving_out(kind) or _same
    if is_typeddict(kind):
        return lambda row: _with_others(leave_out(row), make)
    return make if leave_out is _same else lambda row: make(leave_out(row))


def _with_others(row: dict[str, Any], make: Hook) -> dict[str, Any]:
    """Returns the typed dict that `make` returns, together with columns of the row for which it has no key."""
    return {**row, **make(row)}


def _leaving_out(kind: Any) -> Hook | None:
    """Returns a function that removes nulls from a dict, at any depth, where the field has a default to use instead.

    Returns None if there is no such field.
    """
    fields = fields_of_class(kind)
    lenient = frozenset(
        one.column for one in fields if not one.required and not unwrapped(one.annotation).optional
    )
    inner = {one.column: found for one in fields if (found := _inner(one.annotation)) is not None}
    if not lenient and not inner:
        return None

    def leave_out(row: Mapping[str, Any]) -> dict[str, Any]:
        kept = {name: value for name, value in row.items() if value is not None or name not in lenient}
        for name, change in inner.items():
            if kept.get(name) is not None:
                kept[name] = change(kept[name])
        return kept

    return leave_out


def _inner(annotation: Any) -> Hook | None:
    kind = unwrapped(annotation).kind
    if is_row_class(kind):
        return _leaving_out(kind)
    change = None if (item := item_of(kind)) is None else _inner(item)
    if change is None:
        return None
    return lambda values: [value if value is None else change(value) for value in values]


def _complete(value: pl.Expr, field: RowField, dtype: Any) -> pl.Expr | None:
    """Returns an expression that is true if a value of the field's column has no null where the field needs a value;
    None if nulls are allowed everywhere.
    """
    return _fits(value, field.annotation, dtype, lenient=not field.required)


def _fits(value: pl.Expr, annotation: Any, dtype: Any, *, lenient: bool = False) -> pl.Expr | None:
    one = unwrapped(annotation)
    found: pl.Expr | None = None
    if isinstance(dtype, pl.Struct) and is_row_class(one.kind) and not is_model(one.kind):
        there = {part.name: part.dtype for part in dtype.fields}
        parts = [
            part
            for field in fields_of_class(one.kind)
            if field.column in there
            and (part := _complete(value.struct.field(field.column), field, there[field.column])) is not None
        ]
        found = pl.all_horizontal(parts) if parts else None
    elif isinstance(dtype, pl.List | pl.Array) and (item := item_of(one.kind)) is not None:
        inner = _fits(pl.element(), item, dtype.inner)
        listed = value.arr.to_list() if isinstance(dtype, pl.Array) else value
        found = None if inner is None else listed.list.eval(inner).list.all()
    if one.optional or lenient:
        return None if found is None else value.is_null() | found
    return value.is_not_null() if found is None else value.is_not_null() & found


def _null_text(kind: type, field: RowField) -> str:
    name = getattr(unwrapped(field.annotation).kind, "__name__", str(field.annotation))
    text = _NULL.format(column=field.column, field=f"{kind.__name__}.{field.name}", type=name)
    return text if is_as_it_is(field.annotation) else f"{text}; or a part of it is null"


# Objects as columns


def as_values(kind: type, objects: Sequence[Any]) -> list[list[Any]]:
    """Returns the columns of objects as lists of values, in the order of the fields. A value of a wrong type raises the
    error of its conversion.
    """
    columns = []
    for field in fields_of_class(kind):
        values = list(map(attrgetter(field.name), objects))
        convert = written(kind)[field.column]
        columns.append(values if convert is None else list(map(convert, values)))
    return columns


def as_dict(kind: type, given: Any) -> Any:
    """Converts an object of the class `kind` to a dict of columns, and completes a `TypedDict` with its missing keys.
    Returns anything else unchanged.
    """
    if is_typeddict(kind):
        return _completed(kind, given) if isinstance(given, Mapping) else given
    if not isinstance(given, kind):
        return given
    return {field.column: _value(kind, field, getattr(given, field.name)) for field in fields_of_class(kind)}


def row_as_dict(row: Any) -> dict[str, Any] | None:
    """Converts a dict, or an object of any class of rows, to a dict; None for anything else."""
    if isinstance(row, Mapping):
        return dict(row)
    found: dict[str, Any] | None = as_dict(type(row), row) if is_row_class(type(row)) else None
    return found


def _completed(kind: type, given: Mapping[str, Any]) -> dict[str, Any]:
    written = {}
    for field in fields_of_class(kind):
        if field.column in given:
            written[field.column] = _value(kind, field, given[field.column])
        elif not field.required:
            written[field.column] = None
    return {**given, **written}


def _value(kind: type, field: RowField, value: Any) -> Any:
    convert = written(kind)[field.column]
    if convert is None or value is None:
        return value
    try:
        return convert(value)
    except Exception as error:
        raise TypeError(f"{kind.__name__}.{field.name} is {value!r}: {error}") from error


@cache
def written(kind: type) -> Mapping[str, Callable[[Any], Any] | None]:
    """Returns, by column, the function that converts values of its field; None where no conversion is needed."""
    return {field.column: from_field(field.annotation) for field in fields_of_class(kind)}
