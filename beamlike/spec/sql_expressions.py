"""SQL expressions as expressions of columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import reduce
from operator import or_
from typing import Any, Final

import attrs
import narwhals as nw
import polars as pl
from sqlglot import exp

from beamlike.errors import BadQuery, listed, nearest
from beamlike.expressions import functions
from beamlike.expressions.tree import TypedExpr, columns_read
from beamlike.expressions.typed import TypeFault, Typing, dtype_of_literal, family
from beamlike.rows.dtypes import system_schema, type_name
from beamlike.spec.sql_advice import advice
from beamlike.spec.sql_casts import TIMES, TYPES, cast, time_literal
from beamlike.spec.sql_numbers import remainder, rounded, whole_quotient
from windowing.columns import SYSTEM_COLUMNS
from windowing.time import microseconds

SYSTEM: Final[Mapping[str, Callable[[], nw.Expr]]] = {
    name: getattr(functions, name)
    for name in functions.__all__
    if name.startswith(("window_", "pane_", "event_time"))
}
"""Values of a row that are no columns: `window_start`, `pane_timing` and so on."""

BINARY: Final[Mapping[type[exp.Expr], str]] = {
    exp.Add: "__add__", exp.Sub: "__sub__", exp.Mul: "__mul__",
    exp.EQ: "__eq__", exp.NEQ: "__ne__", exp.LT: "__lt__", exp.LTE: "__le__", exp.GT: "__gt__", exp.GTE: "__ge__",
    exp.And: "__and__", exp.Or: "__or__",
}  # fmt: skip
"""Operators that are those of Python."""
_DATES: Final[Mapping[str, str]] = {
    "yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S", "SSS": "%3f", "SSSSSS": "%6f",
}  # fmt: skip
"""The letters of Java's patterns of dates, as in Spark and Flink, and those of polars."""
METHODS: Final[Mapping[type[exp.Expr], tuple[str, str]]] = {
    exp.Upper: ("text", "str.to_uppercase"), exp.Lower: ("text", "str.to_lowercase"),
    exp.Length: ("text", "str.len_chars"), exp.Abs: ("number", "abs"),
    exp.Ceil: ("number", "ceil"), exp.Floor: ("number", "floor"),
    exp.Sqrt: ("float", "sqrt"), exp.Exp: ("float", "exp"), exp.Ln: ("float", "log"), exp.IsNan: ("float", "is_nan"),
    exp.Hour: ("time", "dt.hour"), exp.Minute: ("time", "dt.minute"), exp.Second: ("time", "dt.second"),
    exp.Day: ("time", "dt.day"), exp.Month: ("time", "dt.month"), exp.Year: ("time", "dt.year"),
}  # fmt: skip
"""Functions of one argument that are methods of a column, each with the kind of its argument."""
_OPERATORS: Final[Mapping[type[exp.Expr], str]] = {exp.IntDiv: "DIV", exp.Mod: "%", exp.Div: "/"}
_LOGIC: Final = (exp.And, exp.Or)
_CONDITION: Final = "boolean"
_ADVICE: Final[Mapping[str, str]] = {
    "text": "CAST(... AS VARCHAR)",
    "number": "CAST(... AS BIGINT) or CAST(... AS DOUBLE)",
    "time": "CAST(... AS TIMESTAMP)",
    _CONDITION: "a comparison such as x <> 0",
}
"""Advice for an argument of another kind."""
_PARTS: Final = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")


