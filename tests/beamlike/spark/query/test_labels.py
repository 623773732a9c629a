"""The labels of shards are those of Spark's hash."""

from __future__ import annotations

import pytest

from beamlike.spark.query.labels import hash_of, labels


@pytest.mark.parametrize(
    ("number", "spark"), [(0, 933211791), (1, -559580957), (-1, -1604776387), (2, 1765031574), (42, 29417773)]
)
def test_a_hash_is_that_of_spark(number: int, spark: int) -> None:
    assert hash_of(number) == spark  # as SELECT hash(number) returns


@pytest.mark.parametrize("shards", [1, 2, 3, 8, 200])
def test_each_partition_has_its_least_label(shards: int) -> None:
    found = labels(shards)
    assert [hash_of(label) % shards for label in found] == [*range(shards)]
    before = {hash_of(number) % shards: number for number in reversed(range(max(found) + 1))}
    assert found == tuple(before[partition] for partition in range(shards))
