"""A file of a checkpoint or savepoint in the place of another one: the panes are right, or an error names the place."""

from __future__ import annotations

import pytest

import beamlike as bl
from tests.beamlike.local import test_damage
from tests.support.damages import Damaged, panes, pipeline
from tests.support.swaps import swaps

checkpoint, savepoint, quiet = test_damage.checkpoint, test_damage.savepoint, test_damage.quiet


@pytest.mark.parametrize("kind", ["checkpoint", "savepoint"])
def test_no_file_is_taken_for_another_one(kind: str, request: pytest.FixtureRequest) -> None:
    damaged: Damaged = request.getfixturevalue(kind)
    expected = damaged.expected()
    all_swaps = [*swaps(damaged.folder / "kept" / kind)]
    assert len(all_swaps) >= 12
    found = [(swap, damaged.after(swap, expected)) for swap in all_swaps]
    assert [(swap, came) for swap, came in found if came not in ("right", "named")] == []


def test_a_savepoint_is_not_taken_for_a_new_checkpoint(savepoint: Damaged) -> None:
    run = savepoint.anew()
    before = panes(run)
    with pytest.raises(bl.CheckpointError, match=rf"{run}/savepoint is a savepoint, .*beamlike restore"):
        pipeline(run).run(bl.LocalRunner(checkpoint=run / "savepoint"))
    assert panes(run) == before
