"""Sinks receive frames that people and other programs can read, and write every part once."""

from __future__ import annotations

import json
import pickle
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import polars as pl
import pytest
from polars.exceptions import PanicException

import beamlike as bl
from beamlike.io import (
    CSV,
    Callback,
    Console,
    JSONLines,
    Memory,
    Parquet,
    Part,
    Sink,
    output_frame,
    output_schema,
)
from beamlike.io.files.files import Files
from beamlike.io.sinks import written_by_tasks
from windowing.columns import (
    EVENT_TIME,
    PANE_FIRST,
    PANE_INDEX,
    PANE_RETRACTED,
    PANE_TIMING,
    WINDOW_END,
    WINDOW_START,
)
from windowing.time import GLOBAL_WINDOW_END, MIN_TIME

FORMATS = [Parquet, CSV, JSONLines]


def rows(count: int) -> pl.DataFrame:
    return pl.DataFrame({"n": range(count)}, schema={"n": pl.Int64})


def read(sink: Files) -> list[int]:
    return [n for chunk in type(sink)(sink.path).chunks(100) for n in chunk.lazy().collect()["n"]]


# Rows of a sink


def test_output_has_windows_first_and_panes_last_with_times_as_datetimes() -> None:
    frame = pl.DataFrame(
        {"n": [1], EVENT_TIME: [5], WINDOW_START: [0], WINDOW_END: [60_000_000]}
        | {PANE_TIMING: ["on_time"], PANE_INDEX: [0], PANE_FIRST: [True]}
    )
    shown = output_frame(frame)
    assert shown.columns == ["window_start", "window_end", "n", "event_time", "pane_timing", "pane_index"]
    assert shown.schema == output_schema(frame.schema)
    assert shown["window_end"].to_list() == [datetime(1970, 1, 1, 0, 1, tzinfo=UTC)]
    assert output_frame(frame.select("n", EVENT_TIME)).columns == ["n", "event_time"]


def test_output_says_which_panes_are_taken_back_only_where_some_may_be() -> None:
    frame = pl.DataFrame({"n": [1], PANE_INDEX: [0], PANE_RETRACTED: [True]})
    assert output_frame(frame).to_dicts() == [{"n": 1, "pane_index": 0, "pane_retracted": True}]


def test_a_users_column_wins_over_the_systems_of_that_name() -> None:
    frame = pl.DataFrame({"event_time": ["mine"], "pane_index": [7], EVENT_TIME: [5], PANE_TIMING: ["early"]})
    (shown,) = output_frame(frame).rows(named=True)
    assert shown == {"event_time": "mine", "pane_index": 7, "pane_timing": "early"}


def test_times_that_no_datetime_shows_are_null() -> None:
    frame = pl.DataFrame({EVENT_TIME: [GLOBAL_WINDOW_END - 1], WINDOW_START: [MIN_TIME], WINDOW_END: [2**62]})
    assert output_frame(frame).rows() == [(None, None, None)]


# Sinks


@pytest.mark.parametrize("files", FORMATS)
def test_a_replayed_part_replaces_the_first(files: type[Files], tmp_path: Path) -> None:
    sink = files(f"file://{tmp_path}/out")
    assert isinstance(sink, Sink)
    assert written_by_tasks(sink)
    sink.write(rows(9), Part("q", 1, 2))
    sink.write(rows(2), Part("q", 1, 2))
    assert names(tmp_path / "out") == [f"part-q-000001-002.{sink.extension}"]
    assert read(sink) == [0, 1]
    sink.write(rows(0), Part("q", 1, 2))
    assert names(tmp_path / "out") == []


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


