"""The annotations of a user's function: the class of the rows that it receives, and of those that it returns."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints, is_typeddict

import polars as pl

from beamlike.errors import WrongType
from beamlike.rows.annotations import class_schema, item_of, unwrapped
from beamlike.rows.objects import RowObjects
from beamlike.rows.row_class import RowClass
from beamlike.rows.row_classes import columns_of_class, fields_of_class, is_row_class
from beamlike.steps.class_checks import require_column, require_defaults, require_made
from stages.process.declarations import TimestampedValue


def taken(fn: Callable[..., Any], schema: pl.Schema, step: str) -> RowObjects | None:
    """Returns the conversion of rows to objects if the annotation of the function's first parameter is a class of rows;
    None if the function receives dicts.

    Raises:
        WrongType: A row with the columns of `schema` cannot be such an object.
        UnknownColumn: A field has neither a column nor a default.
    """
    parameters = list(_signature(fn).parameters.values())
    annotation = _resolved(fn, parameters[0].annotation) if parameters else None
    kind = unwrapped(annotation).kind
    if not is_row_class(kind):
        _require_dict(fn, parameters, kind, step)
        return None
    _require_class(kind, step)
    require_made(kind, step)
    for field in fields_of_class(kind):
        require_column(kind, field, schema, step)
    columns = schema if is_typeddict(kind) else columns_of_class(kind)
    return RowObjects(RowClass(kind), tuple(column for column in columns if column in schema))


def given(fn: Callable[..., Any], step: str, *, several: bool = False) -> type | None:
    """Returns the class of rows in the annotation of the function's result; None if the function returns dicts.

    `several`: the function returns any number of rows, as a list or an iterator. Raises `WrongType` if rows cannot be
    of the class.
    """
    annotation = _resolved(fn, _signature(fn).return_annotation)
    kinds = {*_classes(annotation, several=several)}
    for generic in [kind for kind in kinds if get_origin(kind) is not None]:
        _require_no_generic(fn, generic, step)
    if len(kinds) > 1:
        names = " and ".join(sorted(kind.__name__ for kind in kinds))
        raise WrongType(f"{_name(fn)} returns {names}; the rows of a step are of one class", step=step)
    for kind in kinds:
        _require_class(kind, step)
    return next(iter(kinds), None)


def _signature(fn: Any) -> inspect.Signature:
    try:
        return inspect.Signature() if isinstance(fn, type) else inspect.signature(fn)
    except (TypeError, ValueError):  # some builtins have no signature to inspect
        return inspect.Signature()


def _resolved(fn: Any, annotation: Any) -> Any:
    """Returns an annotation. If it is text, the names in it are looked up in the scope of the function; Any if one is
    unknown.
    """
    if annotation is inspect.Parameter.empty:
        return Any
    code = _code_of(fn)
    holder: Any = SimpleNamespace(__annotations__={"": annotation})
    known = getattr(code, "__globals__", {}), _around(code)
    try:
        return get_type_hints(holder, *known, include_extras=True)[""]
    except (NameError, AttributeError, TypeError, SyntaxError):
        return Any  # such as a name that is imported for type checkers only


def _code_of(fn: Any) -> Any:
    """Returns the plain function inside a method, a partial, a decorated function or a callable object."""
    while isinstance(fn, partial):
        fn = fn.func
    found = inspect.unwrap(fn)
    found = found if inspect.isroutine(found) else type(found).__call__
    return getattr(found, "__func__", found)


def _around(code: Any) -> dict[str, Any]:
    """Returns the variables of the enclosing function that a nested function uses."""
    found: dict[str, Any] = {}
    if not inspect.isfunction(code):
        return found
    cells = zip(code.__code__.co_freevars, code.__closure__ or (), strict=False)
    for name, cell in cells:
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not filled yet
            continue
    return found


def _classes(annotation: Any, *, several: bool) -> list[type]:
    """Returns the classes of rows in the annotation of a result; with `several`, in the annotation of its items."""
    if get_origin(annotation) in (Union, UnionType):
        return [kind for one in get_args(annotation) for kind in _classes(one, several=several)]
    kind = unwrapped(annotation).kind
    if not several:
        return [kind] if is_row_class(get_origin(kind) or kind) and kind is not TimestampedValue else []
    item = _item(kind)
    return [] if item is None else _classes(item, several=False)


def _item(kind: Any) -> Any:
    """Returns the annotation of the items of a list, an iterator or a generator; None for any other type."""
    found = item_of(kind)
    name = getattr(get_origin(kind), "__name__", "")
    return get_args(kind)[0] if found is None and name in ("Iterator", "Generator") else found


def _require_class(kind: type, step: str) -> None:
    try:
        class_schema(kind)
    except TypeError as error:
        raise WrongType(str(error), step=step) from None
    require_defaults(kind, step)


def _require_dict(fn: Any, parameters: list[inspect.Parameter], annotation: Any, step: str) -> None:
    """Raises `WrongType` if the annotation of the first parameter is a class that rows cannot be of."""
    kinds = [unwrapped(one).kind for one in _members(annotation)]
    for kind in kinds:
        _require_no_generic(fn, kind, step)
    if any(map(_may_be_dict, kinds)):
        return
    shown = " | ".join(map(_shown, kinds))
    why = (
        "but the rows of a step are of one class" if any(map(is_row_class, kinds)) else "which no row can be"
    )
    raise WrongType(
        f"{_name(fn)} declares {parameters[0].name}: {shown}, {why}; rows are dicts, or objects "
        "of a dataclass, attrs class, NamedTuple, TypedDict or pydantic model",
        step=step,
    )


def _members(annotation: Any) -> tuple[Any, ...]:
    """Returns the types of a union, or a single type as a tuple."""
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def _may_be_dict(kind: Any) -> bool:
    """True if a dict may have this annotation, for example `Mapping`, a protocol or Any."""
    kind = get_origin(kind) or kind
    if is_row_class(kind):
        return False
    if not isinstance(kind, type) or issubclass(kind, Mapping) or kind.__module__ == "typing":
        return True
    try:
        return issubclass(dict, kind)
    except TypeError:  # a protocol
        return True


def _require_no_generic(fn: Any, kind: Any, step: str) -> None:
    """Raises `WrongType` for a generic class of rows with type arguments, such as `Pair[int]`."""
    if is_row_class(get_origin(kind)):
        raise WrongType(
            f"{_name(fn)} declares {_shown(kind)}, but rows cannot be of a generic class; write a class whose fields "
            "have the types",
            step=step,
        )


def _shown(kind: Any) -> str:
    plain = isinstance(kind, type) and not get_args(kind)
    return kind.__name__ if plain else str(kind).replace(f"{getattr(kind, '__module__', '')}.", "")


def _name(fn: Any) -> str:
    return getattr(fn, "__qualname__", None) or type(fn).__name__
