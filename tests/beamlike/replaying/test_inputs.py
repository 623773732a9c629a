"""The input of a recorded batch is read again, row for row, or an error names the missing part."""

from __future__ import annotations

import json
import os
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import beamlike as bl
from beamlike.errors import InputGone
from beamlike.io.base import output_frame
from beamlike.replaying.inputs import input_again
from beamlike.replaying.opening import open_run
from beamlike.runtime.recorded.batches import RecordedBatch
from beamlike.runtime.recorded.taken import BatchTaken, SpanTaken
from beamlike.spark.checkpoint.checkpoint import Checkpoint
from beamlike.spark.query.listing import FilePart, Lists
from beamlike.spark.query.planner import KEPT_PLANS, LoggedPlan, PlanLog, note_name
from beamlike.spark.recorded import _Logs
from beamlike.testing.player import Recorder
from stages.state.store import ENCODING
from tests.support import kept
from tests.support.examples import share

SCHEMA = {"user": str, "at": int}


class Days:
    """A source that plans its batches, a day of four rows at a time."""

    bounded = True
    watermark = bl.MonotonousTimestamps()

    def schema(self) -> pl.Schema:
        return pl.Schema({"user": pl.String, "at": pl.Int64})

    def plan(self, position: dict[str, int], rows: int) -> bl.PlannedBatch | None:
        day = position.get("next", 0)
        return bl.PlannedBatch([day], {"next": day + 1}, more=day < 2) if day < 3 else None

    def read_part(self, part: int, rows: int) -> Any:
        yield pl.DataFrame({"user": list("abca"), "at": range(4 * part, 4 * part + 4)})


def write(folder: Path, number: int, users: str) -> None:
    folder.mkdir(exist_ok=True)
    file = folder / f"{number}.jsonl"
    pl.DataFrame({"user": list(users), "at": range(len(users))}).write_ndjson(file)
    os.utime(file, (1_000_000_000 + number, 1_000_000_000 + number))


def pipeline(source: Any, sink: Any) -> bl.Pipeline:
    p = bl.Pipeline("p")
    bound = None if isinstance(source, Days) else bl.BoundedOutOfOrderness("1m")
    plays = p.read("plays", source, timestamp="at", timestamp_unit="s", watermark=bound)
    plays.filter(bl.col("user") != "c").write("out", sink)
    return p


def rows_again(p: bl.Pipeline, checkpoint: Path) -> dict[int, list[dict[str, Any]]]:
    """Returns the rows that reach the sink, by batch."""
    run, plan = open_run(checkpoint), p.plan()
    inputs = {number: input_again(plan, batch) for number, batch in run.batches.items()}
    return {
        number: [
            row
            for one in got.ingested.values()
            for frame in one.frames.values()
            for row in output_frame(frame).rows(named=True)
        ]
        for number, got in inputs.items()
    }


def check(source: Any, folder: Path, rows: int = 250_000) -> int:
    """Runs a pipeline with the source, and compares each batch. Returns the number of batches."""
    sink = Recorder()
    p = pipeline(source, sink)
    p.run(bl.LocalRunner(checkpoint=str(folder), chunk_rows=rows, quiet=True))
    again = rows_again(p, folder)
    assert {number: rows for number, rows in again.items() if rows} == {
        number: sink.rows([number]) for number in sink.frames if sink.rows([number])
    }
    return len(again)


