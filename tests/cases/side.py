"""Cases of side inputs, in a pipeline. `as` is the view of the side that rows read: see `VIEWS`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any, Final

import narwhals as nw
import polars as pl

import beamlike as bl
from beamlike.records.model import StageRecord
from tests.cases.case import Case, Outcome
from tests.cases.declared import DeclaredCase, Rows, recorded
from tests.cases.items import SCHEMA, batches, moves_of
from tests.cases.process import stream_of, window_fn
from tests.cases.scripts import windows_of

_CASE = frozenset(
    {
        "as",
        "default",
        "windows",
        "lateness",
        "side_windows",
        "side_lateness",
        "side_early",
        "side_accumulation",
        "order",
    }
)
_STEP = frozenset(
    {"main", "side", "watermark", "side_watermark", "out", "late", "letters", "output_watermark", "live"}
)
_SIDES = ("main", "side")
_GIVES = {"key": str, "value": str}

View = Callable[[bl.Collection, bl.Collection, str, Mapping[str, Any]], bl.Collection]


def declare(pipeline: bl.Pipeline, case: Case, name: str) -> DeclaredCase:
    """Declares the case in a pipeline. `side_early` is the number of rows after which the side emits a pane."""
    case.require(_CASE, _STEP)
    main, side = _read(pipeline, case, name, "main"), _read(pipeline, case, name, "side")
    seen = VIEWS[case.given.get("as", "sum")](main, side, name, case.given)
    stage = seen if seen.name == name else bl.Collection(pipeline, seen.node.inputs[0])
    steps = [_of_side(step, "main") for step in case.steps]
    return DeclaredCase(stage.name, batches(steps, _SIDES), recorded(seen, name, stage), _outcome)


def _outcome(rows: Rows, record: StageRecord) -> Outcome:
    out = [(row["value"], row["at"]) for row in rows["out"]]
    errors = [row["error"] for row in rows["letters"]]
    return Outcome(out, [row["value"] for row in rows["late"]], errors, record.output, record.live)


def _read(pipeline: bl.Pipeline, case: Case, name: str, side: str) -> bl.Collection:
    moves = [move for step in case.steps for move in moves_of(_of_side(step, side), side, _SIDES)]
    rows = pipeline.read(f"{name} {side}", stream_of(moves, SCHEMA), timestamp="at", timestamp_unit="us")
    prefix = "" if side == "main" else "side_"
    given, early = case.given, case.given.get(f"{prefix}early")
    windows = given.get(f"{prefix}windows", {"kind": "global"})
    return rows.window_into(
        bl.Sessions(windows["gap"]) if windows["kind"] == "sessions" else window_fn(windows_of(windows)),
        allowed_lateness=timedelta(seconds=given.get(f"{prefix}lateness", 0)),
        accumulation=given.get(f"{prefix}accumulation"),
        trigger=None if early is None else _early(early, windows),
    ).select("key", "value")


def _early(count: int, windows: Mapping[str, Any]) -> bl.Trigger:
    often = bl.AfterCount(count)
    return (
        bl.Repeatedly(often)
        if windows["kind"] == "global"
        else bl.AfterWatermark(early=often, late=bl.AfterCount(1))
    )


def _of_side(step: Mapping[str, Any], side: str) -> Mapping[str, Any]:
    """Returns the step with the clocks of one source; where only the other's move, this source stays for a batch."""
    clocks = {"main": step.get("watermark"), "side": step.get("side_watermark")}
    moved = {"watermark": "start" if clocks[side] is None else clocks[side]}
    return {
        **{each: step.get(each, []) for each in _SIDES},
        **(moved if set(clocks.values()) != {None} else {}),
    }


# Views of the side


def _called(view: Callable[[bl.Collection], Any], text: Callable[[Any, Any], str]) -> View:
    """Returns a view that applies a function to the value of a row and the side."""

    def made(main: bl.Collection, side: bl.Collection, name: str, given: Mapping[str, Any]) -> bl.Collection:
        def called(row: dict[str, Any], side: Any) -> dict[str, Any]:
            return {"key": row["key"], "value": row["value"] + text(row, side)}

        return main.map(called, _GIVES, side={"side": view(side)}, name=name)

    return made


def _sum(row: Mapping[str, Any], values: list[str]) -> str:
    return str(sum(map(int, values)))


def _listed(row: Mapping[str, Any], values: list[str]) -> str:
    return ":" + "".join(values)


