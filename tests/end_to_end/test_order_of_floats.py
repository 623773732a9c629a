"""Order does not matter: aggregates of zeros of both signs, NaN, infinities and nulls, in every order and bundling."""

from __future__ import annotations

import math
import struct
from itertools import permutations
from typing import Any

import polars as pl
import pytest

import beamlike as bl

NAN, INF = math.nan, math.inf
OTHER_NAN: float = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0001))[0]
"""A NaN with other bits, as a division may give."""

VALUES: list[list[float | None]] = [
    [-0.0], [0.0, -0.0], [-0.0, -0.0], [0.0, -0.0, None], [0.0, -0.0, 1.5], [0.0, -0.0, -1.5], [0.0, -0.0, NAN],
    [NAN], [NAN, None], [NAN, OTHER_NAN], [NAN, 1.5, -0.0], [NAN, INF], [NAN, -INF], [INF, -INF], [INF, 1.5, NAN],
    [-INF, -0.0, 0.0], [INF, INF, 0.0], [None], [None, None], [1.5, -0.0, 0.0, 1.5], [NAN, OTHER_NAN, 0.0, -0.0],
    [INF, -INF, NAN, 0.0], [5e-324, -0.0, 0.0], [-5e-324, -0.0, NAN],
]  # fmt: skip

AGGREGATES: dict[str, Any] = {
    "count": bl.count("x"),
    "sum": bl.sum("x"),
    "mean": bl.mean("x"),
    "var": bl.var("x"),
    "std": bl.std("x"),
    "min": bl.min("x"),
    "max": bl.max("x"),
    "arg_max": bl.arg_max("x", by="x"),
    "arg_min": bl.arg_min("x", by="x"),
    "arg_max_of_y": bl.arg_max(["y", "x"], by="x"),
    "arg_min_by_y": bl.arg_min("x", by=["y", "x"]),
    "top": bl.top("x", 2),
    "bottom": bl.bottom("x", 2),
    "top_of_y": bl.top(["y", "x"], 3, by="x"),
    "bottom_with_ties": bl.bottom("y", 1, by="x", ties=True),
    "sample": bl.sample("x", 2),
    "mode": bl.mode("x"),
    "set": bl.collect_set("x"),
    "count_distinct": bl.count_distinct("x"),
    "quantile": bl.quantile("x", 0.5),
    "median": bl.median("x"),
    "any": bl.any("positive"),
    "all": bl.all("positive"),
}
UNRETRACTED: dict[str, Any] = {"approx": bl.approx_count_distinct("x")}
IN_ORDER: dict[str, Any] = {
    "collect": bl.collect("x"),
    "first": bl.first("x"),
    "last": bl.last("x"),
    "structs": bl.collect("nested"),
    "first_struct": bl.first("nested"),
}
"""Aggregates that depend on the order of arrival, unless rows may be retracted."""


def orders() -> list[tuple[str, int, list[float | None]]]:
    """Returns each list of values in all of its orders."""
    return [
        (str(number), place, list(order))
        for number, values in enumerate(VALUES)
        for place, order in enumerate(permutations(values))
    ]


def aggregated(dtype: Any, *, together: bool, windows: Any, changes: bool) -> pl.DataFrame:
    """Returns the aggregates of each order of each list. Unless `together`, a batch has one value of each order."""
    rows = [
        {"list": number, "order": place, "x": value, "y": None if value is None else value == 0,
         "positive": value is not None and value > 0, "at": 0, "op": "+I", "turn": turn,
         "nested": {"x": value, "each": [value]}}
        for number, place, values in orders()
        for turn, value in enumerate(values)
    ]  # fmt: skip
    rows.sort(key=lambda row: row["turn"])
    schema: dict[str, Any] = {
        "list": str,
        "order": int,
        "x": dtype,
        "y": bool,
        "positive": bool,
        "at": int,
        "op": str,
    }
    schema["nested"] = pl.Struct({"x": dtype, "each": pl.List(dtype)})
    stream = bl.TestStream(schema)
    turns = [rows] if together else [[row for row in rows if row["turn"] == turn] for turn in range(4)]
    for turn in turns:
        stream = stream.add_elements([{name: row[name] for name in schema} for row in turn])
    p = bl.Pipeline("p")
    read = p.read("rows", stream.advance_watermark_to_infinity(), timestamp="at", timestamp_unit="s")
    log: dict[str, Any] = {"before": None, "after": None, "timestamp": "at", "timestamp_unit": "s"}
    read = bl.changes(read, **log) if changes else read.drop("op")
    chosen = AGGREGATES | (IN_ORDER if changes else UNRETRACTED)
    found = read.window_into(windows).group_by("list", "order").aggregate(**chosen)
    return found.collect().drop("window_start", "window_end", "event_time", strict=False)


@pytest.mark.parametrize(
    ("how", "dtype"),
    [("fixed", pl.Float64), ("fixed", pl.Float32), ("sessions", pl.Float64), ("changes", pl.Float64),
     ("changes in sessions", pl.Float32)],
)  # fmt: skip
def test_order_and_bundles_do_not_matter(how: str, dtype: Any) -> None:
    choices: dict[str, Any] = {"changes": "changes" in how}
    choices["windows"] = bl.Sessions(gap="1h") if "sessions" in how else bl.FixedWindows("1h")
    both = [aggregated(dtype, together=together, **choices) for together in (True, False)]
    names = [name for name in (*AGGREGATES, *UNRETRACTED, *IN_ORDER) if name in both[0].columns]
    wrong = list[str]()
    for name in names:
        for number, values in enumerate(VALUES):
            found = {repr(row[name]) for frame in both
                     for row in frame.filter(list=str(number)).select(name).to_dicts()}  # fmt: skip
            if len(found) != 1:
                wrong.append(f"{name} of {values}: {found}")
        if name not in IN_ORDER or "changes" in how:
            assert "-0.0" not in str(both[0][name].to_list()), name
    assert not wrong, "\n".join(wrong)


def test_running_aggregates_return_no_negative_zero() -> None:
    rows = [{"x": x, "at": at} for at, x in enumerate([-0.0, 0.0, -0.0, 1.5, -0.0])]
    read = bl.Pipeline("p").read("rows", bl.Rows(rows, rows_per_batch=1), timestamp="at", timestamp_unit="s",
                                 watermark=bl.MonotonousTimestamps())  # fmt: skip
    by_key = read.with_columns(k=bl.lit(1)).group_by("k")
    found = by_key.running(least=bl.min("x"), most=bl.max("x"), sum=bl.sum("x"), mean=bl.mean("x")).collect()
    assert "-0.0" not in str(found.select("least", "most", "sum", "mean").rows())
