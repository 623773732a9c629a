"""The live table: its frames as text; it follows a run to its end."""

from __future__ import annotations

import io
from pathlib import Path

import attrs
from rich.console import Console

from beamlike.observe.totals import totals
from beamlike.observe.watch import frame, watch
from beamlike.records.history import History
from beamlike.records.writer import RecordWriter
from tests.support.histories import PLAN, at, batch, history, source_record, stage_record, waiting, window
from windowing.time import MAX_TIME, MIN_TIME


def text(shown: History, width: int = 80, now: int | None = None) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(frame(shown, now))
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def lines(shown: History, width: int = 80) -> list[str]:
    """Returns the lines that are not empty, with one space between words."""
    return [" ".join(line.split()) for line in text(shown, width).splitlines() if line.strip()]


def busy() -> History:
    """Returns two batches; a key holds the sessions, and these hold the average."""
    first = batch(
        0,
        120,
        {"console": source_record(110, 120, elements=1200, dead_letters=2), "mobile": source_record(100)},
        {"sessions": stage_record(100, 100, elements=1200, panes={"on_time": 3}, dropped={"late": 1})},
    )
    held = stage_record(
        120, 5, {"console": 120, "mobile": 140}, elements=34, panes={"early": 2, "on_time": 1}, live=3, keys=2,
        bytes=12_345, window=window(5, 5, 185, key="[7]"), since=120, finished=at(181.5), percentiles={33: at(130)},
    )  # fmt: skip
    average = stage_record(5, 5, {"sessions": 5}, holder="sessions", since=180, finished=at(182))
    second = batch(
        1,
        180,
        {
            "console": source_record(120, 170, split="3", elements=34),
            "mobile": source_record(140, percentiles={33: at(150)}),
        },
        {"sessions": held, "average": average},
    )
    return history(first, second)


def test_a_frame_says_where_every_watermark_stands_and_how_far_behind():
    shown = lines(busy())
    assert shown[0] == "scores: batch 1 at 2026-01-31T12:03:00Z, runs"
    assert shown[1] == "Watermarks, 2026-01-31; lag of data and system"
    assert "console 12:02:00 1m" in shown
    assert "mobile 12:02:20 40s" in shown
    assert shown.count("33% 12:02:30") == 1
    assert shown.count("33% 12:02:10") == 1
    assert "sessions 12:02:00 12:00:05 1m 2m55s 0s 2s" in shown
    assert "average 12:00:05 12:00:05 2m55s 2m55s 2s 2s" in shown


def test_a_frame_says_what_came_went_out_and_is_in_state():
    shown = lines(busy())
    assert "console 1,234 2 dead" in shown
    at_sessions = shown.index("sessions 1,234 4 on time 1 late 3 2 12 kB")
    assert shown[at_sessions + 1] == "2 early"


def test_a_frame_says_how_many_rows_a_grouping_could_not_use():
    told = batch(
        0, 120, {"console": source_record(110)}, {"sessions": stage_record(100, 100, dropped={"late": 1})}
    )
    shown = lines(history(attrs.evolve(told, dead_letters={"sessions": 3})))
    at_sessions = shown.index("sessions 0 0 1 late 0 0 0 B")
    assert shown[at_sessions + 1] == "3 dead"


def test_a_frame_says_who_holds_since_when():
    shown = lines(busy(), width=120)
    assert "console split 3, silent for 10s" in shown
    assert "mobile its newest elements" in shown
    assert "sessions key [7] in [2026-01-31 12:00:05, 2026-01-31 12:03:05), for 1m" in shown
    assert "average sessions" in shown


def test_idle_and_awaited_sources_and_the_end_of_input_are_told():
    record = waiting(idle=True)
    assert "console split 3, silent for 4m12s, idle" in lines(history(record))
    record = waiting(watermark=MIN_TIME, awaited="split 'us'", split=None)
    assert "console split 'us', awaited, silent for 4m12s" in lines(history(record))
    record = attrs.evolve(record, stages={"average": stage_record(MAX_TIME, MAX_TIME, holder="nothing")})
    assert "average +inf +inf 0s 0s" in lines(history(record))
    assert "console -inf" in lines(history(record))
    assert "average nothing" in lines(history(record))


def test_a_frame_fits_eighty_columns_with_all_figures_whole():
    long = "a source with a name that is long"
    sessions = attrs.evolve(PLAN.stages["sessions"], inputs=(long,))
    plan = attrs.evolve(
        PLAN, sources={long: PLAN.sources["console"]}, stages={**PLAN.stages, "sessions": sessions}
    )
    held = window(0, -90_000, 90_000, key="somebody with a long name")
    stages = {
        "sessions": stage_record(90_000, -90_000, {"console": 1}, elements=123_456_789, window=held, live=12_345_678,
        keys=999_999, bytes=123_456_789, panes={"early": 12_345_678, "on_time": 9}, dropped={"late": 1_234_567}),
        "average": stage_record(-90_000, -90_000),
    }  # fmt: skip
    sources = {"a source with a name that is long": source_record(100_000)}
    shown = text(history(batch(0, 100_000, sources, stages), plan=plan))
    assert max(map(len, shown.splitlines())) <= 80
    for whole in ("02-01 13:00:00", "01-30 11:00:00", "123.5M", "12.3M early", "123 MB", " 999,999 "):
        assert whole in shown


def test_before_the_first_batch_a_frame_says_so():
    assert lines(history()) == ["scores: no batch yet"]


def test_totals_are_over_all_batches():
    total = totals(busy())
    assert total["sessions"].elements == 1234
    assert total["sessions"].panes == {"on_time": 4, "early": 2}
    assert total["sessions"].dropped == {"late": 1}
    assert total["console"].dead_letters == 2


def follow(path: Path, *steps: object) -> str:
    """Returns the content of a terminal after these steps, each of which runs in place of a wait."""
    console = Console(width=80, file=io.StringIO(), force_terminal=True)
    waiting_for = iter(steps)

    def wait(seconds: float) -> None:
        step = next(waiting_for)
        if isinstance(step, type):
            raise step
        step()

    watch(path, console=console, wait=wait)
    assert next(waiting_for, None) is None
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_it_follows_a_run_until_that_has_ended(tmp_path: Path):
    path = tmp_path / "run.jsonl"
    writer = RecordWriter.open(path, PLAN)
    shown = follow(path, lambda: writer.write(waiting()), lambda: None, lambda: writer.close("ended"))
    assert shown.count("no batch yet") == 1
    assert "batch 7 at 2026-01-31T12:05:00Z, runs" in shown
    assert "batch 7 at 2026-01-31T12:05:00Z, ended" in shown


def test_it_ends_with_the_users_interruption(tmp_path: Path):
    path = tmp_path / "run.jsonl"
    RecordWriter.open(path, PLAN).write(waiting())
    assert "batch 7" in follow(path, KeyboardInterrupt)


def test_a_run_that_is_over_is_shown_at_once(tmp_path: Path):
    path = tmp_path / "run.jsonl"
    writer = RecordWriter.open(path, PLAN)
    writer.write(waiting())
    writer.close("stopped")
    assert "stopped" in follow(path)


def test_a_key_that_looks_like_a_time_stays_as_it_is() -> None:
    held = stage_record(120, 5, {"console": 120}, window=window(5, 5, 185, key="2025-03-04T05:06:07Z"))
    shown = " ".join(lines(history(batch(0, 180, {"console": source_record(120)}, {"sessions": held})), 200))
    assert "key 2025-03-04T05:06:07Z in [2026-01-31 12:00:05, 2026-01-31 12:03:05)" in shown
