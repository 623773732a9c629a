"""Gives expressions one meaning, whatever the types of their columns.

Polars computes in the types that the columns happen to have: a sum of two Int8 wraps around, the finer one of two time
units is cut, and a date is compared with a number by what is stored. `Typing` adds the conversions that prevent this,
or refuses the expression. docs/expressions.md has the rules.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import partial, reduce
from typing import Any, Final

import attrs
import narwhals as nw
import polars as pl

from beamlike.expressions.tree import (
    TypedExpr,
    as_written,
    called,
    columns_read,
    elementwise,
    separate,
    with_names,
)
from beamlike.rows.dtypes import as_narwhals, type_name

_ARITHMETIC: Final[Mapping[str, Callable[[Any, Any], nw.Expr]]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "truediv": operator.truediv,
    "floordiv": operator.floordiv, "mod": operator.mod, "pow": operator.pow,
}  # fmt: skip
_COMPARISONS: Final = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "is_between")
_IN_ONE_TYPE: Final = (
    "coalesce", "fill_null", "clip", "clip_lower", "clip_upper", "max_horizontal", "min_horizontal",
)  # fmt: skip
"""Functions whose result is one of their arguments."""
_COUNTS: Final = (
    "dt.year", "dt.month", "dt.day", "dt.hour", "dt.minute", "dt.second", "dt.millisecond", "dt.microsecond",
    "dt.nanosecond", "dt.ordinal_day", "dt.weekday", "str.len_chars", "list.len",
)  # fmt: skip
"""Functions that return small integers."""
_UNITS: Final = ("ms", "us", "ns")
_WHOLE: Final = pl.Int128()
_INT64: Final = pl.Int64()
_CONVERSIONS: Final = ("map_batches", "str.to_date", "str.to_datetime", "str.to_time", "replace_strict")
_CHOSEN: Final = "chosen"
_LARGEST_POWER: Final = 63
_MOST_DIGITS: Final = 38
_PRODUCT_SCALE: Final = 18
"""The greatest scale of a product of decimals, unless a factor has more. Twenty digits are left before the point."""


class TypeFault(ValueError):
    """Raised for operands that have no common meaning."""


@attrs.frozen
class _Operand:
    """An operand of a function: an expression or a plain value, with its type."""

    value: Any
    dtype: pl.DataType

    @property
    def literal(self) -> bool:
        return not isinstance(self.value, nw.Expr)

    def column_as(self, dtype: pl.DataType) -> nw.Expr:
        """Returns the operand as a column in another type."""
        return _column(self.cast(dtype))

    def cast(self, dtype: pl.DataType) -> Any:
        """Returns the operand in another type; unchanged if it has this type, or none."""
        if self.dtype in (dtype, pl.Null()):
            return self.value
        value = self.value
        if isinstance(value, datetime) and value.tzinfo is not None:
            value = value.astimezone(UTC)
        target: Any = as_narwhals(dtype)
        return (nw.lit(value) if self.literal else value).cast(target)


def family(dtype: pl.DataType) -> str:
    """Returns the kind of a type: types of one kind can be compared, whatever their widths and units."""
    if dtype.is_numeric():
        return "number"
    if isinstance(dtype, pl.Datetime):
        return "time with a zone" if dtype.time_zone else "time without a zone"
    if isinstance(dtype, pl.Date):
        return "date"
    return (
        "text" if isinstance(dtype, pl.String | pl.Categorical | pl.Enum) else str(dtype.base_type()).lower()
    )


@attrs.frozen
class _Known:
    """The name and the type of the column that an expression computes, if it is known."""

    expression: nw.Expr  # kept, because the ids of its nodes are the key
    name: str | None
    dtype: pl.DataType | None
    from_columns: bool


@attrs.frozen
class Typing:
    """Adds conversions to expressions over columns of some types."""

    types: Mapping[str, pl.DataType]
    _known: dict[tuple[int, ...], _Known] = attrs.field(factory=dict, init=False, eq=False, repr=False)
    """The expressions of which the type is known, by their nodes."""

    @classmethod
    def of(cls, types: Mapping[str, pl.DataType]) -> Typing:
        """Creates it for columns of these types."""
        return cls(dict(types))

    def typed(self, expression: nw.Expr) -> list[TypedExpr]:
        """Returns a resolved expression with its conversions; several if it computes something of several columns.

        Raises:
            TypeFault: Operands have no common meaning.
        """
        return [self._expression(one) for one in separate(expression)]

    def _expression(self, written: nw.Expr) -> TypedExpr:
        if isinstance(written, TypedExpr) and written.done == len(written._nodes):
            return written
        made = self._whole(written)
        name = None if made is written else self._field(as_written(written))[0]
        dtype = self._field(made)
        if name not in (None, dtype[0]):
            made = made.alias(str(name))
        return TypedExpr.of(made, written, dtype[1])

    def dtype(self, expression: nw.Expr) -> pl.DataType | None:
        """Returns the type of an expression; None if polars refuses it, which the declaration of the step reports."""
        if isinstance(expression, TypedExpr) and expression.done == len(expression._nodes):
            return expression.dtype
        return self._field(expression)[1]

    def _field(self, expression: nw.Expr) -> tuple[str | None, pl.DataType | None]:
        """Returns the name and the type of the column that an expression computes."""
        key = tuple(map(id, expression._nodes))
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._computed(expression)
        return known.name, known.dtype

    def _part(self, expression: nw.Expr) -> _Known | None:
        """Returns what is known of a part of an expression that a column of its type can stand for. No column can stand
        for a literal, whose type adapts itself.
        """
        known = self._known.get(tuple(map(id, expression._nodes)))
        return known if known is not None and known.dtype is not None and known.from_columns else None

    def _computed(self, expression: nw.Expr) -> _Known:
        """Computes the name and the type of an expression.

        Columns of known types stand for the parts that have them, so that the time grows with the length of an
        expression, and not with its square.
        """
        stands = dict[str, _Known]()

        def stand(known: _Known) -> nw.Expr:
            name = f"\0{len(stands)}\0"
            stands[name] = known
            return nw.col(name)

        def shallow(node: Any) -> Any:
            parts = [self._part(one) if isinstance(one, nw.Expr) else None for one in node.exprs]
            if not any(parts):
                return node
            both = zip(node.exprs, parts, strict=True)
            return called(node, [one if known is None else stand(known) for one, known in both])

        nodes, before = expression._nodes, None
        start = len(nodes)
        while before is None and start > 1:
            start -= 1
            before = self._part(nw.Expr(*nodes[:start]))
        first = [shallow(nodes[0])] if before is None else [*stand(before)._nodes]
        rest = [*map(shallow, nodes[1:] if before is None else nodes[start:])]
        types: Mapping[str, Any] = {name: known.dtype for name, known in stands.items()}
        try:
            empty = nw.from_native(pl.LazyFrame(schema={**self.types, **types}))
            ((name, dtype),) = empty.select(nw.Expr(*first, *rest)).to_native().collect_schema().items()
        except Exception:  # of polars or narwhals, or several columns
            return _Known(expression, None, None, False)
        for other, known in stands.items():
            name = name.replace(other, known.name or "")
        return _Known(expression, name, dtype, bool(stands) or bool(columns_read(expression)))

    def _whole(self, written: nw.Expr) -> nw.Expr:
        """Returns the expression with conversions; the same object if it needs none."""
        if isinstance(written, TypedExpr):
            made, rest, changed = (
                nw.Expr(*written._nodes[: written.done]),
                [*written._nodes[written.done :]],
                False,
            )
            if not rest:
                return written
        else:
            root, *rest = written._nodes
            arguments, changed = self._arguments(root)
            new = self._function(root, arguments) if root.exprs else None
            changed = changed or new is not None
            made = nw.Expr(called(root, arguments)) if new is None else new
        for node in rest:
            arguments, inner = self._arguments(node)
            new = self._method(node, made, arguments)
            changed = changed or inner or new is not None
            made = nw.Expr(*made._nodes, called(node, arguments)) if new is None else new
        return made if changed else written

    def _arguments(self, node: Any) -> tuple[list[Any], bool]:
        given = [
            nw.col(one) if isinstance(one, str) and not node.str_as_lit else one
            for argument in node.exprs
            for one in (separate(argument) if isinstance(argument, nw.Expr) else [argument])
        ]
        made = [self._whole(one) if isinstance(one, nw.Expr) else one for one in given]
        return made, any(new is not old for new, old in zip(made, given, strict=True))

    def _operands(self, values: Iterable[Any]) -> list[_Operand] | None:
        found = []
        for value in values:
            dtype = self.dtype(value) if isinstance(value, nw.Expr) else dtype_of_literal(value)
            if dtype is None:
                return None
            found.append(_Operand(_plain(value), dtype))
        return found

    def _function(self, node: Any, arguments: list[Any]) -> nw.Expr | None:
        """Returns a function of columns with conversions; None if it needs none."""
        name = node.name
        first, given = (arguments[:1], arguments[1:]) if name == "when_then" else ([], arguments)
        operands = self._operands(given)
        if operands is None:
            return None
        if name == "sum_horizontal" and all(map(_is_whole, operands)):
            made = nw.Expr(called(node, [one.cast(_WHOLE) for one in operands]))
            return made.cast(nw.Int64)
        if name == "when_then":
            new = self._where_chosen(first[0], _in_one_type(operands))
        elif name in _IN_ONE_TYPE:
            new = _in_one_type(operands)
            new = self._where_missing(new) if name == "coalesce" else new
        elif name == "concat_str":
            texts = map(_time_text, operands)
            new = [one.value if text is None else text for one, text in zip(operands, texts, strict=True)]
        else:
            return None
        if all(one is old.value for one, old in zip(new, operands, strict=True)):
            return None
        return nw.Expr(called(node, [*first, *(_literal(node, one) for one in new)]))

    def _method(self, node: Any, subject: nw.Expr, arguments: list[Any]) -> nw.Expr | None:
        """Returns a method of an expression with conversions; None if it needs none."""
        name: str = node.name
        if name in _COUNTS:
            return nw.Expr(*subject._nodes, called(node, arguments)).cast(nw.Int64)
        rule = _rule(name)
        if name.startswith("str.") and isinstance(self.dtype(subject), pl.Enum | pl.Categorical):
            return nw.Expr(*subject.cast(nw.String)._nodes, called(node, arguments))
        operands = self._operands([subject, *arguments]) if rule is not None else None
        if rule is None or operands is None:
            return None
        made = rule(name, node, operands)
        if made is None or isinstance(made, nw.Expr):
            return made
        if name != "fill_null" and all(one is old.value for one, old in zip(made, operands, strict=True)):
            return None
        first, *others = made
        if name == "fill_null":
            others = self._where_missing([first, *others])[1:]
        return nw.Expr(*_column(first)._nodes, called(node, [_literal(node, one) for one in others]))

    def _where_chosen(self, condition: nw.Expr, values: list[Any]) -> list[Any]:
        """Returns the values of both branches, each computed only for rows that choose it: elsewhere it may fail.

        Polars does this, too, but not for a part that several columns have in common, which it computes for all rows.
        """
        chosen = (condition, ~condition.fill_null(False))
        return [self._only_where(one, where) for one, where in zip(values, chosen, strict=False)]

    def _where_missing(self, values: list[Any]) -> list[Any]:
        """Returns alternatives, each computed only for rows in which all earlier ones are null."""
        made, missing = values[:1], None
        for before, value in zip(made, values[1:], strict=False):
            null = _column(before).is_null()
            missing = null if missing is None else missing & null
            made.append(self._only_where(value, missing))
        return made

    def _can_fail(self, expression: nw.Expr) -> bool:
        """True if an expression has a conversion that some values do not survive."""
        nodes = expression._nodes
        return any(
            node.name in _CONVERSIONS
            or (node.name == "cast" and not self._is_total(nw.Expr(*nodes[:number]), node.kwargs["dtype"]))
            or any(self._can_fail(one) for one in node.exprs if isinstance(one, nw.Expr))
            for number, node in enumerate(nodes)
        )

    def _is_total(self, subject: nw.Expr, target: Any) -> bool:
        """True if each value of an expression can be cast to a type."""
        if target in (nw.Int128, nw.String, nw.Boolean):
            return True
        dtype = self.dtype(subject)
        return target.is_float() and dtype is not None and dtype.is_numeric()

    def _only_where(self, value: Any, condition: nw.Expr) -> Any:
        """Returns a value that can fail as one that is computed only for the rows for which a condition is true."""
        if not isinstance(value, nw.Expr) or not self._can_fail(value):
            return value
        columns, dtype = columns_read(value), self.dtype(value)
        if not columns or dtype in (None, pl.Null()):
            return value
        fields = {name: f"{number}" for number, name in enumerate(columns)}
        rows = nw.struct(
            condition.alias(_CHOSEN), *(nw.col(name).alias(field) for name, field in fields.items())
        )
        return elementwise(
            rows, partial(_of_chosen, with_names(value, fields.__getitem__)), as_narwhals(dtype)
        )


def _of_chosen(value: nw.Expr, rows: pl.Series) -> pl.Series:
    """Computes a value for the rows whose field `_CHOSEN` is true, and null for all others."""
    frame = rows.struct.unnest()
    chosen = frame[_CHOSEN].fill_null(False)
    found = nw.from_native(frame.filter(chosen).lazy()).select(value.alias("v")).to_native().collect()["v"]
    place = pl.select(pl.when(chosen).then(chosen.cast(pl.Int64).cum_sum() - 1)).to_series()
    return found.gather(place)


def _literal(node: Any, value: Any) -> Any:
    """Returns an argument of a node; a text that the node would take for the name of a column as a literal."""
    return nw.lit(value) if isinstance(value, str) and not node.str_as_lit else value


_Rule = Callable[[str, Any, list[_Operand]], "nw.Expr | list[Any] | None"]


def _rule(name: str) -> _Rule | None:
    if name.strip("_") in _ARITHMETIC or name.strip("_").removeprefix("r") in _ARITHMETIC:
        return _arithmetic
    if name in _COMPARISONS:
        return _compared
    if name in _IN_ONE_TYPE:
        return lambda name, node, operands: _in_one_type(operands)
    return _OTHERS.get(name)


def _arithmetic(name: str, node: Any, operands: list[_Operand]) -> nw.Expr | None:
    plain = name.strip("_")
    if plain in _ARITHMETIC:
        left, right = operands
    else:
        plain, (right, left) = plain.removeprefix("r"), operands
    if pl.Null() in (left.dtype, right.dtype):
        return None
    apply = _ARITHMETIC[plain]
    numbers = all(one.dtype.is_numeric() or one.dtype == pl.Boolean() for one in operands)
    if not numbers:
        return _arithmetic_of_times(plain, left, right)
    dtypes = [left.dtype, right.dtype]
    if plain == "pow":
        return _power(left, right)
    if _is_whole(left) and _is_whole(right):
        return _of_whole_numbers(plain, left, right)
    if plain in ("mod", "floordiv") and any(dtype.is_float() for dtype in dtypes):
        pair = nw.struct(left.column_as(pl.Float64()).alias("x"), right.column_as(pl.Float64()).alias("y"))
        return elementwise(pair, _float_mod if plain == "mod" else _float_floordiv, nw.Float64)
    if pl.Float32() in dtypes and any(one.dtype.is_integer() and not one.literal for one in operands):
        return apply(left.column_as(pl.Float64()), right.column_as(pl.Float64()))
    if any(isinstance(dtype, pl.Decimal) for dtype in dtypes):
        return _of_decimals(plain, left, right)
    return None


def _of_whole_numbers(name: str, left: _Operand, right: _Operand) -> nw.Expr | None:
    apply, dtypes = _ARITHMETIC[name], [left.dtype, right.dtype]
    if name == "truediv" or dtypes == [_WHOLE, _WHOLE]:
        return apply(left.column_as(_INT64), right.cast(_INT64)) if pl.Boolean() in dtypes else None
    if _WHOLE in dtypes:
        return apply(left.column_as(_WHOLE), right.cast(_WHOLE))
    literal, column = (left, right) if left.literal else (right, left)
    if not literal.literal or column.dtype == pl.UInt64() or not columns_read(column.column_as(_INT64)):
        return apply(left.column_as(_WHOLE), _wide(right)).cast(nw.Int64)
    function = partial(_with_literal, name, int(literal.value), literal is left)
    return elementwise(column.column_as(_INT64), function, nw.Int64)


def _with_literal(name: str, literal: int, first: bool, column: pl.Series) -> pl.Series:
    """Computes a column of whole numbers and a literal: in 64 bits if no result can be beyond them, else in 128, which
    takes several times as long. Raises a `PolarsError` if a result does not fit into 64 bits.
    """
    apply: Callable[[Any, Any], Any] = _ARITHMETIC[name]
    operands = (literal, column) if first else (column, literal)
    size, other = max(abs(int(one or 0)) for one in _ends(column)), abs(literal)
    reach = {"add": size + other, "sub": size + other, "mul": size * other}.get(name, max(size, other))
    if reach < 2**63:
        found: pl.Series = apply(*operands)
        return found
    wide = (pl.lit(one).cast(_WHOLE) for one in operands)
    return pl.select(apply(*wide).cast(_INT64)).to_series()


def _ends(column: pl.Series) -> tuple[Any, Any]:
    return column.min(), column.max()


def _of_decimals(name: str, left: _Operand, right: _Operand) -> nw.Expr | None:
    """The product has the digits of both factors, and the quotient is a float, as it is for integers."""
    if name == "truediv":
        return left.column_as(pl.Float64()) / right.column_as(pl.Float64())
    scales = [one.dtype.scale for one in (left, right) if isinstance(one.dtype, pl.Decimal)]
    scale = min(sum(scales), max(_PRODUCT_SCALE, *scales))
    if name != "mul" or len(scales) == 1 or scale == max(scales):
        return None
    return left.column_as(pl.Decimal(_MOST_DIGITS, scale)) * _column(right.value)


def _arithmetic_of_times(name: str, left: _Operand, right: _Operand) -> nw.Expr | None:
    kinds = family(left.dtype), family(right.dtype)
    if not _is_meaningful(name, *kinds):
        raise TypeFault(f"{type_name(left.dtype)} and {type_name(right.dtype)} have no {_NAMES[name]}")
    if {"number", "text", "time"} & {*kinds}:
        return None
    new = _in_one_unit([left, right])
    if new[0] is left.value and new[1] is right.value:
        return None
    return _ARITHMETIC[name](_column(new[0]), new[1])


def _is_meaningful(name: str, left: str, right: str) -> bool:
    """True if an operation is defined for operands of these kinds, of which at least one is no number."""
    if name == "add":
        shifted = {left, right} - {_DURATION}
        return (_DURATION in (left, right) and shifted <= _INSTANTS) or left == right == "text"
    if name == "sub":
        return left in {*_INSTANTS, _DURATION} and (right == _DURATION or _are_alike(left, right))
    if name == "mul":
        return {left, right} == {_DURATION, "number"}
    return left == _DURATION and right in (_DURATION, "number") and name != "pow"


_DURATION: Final = "duration"
_INSTANTS: Final = {"date", "time with a zone", "time without a zone", "time"}
_NAMES: Final = {
    "add": "sum", "sub": "difference", "mul": "product", "truediv": "quotient", "floordiv": "quotient",
    "mod": "remainder", "pow": "power",
}  # fmt: skip


def _are_alike(left: str, right: str) -> bool:
    """True if values of these kinds can be compared."""
    return left == right or {left, right} in ({"date", "time without a zone"}, {"number", "boolean"})


def _in_one_unit(operands: list[_Operand]) -> list[Any]:
    """Returns times, dates and durations in the finest of their units, and dates as times."""
    units = [one.dtype.time_unit for one in operands if isinstance(one.dtype, pl.Datetime | pl.Duration)]
    unit: Any = max([*units, "us"] if len(units) < len(operands) else units, key=_UNITS.index)
    zones = {one.dtype.time_zone for one in operands if isinstance(one.dtype, pl.Datetime)}
    zone = next(iter(zones)) if len(zones) == 1 else "UTC" if zones else None
    time, duration = pl.Datetime(unit, zone), pl.Duration(unit)
    return [one.cast(duration if isinstance(one.dtype, pl.Duration) else time) for one in operands]


def _power(base: _Operand, exponent: _Operand) -> nw.Expr | None:
    """A whole power of a whole number is exact. Any other is a float, since its exponent may be negative."""
    number = exponent.value
    exact = isinstance(number, int) and 0 <= number <= _LARGEST_POWER
    if not exact or not _is_whole(base):
        if base.dtype == exponent.dtype == pl.Float64():
            return None
        return base.column_as(pl.Float64()) ** exponent.column_as(pl.Float64())
    column = base.column_as(_WHOLE)
    product = (column if number else column * 0 + 1).cast(nw.Int64)
    for _ in range(number - 1):
        product = (product.cast(nw.Int128) * column).cast(nw.Int64)
    return product


def _compared(name: str, node: Any, operands: list[_Operand]) -> list[Any] | None:
    dtypes = [one.dtype for one in operands if one.dtype != pl.Null()]
    families = [family(dtype) for dtype in dtypes]
    for dtype, one in zip(dtypes, families, strict=True):
        if not _are_alike(families[0], one):
            raise TypeFault(
                f"{type_name(dtypes[0])} cannot be compared with {type_name(dtype)}; convert one of them"
            )
    if {*families} <= {"number", "boolean"}:
        truth = len({*families}) == 2
        return [one.cast(_INT64) if truth and one.dtype == pl.Boolean() else one.value for one in operands]
    return _in_one_type(operands)


def _in_one_type(operands: list[_Operand]) -> list[Any]:
    """Returns operands in the least type that has the values of all of them."""
    known = [one for one in operands if one.dtype != pl.Null()]
    if len({one.dtype for one in known}) < 2:
        return [one.value for one in operands]
    families = {family(one.dtype) for one in known}
    if families <= {"number", "boolean"}:
        target = _number_type(known)
        return [one.value if one.literal and one.dtype == target else one.cast(target) for one in operands]
    if families == {"text"}:
        return [one.cast(pl.String()) for one in operands]
    if families <= {"date", "time without a zone"} or families in ({"time with a zone"}, {"duration"}):
        new = iter(_in_one_unit(known))
        return [one.value if one.dtype == pl.Null() else next(new) for one in operands]
    if len(families) == 1:
        return [one.value for one in operands]
    names = " and ".join(dict.fromkeys(type_name(one.dtype) for one in known))
    raise TypeFault(f"{names} have no common type; convert one of them")


def _number_type(operands: list[_Operand]) -> pl.DataType:
    """Returns the type of numbers of several types. A literal that fits into the type of the columns does not count."""
    columns = {one.dtype for one in operands if not one.literal}
    literals = [one.value for one in operands if one.literal]
    dtypes = columns or {one.dtype for one in operands}
    if len(columns) == 1:
        (dtype,) = columns
        if dtype.is_float() or all(_fits(value, dtype) for value in literals):
            return dtype
    if any(one.dtype.is_float() for one in operands):
        return pl.Float64()
    scales = [one.dtype.scale for one in operands if isinstance(one.dtype, pl.Decimal)]
    if scales:
        return pl.Decimal(_MOST_DIGITS, max(scales))
    return _WHOLE if _WHOLE in dtypes else _INT64


def _fits(value: Any, dtype: pl.DataType) -> bool:
    if isinstance(dtype, pl.Decimal):
        return isinstance(value, int) or (
            isinstance(value, Decimal) and -int(value.as_tuple().exponent) <= dtype.scale
        )
    if not dtype.is_integer() or not isinstance(value, int) or isinstance(value, bool):
        return False
    least, greatest = _bounds(dtype)
    return least <= value <= greatest


def _bounds(dtype: pl.DataType) -> tuple[int, int]:
    """Returns the least and the greatest value of a type of integers."""
    bits = int(str(dtype).lstrip("UInt"))
    return (0, 2**bits - 1) if dtype.is_unsigned_integer() else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _signed(name: str, node: Any, operands: list[_Operand]) -> nw.Expr | None:
    """Negates a number, or returns its magnitude; the least number of a type has none in it."""
    (operand,) = operands
    if not _is_whole(operand) or operand.dtype == _WHOLE:
        return None
    wide = operand.column_as(_WHOLE)
    return (wide * -1 if name == "__neg__" else wide.abs()).cast(nw.Int64)


def _cast(name: str, node: Any, operands: list[_Operand]) -> nw.Expr | None:
    (operand,) = operands
    target, column = node.kwargs["dtype"], _column(operand.value)
    if target.is_numeric() and isinstance(operand.dtype, pl.Datetime | pl.Duration):
        return _in_microseconds(operand).cast(target)
    if isinstance(operand.dtype, pl.Datetime) and operand.dtype.time_zone is not None:
        naive = target == nw.Date or (target == nw.Datetime and getattr(target, "time_zone", None) is None)
        if naive:
            return column.dt.replace_time_zone(None).cast(target)
    return _time_text(operand) if target == nw.String else None


def _in_microseconds(operand: _Operand) -> nw.Expr:
    """Returns a time or a duration in the unit of its number, whatever the unit of the column."""
    if isinstance(operand.dtype, pl.Datetime):
        return operand.column_as(pl.Datetime("us", operand.dtype.time_zone))
    return operand.column_as(pl.Duration("us"))


def _time_text(operand: _Operand) -> nw.Expr | None:
    """Returns the text of a time in ISO 8601 with a blank, and with the digits of the second that are not zero. None
    for an operand of another type.
    """
    dtype, column = operand.dtype, _column(operand.value)
    if not isinstance(dtype, pl.Datetime):
        return None
    text = column.dt.to_string("%Y-%m-%d %H:%M:%S%.f")
    text = text.str.replace_all(r"(\.\d*?)0+$", "$1").str.replace_all(r"\.$", "")
    return text if dtype.time_zone is None else nw.concat_str(text, column.dt.to_string("%:z"))


def _is_in(name: str, node: Any, operands: list[_Operand]) -> nw.Expr | None:
    """Compares with one value after the other where polars needs all of them in the column's type."""
    (operand,) = operands
    values = node.kwargs["other"]
    if not isinstance(values, list | tuple | set | frozenset) or not values:
        return None
    given = [value for value in values if value is not None]
    others = [_Operand(value, dtype_of_literal(value) or pl.Null()) for value in given]
    if pl.Null() in [one.dtype for one in others]:
        return None
    pairs = [_compared("__eq__", node, [operand, other]) for other in others]
    if all(_is_listed(value, operand.dtype) for value in given):
        return None
    made = [
        _column(operand.value) == other.value if pair is None else _column(pair[0]) == pair[1]
        for pair, other in zip(pairs, others, strict=True)
    ]
    found: nw.Expr = reduce(nw.Expr.__or__, made)
    return found


