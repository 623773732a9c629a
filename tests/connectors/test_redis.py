"""Redis streams as a queue, in process and on Spark, also in runs that are killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import beamlike as bl
from beamlike.errors import DataLoss, SourceError
from tests.connectors.redis import Queues
from tests.support.places import ROOT

pytestmark = pytest.mark.connectors

GROUP = "scores"


def queue(redis: Queues, stream: str, **choices: Any) -> bl.Redis:
    return bl.Redis(redis.url, stream, group=GROUP, fields={"user": str, "at": int}, **choices)


def plays(times: Iterable[int], user: str = "ada") -> list[dict[str, Any]]:
    return [{"user": user, "at": at} for at in times]


def counts(source: bl.Redis, out: Path, seen: Any = None) -> bl.Pipeline:
    """Declares the number of rows of each user in each minute; `seen` receives the rows."""
    p = bl.Pipeline("plays")
    read = p.read("plays", source, timestamp="at", timestamp_unit="s")
    minutes = read.window_into(bl.FixedWindows("1m")).group_by("user").aggregate(n=bl.count())
    minutes.write("counts", bl.Parquet(str(out)))
    if seen is not None:
        read.write("seen", bl.Callback(seen))
    return p


def panes(out: Path) -> list[tuple[str, int, int]]:
    frames = [pl.read_parquet(file) for file in sorted(out.glob("*.parquet"))]
    start = pl.col("window_start").dt.epoch("s")
    return sorted(pl.concat(frames).select("user", start, "n").rows()) if frames else []


def moved(run: Any) -> list[float]:
    """Returns the watermark after each batch that moved it, in seconds."""
    return [*dict.fromkeys(batch.sources["plays"].watermark / 1e6 for batch in run.batches)][1:]


def test_each_message_is_a_row_with_its_id_and_what_cannot_be_read_is_a_dead_letter(redis: Queues) -> None:
    stream = redis.stream()
    fields = {"user": str, "at": datetime, "won": bool, "score": float, "more": bl.json({"level": int})}
    good = {
        "user": "ada",
        "at": "2026-01-01T12:00:00Z",
        "won": "true",
        "score": "1.5",
        "more": '{"level": 7}',
    }
    redis.send(stream, good, name="1000-1")
    redis.send(stream, {"user": "bob", "other": "x"}, name="2000-0")
    redis.send(stream, {**good, "score": "much", "more": "["}, name="3000-0")
    p = bl.Pipeline("p")
    read = p.read("plays", bl.Redis(redis.url, stream, group=GROUP, fields=fields))
    rows = read.collect()
    assert rows.rows() == [
        (
            "ada",
            datetime(2026, 1, 1, 12, tzinfo=UTC),
            True,
            1.5,
            7,
            "1000-1",
            datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
        ),
        ("bob", None, None, None, None, "2000-0", datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)),
    ]
    assert read.dead_letters().collect()["error"].to_list() == [
        "message 3000-0: its score is 'much', expected Float64; its more is not a JSON object"
    ]
    assert read.head(1)["user"].to_list() == ["ada"]
    with redis.client as client:
        assert client.xinfo_groups(stream) == [], "to look at a queue takes nothing from it"


def test_the_watermark_is_the_oldest_message_that_is_not_acknowledged(redis: Queues, tmp_path: Path) -> None:
    stream = redis.stream()
    redis.send(stream, *plays([10, 65, 70, 30, 130, 140]))
    source = queue(redis, stream, max_messages_per_trigger=2, out_of_orderness="5s")
    runner = bl.LocalRunner(checkpoint=str(tmp_path / "checkpoint"))
    run = counts(source, tmp_path / "out").run(runner)
    # After 10 and 65, the one at 30 is the oldest; nothing is left at last, so others may be 5 s before the newest.
    assert moved(run) == [30, 130, 135]
    assert panes(tmp_path / "out") == [("ada", 0, 2), ("ada", 60, 2)]
    assert redis.unacknowledged(stream, GROUP) == 0


def test_what_another_consumer_has_not_acknowledged_holds_the_watermark_until_it_is_taken_over(
    redis: Queues, tmp_path: Path
) -> None:
    stream = redis.stream()
    redis.send(stream, *plays([20, 70, 130]))
    with redis.client as client:
        client.xgroup_create(stream, GROUP, 0)
        client.xreadgroup(GROUP, "other", {stream: ">"}, count=1)
    runner = bl.LocalRunner(checkpoint=str(tmp_path / "checkpoint"))
    assert moved(counts(queue(redis, stream), tmp_path / "out").run(runner)) == [20]
    assert panes(tmp_path / "out") == []
    source = queue(redis, stream, claim_after="0s")
    run = counts(source, tmp_path / "out").run(runner)
    assert run.batches[-1].sources["plays"].watermark == 130_000_000
    assert panes(tmp_path / "out") == [("ada", 0, 1), ("ada", 60, 1)]
    assert redis.unacknowledged(stream, GROUP) == 0


def test_by_the_time_in_the_ids_the_watermark_is_perfect_and_follows_the_clock_of_the_server(
    redis: Queues, tmp_path: Path
) -> None:
    stream = redis.stream()
    for ms in (10_000, 50_000, 70_000):
        redis.send(stream, *plays([0]), name=f"{ms}-0")
    p, out = bl.Pipeline("p"), bl.Memory()
    read = p.read("plays", queue(redis, stream, max_messages_per_trigger=1), timestamp="redis_time")
    read.window_into(bl.FixedWindows("1m")).aggregate(n=bl.count()).write("out", out)
    with redis.client as client:
        before = client.time()[0]
        run = p.run(bl.LocalRunner(checkpoint=str(tmp_path / "checkpoint")))
        after = client.time()[0]
    *by_id, last = moved(run)
    assert by_id == [50, 70] or by_id[:2] == [50, 70]
    assert before <= last < after + 1
    assert out.frame()["n"].to_list() == [2, 1]


def test_a_message_that_is_gone_before_it_was_read_is_told_of(
    redis: Queues, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stream, checkpoint = redis.stream(), str(tmp_path / "checkpoint")
    first = redis.send(stream, *plays([1, 2, 3]))[0]
    source = queue(redis, stream)
    who = source.plan({}, 10)
    assert who is not None
    taken = source.plan(who.position, 10)
    assert taken is not None
    with redis.client as client:
        client.xdel(stream, first)
    other = queue(redis, stream)
    with pytest.raises(DataLoss, match=r"of the 3 messages from .* 1 are gone"):
        other.read(taken)
    again = other.plan(who.position, 10)
    assert again is not None
    assert "1 messages of stream" in caplog.text
    assert [row[1] for piece in other.read(again).pieces for row in piece.rows.lazy().collect().rows()] == [
        2,
        3,
    ]  # type: ignore[union-attr]
    other.committed(again)
    assert redis.unacknowledged(stream, GROUP) == 0
    assert not Path(checkpoint).exists()


KILLED = """
import os, sys
from pathlib import Path
import beamlike as bl
from beamlike.io.redis.reading import Reading
from tests.connectors.test_redis import counts, queue
from tests.connectors.redis import Queues

