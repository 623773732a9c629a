"""Marks for tests of features that not all supported versions of Spark have."""

from __future__ import annotations

import pytest

from beamlike.spark.versions import has_state_store

needs_state_store = pytest.mark.skipif(
    not has_state_store(), reason="operators in Python have no state in this Spark's own store"
)
