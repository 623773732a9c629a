"""A scheduled run without new input emits what has become due since the last run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import beamlike as bl

HOUR = 3_600_000_000


class Reminder(bl.Process):
    remind = bl.ProcessingTimer()

    def __init__(self, later: str) -> None:
        self.later = later

    def element(self, row: dict[str, Any]) -> Any:
        self.remind.after(self.later)
        return
        yield

    def on_remind(self) -> Any:
        yield {"n": 1}


def pane(rows: bl.Collection, trigger: Any) -> bl.Collection:
    windows = rows.window_into(bl.GlobalWindows(), trigger=trigger)
    return windows.group_by("k").aggregate(n=bl.count())


def minutes(rows: bl.Collection) -> bl.Collection:
    return rows.window_into(bl.FixedWindows("1m")).group_by("k").aggregate(n=bl.count())


LAG, NEWEST = bl.ProcessingTimeLag("1m"), bl.MonotonousTimestamps()
KINDS: dict[str, tuple[Any, Callable[[bl.Collection], bl.Collection]]] = {
    "a window under a lag": (LAG, minutes),
    "windows of two stages": (
        LAG, lambda rows: minutes(rows).window_into(bl.FixedWindows("1h")).aggregate(n=bl.sum("n"))
    ),
    "a timer": (
        NEWEST, lambda rows: rows.group_by("k").process(Reminder("10m"), {"n": int}, order="arrival")
    ),
    "a timer of now": (
        NEWEST, lambda rows: rows.group_by("k").process(Reminder("1ms"), {"n": int}, order="arrival")
    ),
    "a pane after a time": (NEWEST, lambda rows: pane(rows, bl.Repeatedly(bl.AfterProcessingTime("10m")))),
    "a pane on the hour": (
        NEWEST, lambda rows: pane(rows, bl.Repeatedly(bl.AfterProcessingTime("1m", align_to="1h")))
    ),
    "a batch of rows that has waited": (
        NEWEST, lambda rows: rows.group_by("k").group_into_batches(size=9, max_wait="5m").select(n=bl.lit(1))
    ),
}  # fmt: skip


def pipeline(kind: str) -> bl.Pipeline:
    watermark, made = KINDS[kind]
    p = bl.Pipeline("p")
    source = bl.JSONLines("in", schema={"k": str, "at": float}, order="path")
    rows = p.read("rows", source, timestamp="at", timestamp_unit="s", watermark=watermark)
    made(rows).write("out", bl.JSONLines("out"))
    return p


def put(name: str, at: float) -> None:
    Path("in").mkdir(exist_ok=True)
    Path("in", name).write_text(json.dumps({"k": "a", "at": at}) + "\n")


def written() -> list[int]:
    lines = [line for part in Path("out").glob("*.jsonl") for line in part.read_text().splitlines()]
    return [json.loads(line)["n"] for line in lines]


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_without_new_input_does_what_the_clock_has_made_due(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    now = [1_800_000_010_000_000]
    runner = bl.LocalRunner(checkpoint="checkpoint", clock=lambda: now[0])
    put("1.jsonl", 1_800_000_000)
    assert len(pipeline(kind).run(runner).batches) == 1
    assert written() == []
    for _ in range(2):
        now[0] += 2 * HOUR
        assert len(pipeline(kind).run(runner).batches) == 1
        assert written() == [1]


def test_where_nothing_waits_for_a_clock_there_is_no_such_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(KINDS, "plain", (NEWEST, minutes))
    put("1.jsonl", 1_800_000_000)
    batches = [len(pipeline("plain").run(bl.LocalRunner(checkpoint="checkpoint")).batches) for _ in range(2)]
    assert batches == [1, 0]


@pytest.mark.parametrize("kind", ["a window under a lag"])
def test_a_batch_that_is_done_again_is_at_its_own_time_and_another_one_follows(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    now = [1_800_000_010_000_000]

    def fail(record: Any) -> None:
        raise RuntimeError("before it is committed")

    put("1.jsonl", 1_800_000_000)
    with pytest.raises(RuntimeError, match="before it is committed"):
        pipeline(kind).run(bl.LocalRunner(checkpoint="checkpoint", clock=lambda: now[0], on_batch=fail))
    now[0] += 2 * HOUR
    pipeline(kind).run(bl.LocalRunner(checkpoint="checkpoint", clock=lambda: now[0]))
    assert written() == [1]


@pytest.mark.slow
@pytest.mark.spark
def test_so_it_is_on_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: Any) -> None:
    monkeypatch.chdir(tmp_path)
    runner = bl.SparkRunner("checkpoint", session=spark, shards=1)
    put("1.jsonl", 1_000)
    assert len(pipeline("a timer of now").run(runner).batches) == 1
    assert written() == []
    for _ in range(2):
        assert len(pipeline("a timer of now").run(runner).batches) == 1
        assert written() == [1]
