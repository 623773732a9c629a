"""Ctrl-C while a pipeline runs in process: the current batch is finished, and earlier results stay."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import polars as pl
import pytest
from click.testing import CliRunner

import beamlike as bl
from beamlike.cli.main import main
from beamlike.records.history import History
from beamlike.records.model import BatchRecord

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def _heard() -> Iterator[None]:
    """Enables Ctrl-C, also where a shell runs these tests in the background and has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def minutes(count: int) -> bl.Pipeline:
    """Declares a row a minute, each in a batch of its own, counted by minutes."""
    p = bl.Pipeline("minutes")
    rows = bl.Rows([{"at": 60 * n} for n in range(count)], rows_per_batch=1)
    read = p.read("rows", rows, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    read.window_into(bl.FixedWindows("1m")).aggregate(n=bl.count()).write("out", bl.Parquet("out"))
    return p


def pressing(times: int, batch: int) -> Callable[[BatchRecord], None]:
    """Returns a callback that presses Ctrl-C `times` times in this batch."""

    def on_batch(record: BatchRecord) -> None:
        for _ in range(times if record.batch == batch else 0):
            signal.raise_signal(signal.SIGINT)

    return on_batch


def written() -> list[int]:
    return sorted(pl.read_parquet("out")["window_start"].dt.minute().to_list())


def test_the_batch_in_hand_is_finished_and_what_was_done_so_far_stays() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt) as caught:
        minutes(9).run(bl.LocalRunner(on_batch=pressing(1, 3), records="records.jsonl"))
    assert [record.batch for record in caught.value.run.batches] == [0, 1, 2, 3]  # type: ignore[attr-defined]
    assert written() == [0, 1, 2]
    assert History.open("records.jsonl").closed == "stopped"
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_one_gives_the_batch_up_and_leaves_what_an_earlier_run_has_written() -> None:
    minutes(2).run()
    with pytest.raises(KeyboardInterrupt):
        minutes(9).run(bl.LocalRunner(on_batch=pressing(2, 3), records="records.jsonl"))
    assert written() == [0, 1]
    assert History.open("records.jsonl").closed == "stopped"


@attrs.frozen
class Pressed(bl.JSONLines):
    """Presses Ctrl-C twice while its files replace the files of an earlier run."""

    def publish(self, run: str) -> None:
        for _ in range(2):
            signal.raise_signal(signal.SIGINT)
        super().publish(run)


def shown_by_two(count: int) -> bl.Pipeline:
    p = bl.Pipeline("two")
    rows = p.read("rows", bl.Rows([{"n": n} for n in range(count)]))
    for name in ("first", "second"):
        rows.write(name, Pressed(name))
    return p


def in_both() -> list[int]:
    return [len(pl.read_ndjson(f"{name}/*")) for name in ("first", "second")]


def test_files_of_all_sinks_replace_those_of_an_earlier_run_before_it_ends() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    for count in (2, 9):
        with pytest.raises(KeyboardInterrupt) as caught:
            shown_by_two(count).run(bl.LocalRunner(records="records.jsonl"))
        assert caught.value.run.batches[0].sources["rows"].elements == count  # type: ignore[attr-defined]
        assert in_both() == [count, count]
        assert History.open("records.jsonl").closed == "ended"
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


@pytest.mark.slow
@pytest.mark.spark
def test_so_they_do_on_spark(spark: SparkSession) -> None:
    shown_by_two(2).run(bl.SparkRunner(session=spark, shards=1))
    assert in_both() == [2, 2]


def test_the_command_shows_what_was_done_and_ends_as_programs_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "pressed.py").write_text(
        """
import signal
import beamlike as bl

def press(row):
    if row["n"] == 2:
        signal.raise_signal(signal.SIGINT)
    return row

p = bl.Pipeline("p")
rows = bl.Rows([{"n": n} for n in range(5)], rows_per_batch=1)
p.read("rows", rows).map(press, {"n": int}).write("out", bl.JSONLines("numbers"))
"""
    )
    result = CliRunner().invoke(main, ["run", "pressed:p"])
    assert result.exit_code == 130
    assert "rows" in result.stdout
    assert pl.read_ndjson("numbers/*")["n"].sort().to_list() == [0, 1, 2]
