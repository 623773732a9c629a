"""Safety from power cuts: files are synced before a rename, and their folder before anything depends on it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

import polars as pl
import pytest

from beamlike.io import JSONLines, Part
from beamlike.records.writer import RecordWriter
from beamlike.spark.checkpoint.hadoop import HadoopFiles
from beamlike.spark.checkpoint.syncing import SparkFiles
from beamlike.spark.stopping import BatchGate
from beamlike.system import durable
from tests.beamlike.records.test_writer import batch
from tests.support.histories import PLAN

ROWS = pl.DataFrame({"n": [1], "k": ["a"]})
NAME = "part-q-000000-000.jsonl"


class Call(NamedTuple):
    """A call that changes or syncs a file or folder, which is identified by its inode."""

    what: str
    of: int
    folder: int = 0


class Disk:
    """The calls in their order."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.calls: list[Call] = []
        fsync, replace, unlink = os.fsync, os.replace, os.unlink

        def synced(number: int) -> None:
            fsync(number)
            self.calls.append(Call("sync", os.fstat(number).st_ino))

        def renamed(source: Any, target: Any) -> None:
            replace(source, target)
            self.calls.append(Call("rename", *_at(target)))

        def removed(path: Any) -> None:
            call = Call("remove", *_at(path)) if os.path.lexists(path) else None
            unlink(path)
            self.calls += [call] if call else []

        patch.setattr(os, "fsync", synced)
        patch.setattr(os, "replace", renamed)
        patch.setattr(os, "unlink", removed)

    def has_renamed(self, path: Path) -> bool:
        """True if the file was synced, then renamed, and then its folder was synced."""
        file, folder = _at(path)
        wanted = iter([Call("sync", file), Call("rename", file, folder), Call("sync", folder)])
        return self._in_order(wanted)

    def renamed_at(self, path: Path) -> int:
        """Returns the index of the call that renamed the file."""
        return self.calls.index(Call("rename", *_at(path)))

    def has_made(self, path: Path) -> bool:
        """True if the file or folder was synced, and then its parent folder."""
        file, folder = _at(path)
        return self._in_order(iter([Call("sync", file), Call("sync", folder)]))

    def is_settled(self) -> bool:
        """True if each folder with a changed entry was synced after the change."""
        synced: set[int] = set()
        for call in reversed(self.calls):
            if call.what == "sync":
                synced.add(call.of)
            elif call.folder not in synced:
                return False
        return True

    def _in_order(self, wanted: Iterator[Call]) -> bool:
        due = next(wanted)
        for call in self.calls:
            if call == due:
                due = next(wanted, Call("", 0))
        return due.what == ""


def _at(path: Any) -> tuple[int, int]:
    return os.stat(path).st_ino, os.stat(os.path.dirname(path)).st_ino


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:  # the folder is there before
    return Disk(monkeypatch)


def test_a_part_and_its_folders_are_synced_before_the_sink_says_that_it_is_written(
    disk: Disk, tmp_path: Path
) -> None:
    sink = JSONLines(tmp_path / "deep" / "out", partition_by="k")
    sink.start("q")
    sink.write(ROWS, Part("q", 0))
    assert disk.has_renamed(tmp_path / "deep" / "out" / "k=a" / NAME)
    for made in ("deep", "deep/out", "deep/out/k=a"):
        assert Call("sync", _at(tmp_path / made)[1]) in disk.calls
    assert disk.is_settled()


def test_parts_that_are_published_or_removed_do_not_come_back(disk: Disk, tmp_path: Path) -> None:
    out = tmp_path / "out"
    old, new = JSONLines(out), JSONLines(out).beside("q")
    for number in (0, 1):
        old.write(ROWS, Part("q", number))
    new.write(ROWS, Part("q", 0))
    new.publish("q")
    assert [path.name for path in out.iterdir()] == [NAME]
    assert disk.has_renamed(out / NAME)
    assert disk.is_settled()
    old.settle("q", 0, {}, again=True)
    assert [call.what for call in disk.calls[-2:]] == ["remove", "sync"]
    assert disk.is_settled()


