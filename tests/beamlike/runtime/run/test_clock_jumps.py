"""A clock that jumps far ahead is logged, at the jump and as long as processing time stands still."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from pathlib import Path

import pytest

import beamlike as bl
from windowing.time import DAY

NOW = 20_000 * DAY
SECOND = 1_000_000


def run(path: Path, clock: Callable[[], int], *, checkpoint: bool, waits: bool = True) -> None:
    for number in range(3):
        file = path / f"{number}.jsonl"
        if not file.exists():  # a changed file would be logged
            file.write_text(f'{{"at": {number}}}\n')
    source = bl.JSONLines(str(path / "*.jsonl"), schema={"at": int}, max_files_per_trigger=1)
    watermark = bl.BoundedOutOfOrderness("1s", idle_after="1h" if waits else None)
    p = bl.Pipeline("p")
    p.read("rows", source, timestamp="at", timestamp_unit="s", watermark=watermark).write("out", bl.Memory())
    given = str(path / "checkpoint") if checkpoint else None
    p.run(bl.LocalRunner(clock=clock, checkpoint=given, chunk_rows=1))


def steps(*times: int) -> Callable[[], int]:
    """Returns a clock that shows one time after the other, and then the last one."""
    shown: Iterator[int] = chain(times, repeat(times[-1]))
    return lambda: next(shown)


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.WARNING, "beamlike")
    return lambda: [entry.getMessage() for entry in caplog.records]


@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize(
    ("waits", "effect"),
    [(True, "timers, triggers, ProcessingTimeLag"), (False, "nothing in this pipeline")],
)
def test_a_clock_that_goes_a_year_ahead_is_told_with_its_effect(
    tmp_path: Path, told: Callable[[], list[str]], checkpoint: bool, waits: bool, effect: str
) -> None:
    year = 365 * DAY
    read = iter(range(10**6))
    run(tmp_path, lambda: NOW + (year if next(read) > 8 else 0), checkpoint=checkpoint, waits=waits)
    [message] = told()
    assert "the clock of this machine jumped ahead by 365d, to 2025-10-04T00:00:00Z, while " in message
    assert effect in message
    assert "Processing time never goes back" in message


def test_a_clock_that_goes_on_is_not_told(tmp_path: Path, told: Callable[[], list[str]]) -> None:
    run(tmp_path, steps(*(NOW + number * SECOND for number in range(1000))), checkpoint=True)
    run(tmp_path, lambda: NOW + 30 * DAY, checkpoint=True)
    assert told() == []


def test_processing_time_that_waits_for_the_clock_is_told_once(
    tmp_path: Path, told: Callable[[], list[str]]
) -> None:
    run(tmp_path, lambda: NOW + 365 * DAY, checkpoint=True)
    assert told() == []
    for number in range(3, 6):
        (tmp_path / f"{number}.jsonl").write_text('{"at": 9}\n')
    run(tmp_path, lambda: NOW, checkpoint=True)
    [message] = told()
    assert message.startswith(
        "processing time stays at 2025-10-04T00:00:00Z, which is 365d ahead of this machine"
    )


def test_a_clock_that_went_ahead_between_two_runs_is_told(
    tmp_path: Path, told: Callable[[], list[str]]
) -> None:
    run(tmp_path, lambda: NOW, checkpoint=True)
    (tmp_path / "9.jsonl").write_text('{"at": 9}\n')
    run(tmp_path, lambda: NOW + 365 * DAY, checkpoint=True)
    [message] = told()
    assert "jumped ahead by 365d, to 2025-10-04T00:00:00Z, since the run before; " in message
