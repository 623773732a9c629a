"""Support for tests of pipelines: sources that are defined step by step, and assertions on panes.

May import `spec` and all below it.
"""

from __future__ import annotations

from beamlike.io.test_stream.stream import TestStream
from beamlike.replaying.as_test import as_test
from beamlike.replaying.streams import run_with
from beamlike.system.arguments import answering_all
from beamlike.testing.assertions import assert_panes
from beamlike.testing.orders.check import check_orders

__all__ = ["TestStream", "as_test", "assert_panes", "check_orders", "run_with"]

answering_all(globals(), __all__)
