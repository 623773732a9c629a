"""Odd input of users: names, types, nulls, empty input, everything at once."""

from __future__ import annotations

import io
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from rich.console import Console

import beamlike as bl
from beamlike.io.base import SHOWN
from beamlike.records.model import BatchRecord, SourceRecord, StageRecord
from beamlike.runtime.display.tables import watermarks_table
from windowing.time import GLOBAL_WINDOW_END, MAX_TIME, MIN_TIME

SECONDS = [1, 2, 61, 62]
WINDOWS = [bl.FixedWindows("1m"), bl.SlidingWindows("1m", "30s"), bl.Sessions("1m"), bl.GlobalWindows()]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(
    rows: pl.DataFrame | bl.Rows,
    /,
    keys: tuple[str, ...] = (),
    windows: Any = WINDOWS[0],
    size: int | None = None,
    **aggregates: Any,
) -> pl.DataFrame:
    """Returns the aggregates, or a count, of these rows, with `size` rows in a batch."""
    p, sink = bl.Pipeline("p"), bl.Memory()
    source = rows if isinstance(rows, bl.Rows) else bl.Rows(rows, rows_per_batch=size)
    read = p.read(
        "rows", source, timestamp="at", timestamp_unit="s", watermark=bl.BoundedOutOfOrderness("1d")
    )
    windowed = read.window_into(windows)
    result = (windowed.group_by(*keys) if keys else windowed).aggregate(
        **(aggregates or {"count": bl.count()})
    )
    result.write("out", sink)
    run = p.run()
    assert all(not stage.dropped for batch in run.batches for stage in batch.stages.values())
    assert run.batches[-1].stages["rows.aggregate"].live == 0
    return sink.frame()


# Names

NAMES = [
    "n",
    "hold",
    "bucket",
    "rows",
    "deadline",
    "holder_key",
    "holder_start",
    "self",
    "key",
    "index",
    "a b",
    "a.b",
]
NAMES += [
    "ü",
    "",
    " ",
    "window_start",
    "event_time",
    "count(1)",
    "len",
    "$",
    "^",
    "literal",
    "stage",
    "name",
    "x'\"y",
]


@pytest.mark.parametrize("windows", WINDOWS[1:3])
@pytest.mark.parametrize("name", NAMES)
def test_a_key_may_have_any_name(name: str, windows: Any) -> None:
    rows = pl.DataFrame({"at": SECONDS, name: ["x", "y", "x", "x"]})
    counts = run(rows, (name,), windows, size=1, total=bl.count()).select(name, "total").rows()
    panes = 2 if windows == WINDOWS[1] else 1  # a row is in that many windows
    assert {key: sum(count for other, count in counts if other == key) for key in "xy"} == {
        "x": 3 * panes,
        "y": panes,
    }


@pytest.mark.parametrize("name", [name for name in NAMES if name != "self"])
def test_an_aggregate_and_its_column_may_have_any_name(name: str) -> None:
    rows = pl.DataFrame({"at": SECONDS, "k": ["x", "y", "x", "x"], name: [1, 2, 3, 4]})
    total = f"sum_{name}" if name in SHOWN else name  # those are refused
    found = run(rows, ("k",), size=2, **{total: bl.sum(name), "last": bl.last(name), "all": bl.collect(name)})
    assert found.select("k", total, "last", "all").rows() == [
        ("x", 1, 1, [1]),
        ("y", 2, 2, [2]),
        ("x", 7, 4, [3, 4]),
    ]


def test_aggregates_may_be_named_as_columns_of_the_input() -> None:
    rows = pl.DataFrame({"at": SECONDS, "score": [1, 2, 3, 4], "other": [5, 6, 7, 8]})
    found = run(rows, at=bl.max("score"), score=bl.sum("other"), other=bl.first("at"))
    assert found.select("at", "score", "other").rows() == [(2, 11, 1), (4, 15, 61)]


@pytest.mark.parametrize("name", ["*", "^a.*$", "^$"])
def test_a_name_that_is_a_pattern_is_refused(name: str) -> None:
    message = "this is a pattern for several columns; rename it"
    with pytest.raises(bl.PlanError, match=message):
        run(pl.DataFrame({"at": SECONDS, name: SECONDS}))
    with pytest.raises(bl.PlanError, match=message):
        run(pl.DataFrame({"at": SECONDS}), **{name: bl.count()})


# Keys

