"""A run on an older copy of a checkpoint loses no rows: it is refused, or continues as a run of another id."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

import beamlike as bl
from beamlike.cli.main import main
from beamlike.errors import CheckpointError, SinkInUse
from beamlike.records.history import History
from tests.support.examples import share

CUT = ("files", "folders", "memory")
"""The sinks from which rows of later batches are removed."""
APPENDED = ("table", "delta", "iceberg")
KEYED = ("keyed-table", "keyed-delta", "keyed-iceberg")


class Job:
    """A run from files of numbers to sinks of these kinds, below a folder."""

    def __init__(self, folder: Path, *kinds: str, keep: Callable[[Any], Any] = lambda n: n >= 0) -> None:
        self.folder, self.kinds, self.keep = folder, kinds, keep
        self.memory, self.called, self.given = bl.Memory(), list[int](), 0
        self.runner: Callable[..., Any] = bl.LocalRunner
        self.catalog = {"type": "sql", "uri": f"sqlite:///{folder}/lake.db", "warehouse": str(folder)}
        (folder / "in").mkdir()

    def give(self, *numbers: int) -> None:
        """Adds a file."""
        path = self.folder / "in" / f".{self.given}"
        path.write_text("".join(json.dumps({"n": n, "at": n}) + "\n" for n in numbers))
        os.utime(path, (1_000_000_000 + self.given,) * 2)
        path.rename(self.folder / "in" / f"{self.given}.jsonl")
        self.given += 1

    def run(self, checkpoint: str = "original", **options: Any) -> None:
        self.pipeline().run(self.runner(checkpoint=str(self.folder / checkpoint), **options))

    def copy(self, name: str = "copy") -> None:
        """Copies the checkpoint as it is now."""
        shutil.copytree(self.folder / "original", self.folder / name)

    def pipeline(self) -> bl.Pipeline:
        p = bl.Pipeline("numbers")
        source = bl.JSONLines(self.folder / "in", {"n": int, "at": int})
        read = p.read("in", source, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
        read = read.filter(self.keep(bl.col("n")))
        for kind in self.kinds:
            if kind.startswith("keyed"):
                first = bl.AfterWatermark(early=bl.AfterCount(1))
                days = read.window_into(bl.FixedWindows("1d"), trigger=first, accumulation=bl.ACCUMULATING)
                days.group_by("n", name=f"by {kind}").aggregate(c=bl.count()).write(kind, self.sink(kind))
            else:
                read.write(kind, self.sink(kind))
        return p

    def sink(self, kind: str) -> Any:
        below = str(self.folder / kind)
        mode: Any = "upsert" if kind.startswith("keyed") else "append"
        match kind.rpartition("-")[2]:
            case "files":
                return bl.JSONLines(below)
            case "folders":
                return bl.Parquet(below, partition_by="n")
            case "table":
                return bl.Table(f"sqlite:///{below}.db", "t", mode)
            case "delta":
                return bl.Delta(below, mode=mode)
            case "iceberg":
                return bl.Iceberg(f"lake.{mode}", self.catalog, mode=mode)
            case "callback":
                return bl.Callback(lambda rows, batch: self.called.extend(rows["n"].to_list()))
        return self.memory

    def numbers(self, kind: str) -> list[int]:
        """Returns the numbers in a sink, in order."""
        below = self.folder / kind
        match kind.rpartition("-")[2]:
            case "files":
                lines = (line for file in below.glob("*.jsonl") for line in file.read_text().splitlines())
                found = [json.loads(line)["n"] for line in lines]
            case "folders":
                found = [int(file.parent.name.removeprefix("n=")) for file in below.glob("n=*/*.parquet")]
            case "table":
                with closing(sqlite3.connect(f"{below}.db")) as database:
                    found = [n for (n,) in database.execute("SELECT n FROM t")]
            case "delta":
                found = pl.read_delta(str(below))["n"].to_list()
            case "iceberg":
                name = "lake.upsert" if kind.startswith("keyed") else "lake.append"
                table = load_catalog("default", **self.catalog).load_table(name)
                found = table.scan().to_arrow()["n"].to_pylist()
            case "memory":
                found = self.memory.frame()["n"].to_list()
            case _:
                found = self.called
        return sorted(found)


def halfway(folder: Path, *kinds: str, **choices: Any) -> Job:
    """Returns a job after one batch, with a copy of its checkpoint."""
    job = Job(folder, *kinds, **choices)
    job.give(0)
    job.run()
    job.copy()
    return job


@pytest.mark.parametrize("kind", [*CUT, *APPENDED])
def test_an_older_copy_is_refused_and_its_original_goes_on(kind: str, tmp_path: Path) -> None:
    job = halfway(tmp_path, kind)
    for n in (1, 2):
        job.give(n)
        job.run()
    told = rf"^sink '{kind}', .* has batch 2 of the run '\w+', but the checkpoint {tmp_path}/copy knows of batch 0: it "
    for _ in range(2):
        with pytest.raises(CheckpointError, match=told + r".* --continue-as NEW"):
            job.run("copy")
    assert job.numbers(kind) == [0, 1, 2]
    job.give(3)
    job.run()
    assert job.numbers(kind) == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", ["files", "table", "delta"])
def test_once_a_copy_has_gone_on_its_original_is_refused(kind: str, tmp_path: Path) -> None:
    job = halfway(tmp_path, kind)
    job.run("copy")  # it is as new as its original
    job.give(1)
    job.run("copy")
    with pytest.raises(
        CheckpointError, match=rf"has batch 1 of the run .*{tmp_path}/original knows of batch 0"
    ):
        job.run()
    job.give(2)
    job.run("copy")
    assert job.numbers(kind) == [0, 1, 2]


def test_a_copy_that_wrote_where_its_original_had_nothing_to_write_is_seen(tmp_path: Path) -> None:
    job = halfway(tmp_path, "table", keep=lambda n: n < 10)
    job.give(11)
    job.run()  # a batch of which no row passes
    job.give(1)
    job.run("copy")
    assert job.numbers("table") == [0, 1]
    with pytest.raises(CheckpointError, match=r"has rows of batch 1 of the run .*/original wrote none in it"):
        job.run()


@share(2)
@given(st.lists(st.sampled_from(["give", "give unwanted", "original", "copy"]), min_size=3, max_size=9))
def test_rows_are_written_once_whichever_of_two_copies_runs(
    tmp_path_factory: pytest.TempPathFactory, moves: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("law")
    job, given = halfway(folder, "table", keep=lambda n: n < 100), [0]
    for number, move in enumerate(moves, start=1):
        if move == "give":
            job.give(number)
            given.append(number)
        elif move == "give unwanted":
            job.give(100 + number)
        else:
            try:
                job.run(move)
            except CheckpointError:
                found = job.numbers("table")
                assert len(found) == len({*found})
            else:
                assert job.numbers("table") == given


@pytest.mark.parametrize("kind", [*CUT, *APPENDED, *KEYED])
def test_an_older_copy_continues_as_a_run_of_another_id(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = halfway(tmp_path, kind)
    for n in (1, 2):
        job.give(n)
        job.run()
    job.give(3)
    job.run("copy", continue_as="second")
    [told] = [message for message in caplog.messages if "which this run repeats" in message]
    assert told.startswith(f"sink {kind!r}, ")
    assert "has batches 1 to 2 of the run" in told
    ends = {**dict.fromkeys(CUT, "were removed"), **dict.fromkeys(KEYED, "key and window replaces them")}
    assert told.endswith(ends.get(kind, "are written once more"))
    doubled = [1, 2] if kind in APPENDED else []
    assert job.numbers(kind) == sorted([0, 1, 2, 3, *doubled])
    caplog.clear()
    for n, options in ((4, {"continue_as": "second"}), (5, {})):  # as of a supervisor that starts it again
        job.give(n)
        job.run("copy", **options)
    assert not caplog.messages
    assert job.numbers(kind) == sorted([0, 1, 2, 3, 4, 5, *doubled])
    numbers = [record.batch for record in History.open(tmp_path / "copy").batches]
    assert numbers == [0, 1, 2, 3]


@pytest.mark.slow
@pytest.mark.spark
def test_on_spark(spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    kinds = ("memory", "table", "delta", "iceberg", "folders", "files")
    job = Job(tmp_path, *kinds)
    job.runner = partial(bl.SparkRunner, session=spark, shards=1)
    job.give(0)
    job.run()
    job.copy()
    live = job.runner(checkpoint=str(tmp_path / "original"), trigger="1 hour").start(job.pipeline().plan())
    with pytest.raises(SinkInUse, match=r"^sink 'delta': .* it has a copy of this checkpoint"):
        job.run("copy")
    live.stop()
    job.give(1)
    job.run()
    with pytest.raises(
        CheckpointError, match=r"^sink '.*has batch \d of the run .*/copy knows of batch \d: it is an"
    ):
        job.run("copy")
    assert {kind: job.numbers(kind) for kind in kinds} == {kind: [0, 1] for kind in kinds}
    job.run("copy", continue_as="second")
    found = [message for message in caplog.messages if "which this run repeats" in message]
    told = {message.split("'")[1]: message.rpartition(": ")[2] for message in found}
    once, twice = "their rows were removed", "their rows stay, and are written once more"
    assert told == {kind: twice if kind in APPENDED else once for kind in kinds}
    ends = {kind: [0, 1, 1] if kind in APPENDED else [0, 1] for kind in kinds}
    assert {kind: job.numbers(kind) for kind in kinds} == ends
    shutil.copytree(tmp_path / "copy", tmp_path / "other")
    job.give(2)
    job.run("other")
    with pytest.raises(CheckpointError, match=r"has batch \d of the run 'second', .*/copy knows of"):
        job.run("copy")
    assert {kind: job.numbers(kind) for kind in kinds} == {kind: [*ends[kind], 2] for kind in kinds}


@pytest.mark.parametrize("kind", ["files", "table"])
def test_a_batch_that_was_begun_is_done_again_and_no_reason_to_refuse(kind: str, tmp_path: Path) -> None:
    job = halfway(tmp_path, kind)
    job.give(1)

    def die(record: Any) -> None:
        raise OSError("the machine is gone")

    with pytest.raises(OSError, match="the machine is gone"):
        job.run(on_batch=die)
    job.copy("begun")
    job.run()
    job.run("begun")  # the same batch of the same input
    assert job.numbers(kind) == [0, 1]
    job.give(2)
    job.run("begun")
    with pytest.raises(CheckpointError):
        job.run()
    assert job.numbers(kind) == [0, 1, 2]


@pytest.mark.parametrize("failures", [0, 1, 2, 3])
@pytest.mark.parametrize("kind", ["files", "folders", "table", "delta"])
def test_a_batch_that_gave_no_rows_when_it_was_done_again_is_no_reason_to_refuse(
    kind: str, failures: int, tmp_path: Path
) -> None:
    job = halfway(tmp_path, kind)

    def die(record: Any) -> None:
        raise OSError("the machine is gone")

    def fail() -> None:
        with pytest.raises(OSError, match="the machine is gone"):
            job.run(on_batch=die)

    job.give(1)
    fail()
    job.keep = lambda n: n > 4  # a new filter
    job.run()
    for number in range(failures):  # of later batches, which give no rows either
        job.give(2 + number)
        fail()
        fail()
        job.run()
    job.give(5)
    for _ in range(2):
        job.run()
    # A folder has only the files of the last attempt.
    assert job.numbers(kind) == ([0, 5] if kind in ("files", "folders") else [0, 1, 5])


def test_dead_letters_of_later_batches_are_removed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    job = halfway(tmp_path, "files")
    (tmp_path / "in" / "bad.jsonl").write_text('{"n": "?", "at": 1}\n{"n": 1, "at": 1}\n')
    job.run()
    for name in ("manifest.json", "journal.sqlite", "records.jsonl"):  # put over what is there
        shutil.copy(tmp_path / "copy" / "beamlike" / name, tmp_path / "original" / "beamlike" / name)
    with pytest.raises(CheckpointError):
        job.run()
    job.run(continue_as="second")
    assert any(message.startswith("the folder of dead letters, ") for message in caplog.messages)
    [letters] = (tmp_path / "original" / "beamlike" / "dead-letters").glob("*.jsonl")
    assert letters.name.startswith("part-second-")
    assert job.numbers("files") == [0, 1]


def test_a_savepoint_of_a_run_that_went_on_says_what_is_doubled(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = halfway(tmp_path, "files", "table")
    saved = str(tmp_path / "saved")
    bl.savepoint.save(str(tmp_path / "original"), saved)

    def restore(name: str) -> None:
        bl.savepoint.restore(saved, str(tmp_path / name), job.pipeline().plan(), runner="local")

    restore("at once")
    job.give(1)
    job.run("at once")
    assert not [told for told in caplog.messages if told.startswith("sink ")]
    assert job.numbers("table") == [0, 1]
    job.give(2)
    job.run()  # the original goes on, too
    ends = {
        "later": ["from sinks that can do it"] * 2,
        "cut": ["their rows were removed", "are written once more"],
    }
    for name, options in (("later", {}), ("cut", {"continue_as": "third"})):
        restore(name)
        caplog.clear()
        job.run(name, **options)
        told = [message for message in caplog.messages if "has batch 1 of the run" in message]
        assert [message.partition(",")[0] for message in told] == ["sink 'files'", "sink 'table'"]
        assert ["continued after the savepoint" in message for message in told] == [name == "later"] * 2
        for message, end in zip(told, ends[name], strict=True):
            assert message.endswith(end)


def test_the_command_line_continues_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = halfway(tmp_path, "files")
    job.give(1)
    job.run()
    monkeypatch.chdir(tmp_path)
    Path("copied.py").write_text(
        "from pathlib import Path\nfrom tests.end_to_end.test_copies import Job\n"
        "job = Job.__new__(Job)\njob.folder, job.kinds, job.keep = Path.cwd(), ('files',), lambda n: n >= 0\n"
        "numbers = job.pipeline()\n"
    )
    command = ["run", "copied:numbers", "--checkpoint", "copy"]
    refused = CliRunner().invoke(main, command)
    assert refused.exit_code == 1
    assert "has batch 1 of the run" in refused.output
    assert "Traceback" not in refused.output
    assert CliRunner().invoke(main, [*command, "--continue-as", "second"]).exit_code == 0
    assert job.numbers("files") == [0, 1]
