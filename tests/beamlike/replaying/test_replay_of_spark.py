"""A batch of a run on Spark is replayed in process: from its first batch, and from the stored state."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
from pyspark.sql import SparkSession

import beamlike as bl
from beamlike.runtime.recorded.taken import NotLogged
from beamlike.spark.checkpoint.sourcelog import NO_OFFSET
from beamlike.spark.query.listing import FilePart, Lists
from beamlike.spark.recorded import _Logs, _SourceLists, _streams, checkpoint_at
from tests.beamlike.replaying.test_replay import USERS, fill, pipeline
from tests.support.spark_versions import needs_state_store


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(
    ("state", "early", "late"),
    [
        ("files", "from the state in files", "from the state in files"),
        pytest.param(
            "spark",
            "from the first batch",
            "from the state store of Spark",
            marks=[needs_state_store, pytest.mark.long],
        ),
    ],
)
def test_batches_of_spark_have_the_same_panes_in_process(
    spark: SparkSession, tmp_path: Path, state: Literal["spark", "files"], early: str, late: str
) -> None:
    fill(tmp_path, USERS)
    checkpoint = str(tmp_path / "checkpoint")
    runner = bl.SparkRunner(checkpoint, shards=2, session=spark, state=state)
    pipeline(tmp_path).run(runner)
    options: dict[str, Any] = {"session": spark}
    for number in range(len(USERS)):
        replay = bl.replay(checkpoint, pipeline(tmp_path), batch=number, **options)
        assert replay.origin.startswith(early if number else "from the first batch")
        assert replay.comparison.differences == ()
        assert any("rows in" in line for line in replay.comparison.compared)
    found = bl.record(checkpoint, pipeline(tmp_path), batches=(2, 3), key={"user": "a"}, **options)
    assert found.sinks == ["out", "streaks out"]
    (tmp_path / "in" / "0.jsonl").unlink()
    replay = bl.replay(checkpoint, pipeline(tmp_path), batch=3, **options)
    assert replay.origin == late
    assert replay.comparison.differences == ()
    assert replay.state("streaks", {"user": "a"})["s.n"].item() > 0


def test_a_list_ends_where_one_begins_that_spark_has_not_read_yet(tmp_path: Path) -> None:
    """The run looks as if it had been stopped after it listed files, and before the batch that reads them."""
    lists = Lists(checkpoint_at(str(tmp_path)), "plays")
    for numbers in ((0, 1), (2, 3), (4,)):
        lists.put(numbers[0], [FilePart(f"{number}.jsonl", number) for number in numbers])
    assert _SourceLists.of(lists, [0, 2]).firsts == [0, 2, 4]


def test_the_offsets_of_several_sources_of_spark_are_not_guessed() -> None:
    sources = {
        name: {"kind": kind} for name, kind in [("a", "SparkSource"), ("b", "Parquet"), ("c", "SparkSource")]
    }
    assert _streams({"sources": sources}, 3) == {0: "a", 1: "b", 2: "c"}
    assert _streams({"sources": sources}, 4) == {}  # one of them joins two streams
    logs = _Logs(checkpoint_at("nowhere"), tuple(sources), {}, {}, unclear=("a", "c"))
    lines = ["v1", '{"batchTimestampMs": 1}', NO_OFFSET]
    taken = logs._batch(0, lines, lines, [], done=0).taken
    assert {name: type(one) for name, one in taken.items()} == {"a": NotLogged, "c": NotLogged}