when, url, stream, checkpoint, out = sys.argv[1:]
kind, number, calls = Reading, 4, []
method = getattr(kind, when)

def killed(self, *given):
    calls.append(given)
    done = None
    if when == "plan" or len(calls) < number:
        done = method(self, *given)
    if len(calls) == number:
        os._exit(9)
    return done

setattr(kind, when, killed)
source = queue(Queues(url), stream, max_messages_per_trigger=7)
counts(source, Path(out)).run(bl.LocalRunner(checkpoint=checkpoint))
"""


def test_a_run_that_is_killed_again_and_again_counts_each_message_once(redis: Queues, tmp_path: Path) -> None:
    stream, checkpoint, out = redis.stream(), str(tmp_path / "checkpoint"), tmp_path / "out"
    redis.send(stream, *(play for at in range(0, 120, 2) for play in plays([at, at + 1], f"u{at % 3}")))
    for when in (
        "plan",
        "read",
        "committed",
    ):  # given and not begun; begun and not done; done and not acknowledged
        code = [sys.executable, "-c", KILLED, when, redis.url, stream, checkpoint, str(out)]
        assert subprocess.run(code, cwd=ROOT, timeout=200).returncode == 9
        assert redis.unacknowledged(stream, GROUP) == 7
    counts(queue(redis, stream, max_messages_per_trigger=7), out).run(
        bl.LocalRunner(checkpoint=checkpoint, drain=True)
    )
    assert panes(out) == [(f"u{n}", start, 20) for n in range(3) for start in (0, 60)]
    assert redis.unacknowledged(stream, GROUP) == 0


def test_a_second_run_of_one_object_knows_nothing_of_the_first(redis: Queues, tmp_path: Path) -> None:
    stream, out, seen = redis.stream(), tmp_path / "out", list[int]()
    p = counts(queue(redis, stream), out, lambda frame, batch: seen.extend(frame["at"]))
    redis.send(stream, *plays([1000, 1061]))
    p.run(bl.LocalRunner(checkpoint=str(tmp_path / "a"), drain=True))
    with redis.client as client:
        client.delete(stream)  # and all that the group knows of it
    for at, watermark in (([1, 2, 65], 65), ([70, 121], 121)):
        redis.send(stream, *plays(at))
        run = p.run(bl.LocalRunner(checkpoint=str(tmp_path / "b")))
        assert run.batches[-1].sources["plays"].watermark == watermark * 1_000_000
    assert seen == [1000, 1061, 1, 2, 65, 70, 121]
    assert [row for row in panes(out) if row[1] < 960] == [("ada", 0, 2), ("ada", 60, 2)]


def test_two_runs_at_the_same_time_have_connections_of_their_own(redis: Queues, tmp_path: Path) -> None:
    stream, seen, ended = redis.stream(), list[int](), []
    p = counts(queue(redis, stream), tmp_path / "out", lambda frame, batch: seen.extend(frame["at"]))
    redis.send(stream, *plays([1, 2, 3]))

    def another(record: Any) -> None:
        if not ended:  # a run that begins and ends within this one closes what it has opened
            ended.append(p.run(bl.LocalRunner(checkpoint=str(tmp_path / "b"))))

    p.run(bl.LocalRunner(checkpoint=str(tmp_path / "a"), on_batch=another))
    assert seen == [1, 2, 3]
    assert redis.unacknowledged(stream, GROUP) == 0


@pytest.mark.spark
def test_spark_counts_each_message_once_and_takes_up_a_batch_that_failed(
    redis: Queues, spark: Any, tmp_path: Path
) -> None:
    stream, out = redis.stream(), tmp_path / "out"
    redis.send(stream, *(play for at in range(0, 120, 2) for play in plays([at, at + 1], f"u{at % 3}")))
    source = queue(redis, stream, max_messages_per_trigger=50, out_of_orderness="5s")
    checkpoint, failed = str(tmp_path / "checkpoint"), []

    def fail(frame: pl.DataFrame, batch: int) -> None:
        if batch == 2 and not failed:
            failed.append(redis.unacknowledged(stream, GROUP))
            raise RuntimeError("out of luck")

    with pytest.raises(Exception, match="out of luck"):
        counts(source, out, fail).run(bl.SparkRunner(checkpoint, session=spark, shards=2))
    assert failed == [50]
    assert redis.unacknowledged(stream, GROUP) == 50
    run = counts(source, out, fail).run(bl.SparkRunner(checkpoint, session=spark))
    assert redis.unacknowledged(stream, GROUP) == 0
    assert run.batches[-1].sources["plays"].watermark == 114_000_000
    counts(source, out, fail).run(bl.SparkRunner(checkpoint, session=spark, drain=True))
    assert panes(out) == [(f"u{n}", start, 20) for n in range(3) for start in (0, 60)]


def test_what_cannot_be_is_an_error_in_words(redis: Queues, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="url must be such as 'redis://localhost:6379/0'"):
        queue(Queues("localhost:6379"), "plays")
    with pytest.raises(TypeError, match="fields must be a dict"):
        bl.Redis(redis.url, "plays", group=GROUP, fields=["user"])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'redis_id', which already exists"):
        bl.Redis(redis.url, "plays", group=GROUP, fields={"redis_id": str})
    with pytest.raises(ValueError, match="start must be"):
        queue(redis, "plays", start="now")
    nowhere = queue(Queues("redis://:hunter2@127.0.0.1:1/0"), "plays")
    with pytest.raises(
        SourceError, match=r"stream 'plays', group 'scores' of Redis at redis://127.0.0.1:1/0"
    ):
        bl.Pipeline("p").read("plays", nowhere).collect()
    assert "hunter2" not in repr(nowhere)


def test_options_that_the_client_does_not_take_are_refused(redis: Queues) -> None:
    p = bl.Pipeline("p")
    plays = p.read(
        "plays", queue(redis, "options", options={"timeout": 3}), timestamp="at", timestamp_unit="s"
    )
    with pytest.raises(
        bl.PlanError, match=r"Redis: options= are not those of redis-py's client: .*'timeout'"
    ):
        plays.collect()
