"""Holds of stages without windows: timers, rows that wait for their turn, and rows without a partner yet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import beamlike as bl


class Alerts(bl.Process):
    """A process with two timers that hold the watermark at the time of the row."""

    quiet = bl.EventTimer()
    flush = bl.ProcessingTimer(hold=True)

    def element(self, row: dict[str, Any]) -> None:
        if row["what"] == "event":
            self.quiet.after("10m", output=self.time)
        else:
            self.flush.after("30s")

    def on_quiet(self) -> Iterator[dict[str, Any]]:
        yield {"user": self.key.user}

    on_flush = on_quiet


def why(rows: bl.Collection, stage: str, folder: Path, batches: int) -> list[str]:
    """Returns the explanation for a stage after `batches` batches."""
    rows.write("out", bl.Memory())
    records = folder / "records.jsonl"
    rows.pipeline.run(bl.LocalRunner(records=str(records)))  # type: ignore[attr-defined]
    lines = records.read_text().splitlines()
    records.write_text("\n".join(lines[: 1 + batches]) + "\n")
    return bl.observe.why(bl.observe.History.open(str(records)), stage=stage)


def read(p: bl.Pipeline, name: str, rows: list[dict[str, Any]], watermark: int) -> bl.Collection:
    stream = (
        bl.TestStream({"user": str, "what": str, "at": int})
        .add_elements(rows)
        .advance_watermark_to(watermark)
    )
    return p.read(name, stream, timestamp="at", timestamp_unit="s")


@pytest.mark.parametrize(
    ("what", "order", "said"),
    [
        (
            "event",
            "arrival",
            [
                "timer 'quiet' of key u7, set for 1970-01-01T00:10:05Z, has this output timestamp",
                "that timer waits for the input watermark of stage `alerts` to reach 1970-01-01T00:10:05Z",
            ],
        ),
        (
            "processing",
            "arrival",
            [
                "timer 'flush' of key u7, set for 1970-01-01T00:00:30Z, has this output timestamp",
                "that timer waits for processing time to reach 1970-01-01T00:00:30Z",
            ],
        ),
    ],
)
def test_a_timer_that_holds_is_named_with_its_key_and_its_time(
    what: str, order: Any, said: list[str], tmp_path: Path
) -> None:
    rows = read(bl.Pipeline("p"), "rows", [{"user": "u7", "what": what, "at": 5}], 8)
    alerts = rows.group_by("user", name="alerts").process(Alerts(), {"user": str}, order=order)
    told = why(alerts, "alerts", tmp_path, 2)
    assert all(any(sentence in line for line in told) for sentence in said), told


def test_a_row_of_an_outer_join_that_holds_waits_for_a_partner(tmp_path: Path) -> None:
    p = bl.Pipeline("p")
    left, right = read(p, "left", [{"user": "a", "what": "", "at": 10}], 12), read(p, "right", [], 11)
    near = left.join(right, on="user", within=("0s", "30s"), how="left", event_time="left", name="near")
    told = why(near, "near.pairs", tmp_path, 2)
    assert any(
        "the row of key a in [1970-01-01T00:00:10Z, 1970-01-01T00:00:40.000001Z) waits for a partner" in line
        for line in told
    )
    assert any(
        "to reach 1970-01-01T00:00:40.000001Z, which is at 1970-01-01T00:00:11Z, 29s to go" in line
        for line in told
    )


class Priced(Alerts):
    """The process `Alerts` with a side input."""

    prices: list[Any]


@pytest.mark.parametrize(
    ("prices_at", "said"),
    [
        (
            45,
            [
                "a row of 'orders' waits for side 'prices', at 1970-01-01T00:00:10Z",
                "for the watermark of that side to reach 1970-01-01T00:01:00Z, which is at 1970-01-01T00:00:45Z",
            ],
        ),
        (
            60,
            [
                "timer 'quiet' of key a",
                "that timer waits for the input watermark of stage `priced` to reach 1970-01-01T00:01:00Z",
            ],
        ),
    ],
)
def test_a_process_with_a_side_says_whether_a_row_waits_for_the_side_or_a_timer_for_its_time(
    prices_at: int, said: list[str], tmp_path: Path
) -> None:
    p = bl.Pipeline("p")
    orders, prices = (
        read(p, name, [{"user": "a", "what": "event", "at": 10}], at).window_into(bl.FixedWindows("1m"))
        for name, at in (("orders", 30), ("prices", prices_at))
    )
    side = {"prices": bl.as_list(prices)}
    priced = orders.group_by("user", name="priced").process(Priced(), {"user": str}, side=side)
    told = why(priced, "priced", tmp_path, 2)
    assert all(any(sentence in line for line in told) for sentence in said), told


def test_a_row_that_waits_for_a_side_says_for_which(tmp_path: Path) -> None:
    p = bl.Pipeline("p")
    orders, prices = (
        read(p, name, [{"user": "a", "what": "", "at": 10}], at).window_into(bl.FixedWindows("1m"))
        for name, at in (("orders", 80), ("prices", 45))
    )
    counted = {"user": str, "prices": int}
    counts = orders.map(
        lambda row, prices: {"user": row["user"], "prices": len(prices)},
        counted,
        side={"prices": bl.as_list(prices)},
        name="counts",
    )
    told = "\n".join(why(counts, "counts", tmp_path, 2))
    assert "a row of 'orders' waits for side 'prices', at 1970-01-01T00:00:10Z" in told
    assert "watermark of that side to reach 1970-01-01T00:01:00Z, which is at" in told
    assert "source `prices` has its watermark at 1970-01-01T00:00:45Z" in told
