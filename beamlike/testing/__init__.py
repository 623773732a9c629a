"""For tests of pipelines: sources that play step by step, and assertions on panes."""

from __future__ import annotations

from beamlike.testing.assertions import assert_panes
from beamlike.testing.stream import TestStream

__all__ = ["TestStream", "assert_panes"]
