"""Topics as a sink: each row once, whatever is killed or retried."""

from __future__ import annotations

import functools
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import confluent_kafka
import polars as pl
import pytest

import beamlike as bl
from beamlike.errors import SinkInUse
from beamlike.io import Part
from beamlike.io.kafka import sender
from tests.connectors.kafka import Cluster

pytestmark = pytest.mark.connectors

ROWS = pl.DataFrame({"user": ["ada", "bob", None], "points": [1, 2, 3]})


def read(kafka: Cluster, topic: str) -> pl.DataFrame:
    """Returns the messages that a reader of committed messages sees."""
    source = bl.Kafka(kafka.servers, topic, value=str, key=str, headers=True)
    return bl.Pipeline("p").read("out", source).collect()


def rows_of(kafka: Cluster, topic: str) -> list[Any]:
    return [json.loads(value) for value in read(kafka, topic)["value"]]


def test_a_row_is_a_message_with_its_key_and_with_headers_that_say_which_it_is(kafka: Cluster) -> None:
    topic = kafka.topic(4)
    sink = bl.KafkaSink(kafka.servers, topic, key="user")
    sink.write(ROWS, Part("run", 7, 2, "out"))
    found = read(kafka, topic).sort("key", nulls_last=True)
    assert found["key"].to_list() == ["ada", "bob", None]
    assert [json.loads(value) for value in found["value"]] == ROWS.to_dicts()
    headers = [{header["key"]: header["value"] for header in row} for row in found["kafka_headers"]]
    assert headers[1] == {
        "beamlike-run": b"run",
        "beamlike-batch": b"7",
        "beamlike-shard": b"2",
        "beamlike-row": b"1",
    }


def test_keys_and_values_are_what_is_asked_for(kafka: Cluster) -> None:
    topic = kafka.topic()
    part = Part("run", 0)
    bl.KafkaSink(kafka.servers, topic, key=["user", "points"], value=bl.json({"points": int})).write(
        ROWS, part
    )
    found = read(kafka, topic)
    assert found["key"][0] == '{"user":"ada","points":1}'
    assert found["value"].to_list() == ['{"points":1}', '{"points":2}', '{"points":3}']
    topic = kafka.topic()
    frame = pl.DataFrame({"key": [b"\x00", b"k"], "value": ["a", None]})
    bl.KafkaSink(kafka.servers, topic, key="key", value=str).write(frame, part)
    assert read(kafka, topic).select("key", "value").rows() == [("\x00", "a"), ("k", None)]


