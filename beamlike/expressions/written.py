"""Text of expressions and aggregates in the grammar of `grammar`, which reads it back to an equal one."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import attrs
import narwhals as nw
import polars as pl
from narwhals.dtypes import DType

from beamlike.expressions.grammar import AGGREGATES, OVER_COLUMNS, aggregate_from_text, expression_from_text
from beamlike.expressions.row_expression import ExpressionOfRows
from beamlike.expressions.tree import (
    _EXTRACT,
    _INFIX,
    _PREFIX,
    _REFLECTED,
    UNARY,
    _reader_length,
    _system_reader,
    as_written,
    expression_identity,
    operand_bindings,
)
from beamlike.rows.dtypes import as_dtype
from beamlike.rows.type_text import dtype_as_text
from beamlike.system.texts import is_python_name, quoted
from stages.aggregates.base import Aggregate
from stages.aggregates.combine_fn import Combine
from stages.process.cumulative import Previous
from windowing.columns import RESERVED_PREFIX
from windowing.time import format_duration

Named = Callable[[str], str | None]
"""A function that returns the text of a column with a name of its own, such as a looked-up one; None for any other."""


class NoText(ValueError):
    """Raised for an expression or aggregate that the grammar cannot express."""


def expression_as_text(expression: nw.Expr, named: Named = lambda name: None) -> str:
    """Writes an expression in the grammar. Raises `NoText` if it has a part that is not in it."""
    special: dict[str, nw.Expr] = {}

    def marked(name: str) -> str | None:
        text = named(name)
        if text is not None:
            special[text] = nw.col(name).alias(name.rpartition(".")[2])
        return text

    text = _Writer(marked).whole(expression)
    if special:
        return text  # the reader of a file knows the tables; the test of files compares the plans
    try:
        read = expression_from_text(text)
    except ValueError as error:
        raise NoText(f"{text} cannot be written as text: {error}") from None
    if not isinstance(read, nw.Expr):
        read = nw.lit(read)
    if _plain(expression_identity(read)) != _plain(expression_identity(expression)):
        raise NoText(f"{text} cannot be written as text")
    return text


def _plain(identity: Any) -> Any:
    """Removes the difference between a list and a tuple."""
    if isinstance(identity, dict):
        return {name: _plain(one) for name, one in identity.items()}
    return [_plain(one) for one in identity] if isinstance(identity, list | tuple) else identity


def aggregate_as_text(aggregate: Aggregate | Previous, function: Callable[[Any], str]) -> str:
    """Writes an aggregate in the grammar. `function` returns the text `module:name` of a `CombineFn`.

    Raises `NoText` if the aggregate cannot be written.
    """
    if isinstance(aggregate, Combine):
        given = [quoted(function(aggregate.fn)), name_text(aggregate.column), dtype_as_text(aggregate.result)]
        where = [] if aggregate.where is None else [f"where={_condition(aggregate.where)}"]
        return f"combine({', '.join([*given, *where])})"
    name = "previous" if isinstance(aggregate, Previous) else aggregate.kind
    text = f"{name}({', '.join(_arguments_of(aggregate, name))})"
    try:
        same = aggregate_from_text(text) == aggregate
    except ValueError:
        same = False
    if not same:
        raise NoText(f"the aggregate {text} cannot be written as text")
    return text


def _arguments_of(aggregate: Any, name: str) -> list[str]:
    if name not in AGGREGATES:
        raise NoText(f"there is no aggregate {name!r} in the grammar")
    found = []
    for parameter in inspect.signature(AGGREGATES[name]).parameters.values():
        value = getattr(aggregate, parameter.name, parameter.default)
        if value == parameter.default:
            continue
        text = _condition(value) if isinstance(value, ExpressionOfRows) else _columns(value)
        found.append(
            text if parameter.kind is parameter.POSITIONAL_OR_KEYWORD else f"{parameter.name}={text}"
        )
    return found


def _condition(where: Any) -> str:
    return expression_as_text(where.expression)


def _columns(value: Any) -> str:
    if isinstance(value, str):
        return name_text(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(name_text, value))}]"
    return repr(value)


def name_text(name: str) -> str:
    """Writes the name of a column in place of an argument: as a name, or as text if it is none."""
    return name if is_python_name(name) else quoted(name)


def column_text(name: str) -> str:
    """Writes a column as an expression: as a name, or as `col('a name')` if it is none."""
    return name if is_python_name(name) else f"col({quoted(name)})"


def value_text(value: Any) -> str:
    """Writes a literal. Raises `NoText` for a value that has none."""
    match value:
        case str():
            return quoted(value)
        case float() if math.isinf(value):
            return "1e999" if value > 0 else "-1e999"
        case float() if math.isnan(value):
            raise NoText("NaN cannot be written as text")
        case None | bool() | int() | float():
            return repr(value)
        case datetime():
            return f"datetime({quoted(value.isoformat())})"
        case date():
            return f"date({quoted(value.isoformat())})"
        case time():
            return f"time({quoted(value.isoformat())})"
        case timedelta():
            return f"duration({quoted(format_duration(value // timedelta(microseconds=1)))})"
        case Decimal():
            return f"decimal({quoted(str(value))})"
        case Mapping():
            return f"{{{', '.join(f'{value_text(key)}: {value_text(one)}' for key, one in value.items())}}}"
        case list() | tuple() | frozenset() | set():
            return f"[{', '.join(map(value_text, value))}]"
    raise NoText(f"{value!r} is no literal")


@attrs.frozen
class _Writer:
    """The writer of narwhals' tree."""

    named: Named

    def whole(self, expression: nw.Expr) -> str:
        return self.text(expression)[0]

    def text(self, expression: nw.Expr) -> tuple[str, int]:
        nodes: list[Any] = list(as_written(expression)._nodes)
        system = _system_reader(nodes)
        if system:
            text, binding = f"{system.removeprefix(RESERVED_PREFIX)}()", 9
            nodes = nodes[_reader_length(nodes) :]
        elif (found := self._special(nodes)) is not None:
            text, binding = found, 9
            nodes = nodes[2:]
        else:
            (text, binding), nodes = self._root(nodes[0]), nodes[1:]
        for node in nodes:
            text, binding = self._applied(node, text, binding)
        return text, binding

    def _special(self, nodes: list[Any]) -> str | None:
        names: list[str] = nodes[0].kwargs["names"] if nodes[0].name == "col" else []
        return self.named(names[0]) if len(names) == 1 else None

    def _root(self, node: Any) -> tuple[str, int]:
        if node.name == "col":
            names = node.kwargs["names"]
            return (column_text(names[0]) if len(names) == 1 else f"col({', '.join(map(quoted, names))})"), 9
        if node.name == "lit":
            value, dtype = value_text(node.kwargs["value"]), node.kwargs["dtype"]
            return f"lit({value}{'' if dtype is None else f', {_type(dtype)}'})", 9
        if node.name == "when_then":
            return self._when(node), 9
        if node.name == "exclude":
            return f"exclude({', '.join(map(name_text, sorted(node.kwargs['names'])))})", 9
        return f"{node.name}({', '.join(self._inner(node))})", 9

    def _inner(self, node: Any) -> list[str]:
        columns = node.name in OVER_COLUMNS
        given = [
            name_text(one) if columns and isinstance(one, str) else self._argument(one, columns)
            for one in node.exprs
        ]
        return [
            *given,
            *(f"{name}={value_text(one)}" for name, one in node.kwargs.items() if one not in (None, False)),
        ]

    def _when(self, node: Any) -> str:
        condition, *values = node.exprs
        nodes: list[Any] = list(as_written(condition)._nodes)
        several = len(nodes) == 1 and nodes[0].name == "all_horizontal"
        given = nodes[0].exprs if several else [condition]
        text = f"when({', '.join(map(self._argument, given))})"
        return text + "".join(
            f".{part}({self._argument(one)})"
            for part, one in zip(("then", "otherwise"), values, strict=False)
        )

    def _argument(self, given: Any, columns: bool = False) -> str:
        if not isinstance(given, nw.Expr):
            return value_text(given)
        text = self.whole(given)
        return f"col({quoted(text)})" if columns and text.isidentifier() else text

    def _applied(self, node: Any, text: str, binding: int) -> tuple[str, int]:
        if node.name == _EXTRACT:
            pattern, group = node.kwargs.values()
            return f"regexp_extract({text}, {quoted(pattern)}, {group})", 9
        if node.name in _PREFIX:
            return f"{_PREFIX[node.name]}{_bound(text, binding, UNARY)}", UNARY
        if node.name in _INFIX:
            operator, own = _INFIX[node.name]
            left, right = operand_bindings(own)
            return f"{_bound(text, binding, left)} {operator} {self._operand(node, right)}", own
        if node.name in _REFLECTED:
            operator, own = _REFLECTED[node.name]
            left, right = operand_bindings(own)
            return f"{self._operand(node, left)} {operator} {_bound(text, binding, right)}", own
        return f"{_bound(text, binding, 9)}.{node.name}({', '.join(self._given(node))})", 9

    def _operand(self, node: Any, needed: int) -> str:
        other = node.exprs[0]
        if isinstance(other, nw.Expr):
            return _bound(*self.text(other), needed)
        text = value_text(other)
        return _bound(text, UNARY if text.startswith("-") else 9, needed)

    def _given(self, node: Any) -> list[str]:
        """Returns the arguments of a method: the parameters that the node has by name, and the others in order."""
        namespace, _, method = node.name.rpartition(".")
        owner: Any = type(getattr(nw.col("x"), namespace)) if namespace else nw.Expr
        function = getattr(owner, method, None)
        if function is None:
            raise NoText(f"the function {node.name} cannot be written as text")
        rest, found = list(node.exprs), []
        for parameter in list(inspect.signature(function).parameters.values())[1:]:
            found += self._parameter(parameter, node.kwargs, rest)
        return found

    def _parameter(
        self, parameter: inspect.Parameter, named: Mapping[str, Any], rest: list[Any]
    ) -> list[str]:
        if parameter.kind is parameter.VAR_POSITIONAL:
            return [self._argument(rest.pop(0)) for _ in list(rest)]
        if parameter.name not in named:
            return [self._argument(rest.pop(0))] if rest else []
        value = named[parameter.name]
        if value is parameter.default or value == parameter.default:
            return []
        text = _type(value) if parameter.name in ("dtype", "return_dtype") else value_text(value)
        required = parameter.default is parameter.empty and parameter.kind is not parameter.KEYWORD_ONLY
        return [text if required else f"{parameter.name}={text}"]


def _bound(text: str, binding: int, needed: int) -> str:
    return text if binding >= needed else f"({text})"


def _type(dtype: DType | type[DType] | pl.DataType) -> str:
    return dtype_as_text(as_dtype(dtype))
