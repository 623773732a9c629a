"""Differences between the versions of Spark that tests run on."""

from __future__ import annotations

from typing import Final

import pytest
from pyspark.sql import SparkSession

from beamlike.spark.versions import OLDEST_CONNECT, has_state_store, installed

needs_state_store = pytest.mark.skipif(
    not has_state_store(), reason="in this Spark, operators in Python have no state store"
)
needs_connect = pytest.mark.skipif(
    installed() < OLDEST_CONNECT, reason="sessions of Spark Connect cannot be cloned in this Spark"
)
STORES: Final = [pytest.param("spark", marks=needs_state_store), "files"]
"""The stores of state of a run, for tests of each."""
FILES_FIRST: Final = [pytest.param("spark", marks=[needs_state_store, pytest.mark.long]), "files"]
"""Stores for slow tests that take long with each: `.ci/run` has the state in files only."""


def settings(session: SparkSession) -> dict[str, str]:
    """Returns the settings of a session."""
    return {row.key: row.value for row in session.sql("SET").collect()}
