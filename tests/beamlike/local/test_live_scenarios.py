"""All transcripts and cases, with a new run on the checkpoint for each batch."""

from __future__ import annotations

import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

import beamlike as bl
from beamlike.plan.model import Plan
from beamlike.testing.play import PLAYBACK, compare
from tests.beamlike.testing.test_transcripts import ALL as TRANSCRIPTS
from tests.cases.compare import compare as compare_case
from tests.cases.play import PLAYBACK as CASES_PLAYBACK
from tests.cases.play import play
from tests.cases.test_cases import ALL as CASES


@attrs.frozen
class Restarting:
    """A runner each of whose runs is stopped after a batch, and gone on with by another one."""

    checkpoint: Path

    def run(self, plan: Plan) -> Any:
        """To the end of all test streams."""
        batches: list[Any] = []
        runner = bl.LocalRunner(
            checkpoint=self.checkpoint, on_batch=lambda record: signal.raise_signal(signal.SIGTERM)
        )
        while True:
            try:
                batches += runner.run(plan).batches
            except bl.CheckpointError as error:
                assert "was drained" in str(error)  # noqa: PT017
                return SimpleNamespace(batches=batches)


@pytest.mark.slow
def test_every_transcript_passes_with_a_restart_after_each_step(tmp_path: Path) -> None:
    played = [one for one in TRANSCRIPTS if not (one.error or one.refusal or one.unsupported)]
    outcomes = PLAYBACK.in_pipeline(played, Restarting(tmp_path))
    wrong = [(one.name, compare(one, came)) for one, came in zip(played, outcomes, strict=True)]
    assert [told for told in wrong if told[1] is not None] == []


@pytest.mark.slow
def test_every_case_passes_with_a_restart_after_each_move(tmp_path: Path) -> None:
    supported = {result.name for result in play(CASES) if result.status == "ok"}
    played = [case for case in CASES if case.id in supported and case.error is None]
    outcomes = CASES_PLAYBACK.in_pipeline(played, Restarting(tmp_path))
    wrong = [(case.id, compare_case(case, came)) for case, came in zip(played, outcomes, strict=True)]
    assert [told for told in wrong if told[1] is not None] == []
