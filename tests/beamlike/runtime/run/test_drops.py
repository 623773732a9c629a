"""Elements that stages drop are reported: at the end of a run, in its repr, and, if they are many, in the log."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import pytest

import beamlike as bl
from beamlike.records.model import BatchRecord, StageRecord
from beamlike.runtime.display.summary import lost_rows
from beamlike.runtime.run.drops import DroppedCounts, dropped_rows

ROWS = {"user": str, "at": int}
ADVICE = (
    "give more allowed_lateness=, or the source a watermark with a larger bound; "
    "its .late() gives them as a collection"
)


def totals(*bundles: Iterable[int], windows: bl.WindowFn | None = None, taken: bool = False) -> bl.Pipeline:
    """Declares counts per minute; the watermark is at 120 s when the second bundle arrives."""
    first, *others = bundles
    stream = bl.TestStream(ROWS).add_elements([{"user": "ada", "at": at} for at in first])
    stream = stream.advance_watermark_to(120)
    for bundle in others:
        stream = stream.add_elements([{"user": "ada", "at": at} for at in bundle])
    p = bl.Pipeline("p")
    rows = p.read("rows", stream.advance_watermark_to_infinity(), timestamp="at", timestamp_unit="s")
    windowed = rows.window_into(windows or bl.FixedWindows("60s"))
    counted = windowed.group_by("user", name="totals").aggregate(n=bl.count())
    counted.write("out", bl.Memory())
    if taken:
        counted.late().write("lost", bl.Memory())
    return p


def test_a_run_says_at_its_end_what_was_dropped_and_what_to_do() -> None:
    run = totals([1, 2], [3, 4, 130]).run()
    text = f"2 of 5 elements that totals dropped, as they arrived later than the allowed lateness: {ADVICE}"
    assert list(lost_rows(run)) == [text]
    assert repr(run) == f"<LocalRun of 'p': 5 batches; {text}>"


def test_each_reason_is_told_apart() -> None:
    gaps = bl.SlidingWindows("60s", period="120s")
    late, outside = lost_rows(totals([1, 70], [3, 71, 130], windows=gaps).run())
    assert late.startswith(
        "1 of 5 elements that totals dropped, as they arrived later than the allowed lateness: "
    )
    assert outside.startswith("2 of 5 elements that totals dropped, as they were in a gap between windows: ")


def test_what_a_collection_takes_is_told_with_where_it_is_and_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    run = totals([1, 2], [3, 4], taken=True).run()
    assert repr(run).endswith("dropped, as they arrived later than the allowed lateness: see lost>")
    assert not caplog.records


def test_a_run_that_drops_nothing_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    assert repr(totals([1, 2], [130]).run()) == "<LocalRun of 'p': 5 batches>"
    assert not caplog.records


@pytest.mark.parametrize(("late", "told"), [(1, 0), (2, 1)])
def test_more_than_a_hundredth_is_logged(late: int, told: int, caplog: pytest.LogCaptureFixture) -> None:
    totals([], [*[3] * late, *[130] * (100 - late)], [*[130] * 50]).run()
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == told
    for message in messages:
        assert message == (
            "stage 'totals' dropped 2 of the last 150 elements up to the last batch (2 arrived later than the allowed "
            f"lateness): {ADVICE}"
        )


def batch(number: int, placed: int, late: int) -> BatchRecord:
    stage = StageRecord(
        0, 0, "nothing", elements=placed, panes={}, dropped={"late": late} if late else {}, placed=placed
    )
    return BatchRecord(number, 0, {}, {"totals": stage})


def test_it_is_logged_again_when_it_has_doubled(caplog: pytest.LogCaptureFixture) -> None:
    drops = DroppedCounts(totals([1]).plan())
    with caplog.at_level(logging.WARNING, "beamlike"):
        for number in range(100):
            drops.take(batch(number, 1_000, 100))
        drops.end()
    told = [record.getMessage().partition(" (")[0] for record in caplog.records]
    assert told == [
        f"stage 'totals' dropped 100 of the last 1,000 elements up to batch {number}"
        for number in (0, 1, 3, 7, 15, 31, 63)
    ]


def test_small_batches_are_looked_at_together_and_a_long_quiet_time_hides_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    drops = DroppedCounts(totals([1]).plan())
    for number in range(10_000):
        drops.take(batch(number, 10, 0))
    for number in range(10_000, 10_100):
        drops.take(batch(number, 10, 1))
    (record,) = caplog.records
    assert "dropped 100 of the last 1,000 elements up to batch 10099 (" in record.getMessage()


def test_a_reason_that_only_its_operator_knows_is_told_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    plan = totals([1]).plan()
    stage = StageRecord(0, 0, "nothing", elements=2, panes={}, dropped={"gone stale": 2}, placed=2)
    record = BatchRecord(0, 0, {}, {"totals": stage})
    assert list(dropped_rows(plan, [record])) == [
        "2 of 2 elements that totals dropped, by the reason 'gone stale': its .late() gives them as a collection"
    ]
    drops = DroppedCounts(plan)
    drops.take(record)
    drops.end()
    assert "(2 gone stale): its .late() gives them as a collection" in caplog.text
