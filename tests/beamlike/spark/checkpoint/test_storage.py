"""Errors of storage and of sources are reported by their meaning for the checkpoint."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import pytest

import beamlike as bl
from beamlike.plan.model import Plan
from beamlike.spark.checkpoint.arrow_files import ArrowFiles
from beamlike.spark.checkpoint.checkpoint import Checkpoint
from beamlike.spark.checkpoint.hadoop import HadoopFiles
from beamlike.spark.failures import failure
from tests.support.storage import full


def test_storage_that_is_full_or_cannot_be_written_is_told(tmp_path: Path) -> None:
    files = HadoopFiles(cast(Any, None))  # of another machine's files it would ask Spark
    (tmp_path / "file").write_text("old")
    name = str(tmp_path / "file")
    with (
        full(100),
        pytest.raises(bl.CheckpointError, match=f"cannot write {name}: .*is there room.*run again"),
    ):
        files.write(name, "new" * 100)
    assert files.read(name) == "old"
    for refused in (
        files.make,
        lambda name: files.write(name, ""),
        lambda name: Checkpoint(cast(Any, None), name).lock("x"),
    ):
        with pytest.raises(bl.CheckpointError, match=f"cannot write {name}/deep"):
            refused(f"{name}/deep")
    with pytest.raises(bl.CheckpointError, match=f"cannot read {tmp_path}: "):
        files.read(str(tmp_path))


def test_a_folder_is_copied_whole_without_spark(tmp_path: Path) -> None:
    for name in ("0", ".0.crc", "deep/1"):
        (tmp_path / "log" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "log" / name).write_text(name)
    files = ArrowFiles()
    files.copy(str(tmp_path / "log"), str(tmp_path / "saved" / "of" / "it"))
    copied = tmp_path / "saved" / "of" / "it"
    assert {path.name: path.read_text() for path in copied.rglob("*") if path.is_file()} == {
        "0": "0",
        ".0.crc": ".0.crc",
        "1": "deep/1",
    }
    files.copy(str(tmp_path / "nowhere"), str(tmp_path / "else"))
    assert not (tmp_path / "else").exists()
    with pytest.raises(bl.CheckpointError, match="which is there"):
        files.copy(str(tmp_path / "log"), str(copied))


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (
            "Traceback (most recent call last):\n"
            "beamlike.errors.CheckpointError: cannot write /c: [Errno 28] No; see to",
            r"cannot write /c: \[Errno 28\] No; see to$",
        ),
        (
            "[CANNOT_WRITE_STATE_STORE] Error.\nCaused by: java.io.IOException: No space left on device\n",
            "cannot write /c: java.io.IOException: No space left on device; check its storage",
        ),
        (
            "java.io.FileNotFoundException: /c/offsets/.1.tmp (Permission denied)",
            "cannot write /c: java.io.File",
        ),
        ("java.io.FileNotFoundException: /plays/1.json (Permission denied)", None),
        ("beamlike.errors.SinkError: py4j.protocol.Py4JJavaError: No space left on device", None),
        ("org.apache.spark.SparkException: Permission granted", None),
    ],
)
def test_a_query_that_storage_stopped_says_so(message: str, told: str | None) -> None:
    found = failure(f"{message}\n=== Streaming Query ===\nof /c", Checkpoint(cast(Any, None), "/c"), plan())
    assert type(found) is (bl.RunError if told is None else bl.CheckpointError)
    assert told is None or re.match(told, str(found))


def test_a_function_that_failed_is_no_fault_of_the_checkpoint() -> None:
    found = failure(
        "Traceback (most recent call last):\nKeyError: 'No space'", Checkpoint(cast(Any, None), "/c"), plan()
    )
    assert type(found) is bl.RunError


def test_what_the_reader_of_kafka_says_is_told_with_the_source() -> None:
    said = (
        "[STREAM_FAILED] Query [id = 8b588e2b, runId = 9c016289] terminated with exception: "
        "org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node assignment. Call: listNodes "
        "SQLSTATE: XXKST\n=== Streaming Query ===\nCurrent State: ACTIVE"
    )
    found = failure(said, Checkpoint(cast(Any, None), "/c"), plan(bl.Kafka("localhost:9092", "plays")))
    assert isinstance(found, bl.errors.SourceError)
    assert str(found) == (
        "source 'plays': Spark's reader of Kafka failed: TimeoutException: Timed out waiting for a node assignment. "
        "Call: listNodes"
    )


def plan(source: Any = None) -> Plan:
    p = bl.Pipeline("plays")
    p.read("plays", source or bl.Rows([{"n": 1}])).write("out", bl.Memory())
    return p.plan()
