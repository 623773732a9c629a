"""Inspects narwhals expressions: the columns that they read, whether they depend on other rows, and their text.

Only this room reads narwhals' tree (`Expr._nodes`); a test checks what it assumes about that tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import narwhals as nw
import polars as pl
from narwhals.dtypes import DType
from narwhals.selectors import Selector

from windowing.columns import RESERVED_PREFIX, SYSTEM_COLUMNS
from windowing.identity import identity_of

_INFIX = {
    "__eq__": ("==", 1),
    "__ne__": ("!=", 1),
    "__lt__": ("<", 1),
    "__le__": ("<=", 1),
    "__gt__": (">", 1),
    "__ge__": (">=", 1),
    "__or__": ("|", 2),
    "__and__": ("&", 3),
    "__add__": ("+", 4),
    "__sub__": ("-", 4),
    "__mul__": ("*", 5),
    "__truediv__": ("/", 5),
    "__floordiv__": ("//", 5),
    "__mod__": ("%", 5),
    "__pow__": ("**", 7),
}
"""The operators, each with its precedence, as in Python: comparisons have the least."""

_REFLECTED = {f"__r{name[2:]}": operator for name, operator in _INFIX.items()}
_PREFIX = {"__invert__": "~", "__neg__": "-"}
UNARY, _ATOM = 6, 9
_POWER = 7
_EXTRACT = "str.extract"
_WILDCARDS = ("all", "exclude", "nth")


class TypedExpr(nw.Expr):
    """An expression with the conversions that `Typing` has added. Its text and its identity are those of the expression
    that the user has written.

    Attributes:
        written: The expression without conversions.
        done: The number of first nodes that have their conversions.
        dtype: The type of its values if all nodes have them; None if the expression has none.
    """

    written: nw.Expr
    done: int
    dtype: pl.DataType | None

    @classmethod
    def of(cls, made: nw.Expr, written: nw.Expr, dtype: pl.DataType | None) -> TypedExpr:
        """Creates it from the expression that is computed and the one that is shown."""
        return cls(*made._nodes)._with(as_written(written), len(made._nodes), dtype)

    def _with(self, written: nw.Expr, done: int, dtype: pl.DataType | None) -> TypedExpr:
        self.written, self.done, self.dtype = written, done, dtype
        return self

    def _append_node(self, node: Any) -> TypedExpr:
        more = TypedExpr(*self._nodes, node)
        return more._with(nw.Expr(*self.written._nodes, node), self.done, None)


def as_written(expression: nw.Expr) -> nw.Expr:
    """Returns an expression without added conversions."""
    return expression.written if isinstance(expression, TypedExpr) else expression


def separate(expression: nw.Expr) -> list[nw.Expr]:
    """Divides a resolved expression that computes something of several columns into one for each column."""
    root, *rest = expression._nodes
    names = root.kwargs["names"] if root.name == "col" else ()
    if len(names) < 2 or not rest:
        return [expression]
    return [nw.Expr(*nw.col(name)._nodes, *rest) for name in names]


def called(node: Any, arguments: Sequence[Any], **changed: Any) -> Any:
    """Returns a node with other arguments."""
    return type(node)(
        node.kind,
        node.name,
        exprs=arguments,
        str_as_lit=node.str_as_lit,
        allow_multi_output=node.allow_multi_output,
        **{**node.kwargs, **changed},
    )


def elementwise(expression: nw.Expr, function: Callable[[Any], Any], dtype: Any) -> nw.Expr:
    """Returns an expression for a function of a whole column, of which each result depends on its own row only.

    Narwhals assumes of such functions that they read other rows.
    """
    like: Any = expression.map_batches(function, dtype)._nodes[-1]
    kind = expression.is_null()._nodes[-1].kind
    return nw.Expr(*expression._nodes, type(like)(kind, like.name, **like.kwargs))


def resolve(expression: nw.Expr, schema: pl.Schema) -> nw.Expr:
    """Replaces `all()` and selectors in an expression by the user columns that they select.

    The frames also have columns of the engine, which a wildcard must not select.
    """
    if isinstance(expression, TypedExpr):
        return expression
    count = _wildcard_length(expression)
    nodes = list(expression._nodes)
    if count:
        # Later nodes are applied to the selected columns, so only the first nodes are replaced.
        wildcard = _selected(expression, count)
        names = nw.from_native(schema.to_frame()).select(wildcard).columns
        nodes[:count] = nw.col(*names)._nodes
    return nw.Expr(*(_resolve_arguments(node, schema) for node in nodes))


def _selected(expression: nw.Expr, count: int) -> nw.Expr:
    nodes: list[Any] = list(expression._nodes)
    kind = Selector if nodes[0].name.startswith("selectors.") else nw.Expr
    return kind(*nodes[:count])


def _wildcard_length(expression: nw.Expr) -> int:
    """Returns the number of first nodes that select columns: one, or several for combined selectors."""
    first, *rest = expression._nodes
    if first.name in _WILDCARDS:
        return 1
    if not first.name.startswith("selectors."):
        return 0
    count = 1
    while count <= len(rest) and _combines_selectors(rest[count - 1]):
        count += 1
    return count


def _combines_selectors(node: Any) -> bool:
    return node.name == "__invert__" or any(isinstance(other, Selector) for other in node.exprs)


def _resolve_arguments(node: Any, schema: pl.Schema) -> Any:
    if not any(isinstance(argument, nw.Expr) for argument in node.exprs):
        return node
    arguments = [resolve(item, schema) if isinstance(item, nw.Expr) else item for item in node.exprs]
    return called(node, arguments)


def columns_read(expression: nw.Expr) -> list[str]:
    """Returns the distinct columns that a resolved expression names, in order."""
    return list(dict.fromkeys(_names(expression)))


def columns_by_output(expression: nw.Expr, count: int) -> list[list[str]]:
    """Returns, for each of the `count` outputs of a resolved expression, the distinct columns from which it
    is computed.
    """
    nodes: list[Any] = list(expression._nodes)
    names = nodes[0].kwargs["names"] if nodes[0].name == "col" else ()
    if len(names) != count:
        return [columns_read(expression)] * count
    others = [*_names_in(nodes[1:])]
    return [list(dict.fromkeys([name, *others])) for name in names]


def copied_field(expression: nw.Expr) -> tuple[str, str] | None:
    """Returns the column and the field that a resolved expression only copies or renames; None for any other
    expression.
    """
    nodes: list[Any] = list(expression._nodes)
    names: tuple[str, ...] = nodes[0].kwargs["names"] if nodes[0].name == "col" else ()
    is_field = len(names) == 1 and len(nodes) > 1 and nodes[1].name == "struct.field"
    if not is_field or any(node.name != "alias" for node in nodes[2:]):
        return None
    return str(names[0]), str(nodes[1].kwargs["name"])


def _names(expression: nw.Expr) -> Iterator[str]:
    yield from _names_in(expression._nodes)


def _names_in(nodes: Iterable[Any]) -> Iterator[str]:
    for node in nodes:
        if node.name == "col":
            yield from node.kwargs["names"]
        for argument in node.exprs:
            if isinstance(argument, nw.Expr):
                yield from _names(argument)
            # A plain string names a column, unless the function takes strings as values.
            elif isinstance(argument, str) and not node.str_as_lit:
                yield argument


def with_names(expression: nw.Expr, new: Callable[[str], str]) -> nw.Expr:
    """Renames the columns of a resolved expression: `new` returns the new name for each name."""
    made = nw.Expr(*(_with_names(node, new) for node in expression._nodes))
    if isinstance(expression, TypedExpr):
        return TypedExpr.of(made, with_names(expression.written, new), expression.dtype)
    return made


def _with_names(node: Any, new: Callable[[str], str]) -> Any:
    names = {"names": tuple(map(new, node.kwargs["names"]))} if node.name == "col" else {}
    arguments = [with_names(item, new) if isinstance(item, nw.Expr) else item for item in node.exprs]
    return called(node, arguments, **names)


def extracted(expression: nw.Expr, pattern: str, group: int) -> nw.Expr:
    """Returns an expression for the match of a group of a regular expression in a text; null without a match.

    Narwhals has no such function, but it calls a method of polars' string namespace that has the name of the node.
    """
    like: Any = expression.str.contains(pattern)._nodes[-1]
    node = type(like)(like.kind, _EXTRACT, pattern=pattern, group_index=group)
    return nw.Expr(*expression._nodes, node)


def copied(expression: nw.Expr) -> list[str]:
    """Returns the columns that a resolved expression only copies or renames; empty if it computes something."""
    nodes: list[Any] = list(expression._nodes)
    if nodes[0].name != "col":
        return []
    rest = nodes[_reader_length(nodes) if _system_reader(nodes) else 1 :]
    return list(nodes[0].kwargs["names"]) if all(node.name == "alias" for node in rest) else []


def looks_at_other_rows(expression: nw.Expr) -> str | None:
    """Returns the name of the first function whose result for a row depends on other rows; None if there is none."""
    for node in expression._nodes:
        if not node.kind.is_elementwise:
            return str(node.name)
        for argument in node.exprs:
            found = looks_at_other_rows(argument) if isinstance(argument, nw.Expr) else None
            if found:
                return found
    return None


def expression_identity(expression: nw.Expr) -> list[Any]:
    """Converts the expression to plain data: its functions in order, each with its arguments except null and False."""
    return [_node_identity(node) for node in as_written(expression)._nodes]


def _node_identity(node: Any) -> dict[str, Any]:
    given = {name: value for name, value in node.kwargs.items() if value is not None and value is not False}
    arguments = [
        expression_identity(each) if isinstance(each, nw.Expr) else identity_of(each) for each in node.exprs
    ]
    found = {
        "function": node.name,
        "arguments": arguments,
        "named": {n: _value_identity(v) for n, v in given.items()},
    }
    return {name: value for name, value in found.items() if value}


def _value_identity(value: Any) -> Any:
    return str(value) if isinstance(value, DType | type) else identity_of(value)


def expression_text(expression: nw.Expr) -> str:
    """Formats the expression: `length * 2 + 1 as double`."""
    return _text(expression)[0]


def _text(expression: nw.Expr) -> tuple[str, int]:
    """Formats an expression, and returns the precedence of its outermost operator with it."""
    text, binding = "", _ATOM
    nodes: list[Any] = list(as_written(expression)._nodes)
    system = _system_reader(nodes)
    if system:
        text, nodes = f"{system.removeprefix(RESERVED_PREFIX)}()", nodes[_reader_length(nodes) :]
    for index, node in enumerate(nodes):
        if index == 0 and not system:
            text, binding = _root(node)
        else:
            text, binding = _applied(node, text, binding)
    return text, binding


def _system_reader(nodes: list[Any]) -> str | None:
    names: list[str] = nodes[0].kwargs["names"] if nodes[0].name == "col" else []
    return names[0] if len(names) == 1 and names[0] in SYSTEM_COLUMNS else None


def _reader_length(nodes: list[Any]) -> int:
    """Returns the number of nodes of `event_time()` or a similar function: a column, an optional cast, and an alias."""
    plain = nodes[0].kwargs["names"][0].removeprefix(RESERVED_PREFIX)
    aliases = [index for index, node in enumerate(nodes[:3]) if node.name == "alias"]
    return aliases[0] + 1 if aliases and nodes[aliases[0]].kwargs["name"] == plain else 1


def _root(node: Any) -> tuple[str, int]:
    if node.name == "col":
        names = node.kwargs["names"]
        return ", ".join(names), _ATOM if len(names) == 1 else 0
    if node.name == "lit":
        return repr(node.kwargs["value"]), _ATOM
    if node.name == "when_then":
        condition, *values = (_argument(node, argument) for argument in node.exprs)
        return f"when({condition})" + "".join(map("{}({})".format, (".then", ".otherwise"), values)), _ATOM
    if node.name == "all_horizontal" and len(node.exprs) == 1:
        return _text(node.exprs[0])
    return f"{node.name}({_arguments(node)})", _ATOM


def _applied(node: Any, text: str, binding: int) -> tuple[str, int]:
    if node.name == "alias":
        return f"{text} as {node.kwargs['name']}", 0
    if node.name == _EXTRACT:
        return f"regexp_extract({text}, {', '.join(map(repr, node.kwargs.values()))})", _ATOM
    if node.name in _PREFIX:
        return f"{_PREFIX[node.name]}{_wrapped(text, binding, UNARY)}", UNARY
    if node.name in _INFIX:
        operator, own = _INFIX[node.name]
        left, right = operand_bindings(own)
        return f"{_wrapped(text, binding, left)} {operator} {_operand(node, right)}", own
    if node.name in _REFLECTED:
        operator, own = _REFLECTED[node.name]
        left, right = operand_bindings(own)
        return f"{_operand(node, left)} {operator} {_wrapped(text, binding, right)}", own
    return f"{_wrapped(text, binding, _ATOM)}.{node.name}({_arguments(node)})", _ATOM


def operand_bindings(own: int) -> tuple[int, int]:
    """Returns the least precedence of the left and the right operand of an operator without parentheses, as in Python.

    A power is read from the right, and its exponent may have a sign. Comparisons in a row would be a chain.
    """
    if own == _POWER:
        return own + 1, UNARY
    return (own + 1 if own == 1 else own), own + 1


def _wrapped(text: str, binding: int, needed: int) -> str:
    return text if binding >= needed else f"({text})"


def _operand(node: Any, needed: int) -> str:
    other = node.exprs[0]
    if isinstance(other, nw.Expr):
        return _wrapped(*_text(other), needed)
    text = _argument(node, other)
    return _wrapped(text, UNARY if text.startswith("-") else _ATOM, needed)


def _arguments(node: Any) -> str:
    given = {name: value for name, value in node.kwargs.items() if value is not None and value is not False}
    if len(given) == 1 and not node.exprs:
        (value,) = given.values()
        return repr(value) if isinstance(value, str) else str(value)
    keywords = (f"{name}={value!r}" for name, value in given.items())
    return ", ".join([*(_argument(node, argument) for argument in node.exprs), *keywords])


def _argument(node: Any, argument: object) -> str:
    if isinstance(argument, nw.Expr):
        return expression_text(argument)
    return argument if isinstance(argument, str) and not node.str_as_lit else repr(argument)
