"""Messages of tasks: every one is decoded as it was sent, by its kind."""

from __future__ import annotations

import pytest

from beamlike.records.model import SourceRecord, StageRecord, Upstream
from beamlike.rows.dead_letters import DeadLetterCounts
from beamlike.runtime.batch.envelope import message_envelope
from beamlike.runtime.batch.ingested import Ingested
from beamlike.runtime.batch.messages import (
    MESSAGES,
    AgainMessage,
    Kind,
    Message,
    ReadMessage,
    ReportMessage,
    RetriesMessage,
    SinkMessage,
    SourceMessage,
    StageMessage,
    StateMessage,
    SummaryMessage,
)
from stages.progress.reports import Report

COUNTS = DeadLetterCounts({"parse": 2}, {"parse": "last"}, {"parse": "first"}, ("filter",))
SUMMARY = {"a.csv": {"newest": 7}}
INGESTED = Ingested({}, SUMMARY, read=5, elements=3, lost=COUNTS, newest={"a.csv": (3, 7)})
STAGE = StageRecord(7, 5, "nothing", upstream={"plays": Upstream(7, idle=True)}, percentiles={66: 9})

SENT: list[Message] = [
    SummaryMessage(SUMMARY, ended=True, now=9),
    ReportMessage(Report(5, {33: 8}, idle=True), 9),
    SourceMessage.of(INGESTED, 9, ended=False),
    StageMessage(STAGE, {"plays": SourceRecord(7, 3, split="a.csv")}, COUNTS, 9),
    SinkMessage(3, {".part-0.tmp": "part-0"}),
    AgainMessage(),
    RetriesMessage(3),
    StateMessage(1, 0, "1-0-000000003-a", 512, ("1-0-000000002-b",)),
    ReadMessage({"files/plays/000000000000.json": (1, 2)}),
]


@pytest.mark.parametrize("message", SENT, ids=lambda message: message.kind)
def test_a_message_comes_as_it_was_sent(message: Message) -> None:
    sent = message_envelope(1, "target", "origin", message)
    assert sent.kind == message.kind
    assert sent.message() == message
    assert message_envelope(1, "target", "origin", sent.message()) == sent


def test_every_kind_but_rows_has_its_class() -> None:
    assert set(MESSAGES) == set(Kind) - {Kind.DATA}
    assert {type(message) for message in SENT} == set(MESSAGES.values())
