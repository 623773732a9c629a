"""Expressions and aggregates as text, such as `points * 2` or `sum(points)`. Text is parsed, and never evaluated.

The grammar is that of the DSL in Python, with a name for each column:

    expression  literal | name | expression operator expression | - expression | not expression
                | expression in [literals] | expression is None | function(arguments) | expression.method(arguments)
    operator    + - * / // % ** == != < <= > >= & | and or
    literal     text, number, True, False, None, [literals]; date('2026-01-31'), datetime(...), time(...),
                duration('5m'), decimal('1.5')
    function    col lit when coalesce concat_str regexp_extract event_time window_start pane_timing ...
    method      those of narwhals, such as user.str.to_uppercase() or price.cast(Float64)
"""

from __future__ import annotations

import ast
import inspect
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

import attrs
import narwhals as nw

from beamlike.errors import listed, nearest
from beamlike.expressions import aggregates, functions
from beamlike.expressions.other_names import other_method, other_name
from beamlike.expressions.running import previous
from beamlike.rows.dtypes import as_narwhals
from beamlike.rows.type_text import BadType, dtype_of_tree
from beamlike.system.arguments import misfit
from windowing.time import format_duration, microseconds

VALUES: Final[Mapping[str, Callable[[str], Any]]] = {
    "date": lambda text: date.fromisoformat(text),
    "datetime": lambda text: datetime.fromisoformat(text),
    "time": lambda text: time.fromisoformat(text),
    "duration": lambda text: timedelta(microseconds=microseconds(text)),
    "decimal": lambda text: Decimal(text),
}
"""The functions that make a literal of a text."""

OVER_COLUMNS: Final = (
    *("coalesce", "concat_str", "struct"),
    *(
        "all_horizontal",
        "any_horizontal",
        "max_horizontal",
        "mean_horizontal",
        "min_horizontal",
        "sum_horizontal",
    ),
)
"""Functions of narwhals that accept columns, by name or as expressions."""

_OWN: Final = {name: getattr(functions, name) for name in functions.__all__ if name != "timestamp_of"}
FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    **{name: getattr(nw, name) for name in (*OVER_COLUMNS, "all", "exclude")},
    **_OWN,
}
AGGREGATES: Final[Mapping[str, Callable[..., Any]]] = {
    **{name: getattr(aggregates, name) for name in aggregates.__all__},
    "previous": previous,
}
NAMESPACES: Final = ("cat", "dt", "list", "name", "str", "struct")
_OTHER_SIGNS: Final[Mapping[str, str]] = {
    "&&|\\bAND\\b": "and, as in points > 3 and user == 'ada'",
    r"\|\||\bOR\b": "or, as in points > 3 or user == 'ada'",
    r"!(?!=)|\bNOT\b": "not, as in not points > 3",
    "<>": "!=, as in user != 'ada'",
    r"\(\s*\*\s*\)": "count(), without *, which counts rows",
    r"(?i)\bi?like\b": ".str.contains('text'), .str.starts_with('a') or .str.ends_with('a')",
    r"(?i)\bbetween\b": ".is_between(1, 3), as in points.is_between(1, 3)",
    r"\bIN\b": "in and a list, as in user in ['ada', 'bob']",
    r"\bIS\b": "is None, or not user is None",
    r"(?i)\bcase\b": "when(points > 3).then('many').otherwise('few')",
    r"(?<![=!<>])=(?!=)": "== to compare, as in user == 'ada'",
    "::": ".cast(Int64)",
}
"""Signs and words of other languages, as patterns, with what to write in an expression."""
_EXAMPLES: Final = {
    "date": "2026-01-31",
    "datetime": "2026-01-31T12:00:00",
    "time": "12:00:00",
    "decimal": "1.5",
    "duration": "5m",
}
_NOT_HERE: Final[Mapping[type[ast.AST], str]] = {
    ast.IfExp: "; write when(condition).then(1).otherwise(0)",
    ast.Lambda: "; a function is in a module, written as module:name",
    ast.Subscript: "; write .list.get(0), .struct.field('name') or .str.slice(0, 1)",
    ast.JoinedStr: "; write concat_str(user, 'text')",
    ast.Attribute: "; a field of a struct is .struct.field('name'), and a method has brackets",
}
_PREFIXES: Final = ("bl", "beamlike", "pl", "nw", "F")
_TYPES: Final = ("dtype", "return_dtype")
_CALLS_PYTHON: Final = ("map", "map_batches", "pipe")
_OPERATORS: Final[Mapping[type[ast.AST], str]] = {
    ast.Add: "__add__", ast.Sub: "__sub__", ast.Mult: "__mul__", ast.Div: "__truediv__", ast.FloorDiv: "__floordiv__",
    ast.Mod: "__mod__", ast.Pow: "__pow__", ast.BitAnd: "__and__", ast.BitOr: "__or__",
    ast.And: "__and__", ast.Or: "__or__",
    ast.Eq: "__eq__", ast.NotEq: "__ne__", ast.Lt: "__lt__", ast.LtE: "__le__", ast.Gt: "__gt__", ast.GtE: "__ge__",
}  # fmt: skip
_REFLECTED: Final = {
    "__eq__": "__eq__", "__ne__": "__ne__", "__lt__": "__gt__", "__le__": "__ge__", "__gt__": "__lt__",
    "__ge__": "__le__",
}  # fmt: skip


