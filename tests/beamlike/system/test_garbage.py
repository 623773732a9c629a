"""Objects that garbage collection leaves alone while a run goes on."""

from __future__ import annotations

import gc
import weakref
from datetime import UTC, datetime
from pathlib import Path

import beamlike as bl
from beamlike.system.garbage import frozen_objects


class _Knot:
    """An object that refers to itself, so that only garbage collection deletes it."""

    def __init__(self) -> None:
        self.itself = self


def test_objects_are_frozen_until_the_last_block_ends() -> None:
    before = gc.get_freeze_count()
    with frozen_objects():
        assert gc.get_freeze_count() > before + 1_000
        with frozen_objects():
            pass
        assert gc.get_freeze_count() > before + 1_000
    assert gc.get_freeze_count() == 0


def test_garbage_is_collected_before_and_after() -> None:
    old = weakref.ref(_Knot())
    with frozen_objects():
        assert old() is None
        new = weakref.ref(_Knot())
        gc.collect()
        assert new() is None


def test_a_run_that_goes_on_freezes_objects_and_others_do_not(tmp_path: Path) -> None:
    counts: list[int] = []

    def run(trigger: str) -> None:
        p = bl.Pipeline("frozen")
        rows = bl.Rows([{"at": datetime(2026, 1, 1, tzinfo=UTC)}], complete=True)
        plays = p.read("plays", rows, timestamp="at", watermark=bl.MonotonousTimestamps())
        plays.write("out", bl.JSONLines(tmp_path / f"out of {trigger}"))
        p.run(
            bl.LocalRunner(
                checkpoint=tmp_path / trigger,
                trigger=trigger,
                on_batch=lambda record: counts.append(gc.get_freeze_count()),
            )
        )

    run("available_now")
    run("1 second")
    assert counts[0] == 0
    assert counts[-1] > 1_000
    assert gc.get_freeze_count() == 0
