"""Creates windows and triggers from text such as `"AfterWatermark(early=AfterCount(2))"`, without `eval`."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

import windowing
from beamlike.errors import listed, nearest
from windowing.time import MAX_TIME, MIN_TIME, Microseconds
from windowing.triggers.base import Trigger
from windowing.windows import WindowFn

# Base classes, which cannot be created from text.
_NOT_HERE: Final = ("CustomWindows", "Trigger", "WindowFn")


class BadConstructor(ValueError):
    """Raised if text is no constructor of windows or of a trigger."""


class Refused(ValueError):
    """Raised if the constructor rejects its arguments."""


def construct(text: str, kind: type[Any], unit: int) -> Any:
    """Creates windows or a trigger (`kind`) from text. Numbers for durations are in `unit` microseconds.

    Raises `BadConstructor` if the text is no constructor of beamlike, and `Refused` if the constructor rejects its
    arguments.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else error
        raise BadConstructor(f"{text!r} is not Python: {reason}") from None
    _require_bare_names(text, tree)
    made = _Reader(text, unit).value(tree.body)
    if not isinstance(made, kind):
        example = "FixedWindows(10)" if kind is WindowFn else "AfterCount(2)"
        raise BadConstructor(f"{text!r} is no {kind.__name__}, such as {example}")
    return made


def _require_bare_names(text: str, tree: ast.AST) -> None:
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(ast.Name("bl" | "beamlike" as module), name):
                raise BadConstructor(f"{text!r}: leave out '{module}.' and write {name!r}")


def _constructors() -> dict[str, type[Any]]:
    """Returns the classes of windows and triggers that beamlike exports, by name."""
    exported = {name: getattr(windowing, name) for name in windowing.__all__ if name not in _NOT_HERE}
    kinds = (WindowFn, Trigger)
    return {
        name: value for name, value in exported.items() if inspect.isclass(value) and issubclass(value, kinds)
    }


@attrs.frozen
class _Reader:
    """The evaluator of an expression: literals, lists, and calls of constructors and of their methods. Anything else is
    an error.
    """

    text: str
    unit: int

    def value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant():
                return node.value
            case ast.UnaryOp(ast.USub(), ast.Constant(int() | float() as number)):
                return -number
            case ast.List() | ast.Tuple():
                return [self.value(item) for item in node.elts]
            case ast.Call():
                return self._call(node)
        raise self._error(f"{ast.unparse(node)!r} is neither a literal nor a call")

    def _call(self, node: ast.Call) -> Any:
        function = self._function(node.func)
        if any(keyword.arg is None for keyword in node.keywords) or any(
            isinstance(argument, ast.Starred) for argument in node.args
        ):
            raise self._error("arguments are written out, without * and **")
        arguments = [self.value(argument) for argument in node.args]
        named = {str(keyword.arg): self.value(keyword.value) for keyword in node.keywords}
        name = ast.unparse(node.func)
        arguments, named = self._scaled(function, arguments, self._known(name, function, named))
        try:
            return function(*arguments, **named)
        except (OverflowError, TypeError, ValueError) as error:
            raise Refused(str(error)) from error

    def _function(self, node: ast.expr) -> Callable[..., Any]:
        known = _constructors()
        if isinstance(node, ast.Name):
            if node.id in known:
                return known[node.id]
            raise self._error(
                f"there is no {node.id!r}{nearest(node.id, known) or '; there are ' + listed(known)}"
            )
        if isinstance(node, ast.Attribute):
            owner = node.value
            of = known[owner.id] if isinstance(owner, ast.Name) and owner.id in known else self.value(owner)
            methods = _methods(of)
            if node.attr in methods:
                return methods[node.attr]
            hint = nearest(node.attr, methods) or f"; it has {listed(methods)}"
            raise self._error(f"{ast.unparse(owner)} has no {node.attr!r}{hint}")
        raise self._error(f"{ast.unparse(node)!r} cannot be called")

    def _known(self, name: str, function: Callable[..., Any], named: Mapping[str, Any]) -> dict[str, Any]:
        parameters = inspect.signature(function).parameters
        for keyword in named:
            if keyword not in parameters:
                raise self._error(
                    f"{name} takes no {keyword!r}, but {listed(parameters)}{nearest(keyword, parameters)}"
                )
        return dict(named)

    def _scaled(
        self, function: Callable[..., Any], arguments: list[Any], named: dict[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Returns the arguments, with numbers for durations converted to microseconds."""
        durations = _durations(function)
        names = list(inspect.signature(function).parameters)[: len(arguments)]
        names += [""] * (len(arguments) - len(names))
        positional = [
            self._scale(value) if name in durations else value
            for name, value in zip(names, arguments, strict=True)
        ]
        return positional, {
            name: self._scale(value) if name in durations else value for name, value in named.items()
        }

    def _scale(self, value: Any) -> Any:
        try:
            return scaled(value, self.unit) if is_number(value) else value
        except ValueError as error:
            raise self._error(str(error)) from None

    def _error(self, reason: str) -> BadConstructor:
        return BadConstructor(f"{self.text!r}: {reason}")


def is_number(value: object) -> bool:
    """True for an integer or float; False for True and False."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def scaled(number: float, unit: int) -> Microseconds:
    """Converts a number of units to microseconds. Raises `ValueError` for NaN and outside of the limits of time."""
    scaled = number * unit
    if not MIN_TIME <= scaled <= MAX_TIME:  # This is True for NaN as well.
        raise ValueError(f"{number!r} lies outside of time, {MIN_TIME / unit:.4g} to {MAX_TIME / unit:.4g}")
    return Microseconds(round(scaled))


def _methods(owner: Any) -> dict[str, Callable[..., Any]]:
    """Returns the class methods that construct the class, or the methods of windows and triggers that return
    new ones.
    """
    if inspect.isclass(owner):
        names = [name for name in dir(owner) if isinstance(inspect.getattr_static(owner, name), classmethod)]
    else:
        names = [name for name in ("or_finally",) if hasattr(owner, name)]
    return {name: getattr(owner, name) for name in names if not name.startswith("_")}


def _durations(function: Callable[..., Any]) -> set[str]:
    """Returns the names of the fields of a class that are durations: their converter returns `Microseconds`."""
    fields: tuple[attrs.Attribute[Any], ...] = getattr(function, "__attrs_attrs__", ())
    return {field.name for field in fields if _makes_microseconds(field.converter)}


def _makes_microseconds(converter: Any) -> bool:
    try:
        return converter is not None and isinstance(converter(1), Microseconds)
    except (TypeError, ValueError):
        return False
