"""Records of an endless run: their file stays small, and its counts stay complete."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest

from beamlike.observe.report import report
from beamlike.observe.totals import totals
from beamlike.observe.waiting.explain import why
from beamlike.observe.watch import frame
from beamlike.records.history import History
from beamlike.records.model import BatchRecord
from beamlike.records.writer import RecordWriter
from tests.support.histories import PLAN, at, waiting

MOST = 60_000


def batch(number: int) -> BatchRecord:
    """Returns a batch with many events, a second after the one before."""
    record = waiting(elements=3, dead_letters=number % 2, read=5)
    stage = record.stages["sessions"]
    sessions = attrs.evolve(
        stage,
        elements=7,
        panes={"on_time": 1} if number % 3 else {"late": 2},
        dropped={"late": number % 4},
        placed=9,
        emitted=4,
        pending=number,
    )
    return attrs.evolve(
        record,
        batch=number,
        processing_time=at(300 + number),
        stages={**record.stages, "sessions": sessions},
        sinks={"out": 2},
        dead_letters={"parse": number % 3} if number % 5 else {},
        errors={"parse": f"no {number}"} if number % 3 else {},
    )


def written(path: Path, numbers: range, most: int = MOST) -> RecordWriter:
    """Writes the records of these batches and returns the writer."""
    writer = RecordWriter.open(path, PLAN, most)
    for number in numbers:
        writer.write(batch(number))
        assert path.stat().st_size <= most + 2_000
    return writer


def test_the_file_stays_small_and_all_counts_stay(tmp_path: Path) -> None:
    written(tmp_path / "run.jsonl", range(500))
    written(tmp_path / "whole.jsonl", range(500), most=10_000_000)
    small, whole = History.open(tmp_path / "run.jsonl"), History.open(tmp_path / "whole.jsonl")
    assert len(small.batches) < 80 < len(whole.batches)
    assert totals(small) == totals(whole)
    assert sum(record.batches for record in small.batches) == len(whole.batches)
    for counted in ("sinks", "dead_letters"):
        ours, theirs = (
            sum(sum(getattr(record, counted).values()) for record in history.batches)
            for history in (small, whole)
        )
        assert ours == theirs


def test_the_newest_batches_are_told_one_by_one_and_the_older_the_coarser(tmp_path: Path) -> None:
    written(tmp_path / "run.jsonl", range(500))
    batches = History.open(tmp_path / "run.jsonl").batches
    assert batches[-20:] == [batch(number) for number in range(480, 500)]
    sizes = [record.batches for record in batches]
    assert sizes[0] > 30
    assert sorted(sizes[:-20], reverse=True)[:5] == sizes[:5]
    assert [record.batch for record in batches] == sorted({record.batch for record in batches})


def test_a_record_of_several_batches_stands_where_the_last_one_left_things() -> None:
    both = batch(3).then(batch(4))
    assert (both.batch, both.batches, both.processing_time) == (4, 2, batch(4).processing_time)
    stage, source = both.stages["sessions"], both.sources["console"]
    assert (stage.elements, stage.placed, stage.emitted, stage.pending) == (14, 18, 8, 4)
    assert (stage.panes, stage.dropped) == ({"late": 2, "on_time": 1}, {"late": 3})
    assert (source.elements, source.dead_letters, source.read, source.filtered) == (6, 1, 10, 3)
    assert (both.sinks, both.dead_letters, both.errors) == ({"out": 4}, {"parse": 1}, {"parse": "no 4"})
    old = attrs.evolve(batch(4), sources={}, stages={})
    assert old.then(batch(5)).stages == batch(5).stages
    assert batch(5).then(old).stages == batch(5).stages


def test_why_report_and_watch_work_on_what_is_left(tmp_path: Path) -> None:
    writer = written(tmp_path / "run.jsonl", range(300))
    history = History.open(tmp_path / "run.jsonl")
    assert why(history) == why(History(PLAN, [batch(299)]))
    assert "300 batches" in report(history)
    assert frame(history)
    writer.write(batch(300))
    assert history.refresh()
    assert history.latest == batch(300)


def test_who_follows_a_run_goes_on_over_a_file_that_was_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    writer = written(path, range(1))
    history = History.open(path)
    for number in range(1, 300):
        writer.write(batch(number))
        assert history.refresh()
        assert history.latest == batch(number)
    writer.close("ended")
    assert history.refresh()
    assert (history.closed, history.plan) == ("ended", PLAN)


def test_a_run_that_goes_on_knows_its_last_batch_and_runs_it_again(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    written(path, range(300))
    again = RecordWriter.open(path, PLAN, MOST)
    assert again.last == batch(299)
    for number in range(299, 600):
        again.write(batch(number))
    history = History.open(path)
    assert sum(record.batches for record in history.batches) == 600
    assert sum(record.sinks["out"] for record in history.batches) == 1_200


def test_records_of_before_there_were_dead_letters_of_steps_are_read() -> None:
    facts = json.loads(batch(1).to_json())
    for name in ("dead_letters", "errors", "batches"):
        del facts[name]
    for stage in facts["stages"].values():
        for name in ("placed", "emitted", "pending"):
            del stage[name]
    for source in facts["sources"].values():
        del source["read"]
    old = BatchRecord.from_json(json.dumps(facts))
    assert (old.dead_letters, old.sources["console"].filtered, old.stages["sessions"].placed) == (
        {},
        None,
        None,
    )
    both = old.then(batch(2))
    assert (both.sources["console"].read, both.stages["sessions"].placed) == (None, None)


@pytest.mark.parametrize("left", [b"", b'{"plan":', b"nonsense"])
def test_what_a_killed_run_left_of_a_new_file_is_in_nobodys_way(tmp_path: Path, left: bytes) -> None:
    (tmp_path / "run.jsonl.new").write_bytes(left)
    written(tmp_path / "run.jsonl", range(200))
    assert History.open(tmp_path).latest == batch(199)