def _flat_map(main: bl.Collection, side: bl.Collection, name: str, given: Mapping[str, Any]) -> bl.Collection:
    """Returns a row for each row of the side."""

    def called(row: dict[str, Any], side: list[str]) -> list[dict[str, Any]]:
        return [{"key": row["key"], "value": row["value"] + one} for one in side]

    return main.flat_map(called, _GIVES, side={"side": bl.as_list(side, "value")}, name=name)


def _filter(main: bl.Collection, side: bl.Collection, name: str, given: Mapping[str, Any]) -> bl.Collection:
    """Returns the rows whose key is in the side."""
    return main.filter(
        lambda row, side: row["key"] in side, side={"side": bl.as_list(side, "key")}, name=name
    )


def _singleton(
    main: bl.Collection, side: bl.Collection, name: str, given: Mapping[str, Any]
) -> bl.Collection:
    default = {"default": given["default"]} if "default" in given else {}
    view = _called(lambda side: bl.as_singleton(side, "value", **default), lambda row, one: one)
    return view(main, side, name, given)


def _lookup(main: bl.Collection, side: bl.Collection, name: str, given: Mapping[str, Any]) -> bl.Collection:
    """Returns the value looked up in columns, or "-"."""
    default = {"value": given["default"]} if "default" in given else None
    found = bl.lookup(side, on="key", default=default)["value"].fill_null("-")
    return main.with_columns(value=nw.concat_str(bl.col("value"), found))


def _found(main: bl.Collection, side: bl.Collection, name: str, given: Mapping[str, Any]) -> bl.Collection:
    """Returns the rows whose key is in the side, computed in columns."""
    return main.filter(bl.lookup(side, on="key").found())


def _only(main: bl.Collection, side: bl.Collection, name: str, given: Mapping[str, Any]) -> bl.Collection:
    """Returns rows with the only row of the side, computed in columns."""
    default = {"default": {"value": given["default"]}} if "default" in given else {}
    one = bl.as_singleton(side, **default)["value"].fill_null("-")
    return main.with_columns(value=nw.concat_str(bl.col("value"), one))


class _Counting(bl.Process):
    """Emits each row with its number and the sum of the side; when a timer fires, the number and the sum."""

    side: list[str]
    n = bl.Value(int, default=0)
    quiet = bl.EventTimer()

    def element(self, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        self.n += 1
        self.quiet.after("5s")
        late = "late" if self.late else ""
        yield {"key": self.key.key, "value": f"{row['value']}{self.n}:{_sum(row, self.side)}{late}"}

    def on_quiet(self) -> Iterator[dict[str, Any]]:
        yield {"key": self.key.key, "value": f"{self.n}:{_sum({}, self.side)}"}
        self.n = 0


def _process(main: bl.Collection, side: bl.Collection, name: str, given: Mapping[str, Any]) -> bl.Collection:
    seen = {"side": bl.as_list(side, "value")}
    order = given.get("order", "time")
    return main.group_by("key", name=name).process(_Counting(), _GIVES, order=order, side=seen)


def _counting(
    rows: pl.DataFrame, state: pl.DataFrame, due: pl.DataFrame, side: str
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Emits rows, and timers that fire, with the only row of the side."""
    windows = [name for name in rows.columns if name.startswith("window_")]
    values = [rows.select("key", "event_time", *windows, value=pl.col("value") + side)]
    values.append(due.select("key", "event_time", *windows, value=pl.lit(f"due{side}")))
    last = rows.group_by("key", *windows).agg(pl.col("event_time").max() + pl.duration(seconds=5))
    quiet = state.join(last, on=["key", *windows], how="left").select(
        "key", *windows, quiet=pl.coalesce("event_time", "quiet")
    )
    return pl.concat([each.select("key", "value", "event_time", *windows) for each in values]), quiet


def _batches(main: bl.Collection, side: bl.Collection, name: str, given: Mapping[str, Any]) -> bl.Collection:
    return main.group_by("key", name=name).process_batches(
        _counting,
        _GIVES,
        timers={"quiet": bl.EventTimer()},
        order=given.get("order", "time"),
        side={"side": bl.as_singleton(side, "value")},
    )


VIEWS: Final[Mapping[str, View]] = {
    "sum": _called(lambda side: bl.as_list(side, "value"), _sum),
    "list": _called(lambda side: bl.as_list(side, "value"), _listed),
    "dict": _called(
        lambda side: bl.as_dict(side, "key", "value"), lambda row, values: values.get(row["key"], "-")
    ),
    "singleton": _singleton,
    "flat_map": _flat_map,
    "filter": _filter,
    "lookup": _lookup,
    "found": _found,
    "only": _only,
    "process": _process,
    "process_batches": _batches,
}
"""Views: the value of a row, with the sum of the side, all its values, the value of the row's key, and so on."""
