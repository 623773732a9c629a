"""Servers for tests that need them: each is started once, on first use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.connectors.jars import jars
from tests.connectors.kafka import Cluster, broker
from tests.connectors.redis import Queues, redis_server
from tests.connectors.s3 import Store, object_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def kafka() -> Iterator[Cluster]:
    """A Kafka broker."""
    with broker() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def store() -> Iterator[Store]:
    """An object store."""
    with object_store() as made:
        yield made


@pytest.fixture(scope="session")
def redis() -> Iterator[Queues]:
    """A Redis server."""
    with redis_server() as made:
        yield made


@pytest.fixture(scope="session")
def spark(store: Store) -> Iterator[SparkSession]:
    """A session on two cores with Spark's own Kafka reader, for which `s3://` is the object store."""
    from beamlike.spark.session.launch import start

    there = ",".join(map(os.fspath, jars("spark-kafka") + jars("spark-s3")))
    with store.in_environment():
        session = start("local[2]", "connectors", {"spark.jars": there, **store.of_hadoop})
    yield session
    session.stop()
