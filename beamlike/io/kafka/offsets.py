"""Offsets by partition: the bounds of a run, and the share of each partition in a batch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

Offsets = Mapping[str, int]
"""The offset of the next message of each partition. Keys are `topic-partition`."""

Boundary = str | int | Mapping[tuple[str, int], int]
"""A bound of a run: EARLIEST, LATEST, a time in milliseconds, or offsets by partition (others begin at EARLIEST)."""

EARLIEST: Final = "earliest"
LATEST: Final = "latest"


def boundary_of(given: Any, topics: tuple[str, ...], what: str) -> Boundary:
    """Converts the argument `start=` or `end=` of a source of these `topics` to a bound of the run.

    Raises `TypeError` or `ValueError`, which call the argument `what`, if it is no valid bound.
    """
    if given in (EARLIEST, LATEST) and isinstance(given, str):
        return given
    if isinstance(given, datetime):
        moment = given if given.tzinfo is not None else given.replace(tzinfo=UTC)
        return max(0, math.ceil(moment.timestamp() * 1000))  # Kafka has no times before 1970
    if isinstance(given, Mapping):
        named = (
            given if all(isinstance(of, Mapping) for of in given.values()) else _of_one(given, topics, what)
        )
        found = {(topic, partition): at for topic, of in named.items() for partition, at in of.items()}
        for (topic, partition), at in found.items():
            if topic not in topics:
                raise ValueError(
                    f"Kafka: {what} has a topic {topic!r}, which is not among {', '.join(topics)}"
                )
            if not all(type(number) is int and number >= 0 for number in (partition, at)):
                raise TypeError(
                    f"Kafka: {what} must have an offset for each partition, not {partition!r}: {at!r}"
                )
        return found
    raise TypeError(
        f"Kafka: {what} must be 'earliest', 'latest', a datetime, or offsets such as {{0: 1200}}, not {given!r}"
    )


def _of_one(given: Mapping[Any, Any], topics: tuple[str, ...], what: str) -> Mapping[str, Mapping[Any, Any]]:
    if len(topics) > 1:
        raise ValueError(
            f"Kafka: there are several topics, so {what} must name them: {{'{topics[0]}': {{0: 1200}}}}"
        )
    return {topics[0]: given}


def split_name(topic: str, partition: int) -> str:
    """Returns `topic-partition`."""
    return f"{topic}-{partition}"


def split_of(name: str) -> tuple[str, int]:
    """Returns the topic and the partition of a name `topic-partition`."""
    topic, _, partition = name.rpartition("-")
    return topic, int(partition)


def in_turn(begin: Offsets, end: Offsets, most: int) -> Offsets:
    """Returns the offsets at which a batch of about `most` messages ends that begins at `begin`.

    Each partition has a share in proportion to its new messages, and at least one of them. Spark's own reader has the
    same rule, so both runners have the same batches.
    """
    new = {name: end[name] - at for name, at in begin.items() if end.get(name, at) > at}
    total = sum(new.values())
    if total <= most:
        return {name: max(at, end.get(name, at)) for name, at in begin.items()}
    taken = {name: most * (size / total) for name, size in new.items()}
    steps = {name: math.ceil(share) if share < 1 else math.floor(share) for name, share in taken.items()}
    return {name: min(at + steps.get(name, 0), max(at, end.get(name, at))) for name, at in begin.items()}
