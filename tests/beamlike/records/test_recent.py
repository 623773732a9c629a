"""The records of the last batches, which a run keeps in memory."""

from __future__ import annotations

import gc

from beamlike.records.model import BatchRecord, SourceRecord, StageRecord
from beamlike.records.recent import RecentRecords


def record(number: int) -> BatchRecord:
    return BatchRecord(
        number,
        1_000 * number,
        {"plays": SourceRecord(number, elements=number)},
        {"totals": StageRecord(number, number, "plays", panes={"on_time": 1})},
    )


def filled(count: int, most: int = 10_000) -> RecentRecords:
    recent = RecentRecords(most)
    for number in range(count):
        recent.append(record(number))
    return recent


def test_they_are_a_sequence() -> None:
    recent, known = filled(5), [record(number) for number in range(5)]
    assert (len(recent), list(recent), recent.last) == (5, known, known[-1])
    assert (recent[0], recent[-2], recent[1:4], recent[::-1]) == (
        known[0],
        known[-2],
        known[1:4],
        known[::-1],
    )
    assert (recent.index(known[3]), known[2] in recent, record(9) in recent) == (3, True, False)
    assert repr(recent) == repr(known)


def test_without_batches_there_is_no_last_record() -> None:
    recent = RecentRecords()
    assert (recent.last, len(recent), list(recent)) == (None, 0, [])


def test_only_the_last_are_kept() -> None:
    recent = filled(7, most=3)
    assert [one.batch for one in recent] == [4, 5, 6]


def test_a_record_that_is_added_meanwhile_does_not_disturb_a_reader() -> None:
    recent = filled(3, most=3)
    seen = []
    for one in recent:
        seen.append(one.batch)
        recent.append(record(10))
    assert seen == [0, 1, 2]


def test_garbage_collection_does_not_go_through_them() -> None:
    before = len(gc.get_objects())
    recent = filled(1_000)
    assert len(gc.get_objects()) - before < 500
    assert len(recent) == 1_000
