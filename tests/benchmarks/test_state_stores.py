"""The benchmark of the two stores of state measures what it says."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import polars as pl
import pytest

from benchmarks import state_stores_report as report
from benchmarks.family import Meter, family
from benchmarks.state_stores_job import WARM, Case, Turns, moved, requested


@pytest.mark.parametrize("operator", ["running", "windows"])
@pytest.mark.parametrize("keys", ["random", "growing"])
def test_batches_are_on_a_state_of_the_requested_size(operator: str, keys: str, tmp_path: Path) -> None:
    case = Case("rows", operator, keys, rows=500, shards=1, batches=2, arrivals=30)
    first, *others = case.frames()
    assert sorted(first["user"]) == [*range(500)]
    assert [len(frame) for frame in others] == [30] * (WARM + 2)
    assert case.before == WARM + 1
    users = pl.concat(others)["user"]
    assert (
        (users.n_unique(), users.min()) == (30 * (WARM + 2), 500) if keys == "growing" else users.max() < 500
    )
    case.write(tmp_path / "data")
    assert case.pipeline(tmp_path / "data", tmp_path / "out").plan().stages.keys() == {"totals"}


def test_two_processes_take_turns(tmp_path: Path) -> None:
    pipes = [tmp_path / "one", tmp_path / "other"]
    for pipe in pipes:
        os.mkfifo(pipe)
    turns = Turns.of(*pipes, leads=True), Turns.of(*reversed(pipes), leads=False)
    done = list[int]()

    def take(number: int) -> None:
        if number:
            turns[number].give()
        for batch in range(3):
            turns[number].wait()
            done.append(10 * batch + number)
            turns[number].give()

    threads = [threading.Thread(target=take, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == [0, 1, 10, 11, 20, 21]


def test_requests_are_counted_by_method_and_folder_for_a_bucket(tmp_path: Path) -> None:
    text = """
127.0.0.1 - - [27/Nov/2026 11:07:17] "PUT /mine/checkpoint/beamlike/state/data/0-1 HTTP/1.1" 200 -
127.0.0.1 - - [27/Nov/2026 11:07:17] "\033[33mHEAD /mine/checkpoint/offsets/7 HTTP/1.1\033[0m" 404 -
127.0.0.1 - - [27/Nov/2026 11:07:17] "GET /mine?list-type=2&prefix=checkpoint%2Fcommits%2F HTTP/1.1" 200 -
127.0.0.1 - - [27/Nov/2026 11:07:17] "GET /other/checkpoint/offsets/7 HTTP/1.1" 200 -
"""
    (tmp_path / "log").write_text(text)
    assert [*requested(tmp_path / "log", "mine")] == [
        "PUT beamlike/state/data",
        "HEAD offsets",
        "LIST commits",
    ]


def test_a_task_has_moved_if_its_shard_was_on_another_executor_in_the_batch_before(tmp_path: Path) -> None:
    lines = list[str]()
    for batch, executors in enumerate(["01", "00", "10"]):
        properties = f'{{"streaming.sql.batchId": "{batch}"}}'
        lines.append(
            f'{{"Event": "SparkListenerJobStart", "Stage IDs": [{batch}], "Properties": {properties}}}'
        )
        for shard, executor in enumerate(executors):
            task = f'{{"Index": {shard}, "Executor ID": "{executor}"}}'
            lines.append(f'{{"Event": "SparkListenerTaskEnd", "Stage ID": {batch}, "Task Info": {task}}}')
    (tmp_path / "log").write_text("\n".join(lines))
    assert moved(tmp_path) == 2 / 4


def test_the_time_of_a_meter_does_not_count() -> None:
    meter = Meter()
    before = meter.read()
    with meter.aside():
        sum(range(3_000_000))
    aside = meter.read().since(before).cpu
    sum(range(3_000_000))
    assert meter.read().since(before).cpu > 2 * aside
    assert family()[0].pid == os.getpid()
    assert family()[0].memory > 1_000_000


def test_the_tables_have_both_stores_side_by_side() -> None:
    of = {"operator": "running", "keys": "random", "rows": 1_000, "shards": 1, "wall": 9.0, "written": 5.0}
    figures = [
        {**of, "part": "rows", "store": store, "cpu": cpu, "state MB": 1.0}
        for store, cpu in (("files", 200.0), ("spark", 400.0))
    ]
    assert "| running | random | 1,000 | 1 | 200 | 400 | 0.50 | 9 | 9 | 5 | 5 | 1.0 | 1.0 |" in [
        *report.lines(figures)
    ]
    assert not any("1,000" in line for line in report.lines(figures[:1]))
