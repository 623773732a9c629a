"""Levels and envelopes without Spark: any number of shards and tasks has the same results as the local runner."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import attrs
import polars as pl
import pytest

import beamlike as bl
from beamlike.io import Part, output_frame
from beamlike.records.model import BatchRecord
from beamlike.runtime.batch.envelope import (
    RECORDS,
    Envelope,
    Topology,
    message_envelope,
)
from beamlike.runtime.batch.messages import Kind, ReportMessage, SinkMessage
from beamlike.runtime.batch.origins import shard_name
from beamlike.spark.query import level
from beamlike.spark.query.level import ShardInbox
from stages.progress.reports import Report
from tests.support.examples import share
from tests.support.places import ROOT
from tests.support.shards import Batch, Query
from windowing.time import MIN_TIME
from windowing.triggers.processing_time import AfterProcessingTime

Declared = tuple[bl.Pipeline, dict[str, bl.Memory]]
law = share(10)


def plays(seed: int, count: int, lateness: int = 4) -> list[dict[str, Any]]:
    """Returns plays of nine users over some minutes, out of order by up to `lateness` seconds."""
    rng = random.Random(seed)
    return [
        {"user": rng.choice("abcdefghi"), "at": second - rng.randint(0, lateness), "score": rng.randint(0, 9)}
        for second in range(0, 3 * count, 3)
    ]


def read(p: bl.Pipeline, name: str, rows: list[dict[str, Any]], size: int) -> bl.Collection:
    source = bl.Rows(rows, schema={"user": str, "at": int, "score": int}, rows_per_batch=size)
    strategy = bl.BoundedOutOfOrderness("4s")
    return p.read(name, source, timestamp="at", timestamp_unit="s", watermark=strategy)


def flagship(combiner: str = "end_of_window", rows: int = 150, size: int = 40) -> Declared:
    """Declares sessions of users from two sources of unequal length, averaged together."""
    p, sinks = bl.Pipeline("flagship"), {"lengths": bl.Memory(), "averages": bl.Memory(), "best": bl.Memory()}
    parts = []
    for name, seed, count in (("mobile", 1, rows), ("console", 2, rows // 2)):
        windowed = read(p, name, plays(seed, count), size).window_into(
            bl.Sessions("20s"), timestamp_combiner=combiner
        )
        parts.append(
            windowed.group_by("user").aggregate(
                length=bl.window_length(), best=bl.max("score"), last=bl.last("score")
            )
        )
    lengths = bl.flatten(*parts)
    lengths.with_columns(first=bl.pane_first(), final=bl.pane_last()).write("lengths", sinks["lengths"])
    wide = lengths.window_into(bl.FixedWindows("1m"))
    wide.aggregate(mean=bl.mean("length"), n=bl.count()).write("averages", sinks["averages"])
    wide.group_by("user").aggregate(best=bl.max("best")).write("best", sinks["best"])
    return p, sinks


def early_and_late() -> Declared:
    """Declares early and late panes of late elements, a keyless stage of level 1, and claimed dead letters."""
    p, sinks = bl.Pipeline("early"), {"out": bl.Memory(), "all": bl.Memory(), "lost": bl.Memory()}
    rows: Any = [row if n % 17 else {**row, "at": None} for n, row in enumerate(plays(3, 200, lateness=90))]
    source = read(p, "plays", rows, 30)
    source.dead_letters().write("lost", sinks["lost"])
    windowed = source.window_into(
        bl.FixedWindows("1m"),
        trigger=bl.AfterWatermark(early=bl.AfterCount(2), late=bl.AfterCount(1)),
        accumulation="accumulating",
        allow_repeats=True,
        allowed_lateness="45s",
    )
    windowed.aggregate(n=bl.count()).write("all", sinks["all"])
    per_user = windowed.group_by("user").aggregate(n=bl.count(), total=bl.sum("score"))
    per_user.window_into(bl.SlidingWindows("4m", "2m")).group_by("user").aggregate(n=bl.sum("n")).write(
        "out", sinks["out"]
    )
    return p, sinks


def panes(frames: list[pl.DataFrame]) -> list[dict[str, Any]]:
    """Returns rows, sorted; sums of floats are rounded, because their last digits may differ."""
    if not frames:
        return []
    frame = pl.concat(frames).with_columns(pl.col(pl.Float64).round(6))
    return frame.sort(frame.columns, nulls_last=True).rows(named=True)


def in_process(declare: Callable[[], Declared]) -> tuple[dict[str, Any], list[BatchRecord]]:
    p, sinks = declare()
    run = p.run()
    return {name: panes([sink.frame()]) for name, sink in sinks.items()}, run.batches


def on_shards(declare: Callable[[], Declared], shards: int, tasks: int) -> tuple[dict[str, Any], list[Batch]]:
    p, sinks = declare()
    batches = list(Query(p.plan(), shards, tasks, seed=shards).batches())
    for number, batch in enumerate(batches):
        for name, sink in sinks.items():
            for part, frame in enumerate(batch.frames(name)):
                sink.write(output_frame(frame), Part("q", number, part))
    return {name: panes([sink.frame()]) for name, sink in sinks.items()}, batches


# Shards


@pytest.mark.parametrize(
    ("shards", "tasks", "combiner"),
    [(1, 1, "earliest"), (2, 3, "end_of_window"), (2, 3, "earliest"), (5, 2, "earliest"), (5, 2, "latest")],
)
def test_any_number_of_shards_and_tasks_gives_the_panes_and_watermarks_of_the_local_runner(
    shards: int, tasks: int, combiner: str
) -> None:
    expected, records = in_process(lambda: flagship(combiner))
    got, batches = on_shards(lambda: flagship(combiner), shards, tasks)
    assert all(expected.values())
    for name in expected:
        assert got[name] == expected[name], name
    assert len(batches) == len(records)
    for batch, record in zip(batches, records, strict=True):
        for name, stage in batch.stages().items():
            there = record.stages[name]
            assert (stage.input, stage.output) == (there.input, there.output), name
            assert (stage.elements, stage.panes, stage.dropped) == (
                there.elements,
                there.panes,
                there.dropped,
            )
            assert stage.live == there.live


@pytest.mark.parametrize("shards", [1, 2, 5])
def test_early_and_late_panes_and_dead_letters_are_those_of_the_local_runner(shards: int) -> None:
    expected, _ = in_process(early_and_late)
    got, batches = on_shards(early_and_late, shards, tasks=1)
    assert len(expected["lost"]) == 12
    for name in expected:
        assert got[name] == expected[name], name
    assert {timing for row in expected["all"] for timing in [row["pane_timing"]]} == {
        "early",
        "on_time",
        "late",
    }
    dropped = [batch.stages()["plays.aggregate"].dropped for batch in batches]
    assert sum(counts.get("late", 0) for counts in dropped) > 0


@pytest.mark.parametrize("kind", [Kind.SINK, "of a later version"])
def test_a_message_that_no_stage_reads_is_refused(kind: str) -> None:
    stranger = Envelope(0, "averages", "mobile", kind, 0, b"{}")
    with pytest.raises(
        bl.RunError, match=f"'mobile' sent 'averages' a message of kind '{kind}'.*same version"
    ):
        ShardInbox.read([stranger], {}, None)


def test_a_message_of_many_shards_is_encoded_and_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    shards, decoded = 100, list[Envelope]()
    plan = flagship()[0].plan()
    topology, stage = Topology.of(plan, tuple(range(shards))), plan.levels[0][0]
    sent = [*topology.broadcast(stage, "x", ReportMessage(Report(5), now=7))]
    assert len(sent) == shards
    assert len({id(envelope.payload) for envelope in sent}) == 1

    def counted(envelope: Envelope, decode: Callable[[Envelope], Any] = level._message_for_stage) -> Any:
        decoded.append(envelope)
        return decode(envelope)

    monkeypatch.setattr(level, "_message_for_stage", counted)
    origins = [shard_name("x", shard) for shard in range(shards)]
    reports = [message_envelope(0, stage, origin, ReportMessage(Report(5), now=7)) for origin in origins]
    reports.append(message_envelope(0, stage, "other", ReportMessage(Report(6), now=7)))
    arrived = ShardInbox.read(reports, {}, None).arrived
    assert arrived.reports == {**dict.fromkeys(origins, Report(5)), "other": Report(6)}
    assert len(decoded) == 2


def test_what_is_for_another_level_passes_unchanged() -> None:
    query = Query(flagship()[0].plan(), 2)
    strangers = [
        Envelope(7, "lengths", "x", Kind.DATA, 3, b"rows"),
        message_envelope(10, RECORDS, "averages", SinkMessage(1, {})),
        Envelope(10, "mobile.aggregate_9", "x", Kind.REPORT, 0, b"{}"),
    ]
    assert in_order(query.run(strangers).envelopes) == in_order(strangers)
    assert not any(store.values for store in query.stores.values())


# Replay


@pytest.mark.parametrize("declare", [flagship, early_and_late])
def test_a_batch_that_is_replayed_gives_the_same_bytes_in_whatever_order_it_comes(declare: Any) -> None:
    query = Query(declare()[0].plan(), 3, tasks=2)
    for chunks in inputs(query):
        sent = query.end() if chunks is None else query.ingested(chunks)
        again = query.fork(seed=99)
        first, second = query.run(sent), again.run(sent)
        for before, after in zip(first.levels, second.levels, strict=True):
            assert in_order(before) == in_order(after)
        assert {key: store.values for key, store in query.stores.items()} == {
            key: store.values for key, store in again.stores.items()
        }


def in_order(sent: list[Envelope]) -> list[tuple[Any, ...]]:
    """Returns envelopes as tuples, sorted."""
    return sorted(attrs.astuple(envelope.sealed()) for envelope in sent)


def inputs(query: Query) -> list[dict[str, pl.LazyFrame] | None]:
    """Returns the chunks of every batch, and the end."""
    chunks = {name: list(source.source.chunks(40)) for name, source in query.plan.sources.items()}
    batches: list[Any] = [
        {name: pieces[number] for name, pieces in chunks.items() if number < len(pieces)}
        for number in range(max(map(len, chunks.values())))
    ]
    return [*batches, None]


# Watermarks in band


def test_every_shard_reports_to_every_shard_in_every_batch() -> None:
    query = Query(flagship()[0].plan(), 5)
    upstream = query.plan.stages["flatten.aggregate"].inputs
    assert upstream == ("console.aggregate", "mobile.aggregate")
    for batch in query.batches():
        reports = {
            (report.target, report.origin, report.shard)
            for report in batch.sent(Kind.REPORT, level=1)
            if report.target == "flatten.aggregate_2"
        }
        heard = {report[1].partition("\x1f")[0] for report in reports}
        assert heard >= {"mobile.aggregate"}  # console is at its end before: no summary, no step, no report
        assert reports == {
            ("flatten.aggregate_2", shard_name(stage, shard), label)
            for stage in heard
            for shard in range(5)
            for label in query.topology.labels
        }


def test_a_stage_without_keys_has_one_shard_which_hears_all() -> None:
    query = Query(flagship()[0].plan(), 5)
    (shard,) = query.topology.shards("flatten.aggregate")
    batch = next(query.batches())
    reports = [sent for sent in batch.sent(Kind.REPORT, level=1) if sent.target == "flatten.aggregate"]
    assert {report.shard for report in reports} == {query.topology.labels[shard]}
    assert len({report.origin for report in reports}) == 10
    assert query.topology.origins("flatten.aggregate") == (shard_name("flatten.aggregate", shard),)
    assert query.topology.origins("mobile") == ("mobile",)


def test_a_shard_waits_for_every_shard_upstream_and_is_not_led_astray_by_others() -> None:
    query = Query(flagship()[0].plan(), 2)
    stage, label = "flatten.aggregate_2", query.topology.labels[0]
    origins = [
        shard_name(name, shard) for name in ("console.aggregate", "mobile.aggregate") for shard in (0, 1)
    ]

    def heard(*reports: tuple[str, int]) -> int:
        """Returns the input watermark of the shard after these reports."""
        sent = [
            message_envelope(label, stage, origin, ReportMessage(Report(at), 5)) for origin, at in reports
        ]
        return query.run(sent).stages()[stage].input

    assert heard(*((origin, 50) for origin in origins[:3])) == MIN_TIME
    assert heard((origins[3], 40)) == 40
    assert (
        heard((origins[3], 20), ("mobile.aggregate\x1f7", -9), ("stranger", -9)) == 40
    )  # late, unknown, unknown
    assert heard((origins[3], 60), (origins[0], 45)) == 50


# Processing time


def ticking() -> Declared:
    """Declares early panes by processing time, with keys and of all rows together, and a second grouping of them."""
    p, sinks = bl.Pipeline("ticking"), {"out": bl.Memory(), "all": bl.Memory(), "again": bl.Memory()}
    trigger = bl.AfterWatermark(early=AfterProcessingTime("10s"))
    windowed = read(p, "plays", plays(1, 40, lateness=0), 100).window_into(
        bl.FixedWindows("1h"), trigger=trigger
    )
    windowed.aggregate(n=bl.count()).named("all").write("out all", sinks["all"])
    per_user = windowed.group_by("user").aggregate(n=bl.count()).write("out", sinks["out"])
    per_user.group_by("user").aggregate(n=bl.sum("n")).write("again", sinks["again"])
    return p, sinks


@pytest.mark.parametrize("shards", [1, 3])
def test_processing_time_passes_without_input_and_reaches_later_levels(shards: int) -> None:
    query = Query(ticking()[0].plan(), shards)
    query.batch({"plays": next(query.plan.sources["plays"].source.chunks(100))})
    assert query.run([], now=10_000_001).frames("out") == []
    batch = query.run([], now=10_000_002)  # the elements arrived at 1
    stages = batch.stages()
    assert sum(map(len, batch.frames("out"))) == 9
    assert sum(map(len, batch.frames("out all"))) == 1
    assert set(stages) == {"all", "plays.aggregate", "plays.aggregate.aggregate"}
    assert stages["plays.aggregate.aggregate"].elements == 9
    assert {told.now for _, told in batch.notes()} == {10_000_002}


def test_a_shard_without_stages_of_the_level_has_no_step() -> None:
    query = Query(ticking()[0].plan(), 3)
    level = attrs.evolve(
        query.levels[0], stages=tuple(stage for stage in query.levels[0].stages if stage.name == "all")
    )
    assert sorted(len(level.stages_on(label)) for label in query.topology.labels) == [0, 0, 1]


def test_levels_and_envelopes_need_no_spark() -> None:
    code = "import sys, beamlike.spark.query.level, beamlike.runtime.batch.envelope; print('pyspark' in sys.modules)"
    root = ROOT
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
