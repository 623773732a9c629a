"""Converts manifests of version 1. Their facts are text: `repr` of windows and triggers, and words for the rest.

Nothing is parsed. Instead, the current plan is described in the words of version 1 (`_stage`). A fact in the manifest
that equals these words is replaced by the current form of the fact. Any other fact stays text, which differs from all
current facts. These functions must not change, as nothing else knows the words. They also undo later changes of a
`repr`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from beamlike.expressions.describe import aggregate_text
from beamlike.expressions.describe import describe as text
from beamlike.plan.manifest import texts_of
from beamlike.plan.model import Plan, StagePlan
from stages.declared import Said
from stages.grouping.grouping import Grouping
from stages.joins.base import TimeJoin
from stages.operator import Operator
from stages.process.dedup import Dedup
from stages.process.keyed import Keyed
from stages.sides.operator import SideInputs
from windowing.time import format_duration
from windowing.windows import FixedWindows, Sessions, SlidingWindows, WindowFn

_CHOICES: Final = (
    *("order", "join", "sides", "windows", "merging", "trigger", "accumulation", "timestamp combiner"),
    *("allowed lateness", "on_time", "closing"),
)
_MEAN: Final = "'sum': Float64, 'count': Int64"
_GROWN: Final = (f"{{{_MEAN}, 'whole': Int128}}", f"{{{_MEAN}, 'whole': Int128, 'high': Int128}}")
"""The fields of the mean of integers in a `Combining`, with those that newer versions added. Rows without `whole` and
`high` can still be read.
"""


def upgraded(saved: Mapping[str, Any], plan: Plan, now: Mapping[str, Any]) -> dict[str, Any]:
    """Converts a manifest of version 1 to the current version. `now` is the manifest of the plan that is compared with
    it.
    """
    stages = {
        name: _upgraded(facts, _stage(plan.stages[name]), now["stages"][name])
        if name in plan.stages
        else {**facts, "named": True}
        for name, facts in saved["stages"].items()
    }
    tables = {
        name: {**facts, **_table(plan, name, facts, now)} for name, facts in saved.get("tables", {}).items()
    }
    sources = {
        name: _source(facts, texts_of(plan.sources[name]), now["sources"][name])
        if name in plan.sources
        else facts
        for name, facts in saved["sources"].items()
    }
    return {**saved, "sources": sources, "stages": stages, "tables": tables}


def _source(saved: Mapping[str, Any], then: Mapping[str, str], now: Mapping[str, Any]) -> dict[str, Any]:
    words = {fact: saved.get(fact, told) for fact, told in then.items()}
    same = {fact: now[fact] for fact, told in then.items() if words[fact] == told}
    return {
        **saved,
        "ways": now["ways"],
        "text": {fact: saved.get(fact, then[fact]) for fact in then},
        **same,
    }


def _upgraded(saved: Mapping[str, Any], then: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Converts the facts of a stage. `then` and `now` describe the stage in the plan: in the words of version 1, and as
    current data.
    """
    same_kind = _kind(saved) == _kind(then)
    accumulators = {
        column: today if _as_it_was(today := now["accumulators"].get(column, dtype)) == dtype else dtype
        for column, dtype in saved["accumulators"].items()
    }
    found: dict[str, Any] = {**now, "accumulators": accumulators, "state": saved["state"]}
    for fact in ("level", "inputs", "keys"):
        found[fact] = now[fact] if saved.get(fact, then[fact]) == then[fact] else saved[fact]
    found["kind"] = now["kind"] if same_kind else _kind(saved)
    words = {fact: saved[fact] for fact in _CHOICES if fact in saved and saved[fact] != then.get(fact)}
    found["choices"] = {**now["choices"], **words}
    texts = {"choices": {**now["text"]["choices"], **{fact: _shown(words[fact]) for fact in words}}}
    for part in ("aggregates", "fields"):
        before, after = saved.get(part, {}), then.get(part, {})
        found[part] = {
            name: now[part][name] if each == _as_it_was(after.get(name)) else each
            for name, each in before.items()
        }
        texts[part] = before
    return {**found, "text": {**now["text"], **texts}}


def _as_it_was(text: str | None) -> str | None:
    for fields in _GROWN if text else ():
        text = text.replace(fields, f"{{{_MEAN}}}") if text else text
    return text


def _kind(facts: Mapping[str, Any]) -> str:
    return str(
        facts.get("operator", "join" if "join" in facts else "sides" if "sides" in facts else "grouping")
    )


def _shown(words: str) -> str:
    return format_duration(int(words.removesuffix(" us"))) if words.endswith(" us") else words


def _table(plan: Plan, name: str, facts: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Converts the facts of a lookup table. Version 1 does not contain the routes to it."""
    found: dict[str, Any] = {"sources": facts["sources"].split(", ")}
    if name in plan.tables:
        own = plan.tables[name].side.schema
        columns = ", ".join(f"{column} {dtype}" for column, dtype in own.items())
        found |= {"ways": now["tables"][name]["ways"]}
        found["columns"] = now["tables"][name]["columns"] if columns == facts["columns"] else facts["columns"]
    return found


# The words of version 1


def _stage(stage: StagePlan) -> dict[str, Any]:
    table = stage.stage.operator.tables[0].table
    return {
        "level": str(stage.level),
        "inputs": ", ".join(stage.inputs),
        "keys": ", ".join(f"{key}: {table.schema[key]}" for key in table.keys),
        **_operator(stage.stage.operator),
    }


def _operator(operator: Operator) -> dict[str, Any]:
    if isinstance(operator, Keyed):
        return {
            "operator": type(operator).__name__,
            "order": operator.order,
            "windows": _windows(operator.windowing.windows),
            "allowed lateness": f"{operator.windowing.allowed_lateness} us",
            "fields": _fields(operator),
        }
    if isinstance(operator, TimeJoin):
        return {"join": operator.text, "allowed lateness": f"{operator.allowed_lateness} us"}
    if isinstance(operator, SideInputs):
        sides = {side.name: f"{text(side.windows)}, {side.feed}" for side in operator.sides}
        return {"sides": str(sides), "allowed lateness": f"{operator.allowed_lateness} us"}
    if not isinstance(operator, Grouping):
        return {"operator": text(operator)}
    windowing = operator.windowing
    return {
        "windows": _windows(windowing.windows),
        "merging": str(operator.merging),
        "trigger": repr(windowing.trigger),
        "accumulation": windowing.accumulation.value,
        "timestamp combiner": text(windowing.timestamp_combiner),
        "allowed lateness": f"{windowing.allowed_lateness} us",
        "on_time": windowing.on_time,
        "closing": windowing.closing,
        "aggregates": {name: aggregate_text(agg) for name, agg in operator.aggregates.items()},
    }


def _windows(windows: WindowFn) -> str:
    match windows:
        case FixedWindows(size, offset):
            return f"FixedWindows(size={int(size)}, offset={int(offset)})"
        case SlidingWindows(size, period, offset):
            return f"SlidingWindows(size={int(size)}, period={int(period)}, offset={int(offset)})"
        case Sessions(gap):
            return f"Sessions(gap={int(gap)})"
    return repr(windows)


def _fields(operator: Keyed) -> dict[str, str]:
    if isinstance(operator, Dedup):
        return {operator.by: "window" if operator.within is None else format_duration(operator.within)}
    return {name: each.text if isinstance(each, Said) else str(each) for name, each in operator.kept.items()}