KEYS = {
    "text": ["b", "a", None],
    "small integers": pl.Series([1, -1, None], dtype=pl.Int8),
    "large integers": pl.Series([2**63, 1, None], dtype=pl.UInt64),
    "flags": [True, False, None],
    "decimals": [Decimal("1.50"), Decimal("-2"), None],
    "days": [date(2026, 1, 1), date(1, 1, 1), None],
    "clock times": [time(1, 2), time(0), None],
    "times": [datetime(2026, 1, 1, tzinfo=UTC), datetime(1900, 1, 1, tzinfo=UTC), None],
    "categories": pl.Series(["b", "a", None], dtype=pl.Categorical),
    "enums": pl.Series(["b", "a", None], dtype=pl.Enum(["b", "a"])),
}


@pytest.mark.parametrize("windows", [WINDOWS[0], WINDOWS[2]])
@pytest.mark.parametrize("kind", KEYS)
def test_a_key_may_have_any_type_that_is_exact_and_be_null(kind: str, windows: Any) -> None:
    keys = pl.Series(KEYS[kind])
    rows = pl.DataFrame({"at": [1, 2, 3, 4, 5, 6], "k": pl.concat([keys, keys])})
    found = run(rows, ("k",), windows, size=1)
    assert found.schema["k"] == keys.dtype
    assert found.select(pl.col("k").is_in(keys.implode(), nulls_equal=True).all()).item()
    assert found["count"].to_list() == [2, 2, 2]


@pytest.mark.parametrize("value", [1.5, timedelta(1), [1], {"a": 1}, None])
def test_a_key_of_another_type_is_refused(value: Any) -> None:
    with pytest.raises(
        TypeError, match=r"step 'rows.aggregate': the key 'k' is .*; a key may be text, bytes, a whole number"
    ):
        run(pl.DataFrame({"at": [1], "k": [value]}), ("k",))


def test_several_keys_of_which_some_are_null_are_told_apart() -> None:
    rows = pl.DataFrame(
        {"at": [1] * 6, "a": ["x", None, None, "x", None, "x"], "b": [1, 1, None, None, None, 1]}
    )
    for windows in WINDOWS[::2]:
        found = run(rows, ("b", "a"), windows, size=2)
        assert found.columns[2:5] == ["b", "a", "count"]
        counts = {row[:2]: row[2] for row in found.select("a", "b", "count").rows()}
        assert counts == {("x", 1): 2, (None, 1): 1, (None, None): 2, ("x", None): 1}


# Nothing, one, many


@pytest.mark.parametrize("keys", [(), ("k",)])
@pytest.mark.parametrize("windows", WINDOWS)
def test_nothing_gives_nothing_and_one_row_gives_its_windows(windows: Any, keys: tuple[str, ...]) -> None:
    schema = {"at": int, "k": str}
    assert run(bl.Rows([], schema=schema), keys, windows).is_empty()
    found = run(bl.Rows([{"at": 5, "k": "x"}], schema=schema), keys, windows)
    assert found["count"].to_list() == ([1, 1] if type(windows) is bl.SlidingWindows else [1])


def test_sessions_without_a_key_are_those_of_all_rows_together() -> None:
    seconds = [100, 1, 200, 50, 259, 100]
    found = run(pl.DataFrame({"at": seconds}), windows=bl.Sessions("1m"), size=2, length=bl.window_length())
    assert found["length"].to_list() == [159.0, 119.0]


def test_a_session_of_all_rows_of_many_batches_is_one() -> None:
    count = 40_000
    rows = pl.DataFrame({"at": range(count), "k": ["x"] * count})
    found = run(rows, ("k",), bl.Sessions("1m"), size=5_000, n=bl.count(), length=bl.window_length())
    assert found.select("n", "length").rows() == [(count, count - 1 + 60.0)]


def test_rows_of_one_time_only() -> None:
    rows = pl.DataFrame({"at": [7] * 1_000, "v": range(1_000)})
    found = run(rows, windows=bl.Sessions("1us"), size=100, first=bl.first("v"), last=bl.last("v"))
    assert found.select("first", "last").rows() == [(0, 999)]


# Flatten


