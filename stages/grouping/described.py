"""A windowed grouping for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stages.aggregates.base import Aggregate
from stages.declared import windowing_facts
from stages.operator import Text
from windowing.windowing import Windowing


def facts_of(
    keys: Sequence[str],
    windowing: Windowing,
    aggregates: Mapping[str, Aggregate],
    text: Text,
    *,
    merged: bool,
) -> dict[str, str]:
    """Returns the facts of a grouping; `merged`: its windows are those that an earlier grouping has merged."""
    choices, usual = windowing_facts(windowing, text), windowing_facts(Windowing(), text)
    as_merged = ", as an earlier grouping has merged them" if merged and windowing.windows.merging else ""
    # Of empty panes, only a choice other than the default is a fact worth a line.
    empty = [f"{name} {choices[name]}" for name in ("on_time", "closing") if choices[name] != usual[name]]
    return {
        "windows": f"{choices['windows']}{as_merged}",
        "trigger": choices["trigger"],
        "panes": ", ".join([choices["accumulation"], f"timestamp {choices['timestamp']}", *empty]),
        "lateness": choices["allowed lateness"],
        "keys": ", ".join(keys) or "none: one row per window",
        "aggregates": ", ".join(f"{name} = {text(aggregate)}" for name, aggregate in aggregates.items()),
    }