@share(2)
@given(st.lists(st.text("abc", min_size=1, max_size=7), min_size=1, max_size=4), st.integers(1, 5))
def test_batches_of_files_are_read_again(files: list[str], rows: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for number, users in enumerate(files):
            write(Path(folder, "in"), number, users)
        source = bl.JSONLines(Path(folder, "in"), SCHEMA)
        check(source, Path(folder, "checkpoint"), rows)


@pytest.mark.parametrize(
    ("source", "batches"),
    [
        (bl.Rows([{"user": user, "at": at} for at, user in enumerate("abcabcab")]), 3),
        (bl.TestStream(SCHEMA).add_elements([{"user": "a", "at": 3}]).advance_processing_time("1s"), 3),
        (Days(), 3),
    ],
    ids=["rows", "test stream", "planned"],
)
def test_other_sources_are_read_again(source: Any, batches: int, tmp_path: Path) -> None:
    assert check(source, tmp_path, 3) == batches


def test_the_input_of_a_batch_is_named(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path / "in", number, "abc")
    source = bl.JSONLines(tmp_path / "in", SCHEMA, max_files_per_trigger=1)
    check(source, tmp_path / "checkpoint")
    run = open_run(tmp_path / "checkpoint")
    assert [*run.batch(1).texts()] == [("plays", f"{tmp_path}/in/1.jsonl")]
    assert (run.first, run.last, run.done) == (0, 2, 2)
    with pytest.raises(bl.CheckpointError, match="no batch 7: it has batches 0 to 2"):
        run.batch(7)


def test_a_file_that_is_gone_or_changed_is_named(tmp_path: Path) -> None:
    for number in range(2):
        write(tmp_path / "in", number, "abc")
    source = bl.JSONLines(tmp_path / "in", SCHEMA, max_files_per_trigger=1)
    check(source, tmp_path / "checkpoint")
    run, plan = open_run(tmp_path / "checkpoint"), pipeline(source, bl.Memory()).plan()
    (tmp_path / "in" / "0.jsonl").unlink()
    with pytest.raises(InputGone, match=r"batch 0 .* source 'plays': the file '.*/0.jsonl' is gone") as gone:
        input_again(plan, run.batch(0))
    assert (gone.value.batch, gone.value.source) == (0, "plays")
    write(tmp_path / "in", 1, "aa")
    with pytest.raises(InputGone, match=r"1.jsonl' was changed: the run read .* bytes of .*, and it has"):
        input_again(plan, run.batch(1))


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(bl.CheckpointError, match=r"there is no run in .*: it has no beamlike/manifest.json"):
        open_run(tmp_path)


def test_the_logs_of_spark_are_read_without_a_session(tmp_path: Path) -> None:
    with tarfile.open(kept.DATA / f"encoding-{ENCODING}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    run = open_run(tmp_path / "checkpoint")
    assert [[*batch.texts()] for batch in run.batches.values()] == [
        [("plays", f"/tmp/kept/plays/{number}.jsonl")] for number in range(3)
    ]
    log = (tmp_path / "checkpoint" / "offsets" / "0").read_text().splitlines()
    assert run.batch(0).now == 1000 * json.loads(log[1])["batchTimestampMs"]


def test_plans_that_are_done_stay_readable_up_to_a_number(tmp_path: Path) -> None:
    log = PlanLog(Checkpoint(None, str(tmp_path)), "days")  # type: ignore[arg-type]
    folder = tmp_path / "beamlike" / "batches" / "days"
    folder.mkdir(parents=True)
    for number in range(KEPT_PLANS + 3):
        noted = LoggedPlan(number, {"day": number}, {"next": number + 1}, None)
        name = note_name(number)
        (folder / (f"_done-{name}" if number < KEPT_PLANS else name)).write_text(log.text(name, [noted]))
    log.set_aside(map(note_name, range(KEPT_PLANS, KEPT_PLANS + 3)))
    assert log.checkpoint.files.names(log.folder) == []
    assert log.entry(note_name(2)) is None
    last = log.entry(note_name(KEPT_PLANS))
    assert last is not None
    assert last.input == {"day": KEPT_PLANS}
    taken = BatchTaken((last.taken,), in_process=False)
    assert [*taken.texts()] == ["{'day': 100}"]


def test_a_source_that_only_spark_reads_cannot_be_read_again() -> None:
    source = bl.SparkSource(lambda spark: spark.readStream.format("socket").load(), SCHEMA)
    plan = pipeline(source, bl.Memory()).plan()
    batch = RecordedBatch(number=4, now=0, taken={"plays": SpanTaken("-1", "7")})
    with pytest.raises(
        InputGone, match=r"batch 4 .* source 'plays': Spark read SparkSource, which cannot be read"
    ):
        input_again(plan, batch)


def test_messages_of_kafka_between_two_offsets_of_spark() -> None:
    source = bl.Kafka("localhost:9", "plays", value=bl.json({"user": str}))
    begin, end = (source.position_of([text]) for text in ('{"plays":{"0":3}}', '{"plays":{"0":5,"1":2}}'))
    assert source.span(begin, end).input == {
        "begin": {"plays-0": 3, "plays-1": 0},
        "end": {"plays-0": 5, "plays-1": 2},
    }


def test_the_note_of_the_first_offsets_of_kafka_is_no_list_of_files(tmp_path: Path) -> None:
    first, then = '{"plays":{"0":1}}', '{"plays":{"0":3}}'
    (tmp_path / "sources" / "0").mkdir(parents=True)
    (tmp_path / "sources" / "0" / "0").write_text(f"\0v1\n{first}")
    checkpoint = Checkpoint(None, str(tmp_path))  # type: ignore[arg-type]
    lines = ["v1", '{"batchTimestampMs":1000}', then, "-"]
    [batch] = _Logs(checkpoint, ("plays",), {0: "plays"}, {0: lines}).batches().values()
    assert batch.taken == {"plays": SpanTaken(first, then)}


def test_merged_lists_of_files_keep_where_a_run_began_in_a_file(tmp_path: Path) -> None:
    lists = Lists(Checkpoint(None, str(tmp_path)), "plays")  # type: ignore[arg-type]
    lists.keep(["a.csv"], {"b.csv": (2, 100)})
    lists.put(2, [FilePart("c.csv", 2, 2, part) for part in range(2)])
    lists.fold([note_name(1), note_name(2)])
    again = Lists(lists.checkpoint, "plays")
    found = {
        one.file: one for names in again.entries().values() for one in names if isinstance(one, FilePart)
    }
    assert {file: (one.number, one.pieces, one.rows) for file, one in found.items()} == {
        "a.csv": (0, 0, None),
        "b.csv": (1, 2, 100),
        "c.csv": (2, 0, None),
    }
    again.keep(["a.csv", "b.csv", "c.csv"])
    kept = Lists(lists.checkpoint, "plays").entries()["_before.json"]
    assert [(one.file, one.pieces) for one in kept if isinstance(one, FilePart)] == [
        ("a.csv", 0),
        ("b.csv", 2),
        ("c.csv", 0),
    ]
