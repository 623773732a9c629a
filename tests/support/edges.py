"""Columns of values at the edges of their types, as keys and as aggregated values."""

from __future__ import annotations

from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final

import polars as pl

import beamlike as bl
from stages.strategies.base import WatermarkStrategy

ROWS: Final = 4
_MOST, _LEAST = 2**63 - 1, -(2**63)
_ZONE = "Europe/Berlin"
# An hour apart, and the same on the clock: summer time ends between them.
_TWO_AND_TWO = (1_761_438_600_000_000, 1_761_442_200_000_000)
BOTTOMLESS: Final = pl.Struct({})
LARGE: Final = 10_000_000
"""Characters of an enormous text."""
MANY: Final = 1_000_000
"""Keys in one batch."""


def column(values: list[Any], dtype: Any) -> pl.Series:
    """Returns a series of the values, filled up with nulls."""
    return pl.Series(values + [None] * (ROWS - len(values)), dtype=dtype)


def numbered(values: list[int], dtype: Any) -> pl.Series:
    """Returns a column of times from their physical numbers: some have no calendar date."""
    whole = pl.Int32 if dtype == pl.Date else pl.Int64
    return column(values, whole).cast(dtype)


KEYS: Final[dict[str, pl.Series]] = {
    "text": column(["", "\x00", "a\x1fb"], pl.String),
    "flag": column([True, False, True], pl.Boolean),
    "small": column([-128, 127, 0], pl.Int8),
    "whole": column([_MOST, _LEAST, 0], pl.Int64),
    "unsigned": column([2**64 - 1, 0, 1], pl.UInt64),
    "long": column([2**127 - 1, -(2**127), 0], pl.Int128),
    "decimal": column([Decimal("1.10"), Decimal("-0.01"), Decimal("0.00")], pl.Decimal(10, 2)),
    "long decimal": column([Decimal("9" * 38), Decimal("-" + "9" * 38)], pl.Decimal(38, 0)),
    "day": numbered([2**31 - 1, -(2**31), -1], pl.Date),
    "clock time": column([time(0), time(23, 59, 59, 999_999)], pl.Time),
    "milliseconds": numbered([_MOST, _LEAST, -1], pl.Datetime("ms")),
    "microseconds": numbered([_MOST, _LEAST, -1], pl.Datetime("us")),
    "nanoseconds": numbered([_MOST, _LEAST, -1], pl.Datetime("ns")),
    "zoned": numbered([*_TWO_AND_TWO, -1], pl.Datetime("us", _ZONE)),
    "far zoned": numbered([_MOST, _LEAST, 0], pl.Datetime("us", _ZONE)),
    "category": column(["b", "", "b"], pl.Categorical),
    "enum": column(["b", "a", "b"], pl.Enum(["b", "a", "c"])),
    "binary": column([b"\xff\x00", b"ff00", b""], pl.Binary),
}
"""Columns of keys by kind. Each has a null. All except the first two have rows that are equal to no other."""

NUMBERS: Final[dict[str, pl.Series]] = {
    "float": column([1.5, float("nan"), -0.0], pl.Float64),
    "short float": column([3e38, 3e38, 3e38], pl.Float32),
    "infinite": column([float("inf"), float("-inf")], pl.Float64),
    "small": column([127, 127, 127], pl.Int8),
    "unsigned": column([2**63, 2**63 - 1], pl.UInt64),
    "decimal": column([Decimal("99.99"), Decimal("99.99"), Decimal("-0.01")], pl.Decimal(4, 2)),
    "flag": column([True, True, False], pl.Boolean),
    "nothing": column([], pl.Int64),
}

OTHERS: Final[dict[str, pl.Series]] = {
    "bytes": column([b"", b"\x00\xff"], pl.Binary),
    "length": numbered([_MOST, _LEAST], pl.Duration("us")),
    "list": column([[1], [], [None]], pl.List(pl.Int64)),
    "lists": column([[[1], None], [[]], []], pl.List(pl.List(pl.Int64))),
    "array": column([[1, 2], [None, 3]], pl.Array(pl.Int64, 2)),
    "struct": column(
        [{"a": 1, "b": "x"}, {"a": None, "b": None}], pl.Struct({"a": pl.Int64, "b": pl.String})
    ),
    "deep": column(
        [{"on": date(1, 1, 1), "at": [datetime(9999, 12, 31)]}],
        pl.Struct({"on": pl.Date, "at": pl.List(pl.Datetime("us"))}),
    ),
    "categories": column([["a", "b"], ["a"]], pl.List(pl.Categorical)),
    "coded": column([{"a": "x"}, {"a": "y"}], pl.Struct({"a": pl.Enum(["x", "y"])})),
    "null": column([], pl.Null),
}
VALUES: Final = {**{f"key {kind}": series for kind, series in KEYS.items()}, **NUMBERS, **OTHERS}


