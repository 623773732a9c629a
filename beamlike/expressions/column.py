"""Expressions that explain what Python's operators and the names of other libraries cannot do with them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from inspect import isfunction
from types import ModuleType
from typing import Any, NoReturn

import narwhals as nw

from beamlike.errors import WrongType, missing
from beamlike.expressions.other_names import other_method
from beamlike.system.arguments import misfit

_WRITE = {"cast": "; write collection.cast({'x': int})", "is_in": "; write is_in(['ada', 'bob'])"}
"""Hints for methods whose errors in narwhals do not say what to write."""


def _operands() -> ModuleType:
    """Returns the module that reads the user's code, which is imported for an error only."""
    from beamlike.expressions import operands

    return operands


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
            first = str(error).partition("\n")[0].replace("nw.", "narwhals.")
            hint = _WRITE.get(method.__name__, "")
            told = reason or f"{method.__name__}(...) cannot have these arguments: {first}{hint}"
            raise WrongType(f"{_operands().used_at(sys._getframe(1))}{what}{told}") from error

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
        raise WrongType(_operands().truth_fault(sys._getframe(1)))

    def __contains__(self, value: object) -> NoReturn:
        raise WrongType(_operands().truth_fault(sys._getframe(1)))

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

    __float__ = __index__ = __int__

    def _refuse(self, reason: str) -> NoReturn:
        place = _operands().used_at(sys._getframe(2))
        raise WrongType(f"{place}an expression such as bl.col('x') has a value in each row; {reason}")


for _name, _one in _with_errors(nw.Expr, ".").items():
    setattr(Expression, _name, _one)
for _name in ("str", "dt", "list", "cat", "struct", "name"):
    setattr(Expression, _name, _namespace(_name))


def expression(of: nw.Expr) -> nw.Expr:
    """Returns an expression of narwhals as one that explains its misuse."""
    return Expression(*of._nodes)
