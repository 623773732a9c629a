"""A batch without output does not wait for the disk. A run killed before the write resumes from the disk."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from threading import Event, Semaphore

import attrs
import polars as pl

import beamlike as bl
from beamlike.records.tail import last_recorded
from beamlike.records.writer import RECORDS_FILE
from beamlike.runtime.loop.checkpoint import LocalCheckpoint
from beamlike.runtime.loop.journal import MOST_AHEAD, Journal
from beamlike.runtime.loop.logged_batch import LoggedBatch
from tests.support import ahead_job
from tests.support.ahead_job import DIES_AT, NUMBERS, STUCK_FROM, Numbers, pipeline

SUMS = [sum(range(100)), sum(range(100, NUMBERS))]


def records(folder: Path) -> str:
    return LocalCheckpoint(str(folder / "checkpoint")).at(RECORDS_FILE)


def sums(folder: Path) -> list[int]:
    found = pl.concat(map(pl.read_ndjson, (folder / "out").glob("*.jsonl")))
    return sorted(found["total"].to_list())


def test_a_run_that_is_killed_ahead_of_its_journal_goes_on_with_other_batches(tmp_path: Path) -> None:
    # Without output, batches go on while the disk does not answer; the process is killed some batches later.
    command = [sys.executable, "-m", ahead_job.__name__, str(tmp_path)]
    assert subprocess.run(command, timeout=60, check=False).returncode == 9
    assert last_recorded(records(tmp_path)) < STUCK_FROM < DIES_AT // 10 - 2
    run = pipeline(Numbers(7), tmp_path / "out").run(
        bl.LocalRunner(checkpoint=tmp_path / "checkpoint", drain=True)
    )
    assert run.batches[0].batch <= STUCK_FROM
    assert sums(tmp_path) == SUMS


def test_who_observes_batches_sees_each_when_its_record_is_stored(tmp_path: Path) -> None:
    seen = list[tuple[int, int]]()
    observed = bl.LocalRunner(
        checkpoint=tmp_path / "checkpoint",
        drain=True,
        on_batch=lambda record: seen.append((record.batch, last_recorded(records(tmp_path)))),
    )
    pipeline(Numbers(10), tmp_path / "out").run(observed)
    assert len(seen) >= NUMBERS // 10
    assert all(batch == recorded for batch, recorded in seen)


@attrs.define(eq=False)
class Waiting(Journal):
    """A journal that counts how often it waits for the disk."""

    waits: int = 0

    def settle(self, within: float | None = None) -> None:
        self.waits += 1
        super().settle(within)


def test_no_more_batches_are_ahead_of_the_disk_than_allowed(tmp_path: Path) -> None:
    path = str(tmp_path / "journal.sqlite")
    with closing(Waiting.open(path, LocalCheckpoint(str(tmp_path)).damaged, new=True)) as journal:
        for number in range(3 * MOST_AHEAD):
            batch = LoggedBatch(number, number, 0, {})
            journal.begin(batch)
            journal.put("stage", "key", b"%d" % number)
            journal.commit(batch)
            assert journal.get("stage", "key") == b"%d" % number
        assert journal.waits == 2
        journal.settle()
        assert journal.get("stage", "key") == b"%d" % number


def test_changes_that_wait_for_the_disk_share_a_transaction(tmp_path: Path) -> None:
    path, slow, others = str(tmp_path / "journal.sqlite"), Event(), list[int]()
    statements = list[str]()
    with closing(Journal.open(path, LocalCheckpoint(str(tmp_path)).damaged, new=True)) as journal:
        journal._connection.set_trace_callback(statements.append)
        journal.later(slow.wait)
        for number in range(3):
            batch = LoggedBatch(number, number, 0, {})
            journal.begin(batch)
            journal.later(partial(others.append, number))  # as the record of the batch
            journal.put("stage", "key", b"%d" % number)
            journal.commit(batch)
        slow.set()
        journal.settle()
        assert others == [0, 1, 2]
        # The first begins; then twice a batch is done and the next one begins; the last is done.
        assert statements.count("COMMIT") == 4
        assert [done for _, done in journal.logged()] == [True] * 3
    with closing(Journal.open(path, LocalCheckpoint(str(tmp_path)).damaged, new=False)) as journal:
        assert journal.get("stage", "key") == b"2"


def test_input_does_not_wait_for_the_disk_while_a_run_polls(tmp_path: Path) -> None:
    slow, ran = Event(), Semaphore(0)

    def none(value: int) -> bool:
        ran.release()
        return value < 0

    def arrive(number: int) -> None:
        file = tmp_path / f"{number}.parquet"
        pl.DataFrame({"value": [number]}).write_parquet(file)
        file.rename(tmp_path / "in" / file.name)
        assert ran.acquire(timeout=60), f"the run does not read {file.name}"

    p = bl.Pipeline("polls")
    (tmp_path / "in").mkdir()
    read = p.read("numbers", bl.Parquet(tmp_path / "in", {"value": int}))
    read.filter(lambda row: none(row["value"])).write("out", bl.Memory())
    run = bl.LocalRunner(checkpoint=tmp_path / "checkpoint", trigger="300 milliseconds").start(p.plan())
    try:
        arrive(0)
        arrive(1)  # the first batch, which always waits for the disk, is over
        run._opened.journal.later(slow.wait)
        arrive(2)
        arrive(3)
    finally:
        slow.set()
        run.stop()