def test_a_compacted_topic_has_the_rows_that_are_left(kafka: Cluster) -> None:
    topic, p = kafka.topic(), bl.Pipeline("p")
    log = [("c", "ada", 1), ("c", "bob", 2), ("d", "ada", 1), ("c", "bob", 3)]
    source = bl.Rows([{"op": op, "user": user, "n": n, "at": 0} for op, user, n in log], rows_per_batch=1)
    read = p.read("log", source, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    each: dict[str, Any] = {"trigger": bl.Repeatedly(bl.AfterCount(1)), "accumulation": "retracting"}
    changes = bl.changes(read, before=None, after=None).window_into(**each)
    totals = changes.group_by("user").aggregate(n=bl.sum("n"))
    totals.write("topic", bl.KafkaSink(kafka.servers, topic, mode="upsert", value=bl.json({"n": int})))
    p.run()
    messages = read_all(kafka, topic)
    assert messages[:4] == [("ada", '{"n":1}'), ("bob", '{"n":2}'), ("ada", None), ("bob", '{"n":5}')]
    assert dict(messages) == {"ada": None, "bob": '{"n":5}'}


def read_all(kafka: Cluster, topic: str) -> list[tuple[str, str | None]]:
    """Returns the messages in order, with tombstones."""
    found = read(kafka, topic).sort("kafka_offset")
    return [(key, value) for key, value in found.select("key", "value").iter_rows()]


def test_a_part_that_comes_again_is_there_once(kafka: Cluster) -> None:
    topic = kafka.topic()
    sink = bl.KafkaSink(kafka.servers, topic)
    assert sink.latest_batch("run") is None
    for batch in (0, 0, 1, 1):
        sink.write(ROWS, Part("run", batch))
    assert sink.latest_batch("run") == 1
    with pytest.raises(RuntimeError, match="has batch 1 of this run already, and this is batch 0"):
        sink.write(ROWS, Part("run", 0))
    assert len(rows_of(kafka, topic)) == 2 * len(ROWS)
    sink.write(ROWS, Part("other", 0))
    sink.write(ROWS, Part("run", 0, 1))
    assert len(rows_of(kafka, topic)) == 4 * len(ROWS)
    sink.start("run")  # this opens a new one, so the other is a different one
    sink.write(ROWS, Part("other", 0))
    sink.write(ROWS, Part("run", 0))
    assert len(rows_of(kafka, topic)) == 5 * len(ROWS)


def test_an_older_copy_of_a_checkpoint_is_refused_and_continues_under_another_id(
    kafka: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic = kafka.topic()

    def run(checkpoint: str, *give: int, **options: Any) -> None:
        for n in give:
            (tmp_path / "in").mkdir(exist_ok=True)
            (tmp_path / "in" / f"{n}.jsonl").write_text(json.dumps({"n": n}) + "\n")
        p = bl.Pipeline("numbers")
        rows = p.read("in", bl.JSONLines(tmp_path / "in", {"n": int}))
        rows.write("topic", bl.KafkaSink(kafka.servers, topic))
        p.run(bl.LocalRunner(checkpoint=str(tmp_path / checkpoint), **options))

    def beside(record: Any) -> None:
        with pytest.raises(SinkInUse, match="it has a copy of this checkpoint"):
            run("copy")

    run("original", 0)
    shutil.copytree(tmp_path / "original", tmp_path / "copy")
    run("original", 1, on_batch=beside)
    run("original", 2)
    with pytest.raises(
        bl.CheckpointError, match=r"sink 'topic', .* has batch 2 of the run .* knows of batch 0"
    ):
        run("copy", 3)
    run("copy", continue_as="second")
    [told] = caplog.messages
    assert told.endswith("the headers beamlike-run and beamlike-batch mark them")
    run("copy", 4)
    assert sorted(row["n"] for row in rows_of(kafka, topic)) == [0, 1, 1, 2, 2, 3, 4]
    shutil.copytree(tmp_path / "copy", tmp_path / "other")
    run("other", 5)
    with pytest.raises(bl.CheckpointError, match="of the run 'second'"):
        run("copy")


KILLED = """
import os, signal, sys
import confluent_kafka, polars as pl
import beamlike as bl
from beamlike.io import Part

servers, topic, moment, transactions = sys.argv[1:]

class Producer(confluent_kafka.Producer):
    def flush(self, *timeout):
        left = super().flush(*timeout)
        if moment == "flushed":
            os.kill(os.getpid(), signal.SIGKILL)
        return left

    def commit_transaction(self, *timeout):
        if moment == "before":
            self.flush(30)
            os.kill(os.getpid(), signal.SIGKILL)
        super().commit_transaction(*timeout)
        os.kill(os.getpid(), signal.SIGKILL)

confluent_kafka.Producer = Producer
rows = pl.DataFrame({"user": ["ada", "bob", None], "points": [1, 2, 3]})
bl.KafkaSink(servers, topic, transactions=transactions == "yes").write(rows, Part("run", 0))
"""


@pytest.mark.parametrize("moment", ["before", pytest.param("after", marks=pytest.mark.long)])
def test_a_writer_that_is_killed_before_or_after_it_commits_leaves_each_row_once(
    kafka: Cluster, moment: str
) -> None:
    topic = kafka.topic()
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, kafka.servers, topic, moment, "yes"], env=os.environ
    )
    assert killed.returncode == -signal.SIGKILL
    bl.KafkaSink(kafka.servers, topic).write(ROWS, Part("run", 0))
    assert rows_of(kafka, topic) == ROWS.to_dicts()


def test_without_transactions_rows_come_twice_and_their_headers_tell(kafka: Cluster) -> None:
    topic = kafka.topic()
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, kafka.servers, topic, "flushed", "no"], env=os.environ
    )
    assert killed.returncode == -signal.SIGKILL
    bl.KafkaSink(kafka.servers, topic, transactions=False).write(ROWS, Part("run", 0))
    assert rows_of(kafka, topic) == 2 * ROWS.to_dicts()
    assert read(kafka, topic).unique("kafka_headers").height == len(ROWS)


def test_what_cannot_be_written_is_refused_before_anything_is_read(kafka: Cluster) -> None:
    p = bl.Pipeline("p")
    read = p.read("rows", bl.Rows(ROWS))
    with pytest.raises(bl.PlanError, match=r"no column 'usr'.*did you mean 'user'"):
        read.write("out", bl.KafkaSink(kafka.servers, "t", key="usr"))
    with pytest.raises(bl.PlanError, match=r"'value' is Int64"):
        read.rename({"points": "value"}).write("out", bl.KafkaSink(kafka.servers, "t", value=str))
    with pytest.raises(bl.PlanError, match=r"'out': the column 'user' is String, and Int64 in bl.json"):
        read.write("out", bl.KafkaSink(kafka.servers, "t", value=bl.json({"user": int})))
    read.write("out", bl.KafkaSink(kafka.servers, "nowhere"))
    with pytest.raises(bl.PlanError, match=r"there is no topic 'nowhere'"):
        p.run()


