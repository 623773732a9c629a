"""Support for tests of pipelines: sources that play step by step, and assertions on panes.

May import `spec` and all below it.
"""

from __future__ import annotations

from beamlike.io.test_stream.stream import TestStream
from beamlike.testing.assertions import assert_panes

__all__ = ["TestStream", "assert_panes"]
