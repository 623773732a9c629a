"""Descriptions of declared operators, by which a checkpoint recognizes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs
import polars as pl

from windowing.time import Microseconds, format_duration
from windowing.windowing import Windowing

Text = Callable[[object], str]
"""Writes a value for people, as a user would declare it: a window function, a trigger, an aggregate, a type."""


@attrs.frozen
class Said:
    """A fact with a text of its own for people; only `value` is compared."""

    value: object
    text: str


@attrs.frozen
class Declaration:
    """The description of a declared operator, by which a checkpoint recognizes it.

    Its state depends on each of `choices`. `aggregates` and `fields` (of state, and timers) are by name, and a run may
    add more; `accumulators` are their columns. `does` is the rest that tells it from other operators, such as a user's
    function: it may change, as state does not depend on it. `exact`: choices that are false, zero or empty
    are compared, too; otherwise such a choice is equal to none.
    """

    kind: str
    choices: Mapping[str, object] = attrs.field(factory=dict)
    aggregates: Mapping[str, object] = attrs.field(factory=dict)
    fields: Mapping[str, object] = attrs.field(factory=dict)
    accumulators: Mapping[str, pl.DataType] = attrs.field(factory=dict)
    does: object = None
    exact: bool = False


def choices_of(windowing: Windowing) -> dict[str, object]:
    """The choices of a windowing on which the state of a grouping depends."""
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
    """Returns each choice of a windowing for people; `text` writes values as a user would declare them."""
    return {
        "windows": text(windowing.windows),
        "trigger": text(windowing.trigger),
        "accumulation": text(windowing.accumulation),
        "timestamp": text(windowing.timestamp_combiner),
        "allowed lateness": format_duration(windowing.allowed_lateness),
        "on_time": windowing.on_time,
        "closing": windowing.closing,
    }