def _is_listed(value: Any, dtype: pl.DataType) -> bool:
    """True if polars finds a value of a list in a column of this type."""
    if dtype.is_integer():
        return _fits(value, dtype)
    if isinstance(dtype, pl.Datetime):
        return isinstance(value, datetime) and dtype == pl.Datetime("us")
    if isinstance(dtype, pl.Duration):
        return dtype == pl.Duration("us")
    return not isinstance(dtype, pl.Decimal)


def _offset(name: str, node: Any, operands: list[_Operand]) -> nw.Expr | None:
    """Offsets a date by hours as a time, and a time by less than its unit in microseconds."""
    (operand,) = operands
    dtype, by = operand.dtype, str(node.kwargs.get("by", ""))
    if not by.rstrip("0123456789").endswith(("h", "m", "s")) or by.endswith("mo"):
        return None
    zone = dtype.time_zone if isinstance(dtype, pl.Datetime) else None
    if isinstance(dtype, pl.Date) or (isinstance(dtype, pl.Datetime) and dtype.time_unit == "ms"):
        return operand.column_as(pl.Datetime("us", zone)).dt.offset_by(by)
    return None


def _joined(name: str, node: Any, operands: list[_Operand]) -> None:
    """Raises `TypeFault` if one operand is a truth value and the other is none: polars computes some of these."""
    dtypes = [one.dtype for one in operands if one.dtype != pl.Null()]
    if pl.Boolean() in dtypes and any(dtype != pl.Boolean() for dtype in dtypes):
        sign = "|" if "or" in name else "&"
        raise TypeFault(
            f"{sign} cannot join {' and '.join(map(type_name, dtypes))}; & and | bind closer than comparisons: write "
            "parentheses around each comparison"
        )


