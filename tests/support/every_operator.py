"""Every operator, as a function from rows of `k` and `v` to such rows, so that any can follow any."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any, Final

import polars as pl
import polars.selectors as cs

import beamlike as bl

Operator = Callable[[bl.Pipeline, bl.Collection], bl.Collection]

_NAMES = count()
_ROW: Any = {"k": str, "v": int}


def source(p: bl.Pipeline, name: str, rows: int = 30) -> bl.Collection:
    """Returns rows of three keys, in order of time."""
    given = [{"k": f"k{number % 3}", "v": number % 7, "t": number} for number in range(rows)]
    read = p.read(
        f"{name}{next(_NAMES)}",
        bl.Rows(given, rows_per_batch=7),
        timestamp="t",
        timestamp_unit="s",
        watermark=bl.BoundedOutOfOrderness("2s"),
    )
    return read.select("k", "v")


class Counts(bl.Process):
    """Emits the number of elements of a key that has received none for a while."""

    n = bl.Value(int, default=0)
    quiet = bl.EventTimer()

    def element(self, row: dict[str, Any]) -> None:
        self.n += 1
        self.quiet.after("3s")

    def on_quiet(self) -> Iterator[dict[str, Any]]:
        yield {"k": self.key.k, "v": self.n}


def unchanged(
    rows: pl.DataFrame, state: pl.DataFrame, due: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Returns the rows of a batch unchanged, with their windows if they have any."""
    windows = cs.by_name("window_start", "window_end", require_all=False)
    return rows.select("k", "v", "event_time", windows), state


def fixed(rows: bl.Collection, **choices: Any) -> bl.Collection:
    """Returns the rows in windows of ten seconds."""
    return rows.window_into(bl.FixedWindows("10s"), **choices)


def _total(rows: bl.Collection) -> bl.Collection:
    return rows.group_by("k").aggregate(v=bl.sum("v"))


def _counts(p: bl.Pipeline) -> bl.Collection:
    return source(p, "x").group_by("k").aggregate(w=bl.count())


def _side(p: bl.Pipeline, rows: bl.Collection) -> bl.Collection:
    added = {"d": bl.as_dict(_counts(p), "k", "w")}
    return rows.map(lambda row, d: {"k": row["k"], "v": row["v"] + d.get(row["k"], 0)}, _ROW, side=added)


class Added(Counts):
    """Emits the number of elements and the side's value for the key."""

    d: dict[str, int]

    def on_quiet(self) -> Iterator[dict[str, Any]]:
        yield {"k": self.key.k, "v": self.n + self.d.get(self.key.k, 0)}


def _with_side(p: bl.Pipeline, rows: bl.Collection) -> bl.Collection:
    return rows.group_by("k").process(Added(), _ROW, side={"d": bl.as_dict(_counts(p), "k", "w")})


def _growing(p: bl.Pipeline, rows: bl.Collection) -> bl.Collection:
    greatest = bl.lookup(rows.window_into(bl.GlobalWindows()), on="k", growing=True)
    return source(p, "x").with_columns(v=greatest["v"].fill_null(0))


def _as_side(p: bl.Pipeline, rows: bl.Collection) -> bl.Collection:
    greatest = rows.group_by("k").aggregate(w=bl.max("v"))
    return source(p, "x").with_columns(v=bl.lookup(greatest, on="k")["w"].fill_null(0))


RETRACTING: Final[Mapping[str, Any]] = {
    "trigger": bl.AfterWatermark(early=bl.AfterCount(2), late=bl.AfterCount(1)),
    "accumulation": bl.RETRACTING,
    "allowed_lateness": "5s",
}
EARLY: Final = bl.AfterWatermark(early=bl.AfterCount(2))

OPERATORS: Final[Mapping[str, Operator]] = {
    "filter": lambda p, c: c.filter(bl.col("v") > 0),
    "with_columns": lambda p, c: c.with_columns(v=bl.col("v") + 1),
    "map": lambda p, c: c.map(lambda row: {"k": row["k"], "v": row["v"]}, _ROW),
    "flat_map": lambda p, c: c.flat_map(lambda row: [{"k": row["k"], "v": row["v"]}] * 2, _ROW),
    "fixed": lambda p, c: _total(fixed(c)),
    "sliding": lambda p, c: _total(c.window_into(bl.SlidingWindows("10s", "5s"))),
    "sessions": lambda p, c: _total(c.window_into(bl.Sessions(gap="2s"))),
    "without key": lambda p, c: fixed(c).aggregate(v=bl.sum("v"), k=bl.min("k")),
    "retracting": lambda p, c: _total(fixed(c, **RETRACTING)),
    "discarding": lambda p, c: _total(fixed(c, trigger=EARLY)),
    "global count": lambda p, c: _total(
        c.window_into(bl.GlobalWindows(), trigger=bl.Repeatedly(bl.AfterCount(5)))
    ),
    "max again": lambda p, c: c.group_by("k").aggregate(v=bl.max("v")),
    "running": lambda p, c: c.group_by("k").running(s=bl.sum("v")).select("k", v="s"),
    "process": lambda p, c: c.group_by("k").process(Counts(), _ROW),
    "process arrival": lambda p, c: c.group_by("k").process(Counts(), _ROW, order="arrival"),
    "process_batches": lambda p, c: c.group_by("k").process_batches(unchanged, _ROW, state={"n": int}),
    "interval left": lambda p, c: c.join(source(p, "x"), on="k", within=("0s", "5s"), how="left").select(
        "k", "v"
    ),
    "interval right": lambda p, c: (
        source(p, "x").join(c, on="k", within=("0s", "5s"), how="left").select("k", "v")
    ),
    "interval self": lambda p, c: c.join(c, on="k", within=("0s", "5s")).select("k", "v"),
    "forever": lambda p, c: c.join(source(p, "x"), on="k", keep_forever=True).select("k", "v"),
    "asof left": lambda p, c: c.join_asof(source(p, "x"), on="k").select("k", "v"),
    "asof right": lambda p, c: source(p, "x").join_asof(c, on="k").select("k", "v"),
    "window join": lambda p, c: fixed(c).join(fixed(source(p, "x")), on="k").select("k", "v"),
    "cogroup": lambda p, c: (
        bl.cogroup(a=fixed(c), b=fixed(source(p, "x"))).by("k").map(lambda row: {"k": row["k"], "v": 1}, _ROW)
    ),
    "dedup": lambda p, c: c.dedup("k", "v", within="3s"),
    "distinct": lambda p, c: c.distinct(),
    "latest": lambda p, c: fixed(c).latest("k"),
    "arg_max": lambda p, c: fixed(c).group_by("k").aggregate(v=bl.arg_max("v", by="v")),
    "lookup": lambda p, c: c.with_columns(v=bl.col("v") + bl.lookup(_counts(p), on="k")["w"].fill_null(0)),
    "side": _side,
    "as side": _as_side,
    "as growing side": _growing,
    "process side": _with_side,
    "batches": lambda p, c: c.group_into_batches(size=5).explode("rows").unnest("rows"),
    "with_timestamps": lambda p, c: c.with_columns(at=bl.event_time()).with_timestamps("at").select("k", "v"),
    "with_watermark": lambda p, c: c.with_watermark(bl.BoundedOutOfOrderness("9s")),
    "flatten": lambda p, c: bl.flatten(c, source(p, "x")),
    "flatten self": lambda p, c: bl.flatten(c, c),
    "global": lambda p, c: c.window_into(bl.GlobalWindows()),
    "changes": lambda p, c: bl.changes(
        c.with_columns(back=bl.lit(False)), op="back", before=None, after=None
    ),
}
