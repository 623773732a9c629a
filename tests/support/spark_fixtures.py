"""One Spark application for all tests that need one in this process: starting it takes longer than most tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session on two cores, as a user has one."""
    from beamlike.spark.session.launch import start

    session = start("local[2]", "tests", {})
    yield session
    session.stop()
