"""Envelopes: rows in chunks, to the shards of their keys, and as rows for Arrow."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beamlike.runtime.batch import envelope as envelopes
from beamlike.runtime.batch.envelope import ARROW, Envelope, Topology, in_batches, message_envelope, to_arrow
from beamlike.runtime.batch.messages import Kind, SinkMessage
from stages.operator import Input
from tests.support.examples import share

law = share(10)

ONE_STAGE = Topology((7, 10, 13), {"keyed": Input(("k",), pl.Schema()), "single": Input((), pl.Schema())})
texts = st.lists(st.tuples(st.none() | st.text(max_size=3), st.text(max_size=400)), max_size=40)


@law
@given(texts, st.integers(500, 5_000), st.integers(0, 10**9))
def test_rows_arrive_whole_and_in_order_in_chunks_that_are_not_too_large(
    rows: list[tuple[str | None, str]], limit: int, sequence: int
) -> None:
    frame = pl.DataFrame(rows, schema={"k": pl.String, "v": pl.String}, orient="row").with_row_index("n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(envelopes, "CHUNK_BYTES", limit)
        for consumer in ("keyed", "single", "sink"):
            sent = list(ONE_STAGE.data(consumer, frame, "origin", sequence))
            assert [envelope.sequence for envelope in sent] == list(range(sequence, sequence + len(sent)))
            arrived = [envelope.frame() for envelope in sent]
            assert all(len(part) > 0 for part in arrived)
            assert sorted(n for part in arrived for n in part["n"]) == list(range(len(frame)))
            for label in {envelope.shard for envelope in sent}:
                numbers = [n for e in sent if e.shard == label for n in e.frame()["n"]]
                assert numbers == sorted(numbers)


def assert_chunks_are_small(frame: pl.DataFrame) -> None:
    """Checks that payloads have at most 40 kB, and a little that the format adds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(envelopes, "CHUNK_BYTES", 40_000)
        for consumer, labels in (("keyed", {7, 10, 13}), ("single", {10}), ("sink", None)):
            sent = list(ONE_STAGE.data(consumer, frame, "origin"))
            assert labels in (None, {envelope.shard for envelope in sent})
            assert all(len(envelope.payload) < 44_000 for envelope in sent)


def test_a_chunk_is_at_most_as_large_as_spark_handles_well() -> None:
    assert_chunks_are_small(
        pl.DataFrame({"k": range(30_000), "v": [[number, 1] for number in range(30_000)]})
    )


def test_a_chunk_of_short_text_is_not_larger() -> None:
    assert_chunks_are_small(pl.DataFrame({"k": list("abcdef") * 5_000, "v": ["text"] * 30_000}))


def test_rows_of_a_key_go_to_one_shard_and_nothing_goes_out_for_no_rows() -> None:
    frame = pl.DataFrame({"k": [None, "a", "b", "c", "a", None] * 20})
    places: dict[Any, set[int]] = {}
    for envelope in ONE_STAGE.data("keyed", frame, "origin"):
        for key in envelope.frame()["k"]:
            places.setdefault(key, set()).add(envelope.shard)
    assert all(len(shards) == 1 for shards in places.values())
    assert list(ONE_STAGE.data("keyed", frame.clear(), "origin")) == []


def test_envelopes_are_rows_for_arrow() -> None:
    sent = [
        message_envelope(7, "t", "o", SinkMessage(2, {"b": "1", "a": "2"})),
        Envelope(10, "t", "o", Kind.DATA, 2**40, b"\x00"),
    ]
    batch = to_arrow(sent)
    assert batch.schema == ARROW
    assert [Envelope(*row.values()) for row in batch.to_pylist()] == sent
    assert sent[0].payload == b'{"files":{"a":"2","b":"1"},"rows":2}'
    assert to_arrow([]).num_rows == 0


@given(st.lists(st.binary(max_size=9), max_size=20), st.integers(1, 30))
def test_envelopes_are_sent_in_order_in_batches_that_are_not_too_large(
    payloads: list[bytes], limit: int
) -> None:
    sent = [Envelope(7, "t", "o", Kind.DATA, number, payload) for number, payload in enumerate(payloads)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(envelopes, "BATCH_BYTES", limit)
        batches = list(in_batches(sent))
    assert [envelope for batch in batches for envelope in batch] == sent
    assert all(batch and sum(len(one.payload) for one in batch[:-1]) <= limit for batch in batches)
