"""A hanging batch is visible: its stage or step, its duration, and both lags."""

from __future__ import annotations

import os
import re
import select
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import polars as pl
import pytest
from prometheus_client import CollectorRegistry

import beamlike as bl
from beamlike.errors import RecordsInUse, UnknownKey
from beamlike.observe.metrics import PrometheusMetrics
from beamlike.observe.report import report
from beamlike.observe.waiting.explain import why
from beamlike.records.history import History
from tests.beamlike.observe.test_watch import text as watched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECOND = 1_000_000
LONG = 252 * SECOND
NUMBERS = range(4)


@attrs.frozen
class Hang:
    """Hangs on one number until it is released, in any process, by two named pipes."""

    folder: Path
    on: int = 2

    def __call__(self, number: int) -> None:
        if number == self.on:
            (self.folder / "reached").write_text("here")
            (self.folder / "released").read_text()

    @contextmanager
    def hangs_while(self, run: Callable[[], object]) -> Iterator[None]:
        """Runs a function in a thread, waits until it hangs, and releases it at the end of the block."""
        for name in ("reached", "released"):
            os.mkfifo(self.folder / name)
        reached = os.open(self.folder / "reached", os.O_RDONLY | os.O_NONBLOCK)
        thread = threading.Thread(target=run)
        thread.start()
        try:
            assert select.select([reached], [], [], 120)[0], "it never came to hang"
            try:
                yield
            finally:
                (self.folder / "released").write_text("go on")
        finally:
            thread.join(120)
            os.close(reached)


class Slow(bl.CombineFn):
    """A count that hangs as `hang` does."""

    def __init__(self, hang: Hang) -> None:
        self.hang = hang

    def create_accumulator(self) -> int:
        return 0

    def add_input(self, accumulator: int, element: int) -> int:
        self.hang(element)
        return accumulator + 1

    def merge_accumulators(self, accumulators: list[int]) -> int:
        return sum(accumulators)

    def extract_output(self, accumulator: int) -> int:
        return accumulator