def read(
    pipeline: bl.Pipeline,
    frame: pl.DataFrame,
    name: str = "rows",
    rows_per_batch: int = 2,
    watermark: WatermarkStrategy | None = None,
) -> bl.Collection:
    """Reads the frame as a source; its rows are a second apart."""
    source = bl.Rows(frame.with_row_index("at"), rows_per_batch=rows_per_batch)
    strategy = watermark or bl.BoundedOutOfOrderness("1d")
    return pipeline.read(name, source, timestamp="at", timestamp_unit="s", watermark=strategy)


def declare(pipeline: bl.Pipeline) -> dict[str, bl.Memory]:
    """Declares a grouping by each kind of key and one over all kinds of values; returns the named sinks."""
    keys = {f"by {kind}": series for kind, series in KEYS.items()}
    rows = read(pipeline, pl.DataFrame({**keys, **VALUES}))
    fixed, sessions = rows.window_into(bl.FixedWindows("1m")), rows.window_into(bl.Sessions("1m"))
    sinks = {name: bl.Memory() for name in (*keys, "values")}
    for number, name in enumerate(keys):
        windowed = sessions if number % 2 else fixed
        counted = windowed.group_by(name, name=f"count {name}").aggregate(n=bl.count())
        counted.select(name, "n").write(name, sinks[name])
    folds = {
        f"{kind}, {fold}": aggregate
        for kind, series in VALUES.items()
        for fold, aggregate in _aggregates(kind, series).items()
    }
    fixed.aggregate(**folds).named("fold").write("values", sinks["values"])
    return sinks


def _aggregates(name: str, series: pl.Series) -> dict[str, Any]:
    chosen = {"first": bl.first(name), "last": bl.last(name), "all": bl.collect(name), "n": bl.count(name)}
    if not (series.dtype.is_nested() or series.dtype == pl.Null):
        chosen |= {"least": bl.min(name), "most": bl.max(name)}
    if name in NUMBERS:
        chosen |= {"sum": bl.sum(name), "mean": bl.mean(name)}
    return chosen


def plain(values: pl.Series) -> list[Any]:
    """Returns values as Python objects, and times as their physical numbers."""
    if values.dtype.is_temporal():
        return values.to_physical().to_list()
    if isinstance(values.dtype, pl.List) and values.dtype.inner.is_temporal():  # type: ignore[union-attr]
        values = values.list.eval(pl.element().to_physical())
    return values.to_list()


def counted(sink: bl.Memory, kind: str) -> dict[Any, int]:
    """Returns the number of rows of each key of this kind."""
    frame = sink.frame()
    return dict(zip(plain(frame[f"by {kind}"]), frame["n"], strict=True))


def folded(sink: bl.Memory, kind: str) -> dict[str, Any]:
    """Returns the aggregates of the values of this kind, by name."""
    frame = sink.frame()
    assert len(frame) == 1
    prefix = f"{kind}, "
    return {
        name.removeprefix(prefix): plain(frame[name])[0] for name in frame.columns if name.startswith(prefix)
    }


def declare_enormous(pipeline: bl.Pipeline) -> dict[str, bl.Memory]:
    """Declares groupings with enormous texts as keys and as values, in two batches."""
    large = {"k": ["x" * LARGE, "x" * LARGE + "y", "x" * LARGE], "v": ["y" * LARGE, "", "z" * LARGE]}
    # The first elements hold the watermark, so that records name one of these keys.
    rows = read(pipeline, pl.DataFrame(large), "enormous rows", watermark=bl.MonotonousTimestamps())
    grouped = rows.window_into(bl.Sessions("1m"), timestamp_combiner="earliest").group_by(
        "k", name="by enormous"
    )
    sink = bl.Memory()
    grouped.aggregate(n=bl.count(), first=bl.first("v"), last=bl.last("v")).write("enormous", sink)
    return {"enormous": sink}


def declare_many(pipeline: bl.Pipeline) -> dict[str, bl.Memory]:
    """Declares counts and sums over a million keys in one batch, and over one key that has all rows."""
    number = pl.int_range(MANY, eager=True)
    frame = pl.DataFrame({"at": 1, "k": number, "one": "x", "v": number % 1000})
    rows = pipeline.read(
        "many rows", bl.Rows(frame, rows_per_batch=MANY), timestamp="at", timestamp_unit="s",
        watermark=bl.MonotonousTimestamps(),
    ).window_into(bl.Sessions("1m"))  # fmt: skip
    sinks = {}
    for key in ("k", "one"):
        counted = rows.group_by(key, name=f"each of many by {key}").aggregate(n=bl.count(), total=bl.sum("v"))
        all_keys = counted.window_into(bl.FixedWindows("1h")).aggregate(
            keys=bl.count(), n=bl.sum("n"), total=bl.sum("total")
        )
        sinks[f"many by {key}"] = bl.Memory()
        all_keys.named(f"all of many by {key}").write(f"many by {key}", sinks[f"many by {key}"])
    return sinks
