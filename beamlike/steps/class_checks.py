"""Checks at plan time: the fields of a user's class against the columns of rows, or of a declared schema."""

from __future__ import annotations

from inspect import signature
from typing import Any, is_typeddict

import polars as pl

from beamlike.errors import PlanError, WrongType, listed, nearest, unknown_column
from beamlike.rows.annotations import annotated_dtype, class_schema, item_of, unwrapped
from beamlike.rows.dtypes import has_values_of, type_name
from beamlike.rows.models import is_model
from beamlike.rows.row_classes import COMPUTED, NO_DEFAULT, RowField, fields_of_class, is_row_class
from stages.process.columns import MISFITS, as_column


def require_column(kind: type, field: RowField, schema: pl.Schema, step: str) -> None:
    """Raises an error unless a field of the class `kind` has a column with fitting values, or a default. It is
    `UnknownColumn` or `WrongType`.
    """
    what = f"{kind.__name__}.{field.name}"
    if field.column not in schema:
        if field.required:
            raise unknown_column(field.column, schema, step, note=f"; {what} needs it, as it has no default")
        return
    if (why := _misfit(schema[field.column], field.annotation, what)) is not None:
        raise WrongType(f"{why}; cast the column {field.column!r} before, or change the field", step=step)


def _misfit(actual: pl.DataType, annotation: Any, what: str) -> str | None:
    """Returns the reason why the field called `what` cannot hold values of the column type `actual`; None if it can."""
    one = unwrapped(annotation)
    inner: Any = actual
    if is_row_class(one.kind) and isinstance(actual, pl.Struct):
        parts = {part.name: part.dtype for part in actual.fields}
        for field in fields_of_class(one.kind):
            path = f"{what}.{field.name}"
            if field.column in parts:
                if (why := _misfit(_instance(parts[field.column]), field.annotation, path)) is not None:
                    return why
            elif field.required:
                hint = nearest(field.column, parts)
                return f"{path} is not in {what.rpartition('.')[2]!r}, which has {listed(parts)}{hint}"
        return None
    if (item := item_of(one.kind)) is not None and isinstance(actual, pl.List | pl.Array):
        return _misfit(_instance(inner.inner), item, f"{what}[]")
    wanted = annotated_dtype(annotation)
    exact = isinstance(actual, pl.Decimal) == isinstance(wanted, pl.Decimal) or actual.is_integer()
    if exact and has_values_of(actual, wanted):
        return None
    return f"{what} is {_shown(annotation)}, and its column is {type_name(actual)}"


def require_made(annotation: Any, step: str) -> None:
    """Raises `WrongType` if a class of rows in an annotation cannot be constructed from values for its fields alone."""
    kind = unwrapped(annotation).kind
    if (item := item_of(kind)) is not None:
        require_made(item, step)
    if not is_row_class(kind):
        return
    fields = fields_of_class(kind)
    if not is_model(kind) and not is_typeddict(kind):
        _require_called(kind, fields, step)
    for field in fields:
        require_made(field.annotation, step)


def _require_called(kind: type, fields: tuple[RowField, ...], step: str) -> None:
    for given in (fields, [field for field in fields if field.required]):
        names = [field.argument or field.name for field in given]
        try:
            signature(kind).bind(**dict.fromkeys(names))
        except TypeError as error:
            shown = ", ".join(f"{name}=..." for name in names)
            raise WrongType(
                f"rows are made by {kind.__name__}({shown}), with one argument for each field, which fails: "
                f"{error}",
                step=step,
            ) from None
        except ValueError:  # some classes have no signature to inspect
            return


def require_defaults(annotation: Any, step: str) -> None:
    """Raises `WrongType` if a field of a class of rows in an annotation has a default of another type than its
    annotation.
    """
    kind = unwrapped(annotation).kind
    if (item := item_of(kind)) is not None:
        require_defaults(item, step)
    if not is_row_class(kind):
        return
    for field in fields_of_class(kind):
        if field.default is not NO_DEFAULT and field.default is not COMPUTED:
            _require_default(kind, field, step)
        require_defaults(field.annotation, step)


def _require_default(kind: type, field: RowField, step: str) -> None:
    dtype = annotated_dtype(field.annotation)
    try:
        as_column("", [field.default], dtype)
        if isinstance(field.default, str) and dtype.is_temporal():
            raise TypeError("polars would read a time from text")
    except MISFITS:
        raise WrongType(
            f"{kind.__name__}.{field.name} is {_shown(field.annotation)}, and its default is {field.default!r}",
            step=step,
        ) from None


def _shown(annotation: Any) -> str:
    one = unwrapped(annotation)
    text = one.kind.__name__ if isinstance(one.kind, type) else str(one.kind).replace("typing.", "")
    return f"{text} | None" if one.optional else text


def _instance(dtype: Any) -> pl.DataType:
    made: pl.DataType = dtype() if isinstance(dtype, type) else dtype
    return made


def require_same(kind: type, schema: pl.Schema, step: str) -> None:
    """Raises `PlanError` unless the class `kind` has exactly the fields that `schema` has columns, with types that may
    fit.
    """
    columns = class_schema(kind)
    for name in [*columns, *schema]:
        if name not in schema or name not in columns:
            owner, others = ("schema=", schema) if name in columns else (kind.__name__, columns)
            raise PlanError(
                f"{owner} has no {name!r}, and {kind.__name__ if name in columns else 'schema='} has; "
                f"the columns are {listed(others)}{nearest(name, others)}",
                step=step,
            )
        if not _may_fit(columns[name], schema[name]):
            raise WrongType(
                f"{kind.__name__}.{name} is {type_name(columns[name])}, and schema= declares {type_name(schema[name])}",
                step=step,
            )


def _may_fit(given: pl.DataType, declared: pl.DataType) -> bool:
    numbers = given.is_numeric() and declared.is_numeric()
    return numbers or has_values_of(given, declared) or has_values_of(declared, given)
