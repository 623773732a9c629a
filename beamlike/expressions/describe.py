"""Text of declared values: `Sessions(gap=1m)`, `AfterWatermark(early=AfterCount(10))`, `mean(length)`."""

from __future__ import annotations

from enum import Enum
from pathlib import PurePath
from typing import Any

import attrs
import polars as pl

from beamlike.expressions.row_expression import ExpressionOfRows
from beamlike.rows.dtypes import type_name
from beamlike.system.secrets import is_secret, without_secrets
from stages.aggregates.base import Aggregate
from stages.declared import windowing_facts
from stages.strategies.validators import SourceFile
from windowing.custom import CustomWindows
from windowing.time import format_duration, microseconds
from windowing.timestamp_combiners import TimestampOf
from windowing.triggers.base import Trigger
from windowing.windowing import Windowing

_FACTORY: Any = type(attrs.Factory(list))


def describe(value: Any) -> str:
    """Formats the value as a user would write it, without defaults, schemas and secrets; durations as `1m30s`."""
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, str | PurePath):
        return without_secrets(f'"{value}"')
    if isinstance(value, Trigger):
        return repr(value)
    if isinstance(value, ExpressionOfRows | SourceFile):
        return str(value)
    if isinstance(value, TimestampOf):
        return f"timestamp_of({describe(value.column)})"
    if callable(value) and hasattr(value, "__qualname__"):
        return function_name(value)
    if not attrs.has(type(value)):
        return without_secrets(repr(value))
    fields = [field for field in attrs.fields(type(value)) if field.init and field.repr]
    fields.sort(key=lambda field: bool(field.kw_only))
    arguments = [
        _argument(field, getattr(value, field.name), index == 0) for index, field in enumerate(fields)
    ]
    if isinstance(value, CustomWindows):
        # The class of a user need not be an attrs class: then its attributes are no attrs fields.
        arguments += [f"{name}={describe(own)}" for name, own in vars(value).items()]
    return f"{type(value).__name__}({', '.join(argument for argument in arguments if argument)})"


def _argument(field: attrs.Attribute[Any], value: Any, first: bool) -> str:
    if value is None or _is_schema(value) or _is_default(field, value):
        return ""
    name = (field.alias or field.name).lstrip("_")
    converter: object = field.converter
    if converter is microseconds:
        return f"{name}={format_duration(value)}"
    text = "***" if is_secret(name) else field.repr(value) if callable(field.repr) else describe(value)
    return text if first and field.default is attrs.NOTHING else f"{name}={text}"


def _is_schema(value: Any) -> bool:
    """True for a schema, or for the columns of a source: a tuple of pairs of name and type."""
    if isinstance(value, pl.Schema):
        return True
    pairs = isinstance(value, tuple) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in value)
    return pairs and bool(value) and all(isinstance(dtype, pl.DataType) for _, dtype in value)


def _is_default(field: attrs.Attribute[Any], value: Any) -> bool:
    default: Any = field.default
    if default is attrs.NOTHING:
        return False
    return bool(value == (default.factory() if isinstance(default, _FACTORY) else default))


def function_name(function: Any) -> str:
    """Returns the name of a function, or of the class of a callable object; `lambda` for a lambda."""
    name = getattr(function, "__qualname__", type(function).__qualname__).rpartition(".")[2]
    return "lambda" if name == "<lambda>" else str(name)


def aggregate_text(aggregate: Aggregate) -> str:
    """Formats the aggregate: `count()`, `mean(length, where=length > 3)`, `combine(Median, length)`."""
    named = sorted(
        attrs.fields(type(aggregate)), key=lambda field: (field.kw_only, field.kw_only and field.name)
    )
    given = [(field, getattr(aggregate, field.name)) for field in named]
    arguments = [
        f"{field.name}={_value(value)}" if field.kw_only else _value(value)
        for field, value in given
        if not (value is None or value == field.default or isinstance(value, pl.DataType))
    ]
    return f"{aggregate.kind}({', '.join(arguments)})"


def _value(value: Any) -> str:
    """Formats an argument of an aggregate: columns without quotes, a function by its name."""
    if isinstance(value, tuple):
        return f"[{', '.join(value)}]"
    written = isinstance(value, str | int | float | ExpressionOfRows)
    return str(value) if written else function_name(type(value))


def windowing_choices(windowing: Windowing) -> dict[str, str]:
    """Formats each choice of a windowing: windows, trigger, accumulation and so on."""
    return windowing_facts(windowing, describe)


def text_of(value: object) -> str:
    """Formats any declared value for people: an aggregate, a type, or a value as `describe` does."""
    if isinstance(value, Aggregate):
        return aggregate_text(value)
    return type_name(value) if isinstance(value, pl.DataType) else describe(value)
