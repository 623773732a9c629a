"""The state of a stage as rows, for each kind of state table."""

from __future__ import annotations

from pathlib import Path

import pytest

import beamlike as bl


def test_the_state_of_a_watermark_after_a_stage_is_shown(tmp_path: Path) -> None:
    p = bl.Pipeline("p")
    rows = bl.Rows([{"user": "a", "at": 3}, {"user": "b", "at": 20}], schema={"user": str, "at": int})
    plays = p.read(
        "plays", rows, timestamp="at", timestamp_unit="s", watermark=bl.BoundedOutOfOrderness("3s")
    )
    counts = plays.window_into(bl.FixedWindows("4s")).group_by("user").aggregate(n=bl.count()).named("counts")
    counts.with_watermark(bl.BoundedOutOfOrderness("1s"), name="later").write("out", bl.Memory())
    p.run(bl.LocalRunner(checkpoint=tmp_path / "checkpoint", quiet=True))
    replay = bl.replay(tmp_path / "checkpoint", p, batch=0).go(after="later")
    (estimate,) = replay.state("later")["estimate"]
    assert estimate.timestamp() == pytest.approx(2.999999)
