"""A copy of a checkpoint beside its original, and sinks that cannot report their rows, are refused by name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import beamlike as bl
from beamlike.errors import CheckpointError, PlanError, SinkError, SinkInUse
from tests.end_to_end.test_copies import APPENDED, halfway


@pytest.mark.parametrize("kind", ["files", "folders", *APPENDED])
def test_a_copy_beside_its_original_is_refused(kind: str, tmp_path: Path) -> None:
    job, refused = halfway(tmp_path, kind), list[str]()
    job.give(1)

    def start_the_copy(record: Any) -> None:
        for options in ({}, {"continue_as": "second"}):
            with pytest.raises(SinkInUse, match="it has a copy of this checkpoint") as error:
                job.run("copy", **options)
            refused.append(str(error.value))

    job.run(on_batch=start_the_copy)
    assert len(refused) == 2
    assert all("is being written by the run" in told and str(os.getpid()) in told for told in refused)
    assert job.numbers(kind) == [0, 1]
    job.give(2)
    job.run()
    assert job.numbers(kind) == [0, 1, 2]


def test_an_id_that_cannot_continue_is_refused(tmp_path: Path) -> None:
    job = halfway(tmp_path, "files", "table")
    job.give(1)
    job.run("copy", continue_as="second")
    with pytest.raises(CheckpointError, match="has batch 1 of a run of that id already; give another id"):
        job.run(continue_as="second")
    with pytest.raises(CheckpointError, match=r"'second': the checkpoint .*/new has no run to continue"):
        job.run("new", continue_as="second")
    assert not (tmp_path / "new" / "beamlike" / "manifest.json").exists()
    with pytest.raises(PlanError, match="cannot name a run"):
        bl.LocalRunner(checkpoint="checkpoint", continue_as=" ")
    with pytest.raises(ValueError, match="continue_as= needs checkpoint="):
        bl.LocalRunner(continue_as="second")


def test_a_sink_that_does_not_know_its_batches_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = halfway(tmp_path, "callback")
    job.give(1)
    job.run()
    job.run("copy", continue_as="second")
    [told] = caplog.messages
    assert told.startswith("sink 'callback', Callback(lambda), does not know its batches: rows of the run ")
    assert told.endswith("after batch 0 are written once more")
    assert job.called == [0, 1, 1]


def test_a_sink_that_cannot_be_asked_is_named(tmp_path: Path) -> None:
    job = halfway(tmp_path, "memory")

    class Away(bl.Memory):
        def latest_batch(self, run: str) -> int | None:
            raise OSError("the network is away")

    job.memory = Away()
    with pytest.raises(
        SinkError, match=r"sink 'memory': Away\(\) cannot be inspected: OSError: the network is away"
    ):
        job.run()