def test_a_collection_flattened_with_itself_has_every_row_twice() -> None:
    p = bl.Pipeline("p")
    sinks = [bl.Memory(), bl.Memory(), bl.Memory()]
    rows = p.read(
        "rows", bl.Rows(pl.DataFrame({"at": SECONDS})), timestamp="at", timestamp_unit="s",
        watermark=bl.MonotonousTimestamps(),
    )  # fmt: skip
    twice = bl.flatten(rows, rows)
    counted = twice.window_into(WINDOWS[0]).aggregate(n=bl.count())
    counted.write("counted", sinks[0])
    bl.flatten(counted, counted, counted.filter(bl.col("n") < 0)).aggregate(n=bl.sum("n")).write(
        "again", sinks[1]
    )
    bl.flatten(twice, rows.filter(bl.col("at") > 60)).write("rows out", sinks[2])
    p.run()
    assert sinks[0].frame()["n"].to_list() == [4, 4]
    assert sinks[1].frame()["n"].to_list() == [8, 8]
    assert sorted(sinks[2].frame()["at"]) == sorted([*SECONDS, *SECONDS, 61, 62])


# Times at the limits


@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize("combiner", ["end_of_window", "earliest", "latest"])
def test_no_element_at_the_limits_of_time_is_lost(windows: Any, combiner: str) -> None:
    limits = [MIN_TIME, MIN_TIME + 1, 0, GLOBAL_WINDOW_END - 2, GLOBAL_WINDOW_END - 1]
    outside = [MIN_TIME - 1, GLOBAL_WINDOW_END, MAX_TIME, None]
    p, sink = bl.Pipeline("p"), bl.Memory()
    rows = pl.DataFrame({"at": limits + outside}, schema={"at": pl.Int64})
    strategy = bl.BoundedOutOfOrderness("1d")
    source = bl.Rows(rows)
    read = p.read("rows", source, timestamp="at", timestamp_unit="us", watermark=strategy, max_future=None)
    windowed = read.window_into(windows, timestamp_combiner=combiner, allowed_lateness="2d")
    windowed.aggregate(all=bl.collect("at")).write("out", sink)
    run = p.run()
    assert run.batches[0].sources["rows"].dead_letters == len(outside)
    assert {at for pane in sink.frame()["all"] for at in pane} == set(limits)
    last = run.batches[-1].stages["rows.aggregate"]
    assert (last.output, last.live) == (MAX_TIME, 0)


def test_times_that_no_calendar_has_are_shown_as_they_are() -> None:
    record = (
        SourceRecord(MIN_TIME + 5),
        StageRecord(MIN_TIME + 5, MIN_TIME, "rows"),
        SourceRecord(86_400_000_000),
    )
    batch = BatchRecord(0, 0, {"far": record[0], "near": record[2]}, {"stage": record[1]})
    console = Console(file=io.StringIO(), width=150)
    console.print(watermarks_table([batch]))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "Watermarks, 1970-01-02" in shown
    assert [cell.strip() for line in shown.splitlines() if "far" in line for cell in line.split("│")][2:5] == [
        "far", "", f"{MIN_TIME + 5}us",
    ]  # fmt: skip
    assert "-inf" in shown
    assert "00:00:00" in shown


def test_decimals_add_up_beyond_their_own_digits() -> None:
    rows = pl.DataFrame({"at": [1, 2, 3], "v": pl.Series([Decimal("99.99")] * 3, dtype=pl.Decimal(4, 2))})
    found = run(rows, size=2, total=bl.sum("v"), most=bl.max("v"), mean=bl.mean("v"))
    assert found.select("total", "most").rows() == [(Decimal("299.97"), Decimal("99.99"))]
    assert found["mean"].item() == pytest.approx(99.99)


@pytest.mark.parametrize(
    ("aggregate", "message"),
    [
        (lambda: bl.sum("V"), "there is no column 'V'; the columns are at, v"),
        (lambda: bl.sum(bl.col("v")), "total must aggregate a column by its name, not an expression"),
        (lambda: bl.first(None), "total must aggregate a column by its name, not None"),
        (lambda: bl.sum(["v"]), r"total must aggregate a column by its name, not \['v'\]"),
        (lambda: None, "total must be an aggregate such as bl.count\\(\\), not None"),
        (lambda: bl.count, "total must be an aggregate .*not the function itself; call it: bl.count"),
    ],
)
def test_an_aggregate_of_no_column_says_what_it_takes(aggregate: Any, message: str) -> None:
    with pytest.raises(bl.PlanError, match=f"step 'rows.aggregate': {message}"):
        run(pl.DataFrame({"at": [1], "v": [1]}), total=aggregate())
