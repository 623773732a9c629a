"""Cases of operators after operators, in a pipeline: the net changes of each step, and the content at the end."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final

import attrs
import narwhals as nw
import polars as pl

import beamlike as bl
from beamlike.logical.node import Node
from beamlike.logical.origins import OfStage
from beamlike.records.model import StageRecord
from beamlike.testing.player import Recorder
from tests.cases.as_process import scripted
from tests.cases.case import Case, Outcome, Unsupported, seconds
from tests.cases.compare import BACK
from tests.cases.declared import DeclaredCase, Rows
from tests.cases.items import batches, moves_of
from tests.cases.process import stream_of, window_fn
from tests.cases.scripts import windows_of
from tests.support.process_script import Script, Windows

_CASE = frozenset({"pipe", "law", "net"})
_STEP = frozenset({"a", "b", "watermark", "processing_time", "out", "late", "output_watermark"})
_SOURCES = ("a", "b")
_SCHEMA = pl.Schema({"key": pl.String(), "value": pl.Int64(), "at": pl.Int64()})

Pipe = Sequence[str | Mapping[str, Any]]
Line = Counter[tuple[str, int]]
"""The count of each row, by its text and event time (us)."""


def declare(pipeline: bl.Pipeline, case: Case, name: str, *, once: bool = False) -> DeclaredCase:
    """Declares the case in a pipeline. With `once`, each window emits only when it is collected."""
    case.require(_CASE, _STEP)
    built = _Built(pipeline, case, name, once)
    out = built.last()
    recorders = {"out": Recorder()}
    out.with_columns(at=bl.event_time().cast(nw.Int64)).write(f"{name} out", recorders["out"])
    for number, late in enumerate(built.late):
        recorders[f"late {number}"] = Recorder()
        late.with_columns(at=bl.event_time().cast(nw.Int64)).write(
            f"{name} late {number}", recorders[f"late {number}"]
        )
    outcome = partial(_outcome, tuple(out.schema))
    return DeclaredCase(_stage(out.node), batches(case.steps, _SOURCES), recorders, outcome)


def check(case: Case, outcomes: Sequence[Outcome]) -> str | None:
    """Compares the net content at the end with the expected one, and with that of one pane a window."""
    net = _net_of(outcomes)
    if "net" in case.given and sorted(case.given["net"]) != sorted(net):
        return f"net: expected {case.given['net']}, came {net}"
    if not case.given.get("law", True):
        return None
    pipeline = bl.Pipeline("once")
    declared = declare(pipeline, case, case.id, once=True)
    records = {record.batch: record for record in pipeline.run(bl.LocalRunner()).batches}
    if (alone := _net_of(declared.outcomes(records))) != net:
        return f"net: with one pane a window {alone}, with these panes {net}"
    return None


def _net_of(outcomes: Sequence[Outcome]) -> list[str]:
    return _texts(_summed(item for outcome in outcomes for item in outcome.out))


def _summed(items: Any) -> Line:
    net: Line = Counter()
    for text, at in items:
        net[text.removeprefix(BACK), at] += -1 if text.startswith(BACK) else 1
    return net


def _texts(net: Line) -> list[str]:
    signed = [("-" if count < 0 else "", *row, abs(count)) for row, count in net.items() if count]
    return sorted(f"{sign}{text}@{seconds(at)}" for sign, text, at, n in signed for _ in range(n))


def _outcome(columns: Sequence[str], rows: Rows, record: StageRecord) -> Outcome:
    """Returns the outcome of a step. A retracted row begins with `BACK`."""
    net = _summed((_sign(row) + _text([row[name] for name in columns]), row["at"]) for row in rows["out"])
    out = [(BACK * (count < 0) + text, at) for (text, at), count in net.items() for _ in range(abs(count))]
    late = [
        _sign(row).replace("/", "") + f"{_text(_user(row))}@{seconds(row['at'])}"
        for name, dropped in rows.items()
        if name != "out"
        for row in dropped
    ]
    return Outcome(out, late, [], record.output, record.live)


def _sign(row: Mapping[str, Any]) -> str:
    return BACK if row.get("pane_retracted") or row.get("__pane_retracted") else ""


def _user(row: Mapping[str, Any]) -> list[Any]:
    """Returns the values of a dropped row; those of a join are in a struct of their side."""
    left_out = ("reason", "at", "event_time", "window_start", "window_end", "pane_retracted")
    structs = [value for value in row.values() if isinstance(value, dict)]
    given = structs[0] if structs else row
    return [value for name, value in given.items() if name not in left_out and not name.startswith("__")]


def _text(values: Sequence[Any]) -> str:
    return ",".join(map(_value, values))


def _value(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, list):
        return f"[{' '.join(map(_value, value))}]"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _stage(node: Node) -> str:
    """Returns the name of the last stage before a node."""
    while not isinstance(node.origin, OfStage):
        if not node.inputs:
            raise Unsupported("a case without a stage")
        node = node.inputs[0]
    return node.name


@attrs.define
class _Built:
    """The collections of a case by name, and the rows that stages have dropped."""

    pipeline: bl.Pipeline
    case: Case
    name: str
    once: bool
    made: dict[str, bl.Collection] = attrs.field(factory=dict)
    late: list[bl.Collection] = attrs.field(factory=list)

    def last(self) -> bl.Collection:
        """Declares all collections in order, and returns the last one."""
        for name, pipe in self.case.given["pipe"].items():
            found = self._begun(pipe[0])
            for step in pipe[1:]:
                found = self._after(found, step)
            self.made[name] = found
        return found

    def _begun(self, first: str | Mapping[str, Any]) -> bl.Collection:
        if isinstance(first, Mapping):
            return bl.flatten(*(self._named(each) for each in first["flatten"]))
        return self._named(first)

    def _named(self, name: str) -> bl.Collection:
        if name not in self.made:
            if name not in _SOURCES:
                raise Unsupported(f"there is no collection {name!r}")
            self.made[name] = self._source(name)
        return self.made[name]

    def _source(self, name: str) -> bl.Collection:
        moves = [
            attrs.evolve(
                move,
                rows=tuple({**row, "value": int(row["value"])} for row in move.rows),
            )
            for step in self.case.steps
            for move in moves_of(step, name, _SOURCES)
        ]
        read = self.pipeline.read(
            f"{self.name} {name}", stream_of(moves, _SCHEMA), timestamp="at", timestamp_unit="us"
        )
        return read.select("key", "value")

    def _after(self, before: bl.Collection, step: Mapping[str, Any]) -> bl.Collection:
        kind = next(iter(step))
        if kind not in OPERATORS:
            raise Unsupported(f"there is no operator {kind!r}")
        after = OPERATORS[kind](self, before, step)
        if kind in _STAGES:
            self.late.append(after.late())
        return after

    def other(self, name: str) -> bl.Collection:
        return self._named(name)


Operator = Callable[[_Built, bl.Collection, Mapping[str, Any]], bl.Collection]


def _window(built: _Built, before: bl.Collection, step: Mapping[str, Any]) -> bl.Collection:
    given = step["window"]
    windows = None if given is None else _windows(given)
    late = step.get("late", 1 if "lateness" in step else None)
    trigger: Any = None
    if "early" in step or late is not None:
        early = bl.AfterCount(step["early"]) if "early" in step else None
        trigger = bl.AfterWatermark(early=early, late=None if late is None else bl.AfterCount(late))
        trigger = bl.Never() if built.once else trigger
    lateness = timedelta(seconds=step["lateness"]) if "lateness" in step else None
    return before.window_into(
        windows,
        trigger=trigger,
        accumulation=step.get("mode"),
        allowed_lateness=lateness,
        timestamp_combiner={"end": "end_of_window"}.get(step.get("stamp"), step.get("stamp")),
    )


def _windows(given: Mapping[str, Any]) -> bl.WindowFn:
    if given["kind"] == "sessions":
        return bl.Sessions(timedelta(seconds=given["gap"]))
    return window_fn(windows_of(given))


def _called(text: str) -> Any:
    """Returns an aggregate such as "top(key, value, 2)": its column, the column of its ranks, a number."""
    name, _, rest = text.rstrip(")").partition("(")
    names = [each.strip() for each in rest.split(",") if each.strip()]
    numbers = [json.loads(each) for each in names if each[0].isdigit()]
    columns = [each for each in names if not each[0].isdigit()]
    by = {"by": columns[1]} if len(columns) > 1 else {}
    return getattr(bl, name)(*columns[:1], *numbers, **by)


def _grouped(before: bl.Collection, step: Mapping[str, Any]) -> Any:
    return before.group_by(*step["by"]) if step.get("by") else before


def _aggregate(built: _Built, before: bl.Collection, step: Mapping[str, Any]) -> bl.Collection:
    return _grouped(before, step).aggregate(
        **{name: _called(text) for name, text in step["aggregate"].items()}
    )


def _join(built: _Built, before: bl.Collection, step: Mapping[str, Any]) -> bl.Collection:
    other, how = built.other(step["join"]), {"how": step["how"]} if "how" in step else {}
    by_time: dict[str, Any] = {}
    if "within" in step:
        by_time["within"] = tuple(timedelta(seconds=bound) for bound in step["within"])
    if "keep_forever" in step:
        by_time["keep_forever"] = step["keep_forever"]
    return before.join(other, on="key", **by_time, **how)


def _asof(built: _Built, before: bl.Collection, step: Mapping[str, Any]) -> bl.Collection:
    given = {name: step[name] for name in ("how",) if name in step}
    if "tolerance" in step:
        given["tolerance"] = timedelta(seconds=step["tolerance"])
    return before.join_asof(built.other(step["join_asof"]), on="key", **given)


def _cogroup(built: _Built, before: bl.Collection, step: Mapping[str, Any]) -> bl.Collection:
    both = bl.cogroup(left=before, right=built.other(step["cogroup"])).by("key")
    built.late.append(both.late())
    return both.map(
        lambda row: {
            "key": row["key"],
            **{side: [each["value"] for each in row[side]] for side in ("left", "right")},
        },
        {"key": str, "left": pl.List(pl.Int64()), "right": pl.List(pl.Int64())},
    )


def _running(built: _Built, before: bl.Collection, step: Mapping[str, Any]) -> bl.Collection:
    return _grouped(before, step).running(**{name: _called(text) for name, text in step["running"].items()})


def _process(built: _Built, before: bl.Collection, step: Mapping[str, Any]) -> bl.Collection:
    given = {**step["process"], "windows": Windows(None, None)}
    script = Script(**{"state": {}, "timers": {}, "fire": {}, **given})
    rows = before.with_columns(v=bl.col("value").cast(nw.String), do=bl.lit(None, nw.String))
    return _grouped(rows, step).process(
        scripted(script, built.case.ends),
        schema={"value": str},
        order=script.order,
        keep_forever=True,
    )


def _batches(built: _Built, before: bl.Collection, step: Mapping[str, Any]) -> bl.Collection:
    rows = _grouped(before, step).group_into_batches(size=step["batches"])
    built.late.append(rows.late())
    columns = {name: dtype for name, dtype in rows.schema.items() if name != "rows"}
    return rows.map(
        lambda row: {**row, "rows": [each["value"] for each in row["rows"]]},
        {**columns, "rows": pl.List(pl.Int64())},
    )


def _dedup(built: _Built, before: bl.Collection, step: Mapping[str, Any]) -> bl.Collection:
    by = {"by": step["clock"]} if "clock" in step else {}
    return before.dedup(*step["dedup"], within=timedelta(seconds=step["within"]), **by)


def _lookup(built: _Built, before: bl.Collection, step: Mapping[str, Any]) -> bl.Collection:
    return before.with_columns(found=bl.lookup(built.other(step["lookup"]), on="key")["value"])


def _expression(before: bl.Collection, text: Any) -> Any:
    names = {name: bl.col(name) for name in before.schema}
    return eval(text, {"__builtins__": {}}, names) if isinstance(text, str) else bl.lit(text)


def _with_timestamps(built: _Built, before: bl.Collection, step: Mapping[str, Any]) -> bl.Collection:
    at = bl.event_time().cast(nw.Int64) + round(step["with_timestamps"] * 1_000_000)
    skew = timedelta(seconds=step.get("skew", 0))
    moved = before.with_columns(moved=at).with_timestamps("moved", timestamp_unit="us", allowed_skew=skew)
    return moved.select(*before.schema)


def _with_watermark(built: _Built, before: bl.Collection, step: Mapping[str, Any]) -> bl.Collection:
    strategy = bl.BoundedOutOfOrderness(timedelta(seconds=step["with_watermark"]))
    return before.with_watermark(strategy)


OPERATORS: Final[Mapping[str, Operator]] = {
    "window": _window,
    "aggregate": _aggregate,
    "join": _join,
    "join_asof": _asof,
    "cogroup": _cogroup,
    "running": _running,
    "process": _process,
    "batches": _batches,
    "dedup": _dedup,
    "distinct": lambda built, before, step: before.distinct(),
    "latest": lambda built, before, step: before.latest(*step["latest"]),
    "lookup": _lookup,
    "flatten": lambda built, before, step: bl.flatten(before, *map(built.other, step["flatten"])),
    "filter": lambda built, before, step: before.filter(_expression(before, step["filter"])),
    "with_columns": lambda built, before, step: before.with_columns(
        **{name: _expression(before, text) for name, text in step["with_columns"].items()}
    ),
    "select": lambda built, before, step: before.select(*step["select"]),
    "with_timestamps": _with_timestamps,
    "with_watermark": _with_watermark,
}
_STAGES = frozenset({"aggregate", "join", "join_asof", "running", "process", "dedup", "distinct", "latest"})
