"""Records as lines of JSON, and the history that is read from them while they grow."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beamlike.errors import UnreadableRun, ViewError
from beamlike.records.history import History
from beamlike.records.lines import line_text
from beamlike.records.model import BatchRecord, SourceRecord, StageRecord, Upstream, furthest_behind, merged
from beamlike.records.writer import RecordWriter
from stages.state.index import HoldOwner
from tests.support.histories import PLAN, at, batch, source_record, stage_record, waiting, window
from windowing.time import MAX_TIME, MIN_TIME

TIMES = st.integers(MIN_TIME, MAX_TIME)
COUNTS = st.integers(0, 1000)
PERCENTILES = st.dictionaries(st.integers(1, 99), TIMES, max_size=2)
HOLDERS = st.builds(HoldOwner, TIMES, st.text(max_size=3), TIMES, TIMES)
SOURCES = st.builds(
    SourceRecord,
    TIMES,
    COUNTS,
    COUNTS,
    idle=st.booleans(),
    split=st.none() | st.text(max_size=3),
    since=st.none() | TIMES,
    percentiles=PERCENTILES,
    awaited=st.text(max_size=3),
)
STAGES = st.builds(
    StageRecord,
    TIMES,
    TIMES,
    st.text(max_size=3),
    elements=COUNTS,
    panes=st.dictionaries(st.sampled_from(["early", "late"]), COUNTS),
    dropped=st.dictionaries(st.sampled_from(["closed", "late"]), COUNTS),
    live=COUNTS,
    keys=COUNTS,
    bytes=COUNTS,
    percentiles=PERCENTILES,
    finished=st.none() | TIMES,
    upstream=st.dictionaries(st.text(max_size=2), st.builds(Upstream, TIMES, st.booleans()), max_size=3),
    window=st.none() | HOLDERS,
)
BATCHES = st.builds(
    BatchRecord,
    COUNTS,
    TIMES,
    st.dictionaries(st.text(max_size=2), SOURCES, max_size=2),
    st.dictionaries(st.text(max_size=2), STAGES, max_size=2),
    finished=st.none() | TIMES,
    sinks=st.dictionaries(st.text(max_size=2), COUNTS, max_size=2),
)


# Records


@given(BATCHES)
def test_a_record_is_what_its_line_says(record: BatchRecord):
    line = record.to_json()
    assert "\n" not in line
    assert BatchRecord.from_json(line) == record


@given(STAGES, STAGES, STAGES)
def test_the_sum_of_shards_does_not_depend_on_their_order(
    one: StageRecord, two: StageRecord, three: StageRecord
):
    together = merged([("n", one), ("n", two), ("n", three)])["n"]
    other = two.plus(three).plus(one)
    by_holder = ("holder", "window")
    assert {k: v for k, v in attrs.asdict(together).items() if k not in by_holder} == {
        k: v for k, v in attrs.asdict(other).items() if k not in by_holder
    }


def test_of_two_shards_the_one_behind_says_what_holds_the_stage():
    behind = stage_record(90, 5, {"a": 90}, window=window(5, 0, 120), keys=2, bytes=10, finished=at(101))
    ahead = stage_record(90, 60, {"a": 95}, idle=("a",), keys=3, bytes=20, finished=at(102))
    both = ahead.plus(behind)
    assert (both.input, both.output, both.window) == (at(90), at(5), window(5, 0, 120))
    assert (both.keys, both.bytes, both.finished) == (5, 30, at(102))
    assert both.upstream == {"a": Upstream(at(90), idle=False)}


def test_of_two_tasks_the_one_that_is_further_on_says_what_the_source_waits_for():
    one = source_record(43, 48, split="3", elements=2)
    other = source_record(60, 61, split="4", elements=1, dead_letters=1)
    both = one.plus(other)
    assert (both.split, both.since, both.elements, both.dead_letters) == ("4", at(61), 3, 1)


def test_who_is_idle_does_not_hold():
    heard = {"console": Upstream(at(43), idle=True), "mobile": Upstream(at(90)), "web": Upstream(at(95))}
    assert furthest_behind(heard) == "mobile"
    assert furthest_behind({name: Upstream(one.watermark, True) for name, one in heard.items()}) == "console"


def test_a_watermark_that_stays_keeps_the_time_since_when():
    first = waiting().following(None)
    assert first.stages["average"].since == first.processing_time == at(300)
    later = attrs.evolve(waiting(), batch=8, processing_time=at(310)).following(first)
    assert later.stages["average"].since == at(300)
    moved = {**later.stages, "average": stage_record(50, 50)}
    moved_on = attrs.evolve(later, batch=9, processing_time=at(320), stages=moved).following(later)
    assert moved_on.stages["average"].since == at(320)
    assert moved_on.stages["sessions"].since == at(300)


def test_lags_are_told_apart_by_what_time_they_are_in():
    sessions = stage_record(90, 60, {"mobile": 90}, finished=at(302))
    average = stage_record(60, MIN_TIME, {"sessions": 60}, finished=at(305))
    record = batch(1, 300, {"mobile": source_record(90)}, {"sessions": sessions, "average": average})
    assert (record.lag(sessions.input), record.lag(sessions.output)) == (210_000_000, 240_000_000)
    assert record.lag(average.output) is None
    assert record.lag(MAX_TIME) is None
    lags = [record.input_system_lag(name) for name in record.stages]
    assert lags == [0, 2_000_000]
    assert [record.output_system_lag(name) for name in record.stages] == [2_000_000, 5_000_000]


# Writing and reading


def write(path: Path, *batches: BatchRecord) -> RecordWriter:
    writer = RecordWriter.open(path, PLAN)
    for record in batches:
        writer.write(record)
    return writer


def numbered(*numbers: int) -> list[BatchRecord]:
    return [attrs.evolve(waiting(), batch=number) for number in numbers]


def test_a_history_is_what_was_written(tmp_path: Path):
    path = tmp_path / "a new folder" / "run.jsonl"
    writer = write(path, *numbered(0, 1))
    history = History.open(path)
    assert history.plan == PLAN
    assert history.batches == numbered(0, 1)
    assert history.closed is None
    writer.close("ended")
    writer.close("failed")
    assert history.refresh()
    assert history.closed == "ended"
    assert not history.refresh()


def test_every_line_is_an_object_and_the_first_has_the_plan(tmp_path: Path):
    write(tmp_path / "run.jsonl", *numbered(0)).close("ended")
    first, second, last = map(json.loads, (tmp_path / "run.jsonl").read_text().splitlines())
    assert list(first) == ["plan", "sealed_as", "crc32"]
    assert second["batch"] == 0
    assert (last["closed"], [*last]) == ("ended", ["closed", "sealed_as", "crc32"])


def test_a_history_grows_with_its_file_line_by_line(tmp_path: Path):
    path = tmp_path / "run.jsonl"
    writer = write(path)
    history = History.open(path)
    assert history.latest is None
    writer.write(numbered(0)[0])
    assert history.refresh()
    with path.open("ab") as file:
        line = line_text(numbered(1)[0])
        file.write(line[:50])
        file.flush()
        assert not history.refresh()
        file.write(line[50:])
    assert history.refresh()
    assert [record.batch for record in history.batches] == [0, 1]


def test_half_a_line_of_a_killed_run_is_passed_over_and_cut_off_by_the_next(tmp_path: Path):
    path = tmp_path / "run.jsonl"
    write(path, *numbered(0, 1))
    whole = path.read_bytes()
    path.write_bytes(whole[:-40])
    history = History.open(path)
    assert [record.batch for record in history.batches] == [0]
    again = RecordWriter.open(path, PLAN)
    assert again.last == numbered(0)[0]
    again.write(numbered(1)[0])
    assert history.refresh()
    assert history.batches == numbered(0, 1) == History.open(path).batches


def test_a_batch_that_is_run_again_replaces_it_and_all_after_it(tmp_path: Path):
    path = tmp_path / "run.jsonl"
    write(path, *numbered(0, 1, 2)).close("failed")
    again = RecordWriter.open(path, attrs.evolve(PLAN, pipeline="again"))
    assert again.last == numbered(2)[0]
    history = History.open(path)
    assert (history.plan.pipeline, history.closed) == ("again", None)
    again.write(attrs.evolve(waiting(), batch=1, processing_time=at(999)))
    history.refresh()
    assert [(record.batch, record.processing_time) for record in history.batches] == [
        (0, at(300)),
        (1, at(999)),
    ]


def test_the_last_batch_is_found_behind_long_lines(tmp_path: Path):
    path = tmp_path / "run.jsonl"
    write(path, *numbered(0)).close("ended")
    with path.open("ab") as file:
        file.write(json.dumps({"plan": "x" * 200_000}).encode() + b"\n")
    assert RecordWriter.open(path, PLAN).last == numbered(0)[0]
    assert RecordWriter.open(tmp_path / "empty.jsonl", PLAN).last is None


def test_a_file_that_takes_the_place_of_another_is_read_anew(tmp_path: Path):
    path = tmp_path / "run.jsonl"
    write(path, *numbered(0, 1))
    history = History.open(path)
    write(tmp_path / "other.jsonl", *numbered(5))
    (tmp_path / "other.jsonl").replace(path)
    assert history.refresh()
    assert history.batches == numbered(5)


# Finding a run


@pytest.mark.parametrize(
    "place", ["records.jsonl", "beamlike/records.jsonl", "mine.jsonl", "deep/er/mine.jsonl"]
)
def test_a_run_is_found_in_its_folder_or_checkpoint(tmp_path: Path, place: str):
    write(tmp_path / "c" / place, *numbered(0))
    assert History.open(tmp_path / "c").batches == numbered(0)
    assert History.open(f"file:{tmp_path}/c/{place}").batches == numbered(0)


def test_where_there_is_no_run_the_nearest_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        FileNotFoundError, match=r"^there is no run 'scores'; a run is the path .*records.jsonl$"
    ):
        History.open("scores")
    write(tmp_path / "checkpoint" / "beamlike" / "records.jsonl")
    write(tmp_path / "scores.jsonl")
    (tmp_path / "other.jsonl").write_text('{"at": 1}\n')
    with pytest.raises(FileNotFoundError) as error:
        History.open("score.jsonl")
    assert str(error.value).endswith("; the nearest: 'scores.jsonl', 'checkpoint/beamlike/records.jsonl'")
    with pytest.raises(FileNotFoundError, match=r"no run 'nowhere/at/all'.*; the nearest: 'scores"):
        History.open("nowhere/at/all")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"there is no run in the folder 'empty'; .*; the nearest: "):
        History.open("empty")
    with pytest.raises(FileNotFoundError, match=r"several runs in '\.'; name one: '\./scores.jsonl', "):
        History.open(".")


def test_what_is_no_run_is_refused(tmp_path: Path):
    other = tmp_path / "other.jsonl"
    other.write_text('{"at": 1}\n')
    with pytest.raises(UnreadableRun, match=r"other.jsonl' does not have the records of a run"):
        History.open(other)
    with pytest.raises(
        ViewError, match=r"'s3://b/c' are not of this machine's file system; copy beamlike/rec"
    ):
        History.open("s3://b/c")


def test_records_are_not_written_into_a_folder(tmp_path: Path):
    with pytest.raises(IsADirectoryError, match=r"is a folder; name a file, such as '.*records.jsonl'"):
        RecordWriter.open(tmp_path, PLAN)