@pytest.mark.parametrize("again", [False, True])
def test_what_another_attempt_at_a_batch_left_is_removed(again: bool, tmp_path: Path) -> None:
    sink = Parquet(tmp_path / "out")
    sink.settle("q", 1, {}, again=again)  # nothing is there yet
    for query, batch, task in [
        ("q", 1, 0),
        ("q", 1, 3),
        ("q", 0, 3),
        ("q", 11, 3),
        ("q-q", 1, 3),
        ("r", 1, 3),
    ]:
        sink.write(rows(1), Part(query, batch, task))
    others = {"part-q-000001-003.csv", "q.parquet", ".part-r-000001-003.parquet.0.tmp"}
    for name in (*others, ".part-q-000000-003.parquet.0.tmp"):
        (tmp_path / "out" / name).touch()
    before = {*names(tmp_path / "out")}
    sink.prepare(rows(3), Part("q", 1, 1))
    sink.settle("q", 1, sink.prepare(rows(2), Part("q", 1, 0)), again=again)
    assert read(Parquet(tmp_path / "out" / "part-q-000001-000.parquet")) == [0, 1]
    left = {*names(tmp_path / "out")}
    if again:
        assert left == before - {"part-q-000001-003.parquet", ".part-q-000000-003.parquet.0.tmp"}
    else:
        assert left > before  # the other attempt has not ended, or left its file in vain


@pytest.mark.parametrize("files", FORMATS)
def test_an_attempt_that_was_overtaken_shows_nothing(files: type[Files], tmp_path: Path) -> None:
    sink = files(tmp_path, partition_by="key")

    def keyed(*keys: str) -> pl.DataFrame:
        return pl.DataFrame({"n": [*range(len(keys))], "key": keys})

    early, winner = sink.prepare(keyed("a", "b"), Part("q", 0)), sink.prepare(keyed("b", "c"), Part("q", 0))
    assert {*early.values()} != {*winner.values()}
    assert [*tmp_path.rglob("part-*")] == []
    sink.settle("q", 0, winner, again=False)
    sink.prepare(keyed("a", "b", "d"), Part("q", 0))  # an attempt that outlives its batch
    assert sorted(file.parent.name for file in tmp_path.rglob("part-*")) == ["key=b", "key=c"]
    sink.settle("q", 1, {}, again=True)  # of the next run
    assert sorted(names(tmp_path)) == ["key=b", "key=c"]


