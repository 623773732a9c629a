"""A bundle that reads Kafka ends between batches, and no message is lost there."""

from __future__ import annotations

import pytest

pytest.importorskip("apache_beam")

from beamlike.beam.kafka import Position, PositionTracker


def test_a_bundle_ends_before_or_after_a_batch_but_not_while_it_is_read() -> None:
    tracker = PositionTracker(Position())
    assert tracker.try_claim(None)
    assert tracker.try_split(0) is None
    after = Position({"topic-0": 3}, {}, 3)
    assert tracker.try_claim(after)
    assert tracker.try_split(0) == (after, after)
    assert not tracker.try_claim(None)


def test_a_bundle_that_ended_before_its_batch_has_read_nothing() -> None:
    tracker = PositionTracker(Position())
    assert tracker.try_split(0) == (Position(), Position())
    assert not tracker.try_claim(None)
    assert tracker.current_restriction() == Position()
