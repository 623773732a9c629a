"""The kinds of arguments in a file, found from the annotations of the functions and classes that a file can call."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cache
from inspect import Parameter
from typing import Any, Final

import attrs

from beamlike.api.changes import changes
from beamlike.api.cogroup import Cogroup
from beamlike.api.flatten import flatten
from beamlike.api.grouped import Grouped
from beamlike.api.pipeline import Collection, Pipeline
from beamlike.api.recorded import declares
from beamlike.logical.data import fields_of_files
from beamlike.spec.public import public_names


class Kind(StrEnum):
    """The kind of an argument, which decides how its data is read."""

    PLAIN = "plain"
    """Text, numbers, lists and dicts, also durations and times."""
    COLLECTION = "collection"
    """The name of a collection of the file."""
    EXPRESSION = "expression"
    """The text of an expression."""
    AGGREGATE = "aggregate"
    """The text of an aggregate."""
    SCHEMA = "schema"
    """Types by column, or a class as `module:name`."""
    TYPE = "type"
    """The text of a type."""
    OBJECT = "object"
    """A constructor such as `{FixedWindows: 1m}`, or an object as `module:name`."""
    CONDITION = "condition"
    """An expression, or a function as `module:name`."""
    WITHIN = "within"
    """Two durations, of which the second may be an expression."""
    CODEC = "codec"
    """The format of messages: `str`, `bytes`, or a constructor such as `{json: {columns: {user: str}}}`."""
    ROWS = "rows"
    """Rows as dicts."""


_BY_WORD: Final[Mapping[str, Kind]] = {
    **dict.fromkeys(("Self", "Handle", "Collection"), Kind.COLLECTION),
    "IntoColumn": Kind.EXPRESSION,
    "Aggregate": Kind.AGGREGATE,
    "SchemaLike": Kind.SCHEMA,
    "DTypeLike": Kind.TYPE,
    "Within": Kind.WITHIN,
    "Tabular": Kind.ROWS,
    **dict.fromkeys(
        (
            *(
                "WindowFn",
                "Trigger",
                "WatermarkStrategy",
                "Source",
                "Sink",
                "Process",
                "CustomOperator",
                "Calls",
            ),
            *(
                "Timer",
                "SideInput",
                "TimestampOf",
                "Callable",
                "Function",
                "FunctionWithSides",
                "SparkReader",
                "SourceFile",
            ),
        ),
        Kind.OBJECT,
    ),
}
PLAIN_WORDS: Final = (
    *("str", "int", "float", "bool", "None", "date", "datetime", "object", "Duration", "AnyPath", "Columns"),
    *(
        "TimeUnit",
        "OnError",
        "Order",
        "OnChange",
        "OnDataLoss",
        "How",
        "HowAsOf",
        "TimeOf",
        "By",
        "Mode",
        "AtEnd",
    ),
    *("Any", "WhenEmpty", "Accumulation", "AccumulationName", "CombinerName", "TimestampCombiner", "Literal"),
)
"""Words of annotations of plain arguments. A test checks that each annotation has a word that is known here."""
_EXPRESSIONS: Final = {"select", "with_columns"}
_STRATEGIES: Final = {("Punctuated", "predicate"), ("Punctuated", "timestamp"), ("TimeOrderedLogs", "ends")}

_CODECS: Final = {("Kafka", "value"), ("Kafka", "key"), ("KafkaSink", "value"), ("Redis", "fields")}

_NO_CONSTRUCTORS: Final = {
    *(
        "Accumulation",
        "AnnouncingSource",
        "Collection",
        "CombineFn",
        "Combining",
        "CustomOperator",
        "CustomWindows",
    ),
    *(
        "List",
        "LocalRunner",
        "LookupTable",
        "Map",
        "OrderedList",
        "Pipeline",
        "PlannedBatch",
        "Process",
        "Set",
    ),
    *(
        "SideInput",
        "SparkRunner",
        "TestStream",
        "TimestampCombiner",
        "TimestampedValue",
        "Value",
        "WatermarkStrategy",
    ),
    *("WindowFn", "ACCUMULATING", "DISCARDING", "EARLIEST", "END_OF_WINDOW", "LATEST", "RETRACTING"),
}
_FUNCTIONS: Final = ("as_dict", "as_list", "as_singleton", "avro", "json", "source_file", "timestamp_of")


def kind_of(owner: str, parameter: Parameter) -> Kind:
    """Returns the kind of a parameter of the function or class `owner`."""
    words = re.findall(r"\w+", str(parameter.annotation))
    if owner in _EXPRESSIONS or (owner, parameter.name) in _STRATEGIES:
        return Kind.EXPRESSION
    if (owner, parameter.name) in _CODECS:
        return Kind.CODEC
    if "IntoColumn" in words and "Callable" in words:
        return Kind.CONDITION
    if (owner, parameter.name) == ("Refreshed", "source"):
        return Kind.OBJECT
    return next((_BY_WORD[word] for word in words if word in _BY_WORD), Kind.PLAIN)


def by_name(owner: str, parameter: Parameter) -> bool:
    """True for a parameter whose argument is a dict of values of its kind, such as `side=`."""
    return "Mapping[str, " in str(parameter.annotation) or (owner, parameter.name) == ("Redis", "fields")


@cache
def constructors() -> tuple[str, ...]:
    """Returns the names of the public classes and functions that a file can call."""
    classes = (name for name in public_names() if name[0].isupper() and name not in _NO_CONSTRUCTORS)
    return (*(name for name in classes if not name.endswith(("Error", "DeadLetters"))), *_FUNCTIONS)


@cache
def methods() -> Mapping[str, Callable[..., Any]]:
    """Returns the methods of a collection that declare a step, by name."""
    return _declaring(Collection)


@cache
def grouped_methods() -> Mapping[str, Callable[..., Any]]:
    """Returns the methods that follow `group_by`, by name."""
    return _declaring(Grouped)


def _declaring(kind: type) -> dict[str, Callable[..., Any]]:
    return {name: method for name, method in inspect.getmembers(kind, declares) if not name.startswith("_")}


@cache
def heads() -> Mapping[str, Callable[..., Any]]:
    """Returns the functions that make a collection from none or from several, by their key in a file."""
    return {"read": Pipeline.read, "flatten": flatten, "changes": changes, "cogroup": Cogroup.by}


def settable(function: Callable[..., Any]) -> dict[str, Parameter]:
    """Returns the parameters of a function that a file can set: without `self`, and those that only runs use."""
    found = {name: one for name, one in inspect.signature(function).parameters.items() if name != "self"}
    if not isinstance(function, type) or not attrs.has(function):
        return found
    hidden = {one.alias for one in attrs.fields(function)} - {one.alias for one in fields_of_files(function)}
    return {name: one for name, one in found.items() if name not in hidden}