@attrs.frozen
class Scope:
    """The columns that a query may read: for each table by alias, its columns with their names in the collection."""

    query: str
    tables: Mapping[str, Mapping[str, str]]
    replaced: Mapping[exp.Expr, str] = attrs.field(factory=dict)
    """Parts that are columns already, such as aggregates."""
    types: Mapping[str, pl.DataType] = attrs.field(factory=dict)
    """The types of the columns of the collection."""
    ungrouped: frozenset[str] = frozenset()
    """The columns before a grouping."""
    _known: Mapping[str, pl.DataType] = attrs.field(init=False, repr=False, eq=False)

    @_known.default
    def _with_system_columns(self) -> Mapping[str, pl.DataType]:
        return {**system_schema(SYSTEM_COLUMNS), **self.types}

    _typing: Typing = attrs.field(init=False, repr=False, eq=False)

    @_typing.default
    def _typing_of_columns(self) -> Typing:
        return Typing.of(self._known)

    def fault(self, node: exp.Expr, message: str) -> BadQuery:
        """Returns an error at the place of a part of the query."""
        return fault(self.query, node, message)

    def column(self, node: exp.Column) -> nw.Expr:
        """Returns the expression for a column, or for a value such as `window_start`."""
        name, table = node.name, node.table
        found = self.place(name, table, node)
        if found is not None:
            return nw.col(found)
        if name.lower() in SYSTEM:
            return SYSTEM[name.lower()]()
        raise self.fault(node, self._no_column(node))

    def _no_column(self, node: exp.Column) -> str:
        name, select = node.name, node.find_ancestor(exp.Select)
        if name in self.ungrouped:
            return (
                f"the column {name!r} is neither in GROUP BY nor in an aggregate; write GROUP BY {name}, or an "
                f"aggregate such as MAX({name}) AS {name}"
            )
        if name in (select.named_selects if select is not None else ()) and node.find_ancestor(exp.Where):
            return f"WHERE cannot read {name!r}, which SELECT computes later; write the expression, or a subquery"
        if name.lower() == "window":
            return "there is no column 'window'; write window_start and window_end"
        known = [one for columns in self.tables.values() for one in columns]
        hint = nearest(name, [*known, *SYSTEM]) or f"; there are {listed(known)}"
        if node.this.args.get("quoted"):
            hint = f"; a text is in single quotes, as in '{name}', and double quotes are for names{hint}"
        return f"there is no column {name!r}{hint}"

    def place(self, name: str, table: str, node: exp.Expr) -> str | None:
        """Returns the name in the collection of a column; None if no table has it."""
        if table and table not in self.tables:
            raise self.fault(node, f"there is no table {table!r}{nearest(table, self.tables)}")
        tables = {table: self.tables[table]} if table else self.tables
        found = {columns[name] for columns in tables.values() if name in columns}
        if len(found) > 1:
            raise self.fault(
                node, f"the column {name!r} is in {' and '.join(tables)}; write the table before it"
            )
        return next(iter(found), None)

    def value(self, node: exp.Expr) -> Any:
        """Returns an expression, or a plain value for a literal."""
        found = self._value(node)
        return self._typed(node, found) if isinstance(found, nw.Expr) else found

    def _typed(self, node: exp.Expr, found: nw.Expr) -> nw.Expr:
        """Adds conversions to an expression, and finds its type. Raises `BadQuery` if its operands have no meaning."""
        if not {*columns_read(found)} <= {*self._known}:
            return found  # the step that gets the expression reports it
        try:
            (made,) = self._typing.typed(found)
        except TypeFault as error:
            raise self.fault(node, str(error)) from None
        if made.dtype is None:
            raise self.fault(node, f"{node.sql()} cannot be computed for columns of these types")
        return made

    def _value(self, node: exp.Expr) -> Any:
        if node in self.replaced:
            return nw.col(self.replaced[node])
        match node:
            case exp.Column():
                return self._as_operand(node)
            case exp.Literal() | exp.Boolean() | exp.Null():
                return self._literal(node)
            case exp.Paren() | exp.Alias():
                return self.value(node.this)
            case exp.Interval():
                return interval(node, self.query)
            case exp.Neg():
                return self._negated(node)
            case exp.Not():
                return ~self.kind(node.this, _CONDITION, "NOT")
            case exp.Is(this=this, expression=exp.Null()):
                return self.expression(this).is_null()
            case exp.Between():
                # `is_between` is NULL if a bound is NULL, also for a value that is beyond the other bound.
                value, low, high = map(self.expression, (node.this, node.args["low"], node.args["high"]))
                return (value >= low) & (value <= high)
            case exp.In():
                return self._is_in(node)
            case exp.Case():
                return self._case(node)
            case exp.Cast():
                return self._cast(node)
        return self._function(node)

    def _as_operand(self, node: exp.Column) -> nw.Expr:
        """Returns a column in the type in which SQL computes: texts as such, and floats with 64 bits."""
        found = self.column(node)
        dtype = self._known.get(self.place(node.name, node.table, node) or "")
        if isinstance(dtype, pl.Enum | pl.Categorical):
            return found.cast(nw.String)
        return found.cast(nw.Float64) if isinstance(dtype, pl.Float32) else found

    def expression(self, node: exp.Expr) -> nw.Expr:
        """Returns an expression, also for a literal."""
        found = self.value(node)
        return found if isinstance(found, nw.Expr) else self._typed(node, _literal_column(found))

    def kind(self, node: exp.Expr, kind: str, of: str) -> nw.Expr:
        """Returns an argument of a function. Raises `BadQuery` if it is of another kind than text, number, time or
        condition.
        """
        found = self.expression(node)
        dtype = found.dtype if isinstance(found, TypedExpr) else None
        wanted = "number" if kind == "float" else kind
        if dtype not in (None, pl.Null()) and wanted not in (family(dtype), _class(dtype)):
            what = f"{of} needs a {'condition' if wanted == _CONDITION else wanted}, not {type_name(dtype)}"
            raise self.fault(node, f"{what}; write {_ADVICE[wanted]}")
        if kind == "time" and isinstance(dtype, pl.Date):
            return found.cast(nw.Datetime("us"))  # whose hour is 0
        return found.cast(nw.Float64) if kind == "float" else found

    def condition(self, node: exp.Expr) -> nw.Expr:
        """Returns an expression for a filter, which needs a value for each row, also if the query names no column."""
        found = self.kind(node, _CONDITION, "WHERE, like HAVING and ON,")
        places = [place for columns in self.tables.values() for place in columns.values()]
        if node.find(exp.Column) or not places:
            return found
        one = nw.col(places[0])
        return found & (one.is_null() | ~one.is_null())

    def _function(self, node: exp.Expr) -> Any:
        if type(node) in BINARY:
            return self._binary(node)
        if isinstance(node, exp.Mod | exp.IntDiv | exp.Div):
            return self._divided(node)
        if type(node) in METHODS and node.this is not None:
            kind, method = METHODS[type(node)]
            subject = self.kind(node.this, kind, _name(node))
            found = _called(subject, method)
            decimal = isinstance(subject, TypedExpr) and isinstance(subject.dtype, pl.Decimal)
            whole = decimal and isinstance(node, exp.Ceil | exp.Floor)
            return found.cast(nw.Decimal(38, 0)) if whole else found
        match node:
            case exp.Coalesce():
                return nw.coalesce(*map(self.expression, [node.this, *node.expressions]))
            case exp.DPipe():
                return self._joined(node.this, node.expression)
            case exp.Concat():
                return self._joined(*node.expressions)
            case exp.Pow():
                # Powers of whole numbers with negative exponents are fractions.
                return self.kind(node.left, "float", "POWER") ** self.kind(node.right, "float", "POWER")
            case exp.Trim():
                return self._text_of(node).str.strip_chars(" ")
            case exp.Round():
                return self._rounded(node)
            case exp.Like() | exp.ILike():
                pattern = _pattern(self._text(node.expression), any_case=isinstance(node, exp.ILike))
                found = self._text_of(node).str.contains(pattern)
                return ~found if node.args.get("negate") else found
            case exp.StartsWith():
                return self._text_of(node).str.starts_with(self._text(node.expression))
            case exp.Replace():
                new = self._text(node.args["replacement"]) if node.args.get("replacement") else ""
                old = self._text(node.expression)
                if not old:
                    raise self.fault(node.expression, "REPLACE needs a text that is not empty")
                return self._text_of(node).str.replace_all(old, new, literal=True)
            case exp.Substring():
                return self._substring(node)
            case exp.SplitPart():
                return self._part(node)
            case exp.RegexpExtract():
                group = node.args.get("group") or node.args.get("position")  # the third argument
                number = 1 if group is None else self._number(group)
                return functions.regexp_extract(self._text_of(node), self._text(node.expression), number)
            case exp.Extract() if node.this.name.upper() in _PARTS:
                subject = self.kind(node.expression, "time", "EXTRACT")
                return _called(subject, f"dt.{node.this.name.lower()}")
            case exp.Anonymous() if node.name.upper() == "DATE_FORMAT" and len(node.expressions) == 2:
                return self.kind(node.expressions[0], "time", "DATE_FORMAT").dt.to_string(
                    self._date_pattern(node.expressions[1])
                )
        name = node.name if isinstance(node, exp.Anonymous) else node.sql().split("(")[0]
        name = name or node.key.upper()
        raise self.fault(node, f"{name} has no counterpart; {advice(node, name)}")

    def _text_of(self, node: exp.Expr) -> nw.Expr:
        """Returns the first argument of a function of texts."""
        return self.kind(node.this, "text", _name(node))

    def _joined(self, *parts: exp.Expr) -> nw.Expr:
        found = [self.expression(part) for part in parts]
        for part, one in zip(parts, found, strict=True):
            if isinstance(one, TypedExpr) and (one.dtype or pl.String()).is_nested():
                raise self.fault(part, f"|| and CONCAT join texts, not {type_name(one.dtype or pl.Null())}")
        return nw.concat_str(*found)

    def _binary(self, node: Any) -> Any:
        if isinstance(node, _LOGIC):
            name = node.key.upper()
            left, right = (self.kind(one, _CONDITION, name) for one in (node.left, node.right))
            return left & right if isinstance(node, exp.And) else left | right
        arithmetic = isinstance(node, exp.Add | exp.Sub | exp.Mul)
        left, right = self.value(node.left), self.value(node.right)
        if not isinstance(left, nw.Expr):
            left = self._typed(node.left, _literal_column(left))
        families = [self._family(one) for one in (left, right)]
        if arithmetic and {"text", _CONDITION} & {*families}:
            texts = isinstance(node, exp.Add) and families == ["text", "text"]
            write = "for texts, write ||" if texts else "write a CAST"
            what = " and ".join(map(str, families))
            raise self.fault(node, f"arithmetic needs numbers or times, not {what}; {write}")
        found = getattr(left, BINARY[type(node)])(right)
        if isinstance(node, exp.Sub) and families == ["date", "date"]:
            return found.dt.total_minutes() // (24 * 60)
        return found

    def _family(self, value: Any) -> str | None:
        """Returns the kind of the type of an expression or literal; None if it has none, such as NULL."""
        dtype = value.dtype if isinstance(value, TypedExpr) else dtype_of_literal(value)
        return None if dtype in (None, pl.Null()) else family(dtype)

    def _negated(self, node: exp.Neg) -> Any:
        if isinstance(node.this, exp.Literal) and not node.this.is_string:
            return self._in_64_bits(node, -literal(node.this))
        value = self.value(node.this)
        if isinstance(value, str | bool) or self._family(value) not in (None, "number", "duration"):
            raise self.fault(node, f"- needs a number, not {node.this.sql()}")
        return None if value is None else -value

    def _divided(self, node: exp.Mod | exp.IntDiv | exp.Div) -> nw.Expr:
        """Divides as SQL does, towards zero: `-7 DIV 2` is -3, and `-7 % 2` is -1. Python's results are -4 and 1. A
        division by zero is NULL.
        """
        left, right = (self.kind(one, "number", _name(node)) for one in (node.left, node.right))
        if isinstance(node, exp.Div):
            # The quotient of two Decimals would be rounded to their scale.
            return left.cast(nw.Float64) / nw.when(right != 0).then(right)
        dtypes = [one.dtype for one in (left, right) if isinstance(one, TypedExpr) and one.dtype is not None]
        scales = [dtype.scale for dtype in dtypes if isinstance(dtype, pl.Decimal)]
        result: pl.DataType = pl.Decimal(38, max(scales)) if scales else pl.Int64()
        if any(dtype.is_float() for dtype in dtypes):
            result = pl.Float64()
        return (remainder if isinstance(node, exp.Mod) else whole_quotient)(left, right, result)

    def _rounded(self, node: exp.Round) -> nw.Expr:
        digits = node.args.get("decimals")
        value = self.kind(node.this, "number", "ROUND")
        dtype = value.dtype if isinstance(value, TypedExpr) else None
        return rounded(value, dtype or pl.Float64(), 0 if digits is None else self._number(digits))

    def _is_in(self, node: exp.In) -> Any:
        value = self.expression(node.this)
        found = [self.value(one) for one in node.expressions]
        if found and not any(one is None or isinstance(one, nw.Expr) for one in found):
            return value.is_in(found)
        # `is_in` does not find NULL: with NULL in the list, the result is NULL where no other value is equal.
        return reduce(or_, [value == one for one in found])

    def _text(self, node: exp.Expr) -> str:
        """Returns the text of a literal, where a column has no counterpart."""
        if not isinstance(node, exp.Literal) or not node.is_string:
            raise self.fault(node, f"this must be a text such as 'a', not {node.sql()}")
        return str(node.this)

    def _number(self, node: exp.Expr, least: int = 0) -> int:
        """Returns the whole number of a literal, where a column or a lesser number has no counterpart."""
        if not isinstance(node, exp.Literal) or not re.fullmatch(r"\d+", node.name) or int(node.name) < least:
            raise self.fault(node, f"this must be a whole number from {least} on, not {node.sql()}")
        return int(node.name)

    def _date_pattern(self, node: exp.Expr) -> str:
        """Returns the pattern of DATE_FORMAT for polars: with letters as in Spark and Flink, or with `%`."""
        pattern = self._text(node)
        if "%" in pattern:
            return pattern
        made = ""
        for part in re.finditer(r"'(?P<quoted>[^']*)'|(?P<letters>([A-Za-z])\3*)|(?P<other>.)", pattern):
            letters = part["letters"]
            if letters and letters not in _DATES:
                raise self.fault(
                    node, f"DATE_FORMAT: {letters!r} has no counterpart; there are {', '.join(_DATES)}"
                )
            made += _DATES[letters] if letters else part["quoted"] or part["other"] or ""
        return made

    def _case(self, node: exp.Case) -> nw.Expr:
        default = node.args.get("default")
        made: nw.Expr = nw.lit(None) if default is None else self.expression(default)
        for branch in reversed(node.args["ifs"]):
            if node.this is None:
                condition = self.kind(branch.this, _CONDITION, "WHEN")
            else:
                condition = self._typed(branch.this, self.expression(node.this) == self.value(branch.this))
            made = nw.when(condition).then(self.expression(branch.args["true"])).otherwise(made)
        return made

    def _cast(self, node: exp.Cast) -> nw.Expr:
        kind = node.to.this.name
        if kind in TIMES and isinstance(node.this, exp.Literal) and node.this.is_string:
            return self._time(node.this, kind)
        target, value = self._target(node), self.expression(node.this)
        given = (value.dtype if isinstance(value, TypedExpr) else None) or pl.Null()
        try:
            return cast(value, given, target)
        except TypeFault as error:
            raise self.fault(node.this, str(error)) from None

    def _target(self, node: exp.Cast) -> pl.DataType:
        kind = node.to.this.name
        if kind == "DECIMAL" and len(node.to.expressions) == 2:
            digits, scale = (self._number(one.this) for one in node.to.expressions)
            if not 1 <= digits <= 38 or scale > digits:
                raise self.fault(node.this, "DECIMAL has 1 to 38 digits, of which the scale is a part")
            return pl.Decimal(digits, scale)
        if kind not in TYPES or node.to.expressions:
            raise self.fault(node.this, f"there is no type {node.to.sql()}{nearest(node.to.sql(), TYPES)}")
        return TYPES[kind]

    def _literal(self, node: exp.Expr) -> Any:
        return self._in_64_bits(node, literal(node))

    def _in_64_bits(self, node: exp.Expr, value: Any) -> Any:
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise self.fault(node, f"{value} does not fit into 64 bits; write it with a point")
        return value

    def _time(self, node: exp.Literal, kind: str) -> nw.Expr:
        """Returns the literal for a text such as that of `DATE '2026-01-31'`."""
        try:
            return time_literal(node.name, kind)
        except ValueError:
            raise self.fault(node, f"{node.name!r} is no {kind}; write one such as '2026-01-31'") from None

    def _part(self, node: exp.SplitPart) -> nw.Expr:
        """Returns a part of a text; an empty text if there are fewer parts."""
        delimiter, number = self._text(node.args["delimiter"]), self._number(node.args["part_index"], 1)
        if not delimiter:
            raise self.fault(node, "SPLIT_PART needs a delimiter that is not empty")
        # With more delimiters at the end, each part exists.
        longer = nw.concat_str(self._text_of(node), nw.lit(delimiter * number))
        return longer.str.split(delimiter).list.get(number - 1)

    def _substring(self, node: exp.Substring) -> nw.Expr:
        start, length = node.args.get("start"), node.args.get("length")
        offset = 0 if start is None else self._number(start, 1) - 1
        return self._text_of(node).str.slice(offset, None if length is None else self._number(length))