DEEPEST: Final = 200
"""The greatest number of levels of an expression: of brackets, and of operators in a row. Each costs time when a step
is declared, and nested calls in Python, which allows some thousand.
"""
LONGEST: Final = 1_000_000  # characters
TOO_DEEP: Final = (
    f"it is nested too deeply, or has too many operators in a row ({DEEPEST} levels are allowed); compute parts of it "
    "in steps before, or write a list of values instead of a chain of comparisons"
)
TOO_LONG: Final = (
    f"it has more than {LONGEST:,} characters; put a list of values into a file, and join with its rows"
)


class BadExpression(ValueError):
    """Raised if text is no expression or aggregate. `line` and `column` are the fault's position in it, from 0."""

    def __init__(self, message: str, line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.line, self.column = line, column


Special = Callable[["Reader", ast.Call], Any]
"""A function that reads a call by a name of its own, such as `lookup(...)`."""


def expression_from_text(
    text: str, special: Mapping[str, Special] | None = None, names: Mapping[str, Any] | None = None
) -> Any:
    """Returns the expression that a text describes; a plain value for a literal.

    Args:
        text: The text.
        special: Further functions by name, each with the function that reads its call.
        names: Names that are values instead of columns. They are also replaced in the text of literals.

    Raises:
        BadExpression: The text is none.
    """
    tree = _parsed(text)
    reader = Reader(text, special or {}, names or {})
    return reader.finished(tree, reader.value(tree))


def aggregate_from_text(
    text: str, named: Callable[[str], Any] | None = None, names: Mapping[str, Any] | None = None
) -> Any:
    """Returns the aggregate that a text describes. `named` returns the `CombineFn` for the text `module:name`, and
    `names` has names that are values.

    Raises `BadExpression` if the text is none.
    """
    tree = _parsed(text)
    reader = Reader(text, {}, names or {})
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name):
        raise reader.fault(tree, f"{text!r} is no aggregate; write one such as count() or sum(points)")
    return _aggregate(reader, tree, tree.func.id, named)