@pytest.mark.parametrize("inner_rows", [1, 0])
def test_two_attempts_at_a_part_do_each_other_no_harm(
    inner_rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, save, part = Parquet(tmp_path), Parquet._save, Part("q", 0)

    def overtaken(self: Parquet, frame: pl.DataFrame, target: str) -> None:
        save(self, frame, target)
        if len(frame) == 2:
            # All of the other attempt, while this one has its file under the hidden name.
            sink.write(rows(inner_rows), part)

    monkeypatch.setattr(Parquet, "_save", overtaken)
    sink.write(rows(2), part)
    assert names(tmp_path) == ["part-q-000000-000.parquet"]
    assert read(sink) == [0, 1]


LISTED: list[str] = []
"""Folders that Python lists while the audit hook is active."""
WATCHED: list[str] = []
sys.addaudithook(
    lambda event, args: LISTED.append(event) if WATCHED and event in ("os.listdir", "os.scandir") else None
)


@pytest.mark.parametrize("columns", [[], ["n"]])
def test_a_part_is_written_without_a_look_at_the_others(columns: list[str], tmp_path: Path) -> None:
    sink = Parquet(tmp_path, partition_by=columns)
    WATCHED.append("writes")
    try:
        for count in (2, 1, 0):
            sink.write(rows(count).with_columns(m=0), Part("q", 0))
        sink.settle("q", 0, sink.prepare(rows(2).with_columns(m=0), Part("q", 0)), again=False)
        assert LISTED == []
        sink.settle("q", 0, {}, again=True)
        assert LISTED != []
    finally:
        WATCHED.clear()
        LISTED.clear()


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = Parquet(tmp_path)
    sink.write(rows(1), Part("q", 1))

    def half(self: Parquet, frame: pl.DataFrame, target: str) -> None:
        Path(target).write_text("half")
        raise OSError("disk full")

    monkeypatch.setattr(Parquet, "_save", half)
    with pytest.raises(OSError, match="disk full"):
        sink.write(rows(2), Part("q", 1))
    assert [file.name for file in tmp_path.iterdir()] == ["part-q-000001-000.parquet"]
    assert read(sink) == [0]


def test_a_run_that_adds_to_files_of_others_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sink = Parquet(tmp_path)
    sink.write(rows(1), Part("a", 0))
    (tmp_path / "notes.parquet").touch()
    sink.warn_of_others("a")
    assert caplog.messages == []
    sink.warn_of_others("b")
    assert len(caplog.messages) == 1
    assert f"{str(tmp_path)!r} has files of other runs already (1): this run adds to them" in caplog.text


def test_a_run_from_nothing_removes_only_what_its_name_left(tmp_path: Path) -> None:
    sink = Parquet(tmp_path)
    for query in ("a", "a-b", "a b", "a~20b", "ä/b"):
        sink.write(rows(1), Part(query, 0))
        sink.write(rows(1), Part(query, 1_234_567, 1_234))
    others = {"part-a.parquet", "part-a-0-0.parquet", "notes.txt"}
    for name in (*others, ".part-a-000003-000.parquet.0.tmp"):
        (tmp_path / name).touch()
    assert len(list(tmp_path.iterdir())) == 14
    sink.start("a")
    sink.start("ä/b")
    left = {file.name for file in tmp_path.iterdir()} - others
    numbers = ("000000-000", "1234567-1234")
    assert left == {f"part-{query}-{n}.parquet" for query in ("a-b", "a~20b", "a~7E20b") for n in numbers}
    Parquet(tmp_path / "new" / "folder").start("a")
    assert (tmp_path / "new" / "folder").is_dir()


def test_a_sink_writes_to_a_directory(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    with pytest.raises(NotADirectoryError, match="it is a file"):
        Parquet(tmp_path / "f").start("q")
    with pytest.raises(ValueError, match="not a glob"):
        Parquet(tmp_path / "*.parquet").write(rows(1), Part("q", 0))


def test_text_has_times_in_iso_8601_with_z_and_nested_columns_as_json(tmp_path: Path) -> None:
    at = pl.Series([datetime(2026, 1, 1, 13), None]).dt.replace_time_zone("Europe/Berlin")
    frame = pl.DataFrame({"at": at, "naive": [datetime(2026, 1, 1), None], "tags": [["a", "b"], None]})
    CSV(tmp_path / "csv").write(frame, Part("q", 0))
    JSONLines(tmp_path / "json").write(frame, Part("q", 0))
    z, naive = "2026-01-01T12:00:00.000000Z", "2026-01-01T00:00:00.000000Z"
    (csv,) = (tmp_path / "csv").iterdir()
    assert csv.read_text() == f'at,naive,tags\n{z},{naive},"[""a"",""b""]"\n,,\n'
    (lines,) = (tmp_path / "json").iterdir()
    assert [json.loads(line) for line in lines.read_text().splitlines()] == [
        {"at": z, "naive": naive, "tags": ["a", "b"]},
        {"at": None, "naive": None, "tags": None},
    ]


def test_memory_replaces_parts_and_forgets_at_the_start() -> None:
    sink = Memory()
    assert sink.frame().is_empty()
    for n, part in ((3, Part("q", 1)), (1, Part("q", 0, 1)), (0, Part("q", 0)), (2, Part("q", 1))):
        sink.write(pl.DataFrame({"n": [n]}), part)
    assert sink.rows() == [{"n": 0}, {"n": 1}, {"n": 2}]
    sink.write(pl.DataFrame(schema={"n": pl.Int64}), Part("q", 1))
    assert sink.frame()["n"].to_list() == [0, 1]
    assert pickle.loads(pickle.dumps(sink)).frame().is_empty()
    sink.start("q")
    sink.write(pl.DataFrame(schema={"n": pl.Int64}), Part("q", 0))
    assert sink.frame().schema == {"n": pl.Int64}
    assert sink != Memory()
    assert isinstance(sink, Sink)
    assert not written_by_tasks(sink)


def test_memory_says_which_column_has_times_that_python_cannot_hold() -> None:
    p, out = bl.Pipeline("end of time"), Memory()
    strategy = bl.MonotonousTimestamps()
    rows = p.read("rows", bl.Rows([{"at": 1}]), timestamp="at", timestamp_unit="s", watermark=strategy)
    counts = rows.aggregate(n=bl.count())
    counts.with_columns(end=bl.window_end()).write("out", out)
    p.run()
    assert out.frame()["n"].to_list() == [1]
    with pytest.raises(ValueError, match=r"column 'end' .* outside of the years 1 to 9999; frame\(\) has it"):
        out.rows()


def test_a_callback_that_cannot_use_a_time_is_told_its_column() -> None:
    frame = pl.DataFrame({"n": [1], "end": [2**62]}, {"n": pl.Int64, "end": pl.Datetime("us", "UTC")})
    with pytest.raises(ValueError, match=r"column 'end': .* outside of the years 1 to 9999"):
        Callback(lambda frame, batch: frame.to_dicts()).write(frame, Part("q", 1, 0))
    with pytest.raises(ValueError, match=r"of its own; column 'end': .* outside of the years 1 to 9999"):
        Callback(panics).write(frame, Part("q", 1, 0))
    with pytest.raises(PanicException, match="of its own"):
        Callback(panics).write(frame.drop("end"), Part("q", 1, 0))


def panics(frame: pl.DataFrame, batch: int) -> None:
    raise PanicException("of its own")


def test_a_callback_gets_each_batch_with_rows_and_one_that_is_taken_back() -> None:
    seen: list[Any] = []
    sink = Callback(lambda frame, batch: seen.append((frame["n"].to_list(), batch)))
    sink.write(pl.DataFrame({"n": [1]}), Part("q", 4))
    sink.write(pl.DataFrame(schema={"n": pl.Int64}), Part("q", 5))
    assert seen == [([1], 4)]
    sink.take_back(pl.DataFrame(schema={"n": pl.Int64}), Part("q", 4))
    assert seen == [([1], 4), ([], 4)]


def test_the_console_shows_a_short_table_that_names_its_sink(capsys: pytest.CaptureFixture[str]) -> None:
    ends = [datetime(2026, 1, 1, 12, minute, tzinfo=UTC) for minute in range(2, 8, 2)]
    frame = pl.DataFrame({"window_end": ends, "mean": [1 / 3, None, 2e9], "user": ["[b]x", "y", "z"]})
    sink = Console(rows=2)
    sink.write(frame.clear(), Part("q", 6, sink="averages"))
    assert capsys.readouterr().out == ""
    sink.write(frame, Part("q", 7, sink="averages"))
    shown = capsys.readouterr().out
    for text in ("averages, batch 7, 2026-01-01 UTC", "12:02:00 ", "0.333333", "[b]x", "and 1 more"):
        assert text in shown
    assert "12:06:00" not in shown
    late = ends[1].replace(day=2, microsecond=5_000)
    sink.write(pl.DataFrame({"window_end": [ends[0], late]}), Part("q", 8))
    assert "2026-01-02 12:04:00.005" in capsys.readouterr().out


def test_declarations_are_small_and_frozen() -> None:
    schema = {"user": str, "at": datetime}
    for declaration in (Parquet("in", schema=schema), CSV("in"), Console(), Memory(), Callback(print)):
        assert len(pickle.dumps(declaration)) < 3_000
        with pytest.raises((attrs.exceptions.FrozenInstanceError, AttributeError)):
            declaration.path = "other"  # type: ignore[union-attr, misc]
