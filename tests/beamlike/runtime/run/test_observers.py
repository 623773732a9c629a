"""The observers of a batch and their order: its record, then the user's function, then checks that fail the run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import beamlike as bl
from beamlike.records.model import BatchRecord, SourceRecord
from beamlike.runtime.run.dead_letter_limit import Counted, DeadLetterLimit
from beamlike.runtime.run.observers import Observers
from beamlike.runtime.run.progress import Progress
from beamlike.runtime.run.run_records import RunRecords


def plays() -> bl.Pipeline:
    p = bl.Pipeline("p", max_dead_letters=0)
    source = bl.Rows([{"at": 1}, {"at": None}])
    rows = p.read("plays", source, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    rows.write("out", bl.Memory())
    return p


def record(batch: int = 0, lost: int = 0) -> BatchRecord:
    errors = {"plays": "no event time"} if lost else {}
    return BatchRecord(batch, 0, {"plays": SourceRecord(0, elements=1, dead_letters=lost)}, {}, errors=errors)


@contextmanager
def observers(
    path: Path,
    on_batch: Callable[[BatchRecord], object] | None,
    keep: Callable[[Counted], object] = lambda counted: None,
) -> Iterator[Observers]:
    plan = plays().plan()
    records = RunRecords.open(path, plan, lambda: 0, fresh=True)
    try:
        yield Observers.of(
            plan,
            DeadLetterLimit(0, keep=keep),
            records=records,
            progress=Progress("p"),
            on_batch=on_batch,
            clock=lambda: 0,
        )
    finally:
        records.close("ended")


def numbers(path: Path) -> list[int]:
    """Returns the batches whose records are in the file."""
    return [
        facts["batch"] for line in path.read_text().splitlines() if "batch" in (facts := json.loads(line))
    ]


def test_the_record_is_there_when_on_batch_is_called(tmp_path: Path) -> None:
    seen: list[list[int]] = []
    path = tmp_path / "run.jsonl"
    with observers(path, lambda record: seen.append(numbers(path))) as told:
        told.take(record(0))
        told.take(record(1))
    assert seen == [[0], [0, 1]]


def test_the_record_is_there_where_on_batch_fails_and_nobody_else_is_told(tmp_path: Path) -> None:
    path, kept = tmp_path / "run.jsonl", list[Counted]()

    def fail(record: BatchRecord) -> None:
        raise ZeroDivisionError

    with observers(path, fail, kept.append) as told, pytest.raises(ZeroDivisionError):
        told.take(record(lost=1))
    assert (numbers(path), kept) == ([0], [])


def test_too_many_dead_letters_fail_the_run_when_all_have_been_told(tmp_path: Path) -> None:
    seen, kept = list[BatchRecord](), list[Counted]()
    path = tmp_path / "run.jsonl"
    with observers(path, seen.append, kept.append) as told:
        with pytest.raises(bl.TooManyDeadLetters) as raised:
            told.take(record(lost=1))
        assert told.losses.limit.exceeded is raised.value
    assert [one.batch for one in seen] == numbers(path) == [0]
    assert [counted.batch for counted in kept] == [0]  # a resumed run knows them


def test_in_process_all_are_told_in_this_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path, seen = tmp_path / "run.jsonl", list[list[int]]()
    with pytest.raises(bl.TooManyDeadLetters):
        plays().run(bl.LocalRunner(records=path, on_batch=lambda record: seen.append(numbers(path))))
    assert seen == [[0]]
