"""Checks that every planned pipeline of the docs that a file can express is the same when read from its file."""

from __future__ import annotations

import pytest

import beamlike as bl
from beamlike.plan.model import Plan
from tests.support.round_trip import require_same_from_file


@pytest.fixture(autouse=True)
def _round_trips(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes and reads each pipeline when it is planned."""
    plan = bl.Pipeline.plan

    def planned(pipeline: bl.Pipeline) -> Plan:
        made = plan(pipeline)
        require_same_from_file(pipeline, made)
        return made

    planned.__doc__ = plan.__doc__
    monkeypatch.setattr(bl.Pipeline, "plan", planned)
