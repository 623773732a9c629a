"""Finds the place in a user's code at which Python asked an expression for one truth value, and what to write there."""

from __future__ import annotations

import ast
import dis
import linecache
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Final

import attrs

_OF_ROWS: Final = "an expression such as bl.col('a') has a truth value in each row"
_LOGIC: Final = (
    "write & for and, | for or, ~ for not, as in bl.col('a') & bl.col('b'), with brackets around comparisons"
)
_WHEN: Final = "write bl.when(...).then(...).otherwise(...)"
_WORDS: Final = {ast.And: "and", ast.Or: "or"}
_SIGNS: Final = {ast.And: "&", ast.Or: "|", ast.BitAnd: "&", ast.BitOr: "|"}


@attrs.frozen
class _Place:
    """The expression or statement of a user's code that a frame evaluates, from the innermost to the outermost."""

    where: str
    source: str
    around: tuple[ast.AST, ...]
    calls: bool

    @classmethod
    def of(cls, frame: FrameType) -> _Place:
        name, line = frame.f_code.co_filename, frame.f_lineno
        where = f"{Path(name).name}, line {line}" if not name.startswith("<") else f"line {line}"
        source = "".join(linecache.getlines(name, frame.f_globals))
        at = next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None), (None,) * 4)
        calls = "CALL" in dis.opname[frame.f_code.co_code[frame.f_lasti]]
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError):
            return cls(where, "", (), calls)
        first, last, start, end = at
        if first is None or last is None or start is None or end is None:
            return cls(where, "", (), calls)
        found = tuple(one for one in ast.walk(tree) if _covers(one, (first, start), (last, end)))
        return cls(where, source, found[::-1], calls)  # `walk` begins with the outermost

    def text(self, node: ast.AST) -> str:
        return ast.get_source_segment(self.source, node) or ast.unparse(node)

    def step(self) -> str:
        """Returns the method whose argument the expression is, with the place: `filter(...) in app.py, line 3: `."""
        inner = self.around[1:] if self.calls else self.around
        methods = [
            one.func.attr
            for one in inner
            if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute)
        ]
        given = [name for name in methods if name not in ("col", "when", "then", "otherwise", "lit")]
        return f"{given[0]}(...) in {self.where}: " if given else f"{self.where}: "


def _covers(node: ast.AST, start: tuple[int, int], end: tuple[int, int]) -> bool:
    first, last = getattr(node, "lineno", None), getattr(node, "end_lineno", None)
    if first is None or last is None:
        return False
    begins, ends = (first, getattr(node, "col_offset", 0)), (last, getattr(node, "end_col_offset", 0))
    return begins <= start and end <= ends


def used_at(frame: FrameType) -> str:
    """Returns the place of a misused expression, for the beginning of an error."""
    return _Place.of(frame).step()


def truth_fault(frame: FrameType) -> str:
    """Returns the text of the error for an expression of which Python needs one truth value."""
    place = _Place.of(frame)
    return f"{place.step()}{_reason(place)}"


def _reason(place: _Place) -> str:
    for node in place.around:
        match node:
            case ast.Call() if place.calls:
                name = place.text(node.func)
                if name not in ("max", "min"):
                    return f"{name}(...) needs one truth value, and {_OF_ROWS}; {_LOGIC}"
                return f"{name}(...) compares, and {_OF_ROWS}; write bl.when(a > b).then(a).otherwise(b)"
            case ast.BoolOp(operator, values):
                made = f" {_SIGNS[type(operator)]} ".join(f"({place.text(one)})" for one in values)
                return f"'{_WORDS[type(operator)]}' joins single values, and {_OF_ROWS}; {_LOGIC}: {made}"
            case ast.UnaryOp(ast.Not(), operand):
                return f"'not' negates a single value, and {_OF_ROWS}; {_LOGIC}: ~({place.text(operand)})"
            case ast.Compare(left, [ast.In() | ast.NotIn() as operator], [right]):
                return _membership(place, left, right, "~" if isinstance(operator, ast.NotIn) else "")
            case ast.Compare(ops=[_, _, *_]):
                return _chain(place, node)
            case ast.IfExp(test, body, orelse):
                made = f"bl.when({place.text(test)}).then({place.text(body)}).otherwise({place.text(orelse)})"
                return f"'if' chooses once for all rows, and {_OF_ROWS}; write {made}"
            case ast.If() | ast.While() | ast.Assert() | ast.comprehension():
                word = type(node).__name__.lower()
                return f"'{word}' decides once for all rows, and {_OF_ROWS}; {_WHEN}, or filter(...)"
    return (
        f"Python needs one truth value here, and {_OF_ROWS}; {_LOGIC}; .is_in([...]) for in; {_WHEN} for if"
    )


def _membership(place: _Place, left: ast.expr, right: ast.expr, sign: str) -> str:
    before, after = place.text(left), place.text(right)
    if isinstance(right, ast.List | ast.Tuple | ast.Set):
        made = f"{sign}{before}.is_in({after})"
    else:
        made = (
            f"{sign}{after}.is_in([{before}]), or {sign}{after}.str.contains({before}) for a part of a text"
        )
    return f"'in' gives a single value, and {_OF_ROWS}; write {made}"


def _chain(place: _Place, node: ast.Compare) -> str:
    """Returns the text for `a == 1 & b > 2`, which Python reads as `a == (1 & b) > 2`, and for `1 < a < 3`."""
    parts, missed = [""], False
    left, signs = node.left, [*node.ops]
    for operator, right in zip(signs, node.comparators, strict=True):
        text = ast.unparse(ast.Compare(ast.Name("a"), [operator], [ast.Name("b")]))[2:-2]
        glued = isinstance(right, ast.BinOp) and isinstance(right.op, ast.BitAnd | ast.BitOr)
        end = right.left if glued and isinstance(right, ast.BinOp) else right
        parts[-1] += f"({place.text(left)} {text} {place.text(end)})"
        sign, left = "&", right
        if glued and isinstance(right, ast.BinOp):
            sign, left, missed = _SIGNS[type(right.op)], right.right, True
        parts += [f" {sign} "]
    made = "".join(parts[:-1])
    if missed:
        return f"& and | bind closer than comparisons, so write parentheses around each comparison: {made}"
    return f"a chain of comparisons needs one truth value, and {_OF_ROWS}; write {made}"
