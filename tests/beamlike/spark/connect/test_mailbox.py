"""Batches that a server passes to the process of a run, without a server."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any, cast

import attrs
import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

import beamlike as bl
from beamlike.errors import CheckpointError
from beamlike.spark.checkpoint.arrow_files import ArrowFiles
from beamlike.spark.checkpoint.checkpoint import Checkpoint
from beamlike.spark.connect.mailbox import Mailbox
from beamlike.spark.connect.relay import Relay
from beamlike.spark.failures import understood
from beamlike.spark.session.connect import connected, forbidden
from beamlike.spark.stopping import started
from beamlike.spark.versions import OLDEST_CONNECT, UnsupportedSpark, require_supported

ROWS = pa.table({"shard": [0, 1], "payload": [b"a", b"b"]})


@attrs.frozen
class Folder:
    """The part of a checkpoint that a relay uses."""

    path: str
    files: ArrowFiles = attrs.field(factory=ArrowFiles)
    is_local: bool = True

    def at(self, *names: str) -> str:
        return "/".join([self.path, *names])


@attrs.frozen
class Rows:
    """The rows of a batch on the server."""

    def toArrow(self) -> pa.Table:
        return ROWS

    @property
    def sparkSession(self) -> Any:
        return self

    def addTag(self, tag: str) -> None:
        assert "batch-7" in tag

    def removeTag(self, tag: str) -> None: ...


def relayed(folder: Path, batch: Any) -> tuple[Relay, Mailbox]:
    """Returns a relay that calls `batch`, and the server's copy of its mailbox."""
    checkpoint = cast(Checkpoint, Folder(str(folder)))
    relay = Relay.of(cast(Any, None), checkpoint, batch)
    relay.follow(lambda: True, lambda: None)
    return relay, cloudpickle.loads(cloudpickle.dumps(relay.box))


def test_a_batch_is_done_when_the_process_of_the_run_is_done_with_it(tmp_path: Path) -> None:
    taken: list[Any] = []

    def write(envelopes: DataFrame, number: int) -> None:
        taken.append((number, envelopes.collect()))

    relay, server = relayed(tmp_path, write)
    server.turn(Rows(), 7)
    assert taken == [(7, [(0, b"a"), (1, b"b")])]
    relay.close()
    assert not (tmp_path / "turns").exists()


def test_an_error_of_a_batch_fails_the_batch_on_the_server(tmp_path: Path) -> None:
    def fail(envelopes: DataFrame, number: int) -> None:
        raise bl.SinkError("out", "no such target")

    relay, server = relayed(tmp_path, fail)
    with pytest.raises(RuntimeError, match=r"beamlike\.errors\.SinkError: sink 'out': no such target"):
        server.turn(Rows(), 7)
    relay.close()


def test_a_server_gives_a_batch_up_when_another_run_has_the_checkpoint(tmp_path: Path) -> None:
    began = threading.Event()

    def wait(envelopes: DataFrame, number: int) -> None:
        shutil.rmtree(tmp_path / "turns")
        began.wait()

    relay, server = relayed(tmp_path, wait)
    with pytest.raises(RuntimeError, match="another one continues from its checkpoint"):
        server.turn(Rows(), 7)
    relay.close()
    began.set()


def test_files_without_java_are_copied_listed_and_removed(tmp_path: Path) -> None:
    files, folder = ArrowFiles(), f"{tmp_path}/one"
    files.write(f"{folder}/deep/a.json", "a")
    files.write_for_spark(f"{folder}/b.json", "b")
    files.write(f"{folder}/_hidden", "c")
    assert (files.names(folder), files.hidden(folder)) == (["b.json", "deep"], ["_hidden"])
    assert files.names(f"{tmp_path}/none") == []
    files.copy(folder, f"{tmp_path}/two")
    assert files.tree(f"{tmp_path}/two") == files.tree(folder)
    assert files.read(f"{tmp_path}/two/b.json") == "b"
    with pytest.raises(CheckpointError, match="cannot copy"):
        files.copy(folder, f"{tmp_path}/two")
    files.remove(f"{folder}/b.json")
    assert [one.name for one in (tmp_path / "one").iterdir() if "b.json" in one.name] == []
    files.remove(folder)
    files.remove(folder)
    assert files.read(f"{folder}/deep/a.json") is None
    with pytest.raises(CheckpointError, match="cannot read plays://bucket/a"):
        files.read("plays://bucket/a")


def test_what_a_server_or_a_platform_does_not_allow_is_told() -> None:
    with pytest.raises(
        UnsupportedSpark, match=r"the session is of Spark 4\.0\.5; .* Spark Connect 4\.1 to 4\.3"
    ):
        require_supported("4.0.5", "the session", OLDEST_CONNECT)
    with pytest.raises(ValueError, match=r"has no folder 'dbfs:/plays'.*/Volumes"):
        bl.SparkRunner("dbfs:/plays")
    with pytest.raises(bl.RunError, match=r"'sc://plays' is no master.*SPARK_REMOTE=sc://plays"):
        connected("sc://plays")
    told = forbidden(RuntimeError("[INFINITE_STREAMING_TRIGGER_NOT_SUPPORTED] Trigger type ProcessingTime"))
    assert "use trigger='available_now' without drain" in str(told)
    assert forbidden(RuntimeError("[TABLE_OR_VIEW_NOT_FOUND]")) is None


@pytest.mark.parametrize(
    ("scheme", "advice"),
    [("s3", "this scheme, and the server hadoop-aws"), ("gs", "the jars of that to the server")],
)
def test_a_scheme_that_the_hadoop_of_a_server_does_not_know_is_told(scheme: str, advice: str) -> None:
    unknown = PySparkException(f'No FileSystem for scheme "{scheme}"')
    told = rf"cannot reach {scheme}://b/c, as its Hadoop knows no {scheme}://: .*{advice}"
    with pytest.raises(CheckpointError, match=told), understood(cast(Checkpoint, Folder(f"{scheme}://b/c"))):
        raise unknown
    with pytest.raises(PySparkException, match="another"), understood(cast(Checkpoint, Folder("/plays"))):
        raise PySparkException("another")


def test_a_server_that_starts_python_too_slowly_is_asked_again() -> None:
    slow = PySparkException("[INTERNAL] Python worker failed to connect back.")
    answers: list[Any] = [slow, slow, "query"]

    def start() -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    query: object = started(start)
    assert query == "query"
    answers += [slow] * 6
    with pytest.raises(bl.RunError, match=r"its machine is too busy, .*connect back"):
        started(start)
    answers.append(PySparkException("another"))
    with pytest.raises(PySparkException, match="another"):
        started(start)
