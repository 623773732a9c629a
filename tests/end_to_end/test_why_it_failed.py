"""Why a run failed: its records have the error, the part of the pipeline, the batch, the row and the line of the user's
code, and each view begins with that.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import polars as pl
import pytest
from pyspark.sql import SparkSession
from rich.console import Console

import beamlike as bl
from beamlike.observe.report import report
from beamlike.observe.status import Status
from beamlike.observe.watch import frame
from beamlike.records.failure import Failure
from tests.support.places import ROOT

ROWS = [{"n": 1, "at": 1}, {"n": 0, "at": 2}, {"n": 1, "at": 9}]


def read(p: bl.Pipeline, source: Any = None) -> bl.Collection:
    clock = bl.MonotonousTimestamps()
    return p.read("source", source or bl.Rows(ROWS), timestamp="at", timestamp_unit="s", watermark=clock)


def inverted(row: dict[str, Any]) -> dict[str, Any]:
    return {"n": 1 // row["n"]}


def halves(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield inverted(row)


def inverted_frame(rows: pl.DataFrame) -> pl.DataFrame:
    raise ConnectionError("postgresql://ada:hunter2@db/prices is down")


def refused(row: dict[str, Any]) -> dict[str, Any]:
    raise OSError("the price service is down")


def gone(row: dict[str, Any]) -> dict[str, Any]:
    raise FileNotFoundError("prices.csv")


def misfit(row: dict[str, Any]) -> dict[str, Any]:
    return {"m": 1}


def unwritten(rows: pl.DataFrame, batch: int) -> None:
    raise PermissionError("read only")


def told(record: Any) -> None:
    raise KeyError("board")


class Inverted(bl.CombineFn):
    def create_accumulator(self) -> int:
        return 0

    def add_input(self, sum_: int, value: int) -> int:
        return sum_ + 1 // value

    def merge_accumulators(self, sums: Any) -> int:
        return sum(sums)

    def extract_output(self, sum_: int) -> int:
        return sum_


class Strict(bl.Process):
    def element(self, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield inverted(row)


@attrs.frozen
class Broken:
    """A source whose reader fails."""

    bounded = True

    def schema(self) -> pl.Schema:
        return pl.Schema({"n": pl.Int64, "at": pl.Int64})

    def chunks(self, rows: int) -> Iterator[pl.DataFrame]:
        raise TimeoutError("no answer")


def of_windows(rows: bl.Collection) -> bl.Collection:
    keyed = rows.window_into(bl.FixedWindows("1m")).group_by("at", name="step")
    return keyed.aggregate(s=bl.combine(Inverted(), "n", int))


def of_process(rows: bl.Collection) -> bl.Collection:
    return rows.group_by("at", name="step").process(Strict(), {"n": int})


DIVISION = "ZeroDivisionError"
ZERO = '"n":0'
STEPS: dict[str, tuple[Callable[[bl.Collection], bl.Collection], dict[str, str]]] = {
    "map": (
        lambda rows: rows.map(inverted, {"n": int}, name="step"),
        {"error": DIVISION, "place": "in inverted", "row": ZERO},
    ),
    "flat_map": (
        lambda rows: rows.flat_map(halves, {"n": int}, name="step"),
        {"error": DIVISION, "place": "in inverted", "row": ZERO},
    ),
    "map_batches": (
        lambda rows: rows.map_batches(inverted_frame, {"n": int}, name="step"),
        {"error": "ConnectionError", "text": "postgresql://***@db/prices", "place": "in inverted_frame"},
    ),
    "an OSError": (
        lambda rows: rows.map(refused, {"n": int}, name="step"),
        {"error": "OSError", "text": "the price service", "place": "in refused", "row": '"n":1'},
    ),
    "a file of the function's": (
        lambda rows: rows.map(gone, {"n": int}, name="step"),
        {"error": "FileNotFoundError", "text": "prices.csv", "place": "in gone"},
    ),
    "a wrong result": (
        lambda rows: rows.map(misfit, {"n": int}, name="step"),
        {"error": "StepError", "text": "expected", "row": '"n":1'},
    ),
    "an aggregate": (of_windows, {"error": DIVISION, "place": "in add_input", "row": ZERO}),
    "a process": (of_process, {"error": DIVISION, "place": "in inverted", "row": ZERO}),
}


def pipeline(step: Callable[[bl.Collection], bl.Collection], sink: Any = None) -> bl.Pipeline:
    p = bl.Pipeline("p", on_error="fail")
    step(read(p)).write("out", bl.Memory() if sink is None else sink)
    return p


def failure_of(run: str | Path) -> Failure:
    history = bl.observe.History.open(run)
    assert history.closed == "failed"
    assert history.failure is not None
    return history.failure


def check(failure: Failure, expected: dict[str, str], **more: Any) -> None:
    facts = attrs.asdict(failure)
    for name, part in {"step": "step", **expected}.items():
        assert part in facts[name], (name, failure)
    assert {name: facts[name] for name in more} == more


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("kind", STEPS)
def test_a_function_that_fails(kind: str, kept: bool, tmp_path: Path) -> None:
    step, expected = STEPS[kind]
    place = str(tmp_path / "run")
    runner = bl.LocalRunner(checkpoint=place) if kept else bl.LocalRunner(records=place)
    with pytest.raises(Exception, match=r"."):
        pipeline(step).run(runner)
    check(failure_of(place), expected, source="", sink="", batch=0)


@pytest.mark.spark
@pytest.mark.parametrize(
    "kind",
    [
        "map",
        *(
            pytest.param(one, marks=[pytest.mark.slow, *([pytest.mark.long] if one != "an OSError" else ())])
            for one in ("an OSError", "a wrong result", "an aggregate")
        ),
    ],
)
def test_a_function_that_fails_on_spark(kind: str, spark: SparkSession, tmp_path: Path) -> None:
    step, expected = STEPS[kind]
    with pytest.raises(bl.RunError if kind != "a wrong result" else Exception) as caught:
        pipeline(step).run(bl.SparkRunner(str(tmp_path / "checkpoint"), session=spark, shards=1))
    failure = failure_of(tmp_path / "checkpoint")
    check(failure, expected, source="", sink="", batch=0)
    assert failure.summary in str(caught.value).splitlines()[0]
    assert len(str(caught.value).splitlines()) < 30


def sink_fails(place: str) -> None:
    pipeline(lambda rows: rows, bl.Callback(unwritten)).run(bl.LocalRunner(checkpoint=place))


def sink_cannot_start(place: str) -> None:
    target = Path(place).with_name("out")
    p = pipeline(lambda rows: rows, bl.JSONLines(str(target)))
    p.run(bl.LocalRunner(checkpoint=place))
    shutil.rmtree(target)
    target.write_text("in the way")
    p.run(bl.LocalRunner(checkpoint=place))


def callback_fails(place: str) -> None:
    pipeline(lambda rows: rows).run(bl.LocalRunner(checkpoint=place, on_batch=told))


def source_fails(place: str) -> None:
    p = bl.Pipeline("p")
    read(p, Broken()).write("out", bl.Memory())
    p.run(bl.LocalRunner(records=place))


def too_many_letters(place: str) -> None:
    p = bl.Pipeline("p", max_dead_letters=0)
    STEPS["map"][0](read(p)).write("out", bl.Memory())
    p.run(bl.LocalRunner(checkpoint=place))


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (sink_fails, {"error": "SinkError", "text": "read only", "sink": "out", "place": "in unwritten"}),
        (sink_cannot_start, {"error": "SinkError", "text": "out"}),
        (callback_fails, {"error": "KeyError", "text": "board", "place": "in told"}),
        (
            source_fails,
            {"error": "TimeoutError", "text": "no answer", "source": "source", "place": "in chunks"},
        ),
        (too_many_letters, {"error": "TooManyDeadLetters", "step": "step", "text": DIVISION}),
    ],
)
def test_other_parts_that_fail(run: Callable[[str], None], expected: dict[str, str], tmp_path: Path) -> None:
    place = str(tmp_path / "checkpoint")
    with pytest.raises(Exception, match=r"."):
        run(place)
    check(failure_of(place), {"step": "", **expected})


def beginnings(run: str) -> dict[str, str]:
    """Returns the first text of each view."""
    history = bl.observe.History.open(run)
    console = Console(width=200)
    with console.capture() as shown:
        console.print(frame(history))
    return {
        "status": next(Status.of(history).lines()),
        "why": bl.observe.why(history)[0],
        "watch": shown.get().splitlines()[0],
        "report": report(history).split("<div class='verdict'><p>")[1].split("</p>")[0],
    }


def test_every_view_begins_with_it(tmp_path: Path) -> None:
    p, place = pipeline(STEPS["map"][0]), str(tmp_path / "checkpoint")
    for _ in range(2):  # the second run repeats the batch
        with pytest.raises(ZeroDivisionError):
            p.run(bl.LocalRunner(checkpoint=place))
    said = "he run failed in batch 0: ZeroDivisionError: integer division or modulo by zero"
    assert {name: said in text for name, text in beginnings(place).items()} == dict.fromkeys(
        ("status", "why", "watch", "report"), True
    )


KILLED = """
import os, signal, sys
import beamlike as bl
from tests.end_to_end.test_why_it_failed import pipeline

def kill(row):
    os.kill(os.getpid(), signal.SIGKILL)

pipeline(lambda rows: rows.map(kill, {"n": int}, name="step")).run(bl.LocalRunner(checkpoint=sys.argv[1]))
"""


def test_a_killed_run_says_where(tmp_path: Path) -> None:
    place = str(tmp_path / "checkpoint")
    died = subprocess.run([sys.executable, "-c", KILLED, place], cwd=ROOT, env={**os.environ}, check=False)
    assert died.returncode == -signal.SIGKILL
    said = "he run was killed in batch 0, in step"
    assert [said in text for text in beginnings(place).values()] == [True] * 4