def scores(hang: Hang, where: str) -> bl.Pipeline:
    """Declares a row a batch, a second apart; the run hangs in a step, in the second of two stages, or in a sink."""
    quick = Hang(hang.folder, on=-1)
    in_step, in_stage, in_sink = (hang if where == place else quick for place in ("step", "stage", "sink"))

    def work(row: dict[str, Any]) -> dict[str, Any]:
        in_step(row["number"])
        return row

    def keep(frame: pl.DataFrame, batch: int) -> None:
        for number in frame["number"]:
            in_sink(number)

    p = bl.Pipeline("scores")
    rows = bl.Rows([{"at": number, "number": number} for number in NUMBERS], rows_per_batch=1)
    read = p.read("rows", rows, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    worked = read.map(work, name="work").window_into(bl.FixedWindows("1s"))
    first = worked.group_by("number", name="first").aggregate(n=bl.count())
    first.write("firsts", bl.Callback(keep))
    slow = bl.combine(Slow(in_stage), "number", int)
    first.aggregate(n=slow).named("second").write("out", bl.Memory())
    return p


def scraped(registry: CollectorRegistry, metric: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"beamlike_{metric}", {"pipeline": "scores", **labels})


@attrs.define
class Looked:
    """The reports of a hanging run, `LONG` after its batch began."""

    history: History
    metrics: PrometheusMetrics
    now: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        assert self.history.in_hand is not None
        self.now = self.history.in_hand.started + LONG

    def says(self, batch: int, kind: str, name: str, inside: str) -> None:
        """Checks that all reports name the hanging step, and that the run is alive."""
        work = f"{kind} `{name}`{inside}"
        assert self.history.alive
        said = f"batch {batch} has been running for 4m12s: {work}, for "
        assert any(text.startswith(said) for text in why(self.history, now=self.now))
        assert why(self.history, now=self.now)[0].endswith("; the run is running")
        assert said in " ".join(watched(self.history, now=self.now).split())
        page = re.sub(r"<[^>]*>", "", report(self.history, self.now))
        assert f"Stuck: {said}".replace("`", "") in page
        self.metrics.clock = lambda: self.now
        assert scraped(self.metrics.registry, "batch_in_hand") == batch
        assert scraped(self.metrics.registry, "batch_in_hand_seconds") == 252
        at = scraped(self.metrics.registry, "work_in_hand_seconds", kind=kind, name=name)
        assert at is not None
        assert 245 <= at <= 252

    def lags(self, stage: str, later: int = 0) -> dict[str, float]:
        """Returns lags in seconds, by kind; checks that metrics and views agree."""
        self.metrics.clock = lambda: self.now + later
        present = self.history.present(self.now + later)
        assert present.batch is not None
        record = present.batch.stages[stage]
        lags = {
            "input_lag": present.lag(record.input),
            "output_lag": present.lag(record.output),
            "input_system_lag": present.input_system_lag(stage),
            "output_system_lag": present.output_system_lag(stage),
        }
        found = {kind: (lag or 0) / SECOND for kind, lag in lags.items()}
        named = {kind: scraped(self.metrics.registry, f"stage_{kind}_seconds", stage=stage) for kind in lags}
        assert named == found
        return found

    def grow(self, stage: str) -> set[str]:
        """Returns the lags of the stage that grow by a minute in a minute; the others must stay."""
        now, later = self.lags(stage), self.lags(stage, later=60 * SECOND)
        grown = {kind: later[kind] - lag for kind, lag in now.items()}
        assert set(grown.values()) <= {0, 60}
        return {kind for kind, by in grown.items() if by}


@contextmanager
def hanging(hang: Hang, run: Callable[[PrometheusMetrics], object], records: Path) -> Iterator[Looked]:
    metrics = PrometheusMetrics("scores", CollectorRegistry())
    with hang.hangs_while(lambda: run(metrics)):
        yield Looked(History.open(records), metrics)


EVENT = {"input_lag", "output_lag"}


@pytest.mark.parametrize(
    ("where", "batch", "work", "growing"),
    [
        # If a step before the first stage hangs, all stages wait; figures 3-12 and 3-13.
        ("step", 2, ("step", "work", " (in source `rows`)"), ({"input", "output"}, {"input", "output"})),
        ("stage", 3, ("stage", "second", ""), (set(), {"output"})),
        # Stages that have finished the batch do not wait for later ones.
        ("sink", 3, ("sink", "firsts", ""), (set(), set())),
    ],
)
def test_where_a_run_in_process_hangs_is_told(
    tmp_path: Path, where: str, batch: int, work: tuple[str, str, str], growing: tuple[set[str], set[str]]
) -> None:
    hang, records = Hang(tmp_path), tmp_path / "run.jsonl"

    def run(metrics: PrometheusMetrics) -> None:
        scores(hang, where).run(bl.LocalRunner(records=records, on_batch=metrics))

    with hanging(hang, run, records) as looked:
        looked.says(batch, *work)
        for stage, sides in zip(("first", "second"), growing, strict=True):
            assert looked.grow(stage) == EVENT | {f"{side}_system_lag" for side in sides}
        with pytest.raises(
            RecordsInUse, match=rf"belong to another run that is alive, in process {os.getpid()} "
        ):
            scores(Hang(tmp_path, on=-1), where).run(bl.LocalRunner(records=records))
    history = History.open(records)
    assert (history.closed, history.in_hand, history.latest and history.latest.batch) == ("ended", None, 4)
    left = ["reached", "released", "run.jsonl", "run.jsonl.keys"]
    assert sorted(file.name for file in tmp_path.iterdir()) == left
    asks_for_keys(history)


def asks_for_keys(history: History) -> None:
    """Asks `why` for keys that arrived, keys that did not, and impossible ones."""
    none = "no element of key 7 has arrived at stage `first` in this run: there is nothing to wait for"
    assert none in why(history, stage="first", key="7")
    assert none in why(history, key="7", window="1970-01-01T00:00:01Z/1970-01-01T00:00:02Z")
    for number in NUMBERS:
        told = why(history, stage="first", key=str(number))
        assert (
            f"stage `first` has no windows in state, of key {number} or any other: none waits for anything"
            in told
        )
    with pytest.raises(UnknownKey, match=r"^stage `first` has no key 'ada': a key is number \(Int64\)$"):
        why(history, stage="first", key="ada")


@pytest.mark.slow
@pytest.mark.spark
def test_where_a_run_on_spark_hangs_is_told(spark: SparkSession, tmp_path: Path) -> None:
    hang, checkpoint = Hang(tmp_path), tmp_path / "checkpoint"

    def run(metrics: PrometheusMetrics) -> None:
        runner = bl.SparkRunner(str(checkpoint), session=spark, shards=2, drain=True, on_batch=metrics)
        scores(hang, "stage").run(runner)

    with hanging(hang, run, checkpoint) as looked:
        looked.says(3, "stage", "second", "")
        # The first stage is of an earlier level, and so done.
        assert looked.grow("first") == EVENT
        assert looked.grow("second") == EVENT | {"output_system_lag"}
    history = History.open(checkpoint)
    assert (history.closed, history.in_hand) == ("ended", None)
    names = {file.name for file in (checkpoint / "beamlike").iterdir()}
    assert {name for name in names if name.startswith("records")} == {"records.jsonl", "records.jsonl.keys"}
    asks_for_keys(history)
