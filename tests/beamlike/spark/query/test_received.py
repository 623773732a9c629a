"""Comparison of the input that tasks report with the input of a batch, or the files of a savepoint."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Literal

import pytest
from pyspark.sql import SparkSession

import beamlike as bl
from beamlike.errors import CheckpointError
from beamlike.runtime.batch.messages import AgainMessage, Message, ReadMessage
from beamlike.spark.checkpoint.checkpoint import Checkpoint
from beamlike.spark.checkpoint.files import StoredFiles
from beamlike.spark.query.received import require_batch_read
from tests.support import kept
from tests.support.spark_versions import needs_state_store

Lines = dict[str, tuple[int, int]]
A, B, TICK = "files/a/000000000003.json", "batches/b c/000000000001.json", "control/tick-000000002.json"
ALL: Lines = {A: (2, 2), B: (1, 1), TICK: (1, 1)}


def checkpoint(folder: Path, *, compact: bool = False, moved: bool = False) -> Checkpoint:
    """Returns a checkpoint whose batch 2 reads `ALL` by Spark's logs, and a file of a source of the user's own."""
    place = Path("/moved/to") if moved else folder
    ours = [f"file://{place}/beamlike/{name.replace(' ', '%20')}" for name in ALL]
    for stream, path in enumerate([*ours, "file:///in/files/user/000000000001.json"]):
        log = folder / "sources" / str(stream)
        log.mkdir(parents=True)
        earlier, now = (
            json.dumps({"path": re.sub(r"\d\.json", f"{number}.json", path), "batchId": entry})
            for number, entry in ((0, 4), (path[-6], 5))
        )
        if compact:
            (log / "5.compact").write_text(f"v1\n{earlier}\n{now}")
        else:
            (log / "4").write_text(f"v1\n{earlier}")
            (log / "5").write_text(f"v1\n{now}")
    offsets = folder / "offsets"
    offsets.mkdir()
    for batch, entry in ((1, 4), (2, 5)):
        lines = [json.dumps({"logOffset": entry})] * 4
        (offsets / str(batch)).write_text("\n".join(["v1", "{}", *lines, '{"topic": {"0": 7}}', "-"]))
    return Checkpoint(None, str(folder))  # type: ignore[arg-type]


@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize(
    ("read", "told"),
    [
        ([ALL], None),
        ([{A: (1, 2)}, {A: (1, 2), B: (1, 1)}, {TICK: (1, 1)}], None),  # by several tasks
        ([], f"no task has read {B}"),
        ([{A: (2, 2), B: (1, 1)}], f"no task has read {TICK}"),
        ([{A: (2, 2), TICK: (1, 1)}], f"no task has read {B}"),
        ([{B: (1, 1), TICK: (1, 1)}], f"no task has read {A}"),
        ([ALL | {A: (1, 2)}], f"tasks have read 1 lines of {A}, which has 2"),
        ([ALL, {A: (1, 2)}], f"tasks have read 3 lines of {A}, which has 2"),
        ([ALL, ALL], f"tasks have read 2 lines of {B}, which has 1"),
        ([ALL | {"files/a/000000000000.json": (1, 1)}], "files/a/000000000000.json, which is not part of it"),
        ([{**ALL, "control/tick-000000001.json": (1, 1)}], "tick-000000001.json, which is not part of it"),
        ([{B: (1, 1), TICK: (1, 1), A.replace("3", "4"): (2, 2)}], f"no task has read {A}"),
    ],
)
def test_a_batch_has_read_all_that_sparks_logs_have_for_it_and_no_more(
    read: list[Lines], told: str | None, compact: bool, moved: bool, tmp_path: Path
) -> None:
    messages: list[Message] = [AgainMessage(), *map(ReadMessage, read)]
    found = checkpoint(tmp_path, compact=compact, moved=moved)
    if told is None:
        require_batch_read(found, 2, messages)
        return
    with pytest.raises(CheckpointError, match=re.escape(told)) as refused:
        require_batch_read(found, 2, messages)
    assert f"batch 2 of the checkpoint {tmp_path}" in str(refused.value)
    assert "ignoreMissingFiles" in str(refused.value)


@pytest.mark.spark
@pytest.mark.parametrize("ignored", ["false", "true"])
def test_a_list_that_is_hidden_while_its_batch_is_planned_fails_the_batch(
    ignored: str, spark: SparkSession, tmp_path: Path
) -> None:
    for number in range(3):
        kept.write(tmp_path / "plays", number, number + 1)
    lists = tmp_path / "checkpoint" / "beamlike" / "files" / "plays"
    hidden = tmp_path / "hidden"

    def hide(record: Any) -> None:
        if record.batch == 0:
            (lists / "000000000001.json").rename(hidden)

    sessions, games = bl.Memory(), bl.Memory()

    def run(**options: Any) -> None:
        config = {"spark.sql.files.ignoreMissingFiles": ignored}
        place = str(tmp_path / "checkpoint")
        runner = bl.SparkRunner(place, session=spark, shards=1, config=config, **options)
        kept.pipeline(tmp_path / "plays", sessions, games).run(runner)

    with pytest.raises(CheckpointError, match=r"batch 1 .* no task has read files/plays/000000000001\.json"):
        run(on_batch=hide)
    hidden.rename(lists / "000000000001.json")
    before = kept.panes(sessions, games)
    run(drain=True)
    expected = bl.Memory(), bl.Memory()
    kept.pipeline(tmp_path / "plays", *expected).run()
    assert sorted({*before, *kept.panes(sessions, games)}, key=repr) == kept.panes(*expected)


@pytest.mark.spark
@pytest.mark.parametrize(("left", "state"), [(0, "files"), pytest.param(1, "spark", marks=needs_state_store)])
def test_a_savepoint_of_which_tasks_see_a_part_is_not_restored(
    left: int,
    state: Literal["files", "spark"],
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept.write(tmp_path / "plays", 0, 2)
    checkpoint, saved = str(tmp_path / "checkpoint"), str(tmp_path / "saved")
    pipeline = kept.pipeline(tmp_path / "plays", bl.Memory(), bl.Memory())
    pipeline.run(bl.SparkRunner(checkpoint, session=spark, shards=2))
    bl.savepoint.save(checkpoint, saved, session=spark)
    write = StoredFiles.write

    def write_less(self: StoredFiles, name: str, text: str, seconds: int | None = None) -> None:
        if name.endswith("/files.txt"):
            text = "".join(text.splitlines(keepends=True)[:left])
        write(self, name, text, seconds)

    monkeypatch.setattr(StoredFiles, "write", write_less)
    with pytest.raises(CheckpointError, match=r"the savepoint was not restored: no task has read .*part-"):
        bl.savepoint.restore(saved, tmp_path / "new", pipeline, session=spark, state=state)