_OTHERS: Final[Mapping[str, _Rule]] = {
    "__and__": _joined, "__rand__": _joined, "__or__": _joined, "__ror__": _joined,
    "__neg__": _signed, "abs": _signed, "cast": _cast, "is_in": _is_in, "dt.offset_by": _offset,
}  # fmt: skip


def _float_mod(pair: pl.Series) -> pl.Series:
    import numpy as np

    return of_pairs(pair, np.mod)


def _float_floordiv(pair: pl.Series) -> pl.Series:
    import numpy as np

    return of_pairs(pair, np.floor_divide)


def of_pairs(pair: pl.Series, function: Callable[[Any, Any], Any]) -> pl.Series:
    """Applies a function of numpy to the fields `x` and `y` of a column of structs. Nulls stay."""
    import numpy as np

    x, y = pair.struct.field("x"), pair.struct.field("y")
    with np.errstate(all="ignore"):
        found = pl.Series(function(x.to_numpy(), y.to_numpy()), dtype=pl.Float64)
    return pl.select(pl.when(x.is_not_null() & y.is_not_null()).then(found)).to_series()


def _is_whole(operand: _Operand) -> bool:
    return operand.dtype.is_integer() or operand.dtype == pl.Boolean()


def _wide(operand: _Operand) -> Any:
    """Returns a whole number in 128 bits; a literal adapts to its column."""
    return operand.value if operand.literal and operand.dtype == _INT64 else operand.cast(_WHOLE)


def _column(value: Any) -> nw.Expr:
    return value if isinstance(value, nw.Expr) else nw.lit(value)


def _plain(value: Any) -> Any:
    """Returns the value of a literal without a type, and anything else unchanged."""
    if isinstance(value, nw.Expr) and len(value._nodes) == 1:
        (node,) = value._nodes
        if node.name == "lit" and node.kwargs.get("dtype") is None:
            return node.kwargs["value"]
    return value


def dtype_of_literal(value: Any) -> pl.DataType | None:
    """Returns the type of a plain value, Int64 for a whole number that fits; None if it has no type here."""
    match value:
        case None:
            return pl.Null()
        case bool():
            return pl.Boolean()
        case int():
            return _INT64 if -(2**63) <= value < 2**63 else _WHOLE
        case float():
            return pl.Float64()
        case str():
            return pl.String()
        case Decimal():
            return (
                pl.Decimal(_MOST_DIGITS, max(-int(value.as_tuple().exponent), 0))
                if value.is_finite()
                else None
            )
        case datetime():
            return pl.Datetime("us", None if value.tzinfo is None else "UTC")
        case date():
            return pl.Date()
        case timedelta():
            return pl.Duration("us")
        case time():
            return pl.Time()
    return None
