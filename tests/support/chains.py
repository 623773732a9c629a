"""Random chains of operators, for tests of the laws of changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Literal, get_args

import attrs
import narwhals as nw
import polars as pl
import polars.selectors as cs
from hypothesis import strategies as st

import beamlike as bl
from beamlike.steps.joins import How as JoinHow
from stages.joins.interval import How

Panes = Literal["drawn", "once", "each"]
"""Emission of groupings: by the drawn triggers, when a window is collected, or for every bundle."""


@attrs.frozen
class Operator:
    """An operator of a chain, from rows of `key` and `value` to such rows."""

    name: str
    apply: Callable[[bl.Collection, Panes], bl.Collection] = attrs.field(repr=False, eq=False)


def _stateless() -> st.SearchStrategy[Operator]:
    return st.sampled_from(
        [
            Operator("filter", lambda rows, panes: rows.filter(bl.col("value") % 3 != 0)),
            Operator("with_columns", lambda rows, panes: rows.with_columns(value=2 * bl.col("value") - 3)),
            Operator("later", lambda rows, panes: _moved(rows, 3)),
            Operator("earlier", lambda rows, panes: _moved(rows, -2)),
            Operator("map", lambda rows, panes: rows.map(lambda row: {**row, "value": -row["value"]})),
            Operator(
                "explode", lambda rows, panes: rows.flat_map(lambda row: [row] * (row["value"] % 2 + 1))
            ),
        ]
    )


AGGREGATES = {
    "sum": bl.sum("value"),
    "count": bl.count(),
    "mode": bl.mode("value"),
    "max": bl.max("value"),
    "min": bl.min("value"),
    "top": bl.top("value", 2),
}


def _counted(row: dict[str, Any]) -> dict[str, Any]:
    """Returns a number that changes with any value of either side."""
    values = [each["value"] for each in row["a"]] + [7 * each["value"] for each in row["b"]]
    return {"key": row["key"], "value": sum(values) + 1000 * len(row["a"]) + 100 * len(row["b"])}


def _moved(rows: bl.Collection, seconds: int) -> bl.Collection:
    at = bl.event_time().cast(nw.Int64) + seconds * 1_000_000
    moved = rows.with_columns(moved=at).with_timestamps("moved", timestamp_unit="us", allowed_skew="2s")
    return moved.select("key", "value")


def _window(size: int, period: int) -> bl.WindowFn:
    return bl.FixedWindows(f"{size}s") if size == period else bl.SlidingWindows(f"{size}s", f"{period}s")


def _joined(windowed: bl.Collection, how: JoinHow) -> bl.Collection:
    """Returns the join of a collection with some of its rows."""
    joined = windowed.join(windowed.filter(bl.col("value") > 0), on="key", how=how)
    if "value_right" not in joined.schema:
        return joined
    right = 10 * bl.col("value_right").fill_null(0)
    return joined.select("key", value=bl.col("value").fill_null(50) + right)


JOINED: dict[str, JoinHow] = {f"joined, {how}": how for how in get_args(JoinHow)}
DISCARDING: dict[str, Callable[[bl.Collection], bl.Collection]] = {
    "latest, once": lambda windowed: windowed.latest("key"),
    **{f"{name}, once": partial(_joined, how=how) for name, how in JOINED.items()},
}
"""Results of discarding panes, each of which is emitted once."""
AT_ONCE = {"joined, inner, once", "joined, semi, once"}
"""Results that are emitted at once; the others wait until they are certain."""


@st.composite
def groupings(draw: st.DrawFn, *, in_time: bool = True) -> Operator:
    """Draws a grouping whose windows may emit and retract many panes; `in_time` allows waiting for their end."""
    size = draw(st.sampled_from([4, 6, 10]))
    windows = _window(size, draw(st.sampled_from([size, size, 2])))
    if draw(st.integers(0, 3)) == 3:
        windows = bl.Sessions(f"{size // 2}s")
    early, late = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    stamp = draw(st.sampled_from(["end_of_window", "earliest", "latest"]))
    lateness = draw(st.sampled_from([0, 0, 3, 8]))
    once = sorted(DISCARDING if in_time else AT_ONCE)
    aggregate = draw(
        st.sampled_from([*AGGREGATES, "latest", "cogrouped"])
        | st.sampled_from([*JOINED])
        | st.sampled_from(once)
    )
    if aggregate in DISCARDING:
        stamp = "end_of_window"  # with another one, that of the pane in which a result is first
        if "joined" in aggregate and windows.merging:
            windows = _window(size, size)  # a discarding join refuses windows that merge
    keyed = draw(st.booleans())

    def apply(rows: bl.Collection, panes: Panes) -> bl.Collection:
        counts = (1, 1) if panes == "each" else (early, late)
        trigger = bl.AfterWatermark(early=bl.AfterCount(counts[0]), late=bl.AfterCount(counts[1]))
        windowed = rows.window_into(
            windows,
            trigger=bl.Never() if panes == "once" else trigger,
            accumulation="discarding" if aggregate in DISCARDING else "retracting",
            timestamp_combiner=stamp,
            allowed_lateness=timedelta(seconds=lateness),
        )
        if aggregate in DISCARDING:
            return DISCARDING[aggregate](windowed)
        if aggregate in JOINED:
            return _joined(windowed, JOINED[aggregate])
        if aggregate == "latest":
            return windowed.latest("key")
        if aggregate == "cogrouped":
            return (
                bl.cogroup(a=windowed, b=windowed.filter(bl.col("value") > 0))
                .by("key")
                .map(_counted, {"key": str, "value": int})
            )
        grouped = windowed.group_by("key") if keyed else windowed
        totals = grouped.aggregate(value=AGGREGATES[aggregate])
        if aggregate == "top":
            totals = totals.explode("value")
        key = bl.col("key") if keyed else bl.lit("all")
        return totals.with_columns(key=key).select("key", value=bl.col("value").fill_null(0))

    return Operator(f"{aggregate} of {windows}, {stamp}, {early}, {late}, {lateness} s", apply)


def _totals(rows: bl.Collection, panes: Panes) -> bl.Collection:
    """Returns totals, one row for each key and time, which are corrected until the watermark has passed their time."""
    windowed = rows.window_into(
        bl.FixedWindows("4s"),
        trigger=bl.Never()
        if panes == "once"
        else bl.AfterWatermark(early=bl.AfterCount(1), late=bl.AfterCount(1)),
        accumulation="retracting",
        timestamp_combiner="end_of_window",
    )
    return windowed.group_by("key").aggregate(value=bl.sum("value")).window_into(bl.GlobalWindows())


def _running(rows: bl.Collection) -> bl.Collection:
    return rows.group_by("key").running(total=bl.sum("value")).select("key", value="total")


def _as_of(rows: bl.Collection) -> bl.Collection:
    newest = rows.join_asof(rows.filter(bl.col("value") > 2), on="key")
    return newest.select("key", value=bl.col("value") + 100 * bl.col("value_right").fill_null(0))


class Sums(bl.Process):
    """Emits the running sum of each row, and of a key that has had no rows for a while."""

    sum = bl.Value(int, default=0)
    quiet = bl.EventTimer()

    def element(self, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        self.sum += row["value"]
        self.quiet.after("5s", output=self.time + timedelta(seconds=row["value"] % 5))
        yield {"key": row["key"], "value": self.sum}

    def on_quiet(self) -> Iterator[dict[str, Any]]:
        yield {"key": self.key.key, "value": 100 + self.sum}
        self.sum %= 7


def _called(rows: bl.Collection) -> bl.Collection:
    return rows.group_by("key").process(Sums(), {"key": str, "value": int})


def _processed(rows: bl.Collection) -> bl.Collection:
    def passed(
        frame: pl.DataFrame, state: pl.DataFrame, due: pl.DataFrame
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        windows = cs.by_name("window_start", "window_end", require_all=False)
        return frame.select("key", "value", "event_time", windows), state

    return rows.group_by("key").process_batches(passed, {"key": str, "value": int}, state={"n": int})


def _near(rows: bl.Collection, how: How) -> bl.Collection:
    """Returns pairs of rows whose times are near each other."""
    near = rows.join(rows.filter(bl.col("value") > 2), on="key", within=("-2s", "3s"), how=how)
    return near.select("key", value=bl.col("value").fill_null(50) + 100 * bl.col("value_right").fill_null(0))


def _ever(rows: bl.Collection) -> bl.Collection:
    ever = rows.join(rows.filter(bl.col("value") > 2), on="key", keep_forever=True)
    return ever.select("key", value=bl.col("value") + 100 * bl.col("value_right"))


PAIRS = {
    "near": lambda rows: _near(rows, "inner"),
    "near, left": lambda rows: _near(rows, "left"),
    "near, full": lambda rows: _near(rows, "full"),
    "ever": _ever,
}


def _watermarked() -> Operator:
    strategy = bl.BoundedOutOfOrderness("30s")
    return Operator("with_watermark", lambda rows, panes: _totals(rows, panes).with_watermark(strategy))


ONCE: dict[str, Callable[[bl.Collection], bl.Collection]] = {
    "dedup": lambda rows: rows.dedup("key", within="9s"),
    "distinct": lambda rows: rows.distinct(),
    "distinct in windows": lambda rows: rows.window_into(bl.SlidingWindows("8s", "4s")).distinct(),
}
"""Operators that remove duplicates. After totals, a run with one pane a window has rows in the order of time."""


def _once(name: str) -> Operator:
    return Operator(name, lambda rows, panes: ONCE[name](_totals(rows, panes)))


def _at_the_end(rows: bl.Collection) -> bl.Collection:
    return rows.window_into(bl.FixedWindows("8s"), trigger=bl.DefaultTrigger())


def _looked_up(rows: bl.Collection) -> bl.Collection:
    windowed = _at_the_end(rows)
    sums = windowed.group_by("key").aggregate(sum=bl.sum("value"))
    seen = windowed.with_columns(value=bl.col("value") + 10 * bl.lookup(sums, on="key")["sum"])
    return seen.select("key", "value").window_into(bl.GlobalWindows())


def _with_side(rows: bl.Collection) -> bl.Collection:
    def added(row: dict[str, Any], side: list[dict[str, Any]]) -> dict[str, Any]:
        return {"key": row["key"], "value": row["value"] + sum(10 * one["value"] + 1 for one in side)}

    windowed = _at_the_end(rows)
    seen = windowed.map(added, {"key": str, "value": int}, side={"side": bl.as_list(windowed)})
    return seen.window_into(bl.GlobalWindows())


class Added(bl.Process):
    """Adds to each row the number of rows of its key before it, and the values of the side."""

    side: list[int]
    n = bl.Value(int, default=0)
    over = bl.EventTimer()

    def element(self, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        self.n += 1
        self.over.after("3s")
        yield {"key": row["key"], "value": row["value"] + 100 * self.n + sum(self.side)}

    def on_over(self) -> None:
        self.n = 0


def _with_state_and_side(rows: bl.Collection) -> bl.Collection:
    windowed = _at_the_end(rows)
    side = {"side": bl.as_list(windowed, "value")}
    seen = windowed.group_by("key").process(Added(), {"key": str, "value": int}, side=side)
    return seen.window_into(bl.GlobalWindows())


def _in_batches() -> Operator:
    def apply(rows: bl.Collection, panes: Panes) -> bl.Collection:
        batches = _totals(rows, panes).group_by("key").group_into_batches(size=2)
        return batches.drop("key").explode("rows").unnest("rows")

    return Operator("batches", apply)


IN_TIME = {
    "running": _running,
    "as of": _as_of,
    "process": _called,
    "lookup": _looked_up,
    "side": _with_side,
    "process with a side": _with_state_and_side,
    "process_batches": _processed,
}
CORRECTING = {"running", "as of", "process"}
"""Operators that correct what they emitted, with allowed lateness. Others are left out of such chains."""


def _in_time(name: str) -> Operator:
    """Returns an operator that waits for the watermark, after totals."""

    def apply(rows: bl.Collection, panes: Panes) -> bl.Collection:
        left_out = rows.windowing.allowed_lateness and name not in CORRECTING
        return rows if left_out else IN_TIME[name](_totals(rows, panes))

    return Operator(name, apply)


def _paired(name: str) -> Operator:
    """Returns a join by time of a collection with some of its rows; its input may be corrected."""
    return Operator(name, lambda rows, panes: PAIRS[name](rows))


def chains(*, in_time: bool = True) -> st.SearchStrategy[list[Operator]]:
    """Draws two to five operators, the last of them a grouping; `in_time` allows some that wait for the watermark."""
    # A row without a partner waits for the watermark, a pair does not.
    pairs = [name for name in PAIRS if in_time or "," not in name]
    grouping, once = groupings(in_time=in_time), [*map(_once, ONCE), _watermarked()]
    waiting = [st.sampled_from([*map(_in_time, IN_TIME), _in_batches()])] if in_time else []
    others = [_stateless(), st.sampled_from(once), st.sampled_from(list(map(_paired, pairs))), *waiting]
    middle = st.lists(st.one_of(grouping, *others), min_size=1, max_size=4)
    return st.tuples(middle, grouping).map(lambda parts: [*parts[0], parts[1]]).filter(_has_few_joins)


def _has_few_joins(operators: Sequence[Operator]) -> bool:
    """True for at most two joins of a collection with itself: each may square the number of rows."""
    return sum(each.name.startswith(("near", "ever", "joined")) for each in operators) <= 2
