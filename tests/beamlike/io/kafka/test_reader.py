"""The reader of a Kafka log in process: messages that have arrived do not wait for an answer of the broker."""

from __future__ import annotations

from threading import Event
from typing import Any

import attrs
import pytest

from beamlike.errors import DataLoss
from beamlike.io.kafka import reader
from beamlike.io.kafka.offsets import Offsets
from beamlike.io.kafka.reader import LogReader


@attrs.define
class Broker:
    """A log that has received messages up to `received`, and a broker that answers when `answers` is set."""

    answers: Event = attrs.field(factory=Event)
    end: dict[str, int] = attrs.field(factory=lambda: {"t-0": 0})
    client: dict[str, int] = attrs.field(factory=dict)
    asked: Event = attrs.field(factory=Event)
    max_offsets_per_trigger: int | None = None

    # The methods of a source.

    def log(self) -> Any:
        return self

    def first(self, log: Any) -> Offsets:
        return {"t-0": 0}

    def last(self, log: Any) -> Offsets:
        self.asked.set()
        assert self.answers.wait(60)
        return dict(self.end)

    def decode(self, frame: Any) -> Any:
        return frame

    # The methods of a log.

    def received(self, begin: Offsets, rows: int) -> Offsets:
        return dict(self.client)

    def read(self, begin: Offsets, end: Offsets) -> Any:
        return end

    def within(self, at: Offsets) -> Offsets:
        raise DataLoss("the topic was made again")

    def close(self) -> None: ...


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    monkeypatch.setattr(reader, "ASK_EVERY", 0.0)
    broker = Broker()
    broker.answers.set()
    return broker


def opened(broker: Broker) -> LogReader:
    """Returns a reader that has asked for the end once."""
    found = LogReader.of(broker, {"t-0": 0}, 100, ends=False)
    assert found.new() is None
    broker.asked.clear()
    return found


def test_messages_that_are_there_do_not_wait_for_the_broker(broker: Broker) -> None:
    read = opened(broker)
    broker.answers.clear()
    assert read.new() is None
    assert broker.asked.wait(60)
    broker.client = {"t-0": 5}
    batch = read.new()
    assert batch is not None
    assert batch.position == {"t-0": 5}
    assert read.read(batch) == {"t-0": 5}
    broker.answers.set()


def test_an_answer_does_not_take_back_messages_that_came_after_the_question(broker: Broker) -> None:
    read = opened(broker)
    broker.answers.clear()
    read.new()
    broker.client = {"t-0": 5}
    batch = read.new()
    assert batch is not None
    read.read(batch)
    broker.answers.set()  # with the end of before: 0
    while read._answer is not None:
        assert read.new() is None
    assert read.at == read.end == {"t-0": 5}


def test_a_partition_that_only_the_broker_knows_is_read(broker: Broker) -> None:
    read = opened(broker)
    broker.end = {"t-0": 0, "t-1": 3}
    while (batch := read.new()) is None:
        pass
    assert batch.position == {"t-0": 0, "t-1": 3}


def test_a_loss_that_the_broker_reports_is_raised(broker: Broker) -> None:
    read = opened(broker)
    broker.client = {"t-0": 5}
    batch = read.new()
    assert batch is not None
    read.read(batch)
    broker.client, broker.end = {}, {"t-0": 2}
    with pytest.raises(DataLoss, match="made again"):
        next(filter(None, iter(read.new, read)))