def fault(query: str, node: exp.Expr | None, message: str) -> BadQuery:
    """Returns an error at the place of a part of the query."""
    starts: list[int] = []
    while node is not None and not starts:  # a part without a place has that of the part around it
        starts = [one.meta["start"] for one in node.walk() if "start" in one.meta]
        node = node.parent
    before = query[: min(starts, default=0)]
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    return BadQuery(f"line {line}, column {column}: {message}")


def _name(node: exp.Expr) -> str:
    """Returns the name of a function or an operator as a query has it."""
    if type(node) in _OPERATORS:
        return _OPERATORS[type(node)]
    return str(node.sql_name()) if isinstance(node, exp.Func) else node.key.upper()


def _class(dtype: pl.DataType) -> str:
    """Returns "time" for times and dates, which have parts; else an empty text."""
    return "time" if isinstance(dtype, pl.Datetime | pl.Date | pl.Time) else ""


def _called(subject: nw.Expr, method: str) -> nw.Expr:
    owner: Any = subject
    for part in method.split("."):
        owner = getattr(owner, part)
    made: nw.Expr = owner()
    return made


def _literal_column(value: Any) -> nw.Expr:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return nw.lit(value, nw.Int64) if whole else nw.lit(value)


def literal(node: exp.Expr) -> Any:
    """Returns the value of a literal."""
    if isinstance(node, exp.Null):
        return None
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if node.args.get("is_string"):
        return str(node.this)
    text = str(node.this)
    return int(text) if re.fullmatch(r"\d+", text) else float(text)


def interval(node: exp.Expr | None, query: str) -> timedelta:
    """Returns the duration of an INTERVAL, or of a text such as '10 minutes'."""
    try:
        if isinstance(node, exp.Interval):
            unit = node.args.get("unit")
            text = f"{node.this.name} {unit.name.lower()}" if unit is not None else node.this.name
        else:
            text = node.name if isinstance(node, exp.Literal) and node.is_string else ""
        return timedelta(microseconds=microseconds(text))
    except (ValueError, AttributeError) as error:
        raise fault(query, node, f"{error}; write an INTERVAL such as INTERVAL '1' MINUTE") from None


def _pattern(like: str, *, any_case: bool) -> str:
    """Returns the regular expression for a pattern of LIKE, or of ILIKE in any case."""
    parts = {"%": ".*", "_": "."}
    return (
        ("(?si)^" if any_case else "(?s)^") + "".join(parts.get(one) or re.escape(one) for one in like) + "$"
    )
