"""Joins whose results are corrected: the effect of one more row, checkpoints, savepoints, and holds."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import narwhals as nw
import polars as pl
import pytest

import beamlike as bl
from beamlike.observe.waiting.explain import why
from beamlike.records.find import find_run
from beamlike.records.history import History

EACH: dict[str, Any] = {"trigger": bl.AfterWatermark(early=bl.AfterCount(1)), "on_time": "if_non_empty"}


def joined(accumulation: str, how: Any, *bundles: list[tuple[str, int]]) -> tuple[list[int], pl.DataFrame]:
    """Joins rows of the sides "l" and "r", each with a number; returns the number of rows per bundle, and all rows."""
    stream = bl.TestStream({"side": str, "n": int})
    for rows in bundles:
        stream = stream.add_elements([{"side": side, "n": n} for side, n in rows])
    p, counts, frames = bl.Pipeline("p"), [0] * (len(bundles) + 1), []
    read = p.read("rows", stream.advance_watermark_to_infinity(), timestamp="n", timestamp_unit="s")
    rows = read.with_columns(k=bl.lit(1)).window_into(
        bl.FixedWindows("1h"), accumulation=accumulation, **EACH
    )
    left, right = (rows.filter(bl.col("side") == side).select("k", "n") for side in "lr")

    def count(frame: pl.DataFrame, batch: Any) -> None:
        counts[min(batch, len(bundles))] += len(frame)
        frames.append(frame)

    left.join(right, on="k", how=how).write("out", bl.Callback(count))
    p.run()
    return counts, pl.concat(frames) if frames else pl.DataFrame(schema={"n": pl.Int64()})


@pytest.mark.parametrize("how", ["inner", "full", "left"])
def test_one_more_row_gives_its_pairs_and_not_those_of_the_whole_key(how: str) -> None:
    many = [(side, n) for side in "lr" for n in range(100)]
    counts, _ = joined("retracting", how, many, [("l", 100)], [("r", 200)])
    assert counts == [10_000, 100, 101, 0]


def test_the_first_match_of_a_row_retracts_it_and_its_last_match_brings_it_back() -> None:
    _, rows = joined("retracting", "left", [("l", 1)], [("r", 2)], [("l", 3), ("r", 4)])
    assert rows.select("n", "n_right", "pane_retracted").rows() == [
        (1, None, False),
        (1, None, True),
        (1, 2, False),
        (3, 2, False),
        (3, 4, False),
        (1, 4, False),
    ]


@pytest.mark.parametrize(
    ("how", "counts", "expected"),
    [
        ("inner", [0, 1, 1, 0], [(1, 2), (1, 3)]),
        ("full", [0, 1, 1, 0], [(1, 2), (1, 3)]),
        ("left", [0, 1, 1, 0], [(1, 2), (1, 3)]),
        ("semi", [0, 1, 0, 0], [(1,)]),
        ("anti", [0, 0, 0, 0], []),
    ],
)
def test_discarding_panes_have_each_result_once(how: str, counts: list[int], expected: list[Any]) -> None:
    got, rows = joined("discarding", how, [("l", 1)], [("r", 2)], [("r", 3)])
    assert (got, rows.select(pl.col("^n.*$")).rows()) == (counts, expected)
    assert "pane_retracted" not in rows.columns


def test_a_row_without_a_match_comes_with_the_last_discarding_pane() -> None:
    got, rows = joined("discarding", "full", [("l", 1)], [("l", 2)])
    assert (got, sorted(rows["n"])) == ([0, 0, 2], [1, 2])
    assert set(rows["pane_timing"]) == {"on_time"}


def totals_and_orders(folder: Path, name: str, found: list[pl.DataFrame]) -> bl.Pipeline:
    """Declares corrected totals, joined to orders near their time, at any time, and in their windows."""
    p = bl.Pipeline(name)
    files = bl.Parquet(str(folder / "in" / "*.parquet"))
    rows = p.read("rows", files, timestamp="at", timestamp_unit="s", watermark=bl.BoundedOutOfOrderness("5s"))
    late: dict[str, Any] = {"trigger": bl.AfterWatermark(early=bl.AfterCount(1), late=bl.AfterCount(1))}
    late |= {"accumulation": "retracting", "allowed_lateness": "20s"}
    windowed = rows.window_into(bl.FixedWindows("10s"), **late)
    sums = windowed.group_by("k").aggregate(v=bl.sum("v"))
    orders = rows.filter(bl.col("v") > 2).select("k", w="v")
    results = {
        "near": sums.join(orders, on="k", within=("-10s", "10s"), how="full"),
        "ever": sums.join(orders, on="k", keep_forever=True),
        "windows": sums.join(windowed.select("k", w="v"), on="k", how="left"),
        "once": sums.window_into(accumulation="discarding").join(
            windowed.select("k", w="v"), on="k", how="left"
        ),
    }
    for kind, collection in results.items():
        changed = collection.select("k", "v", "w", kind=bl.lit(kind), time=bl.event_time().cast(nw.Int64))
        changed.named(f"{kind} rows").write(kind, bl.Callback(lambda frame, batch: found.append(frame)))
    return p


def net(frames: list[pl.DataFrame]) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for frame in frames:
        for row in frame.select("kind", "k", "v", "w", "time", "pane_retracted").rows():
            found[row[:-1]] += -1 if row[-1] else 1
    return Counter({row: count for row, count in found.items() if count})


def test_a_run_goes_on_from_a_checkpoint_and_from_a_savepoint_with_its_changes(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    parts: list[pl.DataFrame] = []
    checkpoint = str(tmp_path / "0")
    for number in range(4):
        rows = {"k": ["a", "b", "a"], "v": [number, 3 - number, 9], "at": [3 * number, 8, 7 * number]}
        pl.DataFrame(rows).write_parquet(tmp_path / "in" / f"{number}.parquet")
        p = totals_and_orders(tmp_path, "parts", parts)
        if number == 2:
            bl.savepoint.save(checkpoint, str(tmp_path / "saved"))
            checkpoint = str(tmp_path / "1")
            bl.savepoint.restore(str(tmp_path / "saved"), checkpoint, p.plan(), runner="local")
        p.run(bl.LocalRunner(checkpoint=checkpoint, drain=number == 3))
        if number == 2:
            told = "\n".join(why(History.open(find_run(checkpoint))))
    whole: list[pl.DataFrame] = []
    pipeline = totals_and_orders(tmp_path, "whole", whole)
    assert pipeline.explain().count("changes     retracts a pair with either of its rows") == 2
    pipeline.run()
    assert net(parts) == net(whole)
    assert {row[0] for row in net(whole)} == {"near", "ever", "windows", "once"}
    assert "waits" in told
