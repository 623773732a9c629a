"""The models of what a batch costs: shards and splits on Spark, and the phases of a batch from Kafka."""

from __future__ import annotations

import pytest

from benchmarks import scale
from benchmarks.latency import timeline
from benchmarks.scale import Model, lines
from benchmarks.scale_steps import Shards, first_level, plan, second_level

FIGURES = [
    *({"part": "send", "size": size, "ms": 2.0 + 0.001 * size} for size in scale.SHARDS),
    *({"part": "reports", "size": size, "ms": 1.0 + 0.002 * size} for size in scale.SHARDS),
    *({"part": "splits", "size": size, "ms": 1.0 + 0.01 * size} for size in scale.SPLITS),
    *({"part": "envelopes", "size": size, "ms": 500.0 + 0.002 * size} for size in (20_000, 2_000_000)),
    *({"part": "spark", "size": size, "ms": 100.0 + 50.0 * size} for size in scale.ON_SPARK[:2]),
]


def test_the_constants_are_the_slopes_of_the_measurements() -> None:
    model = Model.of(FIGURES)
    assert [model.batch, model.shard] == pytest.approx([100.0, 50.0])
    assert [model.report, model.envelope, model.split] == pytest.approx([0.003, 0.002, 0.01])
    assert model.shares(10, 100) == pytest.approx(
        {"batch": 100.0, "shards: tasks, state, records": 500.0, "reports": 0.5, "splits": 10.0}
    )
    # 0.005 s s > 100 + 50 s
    assert model.dominate_from == 10_002


def test_what_is_not_measured_is_left_out_of_the_table() -> None:
    text = "\n".join(lines(FIGURES))
    assert "| two levels | 200.0 | 500.0 |  |  |" in text
    assert "from 10,002 shards on" in text


def test_a_step_receives_what_all_shards_and_splits_send() -> None:
    declared = plan()
    of = Shards(declared, shards=5, splits=7, tasks=3)
    summaries = of.summaries(1)
    assert sorted(split for summary in summaries for split in summary) == [f"topic-{n}" for n in range(7)]
    assert first_level(of, 1) > 0
    assert second_level(of, 1) > 0


def a_batch(begin: float) -> list[tuple[str, float, float, float]]:
    """Returns the phases of a batch with panes, of a second each."""
    names = ["poll", "log", "read", "sources", "stages", "wait for the log", "encode"]
    phases = [(name, begin + number, begin + number + 1, 0.5) for number, name in enumerate(names)]
    sent = [("transaction", begin + 7, begin + 8, 0.1), ("transaction", begin + 8, begin + 9, 0.1)]
    return [*phases, *sent, ("records and commit", begin + 9, begin + 10, 0.1)]


def test_the_parts_of_a_latency_are_those_of_the_batch_that_had_the_pane() -> None:
    empty = [span for span in a_batch(0) if span[0] not in ("encode", "transaction")]
    spans = [*empty, ("rest", 10.0, 11.0, 0.0), *a_batch(20), *a_batch(40)]
    (found,) = timeline.matched(spans, [(18_000, 30_000), (18_000, 31_000)])
    assert found["before"] == pytest.approx((0.0, 2_000.0))
    assert found["offsets"] == pytest.approx((9_000.0, 1_000.0))
    assert found["commit"] == pytest.approx((10_000.0, 1_000.0))
    assert found["reader"] == pytest.approx((11_000.0, 1_000.0))
    assert sum(length for _, length in found.values()) == pytest.approx(12_000.0)
