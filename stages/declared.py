"""Descriptions of operators, which a checkpoint stores and compares, to decide whether a plan fits its state."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs
import polars as pl

from windowing.time import Microseconds, format_duration
from windowing.windowing import Windowing

Text = Callable[[object], str]
"""A function that formats a value, such as a trigger or an aggregate, as a user would declare it."""


@attrs.frozen
class Said:
    """A part of a declaration: `value`, which is compared, and `text`, which describes it for people."""

    value: object
    text: str


@attrs.frozen
class Declaration:
    """The description of an operator, which a checkpoint stores and compares.

    Attributes:
        kind: The kind of operator.
        choices: Options by name. State depends on them, so a checkpoint refuses a plan with other values.
        aggregates: Aggregates by name. A later run may add some.
        fields: State fields and timers by name. A later run may add some.
        accumulators: The columns of the aggregates' accumulators.
        does: Other properties, such as a user's function, on which state does not depend. They may change.
        exact: If true, choices that are false, zero or empty are compared, too. Otherwise they equal missing ones.
    """

    kind: str
    choices: Mapping[str, object] = attrs.field(factory=dict)
    aggregates: Mapping[str, object] = attrs.field(factory=dict)
    fields: Mapping[str, object] = attrs.field(factory=dict)
    accumulators: Mapping[str, pl.DataType] = attrs.field(factory=dict)
    does: object = None
    exact: bool = False


def choices_of(windowing: Windowing) -> dict[str, object]:
    """Returns the options of a windowing on which the state of a grouping depends."""
    return {
        "windows": windowing.windows,
        "trigger": windowing.trigger,
        "accumulation": windowing.accumulation,
        "timestamp combiner": windowing.timestamp_combiner,
        "allowed lateness": Microseconds(windowing.allowed_lateness),
        "on_time": windowing.on_time,
        "closing": windowing.closing,
    }


def windowing_facts(windowing: Windowing, text: Text) -> dict[str, str]:
    """Describes each option of a windowing for people; `text` formats values as a user would declare them."""
    return {
        "windows": text(windowing.windows),
        "trigger": text(windowing.trigger),
        "accumulation": text(windowing.accumulation),
        "timestamp": text(windowing.timestamp_combiner),
        "allowed lateness": format_duration(windowing.allowed_lateness),
        "on_time": windowing.on_time,
        "closing": windowing.closing,
    }
