"""The description of a windowed grouping for people, as in `explain`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stages.aggregates.base import Aggregate
from stages.declared import Text, windowing_facts
from stages.grouping.layout import WindowLayout
from windowing.windowing import Windowing


def facts_of(
    keys: Sequence[str],
    windowing: Windowing,
    aggregates: Mapping[str, Aggregate],
    text: Text,
    *,
    merged: bool,
) -> dict[str, str]:
    """Describes a grouping; `text` formats values. `merged` is true if an earlier grouping has merged the windows."""
    choices, usual = windowing_facts(windowing, text), windowing_facts(Windowing(), text)
    as_merged = ", as an earlier grouping has merged them" if merged and windowing.windows.merging else ""
    # The two options of empty panes are shown only if they are not the defaults.
    empty = [f"{name} {choices[name]}" for name in ("on_time", "closing") if choices[name] != usual[name]]
    return {
        "windows": f"{choices['windows']}{as_merged}",
        "trigger": choices["trigger"],
        "panes": ", ".join([choices["accumulation"], f"timestamp {choices['timestamp']}", *empty]),
        "lateness": choices["allowed lateness"],
        "keys": ", ".join(keys) or "none: one row per window",
        "aggregates": ", ".join(f"{name} = {text(aggregate)}" for name, aggregate in aggregates.items()),
    }


def kept_for_changes(layout: WindowLayout) -> dict[str, str]:
    """Returns the entry "changes" of the description: the counts that the state has because elements may be retracted.
    Empty if they cannot be.
    """
    if not layout.retractions:
        return {}
    return {"changes": "counts the elements that are left" + (", by time" if layout.counts_times else "")}
