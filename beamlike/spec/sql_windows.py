"""Windows and EMIT of SQL as windows and triggers."""

from __future__ import annotations

from functools import reduce
from typing import Any, Final

from sqlglot import exp

from beamlike.errors import BadQuery, nearest
from beamlike.logical.node import Node, inputs_first
from beamlike.logical.origins import Apply, Configure, Flatten, Read, SideLookup
from beamlike.plan.column_rules import Root, Use, roots
from beamlike.spec.sql_expressions import fault, interval
from beamlike.steps.base import Filter, Select, Step, WindowInto, WithColumns
from beamlike.steps.lookup import LookUp
from beamlike.steps.timestamps import WithTimestamps
from stages.process.dedup import Dedup
from stages.process.watermarked import Watermarked
from windowing import (
    AfterCount,
    AfterProcessingTime,
    AfterWatermark,
    CumulativeWindows,
    FixedWindows,
    Repeatedly,
    Sessions,
    SlidingWindows,
)

FUNCTIONS: Final = ("TUMBLE", "HOP", "SESSION", "CUMULATE", "WINDOW", "SESSION_WINDOW")
BOUNDS: Final = ("window_start", "window_end")
"""Values of a window, which a grouping always has as keys."""


def is_window(node: exp.Expr) -> bool:
    """True for a function of windows, such as `TUMBLE(at, INTERVAL '1' MINUTE)`."""
    return isinstance(node, exp.Anonymous) and node.name.upper() in FUNCTIONS


def windows_of(node: exp.Expr, lengths: list[exp.Expr], query: str) -> Any:
    """Returns the windows of a function with these durations."""
    name = node.name.upper()
    given = [interval(one, query) for one in lengths]
    try:
        match name, given:
            case ("TUMBLE" | "WINDOW", [size]):
                return FixedWindows(size)
            case "TUMBLE", [size, offset]:
                return FixedWindows(size, offset)
            case "HOP", [slide, size]:
                return SlidingWindows(size, slide)
            case "HOP", [slide, size, offset]:
                return SlidingWindows(size, slide, offset)
            case "WINDOW", [size, slide]:
                return SlidingWindows(size, slide)
            case (("SESSION" | "SESSION_WINDOW"), [gap]):
                return Sessions(gap)
            case "CUMULATE", [step, size]:
                return CumulativeWindows(size, step)
            case "CUMULATE", [step, size, offset]:
                return CumulativeWindows(size, step, offset)
    except (TypeError, ValueError) as error:
        raise fault(query, node, f"{name}: {error}") from None
    needs = {
        "HOP": "a slide and a size",
        "CUMULATE": "a step and a size",
        "WINDOW": "a size, and perhaps a slide",
    }.get(name, "one INTERVAL")
    raise fault(query, node, f"{name} takes {needs} after the time, and this has {len(given)}")


def require_time(node: exp.Expr, of: Node, query: str) -> None:
    """Raises `BadQuery` unless a column is the event time of the rows."""
    if not isinstance(node, exp.Column):
        raise fault(query, node, "windows need the column of the event time")
    known = {*times_of(of), *({"event_time"} - {*of.schema})}
    if node.name not in known:
        hint = nearest(node.name, known) or f"; the event time is {' or '.join(sorted(known))}"
        raise fault(
            query,
            node,
            f"{node.name!r} is not the event time of the rows{hint}; with_timestamps(...) sets another",
        )


def times_of(node: Node) -> frozenset[str]:
    """Returns the columns that are the event time of the rows: read as such, and unchanged since then."""
    found: dict[Node, frozenset[str]] = {}
    for one in inputs_first(node):
        before = [found[input] for input in one.inputs]
        match one.origin:
            case Read(time=time, steps_after_time=steps) if time is not None:
                found[one] = reduce(_after, steps, frozenset({time.column}))
            case WithTimestamps(column=column):
                found[one] = frozenset({column})
            case Flatten():
                found[one] = frozenset.intersection(*before)
            case Configure():
                found[one] = before[0]
            case Apply(lookup=SideLookup(use=use)):
                found[one] = before[0].difference(*(lookup.columns for lookup in use.lookups))
            case Apply(operator=Dedup() | Watermarked()):
                found[one] = before[0]
            case Filter() | Select() | WithColumns() | WindowInto() | LookUp() as step:
                found[one] = _after(before[0], step)
            case _:
                found[one] = frozenset()
        found[one] &= {*one.schema}
    return found[node]


def _after(times: frozenset[str], step: Step) -> frozenset[str]:
    """Returns the columns that are the event time after a step."""
    names = {*times, *(name for column in getattr(step, "gives", ()) for name in column)}
    return frozenset(name for name in names if _copied(step, name) in times)


def _copied(step: Step, name: str) -> str | None:
    """Returns the column of which another column is a copy after a step."""
    match [*roots(step, (name,))]:
        case [Root(path=(column,), use=Use.IDENTITY, at="")]:
            return column
    return None


def emit_choices(emit: exp.Expr | None, query: str) -> dict[str, Any]:
    """Returns the arguments of `window_into` for an EMIT clause."""
    choices: dict[str, Any] = {}
    triggers: dict[str, Any] = {}
    for part in emit.expressions if emit is not None else ():
        word, value = part.expressions[0].name, part.expressions[1]
        if word == "ACCUMULATION":
            choices["accumulation"] = value.name.lower()
        elif word == "LATENESS":
            choices["allowed_lateness"] = interval(value, query)
        else:
            triggers[word] = _trigger(value, query)
    if "EVERY" in triggers:
        if len(triggers) > 1:
            raise BadQuery(
                "EMIT EVERY is for all panes: leave out EARLY and LATE, or write EMIT EARLY EVERY ..."
            )
        choices["trigger"] = Repeatedly(triggers["EVERY"])
    elif triggers:
        # With allowed lateness, late rows must emit, too: otherwise they would be lost.
        late = triggers.get("LATE", AfterCount(1) if "allowed_lateness" in choices else None)
        choices["trigger"] = AfterWatermark(early=triggers.get("EARLY"), late=late)
    return choices


def _trigger(value: exp.Expr, query: str) -> Any:
    try:
        if isinstance(value, exp.Interval):
            return AfterProcessingTime(interval(value, query))
        return AfterCount(int(value.name))
    except (TypeError, ValueError) as error:
        raise fault(query, value, str(error)) from None