def _parsed(text: str) -> ast.expr:
    if len(text) > LONGEST:
        raise BadExpression(f"{text[:40]!r}... cannot be read: {TOO_LONG}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # of text such as "\d", which is a pattern here
            warnings.simplefilter("ignore", DeprecationWarning)
            tree = ast.parse(text.strip(), mode="eval").body
    except (RecursionError, MemoryError):
        raise _too_deep(text) from None
    except SyntaxError as error:
        if "too many nested" in str(error.msg):
            raise _too_deep(text) from None
        line, column = max((error.lineno or 1) - 1, 0), max((error.offset or 1) - 1, 0)
        raise BadExpression(f"{text!r} cannot be read: {_instead(text, error.msg)}", line, column) from None
    except ValueError as error:
        raise BadExpression(f"{text[:40]!r} cannot be read: {error}") from None
    if levels(tree, ast.iter_child_nodes, _in_a_row) > DEEPEST:
        raise _too_deep(text)
    return tree


def _too_deep(text: str) -> BadExpression:
    return BadExpression(f"{text[:40]!r}... cannot be read: {TOO_DEEP}")


def _in_a_row(node: ast.AST) -> int:
    """Returns the number of operators that a node of the tree stands for, which become a chain."""
    if isinstance(node, ast.BoolOp):
        return len(node.values)
    return len(node.ops) if isinstance(node, ast.Compare) else 1


def levels(
    tree: Any, below: Callable[[Any], Iterable[Any]], of: Callable[[Any], int] = lambda node: 1
) -> int:
    """Returns the depth of a syntax tree, without recursion. `of` returns the levels of a node."""
    deepest, open_nodes = 0, [(tree, of(tree))]
    while open_nodes:
        node, depth = open_nodes.pop()
        deepest = max(deepest, depth)
        open_nodes += [(one, depth + of(one)) for one in below(node)]
    return deepest


def _instead(text: str, reason: str) -> str:
    """Returns what to write for signs of other languages in a text that is no expression, or else the reason."""
    plain = re.sub(r"'[^']*'|\"[^\"]*\"", "''", text)
    found = next((told for pattern, told in _OTHER_SIGNS.items() if re.search(pattern, plain)), None)
    return reason if found is None else f"write {found}"


def _aggregate(reader: Reader, tree: ast.Call, name: str, named: Callable[[str], Any] | None) -> Any:
    if name not in AGGREGATES:
        other = other_name(name)
        hint = f"; did you mean {other!r}?" if other in AGGREGATES else nearest(name, AGGREGATES)
        hint = hint or f"; there are {listed(AGGREGATES)}"
        raise reader.fault(tree, f"there is no aggregate {name!r}{hint}")
    given, options = reader.arguments(tree, AGGREGATES[name], reader.column_or_value)
    if name == "combine" and given and named is not None:
        given[0] = named(str(given[0]))
    return reader.called(tree, AGGREGATES[name], given, options)


def as_text(value: Any) -> str:
    """Formats a value inside of a text: times in ISO 8601, durations as `1m30s`."""
    if isinstance(value, timedelta):
        return format_duration(value // timedelta(microseconds=1))
    return value.isoformat() if isinstance(value, date) else str(value)


def _called_name(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else ""


@attrs.frozen
class Reader:
    """The reader of an expression's syntax tree. Anything that the grammar does not have is an error."""

    text: str
    special: Mapping[str, Special]
    names: Mapping[str, Any]

    def value(self, node: ast.expr) -> Any:
        """Returns the expression or the plain value of a part of the tree. Raises `BadExpression` at the part."""
        try:
            return self._value(node)
        except BadExpression:
            raise
        except RecursionError:
            raise _too_deep(self.text) from None
        except Exception as error:  # narwhals raises errors of many kinds for wrong operands
            raise self.fault(node, f"{self.written(node)!r}: {error}") from error

    def finished(self, node: ast.expr, made: Any) -> Any:
        """Returns an expression or a plain value. Raises `BadExpression` for a `when` without a value."""
        if isinstance(
            made, nw.Expr | date | time | timedelta | Decimal | str | int | float | list | dict | None
        ):
            return made
        raise self.fault(node, f"{self.written(node)!r} is no value yet; end it with .then(...)")

    def _value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(str(value)):
                return self._text(value)
            case ast.Constant(int() | float() | None as value):
                return value
            case ast.Name(name):
                return self.names[name] if name in self.names else nw.col(name)
            case ast.List(items) | ast.Tuple(items):
                return [self.value(item) for item in items]
            case ast.Dict(keys, values) if None not in keys:
                pairs = zip(keys, values, strict=True)
                return {self.value(key): self.value(one) for key, one in pairs if key is not None}
            case ast.UnaryOp(operator, operand):
                return self._unary(node, operator, self.value(operand))
            case ast.BinOp(left, operator, right):
                return self._binary(node, operator, self.value(left), self.value(right))
            case ast.BoolOp(operator, values):
                made = self.value(values[0])
                for one in values[1:]:
                    made = self._binary(node, operator, made, self.value(one))
                return made
            case ast.Compare():
                return self._compared(node)
            case ast.Call():
                return self._call(node)
            case ast.Attribute(ast.Call(ast.Name(name)), _) | ast.Subscript(ast.Call(ast.Name(name))) if (
                name in self.special
            ):
                return self._column_of(node)
        hint = _NOT_HERE.get(type(node), "")
        raise self.fault(node, f"{self.written(node)!r} is not in the grammar of expressions{hint}")

    def _text(self, value: str) -> str:
        if not self.names:
            return value
        names = re.compile("|".join(map(re.escape, self.names)))
        return names.sub(lambda found: as_text(self.names[found[0]]), value)

    def _unary(self, node: ast.UnaryOp, operator: ast.unaryop, operand: Any) -> Any:
        written = self.written(node)
        if isinstance(operator, ast.USub):
            if isinstance(operand, nw.Expr | int | float | Decimal | timedelta) and not isinstance(
                operand, bool
            ):
                return -operand
            raise self.fault(node, f"{written!r} is no number or column, and has no negative")
        if isinstance(operator, ast.UAdd):
            raise self.fault(node, f"{written!r} has an operator that expressions do not have")
        if isinstance(operand, nw.Expr):
            return ~operand
        raise self.fault(node, f"{written!r} negates no condition")

    def _binary(self, node: ast.expr, operator: ast.AST, left: Any, right: Any) -> Any:
        method = _OPERATORS.get(type(operator))
        if method is None:
            raise self.fault(node, f"{self.written(node)!r} has an operator that expressions do not have")
        if isinstance(left, nw.Expr):
            return getattr(left, method)(right)
        if isinstance(right, nw.Expr):
            return getattr(right, _REFLECTED.get(method, f"__r{method[2:]}"))(left)
        raise self.fault(node, f"{self.written(node)!r} has no column; write the result instead")

    def _compared(self, node: ast.Compare) -> Any:
        glued = [one for one in node.comparators if isinstance(one, ast.BinOp) and not self.is_bracketed(one)]
        if len(node.ops) > 1 and any(isinstance(one.op, ast.BitAnd | ast.BitOr) for one in glued):
            hint = (
                "& and | bind closer than comparisons: write and, or, or parentheses around each comparison"
            )
            raise self.fault(node, f"{self.written(node)!r}: {hint}")
        made, left = None, self.value(node.left)
        for operator, other in zip(node.ops, node.comparators, strict=True):
            right = self.value(other)
            one = self._comparison(node, operator, left, right)
            made, left = one if made is None else made & one, right
        return made

    def _comparison(self, node: ast.Compare, operator: ast.cmpop, left: Any, right: Any) -> Any:
        if isinstance(operator, ast.In | ast.NotIn):
            if not isinstance(left, nw.Expr) or not isinstance(right, list):
                raise self.fault(
                    node, f"{self.written(node)!r}: write a column, in, and a list such as [1, 2]"
                )
            return left.is_in(right) if isinstance(operator, ast.In) else ~left.is_in(right)
        if isinstance(operator, ast.Is | ast.IsNot):
            if not isinstance(left, nw.Expr) or right is not None:
                raise self.fault(node, f"{self.written(node)!r}: only None can follow is")
            return left.is_null() if isinstance(operator, ast.Is) else ~left.is_null()
        return self._binary(node, operator, left, right)

    def _call(self, node: ast.Call) -> Any:
        if isinstance(node.func, ast.Name):
            return self._function(node, node.func.id)
        if isinstance(node.func, ast.Attribute):
            return self._method(node, node.func)
        raise self.fault(node, f"{self.written(node.func)!r} cannot be called")

    def _function(self, node: ast.Call, name: str) -> Any:
        if name in self.special:
            return self.special[name](self, node)
        if name in VALUES:
            return self.called(node, VALUES[name], *self.arguments(node, VALUES[name], self.value))
        if name not in FUNCTIONS:
            known = [*FUNCTIONS, *VALUES, *self.special]
            hint = (
                "; that is an aggregate, for aggregate and running"
                if name in AGGREGATES
                else other_method(name) or nearest(name, known)
            )
            raise self.fault(node, f"there is no function {name!r}{hint}")
        by_name = name in (*OVER_COLUMNS, "col", "exclude", "regexp_extract")
        read = self.column_or_value if by_name else self.value
        return self.called(node, FUNCTIONS[name], *self.arguments(node, FUNCTIONS[name], read))

    def _method(self, node: ast.Call, function: ast.Attribute) -> Any:
        owner = function.value
        of_module = function.attr in FUNCTIONS or function.attr in VALUES or function.attr in ("col", "when")
        if isinstance(owner, ast.Name) and owner.id in _PREFIXES and of_module:
            raise self.fault(node, f"leave out '{owner.id}.': a column is its name, as in user == 'ada'")
        namespace = owner.attr if isinstance(owner, ast.Attribute) and owner.attr in NAMESPACES else None
        subject = self.value(owner.value if namespace and isinstance(owner, ast.Attribute) else owner)
        if function.attr == "found" and isinstance(owner, ast.Call) and _called_name(owner) in self.special:
            return subject.found()
        then = (
            isinstance(owner, ast.Call)
            and hasattr(subject, function.attr)
            and function.attr in ("then", "otherwise")
        )
        if not isinstance(subject, nw.Expr) and not then:
            raise self.fault(node, f"{self.written(owner)!r} has no methods, as it is no column")
        place: Any = getattr(subject, namespace) if namespace else subject
        known = [
            one for one in dir(place) if not one.startswith("_") and one not in (*_CALLS_PYTHON, *NAMESPACES)
        ]
        if function.attr not in known:
            hint = other_method(function.attr) or nearest(function.attr, known)
            raise self.fault(node, f"there is no method {function.attr!r} of {self.written(owner)}{hint}")
        method = getattr(place, function.attr)
        given, named = self.arguments(node, method, self.value)
        if then:
            given = [nw.lit(one) if isinstance(one, str) else one for one in given]
        return self.called(node, method, given, named)

    def arguments(
        self, node: ast.Call, function: Callable[..., Any], read: Callable[[ast.expr], Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Reads the arguments of a call: types and conditions as such, and all others by `read`."""
        if any(one.arg is None for one in node.keywords) or any(
            isinstance(one, ast.Starred) for one in node.args
        ):
            raise self.fault(node, "arguments are written out, without * and **")
        names = [*inspect.signature(function).parameters]
        given = [
            self._argument(one, names[index] if index < len(names) else "", read)
            for index, one in enumerate(node.args)
        ]
        return given, {str(one.arg): self._argument(one.value, str(one.arg), read) for one in node.keywords}

    def _argument(self, node: ast.expr, parameter: str, read: Callable[[ast.expr], Any]) -> Any:
        if parameter in _TYPES:
            return self._type(node)
        return self.value(node) if parameter == "where" else read(node)

    def called(
        self, node: ast.Call, function: Callable[..., Any], given: list[Any], named: Mapping[str, Any]
    ) -> Any:
        """Calls one of the functions of the grammar; an error that it raises names the place."""
        try:
            return function(*given, **named)
        except (TypeError, ValueError, ArithmeticError) as error:
            told = misfit(function, given, named) if isinstance(error, TypeError) else None
            name = _called_name(node)
            hint = f"; write one such as {name}('{_EXAMPLES[name]}')" if name in _EXAMPLES else ""
            raise self.fault(node, f"{self.written(node)!r}: {told or error}{hint}") from error

    def _type(self, node: ast.expr) -> Any:
        try:
            return as_narwhals(dtype_of_tree(node))
        except BadType as error:
            raise self.fault(node, str(error)) from None

    def column_or_value(self, node: ast.expr) -> Any:
        """Returns the name of a column, a list of names, or another value."""
        if isinstance(node, ast.Name) and node.id not in self.names:
            return node.id
        if isinstance(node, ast.List | ast.Tuple):
            return [self.column_or_value(item) for item in node.elts]
        return self.value(node)

    def _column_of(self, node: ast.expr) -> Any:
        """Returns a column of a table: `lookup(...).age` or `lookup(...)["age"]`."""
        match node:
            case ast.Attribute(table, name) | ast.Subscript(table, ast.Constant(str(name))):
                try:
                    return self.value(table)[name]
                except (TypeError, ValueError, KeyError) as error:
                    raise self.fault(node, str(error)) from error
        raise self.fault(node, f"{self.written(node)!r}: write the name of a column in the brackets")

    def written(self, node: ast.expr) -> str:
        """Returns the text of a part."""
        return ast.get_source_segment(self.text.strip(), node) or ast.unparse(node)

    def is_bracketed(self, node: ast.expr) -> bool:
        """True if a part is in brackets of its own."""
        line = self.text.strip().splitlines()[node.lineno - 1].encode()
        return line[: node.col_offset].rstrip().endswith(b"(")

    def fault(self, node: ast.expr, message: str) -> BadExpression:
        """Returns an error at the place of a part. `ast` counts the columns in bytes."""
        line = self.text.strip().splitlines()[node.lineno - 1 :][:1] or [""]
        column = len(line[0].encode()[: node.col_offset].decode(errors="ignore"))
        return BadExpression(message, node.lineno - 1, column)
