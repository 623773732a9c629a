"""The Spark application that all tests in this process share: starting one takes longer than most tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Yields a session on two cores, configured as for a user."""
    from beamlike.spark.session.launch import start

    session = start("local[2]", "tests", {})
    yield session
    session.stop()
