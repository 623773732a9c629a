"""Expressions that explain what Python's operators and the names of other libraries cannot do with them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import wraps
from inspect import isfunction
from typing import Any, Final, NoReturn

import narwhals as nw

from beamlike.errors import WrongType, missing
from beamlike.expressions.operands import truth_fault, used_at
from beamlike.system.arguments import misfit

_RENAMED: Final[Mapping[str, str]] = {
    "isin": "is_in([...])",
    **dict.fromkeys(("isNull", "isnull", "isna", "is_na"), "is_null()"),
    **dict.fromkeys(("isNotNull", "notnull", "notna", "is_not_null"), "~bl.col('x').is_null()"),
    **dict.fromkeys(("isNaN", "isnan"), "is_nan()"),
    "between": "is_between(low, high)",
    **dict.fromkeys(("fillna", "na", "nvl", "coalesce"), "fill_null(value)"),
    **dict.fromkeys(("astype", "as_type", "to"), "cast(nw.Float64), or collection.cast({'x': float})"),
    **dict.fromkeys(("like", "rlike", "ilike", "match", "contains"), "str.contains(pattern)"),
    **dict.fromkeys(("startswith", "startsWith", "starts_with"), "str.starts_with(text)"),
    **dict.fromkeys(("endswith", "endsWith", "ends_with"), "str.ends_with(text)"),
    **dict.fromkeys(("substr", "substring"), "str.slice(offset, length)"),
    **dict.fromkeys(("lower", "to_lower", "lowercase"), "str.to_lowercase()"),
    **dict.fromkeys(("upper", "to_upper", "uppercase"), "str.to_uppercase()"),
    **dict.fromkeys(("strip", "trim"), "str.strip_chars()"),
    **dict.fromkeys(("replace_text", "regexp_replace"), "str.replace_all(pattern, text)"),
    **dict.fromkeys(("getItem", "get", "getField"), "struct.field('name') or list.get(0)"),
    **dict.fromkeys(("apply", "map_elements", "transform"), "collection.map(function, schema=...)"),
    **dict.fromkeys(
        ("otherwise", "then", "where", "when"), "bl.when(condition).then(value).otherwise(other)"
    ),
    **dict.fromkeys(("eq", "equals", "eqNullSafe"), "=="),
    **dict.fromkeys(("hours", "minutes", "seconds", "days"), "hour(), minute(), second() and day()"),
    "to_text": "cast(nw.String)",
    **dict.fromkeys(("strftime", "format", "date_format"), "dt.to_string('%Y-%m-%d')"),
    **dict.fromkeys(("strptime", "to_date", "to_timestamp"), "str.to_datetime('%Y-%m-%d')"),
    **dict.fromkeys(("floor_to", "date_trunc", "trunc", "round_to"), "dt.truncate('1h')"),
    **dict.fromkeys(
        ("asc", "desc", "sort"), "bl.top(column, n, by=...) in aggregate(...), as a stream has no order"
    ),
}
"""Names of methods in pandas, polars and Spark, with what to use instead."""


def other_method(name: str) -> str:
    """Returns the clause of an error that says what to write for a method of another library; empty for others."""
    return f"; use {_RENAMED[name]}" if name in _RENAMED else ""


def _explained(method: Callable[..., Any], what: str) -> Callable[..., Any]:
    """Returns the method with errors that name it, in place of those of narwhals alone."""

    @wraps(method)
    def call(self: Any, *positional: Any, **named: Any) -> Any:
        try:
            return method(self, *positional, **named)
        except WrongType:
            raise
        except Exception as error:
            reason = misfit(method, (self, *positional), named) if isinstance(error, TypeError) else None
            told = reason or f"{method.__name__}(...) cannot have these arguments: {error}"
            raise WrongType(f"{used_at(sys._getframe(1))}{what}{told}") from error

    return call


def _with_errors(kind: type[Any], what: str) -> dict[str, Any]:
    """Returns the public methods of a class of narwhals, with explained errors and an answer for unknown names."""

    def unknown(self: Any, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        known = [one for one in dir(kind) if not one.startswith("_")]
        raise missing(self, f"an expression{what.rstrip('.')}", name, other_method(name), known)

    methods = {
        name: _explained(one, what) for name, one in vars(kind).items() if isfunction(one) and name[0] != "_"
    }
    return {**methods, "__getattr__": unknown}


def _namespace(name: str) -> property:
    base: type[Any] = type(getattr(nw.col("x"), name))
    kind = type(base.__name__, (base,), {"__doc__": base.__doc__, **_with_errors(base, f".{name}.")})
    return property(lambda self: kind(self))


class Expression(nw.Expr):
    """An expression of narwhals. Operators of Python that need one value for all rows raise `WrongType`, with the place
    in the user's code and what to write instead.
    """

    def __bool__(self) -> NoReturn:
        raise WrongType(truth_fault(sys._getframe(1)))

    def __contains__(self, value: object) -> NoReturn:
        raise WrongType(truth_fault(sys._getframe(1)))

    def __getitem__(self, key: object) -> NoReturn:
        # Also called by Python for an iteration.
        self._refuse(
            "it has no items and cannot be iterated: write .list.get(0), .struct.field('name') or .str.slice(0, 1)"
        )

    def __len__(self) -> NoReturn:
        self._refuse("it has no len(): write .str.len_chars(), .list.len(), or bl.count() in aggregate(...)")

    def __int__(self) -> NoReturn:
        self._refuse("int(...) and float(...) convert one value: write collection.cast({'x': int}) or float")

    def __round__(self, digits: int = 0) -> NoReturn:
        self._refuse(f"round(...) rounds one value: write .round({digits})")

    def __abs__(self) -> NoReturn:
        self._refuse("abs(...) is for one value: write .abs()")

    def __call__(self, *given: object, **named: object) -> NoReturn:
        self._refuse("it cannot be called: write one of its methods, such as .is_null()")

    __float__ = __index__ = __int__

    def _refuse(self, reason: str) -> NoReturn:
        raise WrongType(
            f"{used_at(sys._getframe(2))}an expression such as bl.col('x') stands for the values of all rows; {reason}"
        )


for _name, _one in _with_errors(nw.Expr, ".").items():
    setattr(Expression, _name, _one)
for _name in ("str", "dt", "list", "cat", "struct", "name"):
    setattr(Expression, _name, _namespace(_name))


def expression(of: nw.Expr) -> nw.Expr:
    """Returns an expression of narwhals as one that explains its misuse."""
    return Expression(*of._nodes)