def test_records_are_synced_line_by_line_and_when_they_are_made_coarser(disk: Disk, tmp_path: Path) -> None:
    file = tmp_path / "new" / "run.jsonl"
    writer = RecordWriter.open(file, PLAN, 10_000)
    assert disk.has_made(file)
    assert Call("sync", _at(file.parent)[1]) in disk.calls
    for number in range(20):
        writer.write(batch(number))
        assert Call("sync", _at(file)[0]) in disk.calls[-3:]
    assert disk.has_renamed(file)
    assert disk.is_settled()


def test_a_folder_that_cannot_be_synced_is_left_to_its_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "new").write_text("1")

    def refused(number: int) -> None:
        if os.path.isdir(f"/dev/fd/{number}"):
            raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "fsync", refused)
    durable.replace(str(tmp_path / "new"), str(tmp_path / "old"))
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(5, "Input/output error")))
    with pytest.raises(OSError, match="Input/output"):
        durable.sync_folder(str(tmp_path))


def test_what_is_kept_in_a_checkpoint_is_synced_with_its_time(disk: Disk, tmp_path: Path) -> None:
    files = HadoopFiles(cast(Any, None))  # of another machine's files it would ask Spark
    for text in ("old", "new"):
        files.write(str(tmp_path / "beamlike" / "list"), text, 1_000_000_000)
    listed = tmp_path / "beamlike" / "list"
    assert (listed.read_text(), listed.stat().st_mtime) == ("new", 1_000_000_000)
    assert disk.has_renamed(listed)
    assert Call("sync", _at(listed.parent)[1]) in disk.calls
    files.make(str(tmp_path / "beamlike" / "control"))
    assert disk.calls[-1] == Call("sync", _at(listed)[1])
    assert disk.is_settled()


def test_what_spark_has_written_is_synced_between_batches_and_each_file_once(
    disk: Disk, tmp_path: Path
) -> None:
    files = SparkFiles(str(tmp_path))
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text("v1")
    files.sync()
    assert disk.has_made(tmp_path / "offsets" / "0")
    disk.calls.clear()
    state = tmp_path / "state" / "0" / "0"
    state.mkdir(parents=True)
    (state / "1.changelog").write_text("")
    (tmp_path / "offsets" / "1").write_text("v1")
    (tmp_path / "beamlike").mkdir()
    (tmp_path / "beamlike" / "records.jsonl").write_text("")
    files.sync()
    for new in (state / "1.changelog", state, state.parent, state.parent.parent, tmp_path / "offsets" / "1"):
        assert disk.has_made(new)
    seen = {call.of for call in disk.calls}
    assert not seen & {_at(tmp_path / "offsets" / "0")[0], _at(tmp_path / "beamlike" / "records.jsonl")[0]}
    files.sync()
    assert {call.of for call in disk.calls} == seen


def test_a_batch_is_between_two_syncs_of_what_spark_has_written() -> None:
    told: list[str] = []
    gate = BatchGate(lambda rows, number: told.append(f"batch {number}"), lambda: told.append("sync"))
    gate(cast(Any, None), 7)
    assert told == ["sync", "batch 7", "sync"]


def test_a_tree_is_synced_from_its_leaves_to_the_folder_that_it_is_in(disk: Disk, tmp_path: Path) -> None:
    part = tmp_path / "saved" / "state" / "0" / "part.parquet"
    part.parent.mkdir(parents=True)
    part.write_text("")
    durable.sync_tree(str(tmp_path / "saved"))
    order = [part, part.parent, part.parent.parent, tmp_path / "saved", tmp_path]
    assert disk.calls == [Call("sync", path.stat().st_ino) for path in order]


@pytest.mark.parametrize(("command", "synced"), [(fcntl.F_GETFD, 0), (12345, 1)])
def test_macos_writes_the_cache_of_the_disk_where_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: int, synced: int
) -> None:
    monkeypatch.setattr(durable, "_FULL_SYNC", command)
    disk = Disk(monkeypatch)
    (tmp_path / "file").touch()
    durable.sync(str(tmp_path / "file"))
    assert len(disk.calls) == synced
