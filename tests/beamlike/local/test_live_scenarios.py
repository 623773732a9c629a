"""Transcripts and cases, resumed from the checkpoint for each batch: a third of them, or all in a thorough run."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import attrs
import pytest

import beamlike as bl
from beamlike.plan.model import Plan
from beamlike.testing.play import PLAYBACK, compare
from beamlike.testing.player import Playback
from tests.beamlike.testing.test_transcripts import ALL as TRANSCRIPTS
from tests.cases.compare import compare as compare_case
from tests.cases.play import PLAYBACK as CASES_PLAYBACK
from tests.cases.play import play
from tests.cases.test_cases import ALL as CASES
from tests.support.examples import skipped

AT_ONCE: Final = 30


@attrs.frozen
class Restarting:
    """A runner whose runs are stopped after each batch and resumed by another run."""

    checkpoint: Path

    def run(self, plan: Plan) -> Any:
        """Runs to the end of all test streams."""
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


def _in_pipelines(playback: Playback[Any], items: Sequence[Any], folder: Path) -> list[tuple[Any, Any]]:
    """Plays items with similar numbers of steps in one pipeline, because each batch runs all its stages."""
    by_length = sorted(items, key=lambda one: len(one.steps))
    parts = [by_length[first : first + AT_ONCE] for first in range(0, len(by_length), AT_ONCE)]
    outcomes = [
        one
        for number, part in enumerate(parts)
        for one in playback.in_pipeline(part, Restarting(folder / str(number)))
    ]
    return list(zip(by_length, outcomes, strict=True))


@pytest.mark.slow
def test_transcripts_pass_with_a_restart_after_each_step(tmp_path: Path) -> None:
    played = [one for one in TRANSCRIPTS[:: skipped()] if not (one.error or one.refusal or one.unsupported)]
    wrong = [(one.name, compare(one, came)) for one, came in _in_pipelines(PLAYBACK, played, tmp_path)]
    assert [told for told in wrong if told[1] is not None] == []


@pytest.mark.slow
def test_cases_pass_with_a_restart_after_each_move(tmp_path: Path) -> None:
    some = CASES[:: skipped()]
    supported = {result.name for result in play(some) if result.status == "ok"}
    played = [case for case in some if case.id in supported and case.error is None]
    outcomes = _in_pipelines(CASES_PLAYBACK, played, tmp_path)
    wrong = [(case.id, compare_case(case, came)) for case, came in outcomes]
    assert [told for told in wrong if told[1] is not None] == []