def counted(kafka: Cluster, out: Any) -> bl.Pipeline:
    """Declares forty plays of a topic, counted per minute and user."""
    plays = kafka.topic(2)
    for partition in range(2):
        kafka.send(plays, [{"user": f"u{n}", "at": 10 * n} for n in range(20)], partition=partition)
    p = bl.Pipeline("counts")
    source = bl.Kafka(kafka.servers, plays, value=bl.json({"user": str, "at": int}))
    read_ = p.read("plays", source, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    read_.window_into(bl.FixedWindows("1m")).group_by("user").aggregate(n=bl.count()).write("out", out)
    return p


@attrs.define
class OnceGone:
    """Kills the driver once, after a batch has written output and before that is recorded."""

    is_over: bool = False

    def __call__(self, record: Any) -> None:
        if record.sinks and not self.is_over:
            self.is_over = True
            raise RuntimeError("the driver is gone")


@pytest.mark.parametrize("transactions", [True, False])
@pytest.mark.parametrize("runner", ["local", pytest.param("spark", marks=pytest.mark.spark)])
def test_a_batch_that_is_done_again_is_there_once_with_transactions(
    kafka: Cluster, request: pytest.FixtureRequest, tmp_path: Path, runner: str, transactions: bool
) -> None:
    topic = kafka.topic(2)
    p = counted(kafka, bl.KafkaSink(kafka.servers, topic, key="user", transactions=transactions))
    make: Any = bl.LocalRunner
    if runner == "spark":
        make = functools.partial(bl.SparkRunner, session=request.getfixturevalue("spark"), shards=2)
    with pytest.raises(Exception, match="the driver is gone"):
        p.run(make(checkpoint=str(tmp_path), on_batch=OnceGone()))
    p.run(make(checkpoint=str(tmp_path), drain=True))
    found = sum(row["n"] for row in rows_of(kafka, topic))
    assert (found == 40) is transactions
    assert found >= 40


def test_one_object_is_read_and_written_on_two_checkpoints(kafka: Cluster, tmp_path: Path) -> None:
    topic = kafka.topic()
    p = counted(kafka, bl.KafkaSink(kafka.servers, topic, key="user"))
    for checkpoint in ("a", "b"):
        p.run(bl.LocalRunner(checkpoint=str(tmp_path / checkpoint), drain=True))
    assert sum(row["n"] for row in rows_of(kafka, topic)) == 80


# Commits whose outcome is not known


@pytest.mark.parametrize("plan", ["delay", "lose"])
def test_a_commit_that_is_delayed_or_whose_answer_is_lost_touches_no_later_transaction(
    kafka: Cluster, plan: str
) -> None:
    topic, name = kafka.topic(), f"beamlike/run/{plan}"
    settings = {"bootstrap.servers": kafka.relayed, "log_level": 0}

    def send(batch: int, between: Callable[[], object] = lambda: None) -> None:
        def produce(producer: Any) -> None:
            producer.produce(topic, f'{{"first": {batch}}}')
            assert producer.flush(30) == 0
            between()
            producer.produce(topic, f'{{"second": {batch}}}')

        sender.send_once(settings, topic, name, batch, produce)

    def expect(batches: int) -> None:
        assert rows_of(kafka, topic) == [{part: n} for n in range(batches) for part in ("first", "second")]

    with kafka.relay() as relay:
        send(0)
        getattr(relay, plan)()
        send(1)  # the client tries again by itself, by another connection
        assert relay.happened.is_set()
        expect(2)

        def late() -> None:
            if plan == "delay":
                relay.deliver()
            expect(2)  # nothing of the transaction that is open

        send(2, late)
        expect(3)
        send(2)  # which is noted
        expect(3)
        for place in [place for place in sender._SENDERS._clients if place[0] == topic]:
            sender._SENDERS._clients.pop(place).close()


# Killed on Spark


@attrs.frozen(eq=False)
class Killed(bl.KafkaSink):
    """A sink of which the first task dies before or after its commit, if the file `mark` exists."""

    mark: str = attrs.field(default="", kw_only=True)
    moment: str = attrs.field(default="before", kw_only=True)

    def write(self, frame: pl.DataFrame, part: Part) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(confluent_kafka, "Producer", functools.partial(Dying, Path(self.mark), self.moment))
            bl.KafkaSink.write(self, frame, part)


class Dying(confluent_kafka.Producer):  # type: ignore[misc]
    def __init__(self, mark: Path, moment: str, settings: Any) -> None:
        super().__init__(settings)
        self.mark, self.moment = mark, moment

    def commit_transaction(self, *timeout: float) -> None:
        self.flush(30)
        if self.moment == "after":
            super().commit_transaction(*timeout)
        if self.mark.exists():
            self.mark.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        if self.moment == "before":
            super().commit_transaction(*timeout)


@pytest.mark.spark
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_task_that_is_killed_between_sending_and_committing_leaves_each_row_once(
    kafka: Cluster, spark: Any, tmp_path: Path, moment: str
) -> None:
    topic, mark = kafka.topic(2), tmp_path / "mark"
    sink = Killed(kafka.servers, topic, key="user", mark=str(mark), moment=moment)
    p, checkpoint = counted(kafka, sink), str(tmp_path / "checkpoint")
    mark.touch()
    with pytest.raises(Exception, match=r"Python worker"):
        p.run(bl.SparkRunner(checkpoint, session=spark, shards=2, drain=True))
    assert not mark.exists()
    p.run(bl.SparkRunner(checkpoint, session=spark, drain=True))
    assert sum(row["n"] for row in rows_of(kafka, topic)) == 40
