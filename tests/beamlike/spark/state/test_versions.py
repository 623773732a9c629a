"""Versions of the state: each batch begins with that of the batch before, and old files are removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from beamlike.errors import CheckpointError
from beamlike.runtime.batch.messages import StateMessage
from beamlike.spark.state import versions
from beamlike.spark.state.shard import Shard
from beamlike.spark.state.versions import StatePublisher, data_folder, version_after

SHARDS = ((0, 0), (0, 1), (1, 1))


def attempt(folder: Path, batch: int, value: bytes) -> list[StateMessage]:
    """The tasks of a batch."""
    made = []
    for operator, number in SHARDS:
        shard = Shard(data_folder(str(folder)), operator, number)
        state = shard.load(version_after(str(folder), batch - 1).heads.get((operator, number)), batch)
        state.put("stage", f"key {batch % 3}", value)
        changed = state.commit()
        assert changed is not None
        made.append(StateMessage(operator, number, *changed.head, changed.unused))
    return made


def value_after(folder: Path, batch: int, key: str) -> bytes | None:
    head = version_after(str(folder), batch).heads[1, 1]
    return Shard(data_folder(str(folder)), 1, 1).load(head, 0).get("stage", key)


def data(folder: Path) -> set[str]:
    return {file.name for file in (folder / "data").iterdir()}


def test_versions_of_the_last_batches_stay_and_older_ones_go(tmp_path: Path) -> None:
    publisher = StatePublisher(str(tmp_path), 5)
    for batch in range(80):
        publisher.publish(batch, attempt(tmp_path, batch, b"%d" % batch))
    assert len([*(tmp_path / "versions").iterdir()]) == 5
    for batch in range(75, 80):
        assert value_after(tmp_path, batch, f"key {batch % 3}") == b"%d" % batch
    with pytest.raises(CheckpointError, match=r"000000074\.json of the state is gone"):
        version_after(str(tmp_path), 74)
    # Each shard has the files of the last versions, and at most as many as it may have before they are merged.
    assert len(data(tmp_path)) < len(SHARDS) * (32 + 10)


def test_a_replayed_batch_begins_with_the_version_before_it(tmp_path: Path) -> None:
    publisher = StatePublisher(str(tmp_path), 5)
    publisher.publish(0, attempt(tmp_path, 0, b"zero"))
    publisher.publish(1, attempt(tmp_path, 1, b"lost"))
    killed = attempt(tmp_path, 1, b"killed before it was published")
    again = StatePublisher(str(tmp_path), 5)
    again.publish(1, attempt(tmp_path, 1, b"one"))
    assert value_after(tmp_path, 1, "key 1") == b"one"
    assert value_after(tmp_path, 1, "key 0") == b"zero"
    # The driver has removed the files of other attempts.
    heads = {head.name for batch in (0, 1) for head in version_after(str(tmp_path), batch).heads.values()}
    assert data(tmp_path) == heads
    assert not heads & {message.head for message in killed}


def test_files_that_a_task_leaves_behind_are_found_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "_SWEEP", 10)
    publisher = StatePublisher(str(tmp_path), 3, may_replay=False)
    publisher.publish(0, attempt(tmp_path, 0, b"counts"))
    for batch in range(1, 10):
        lost = attempt(tmp_path, batch, b"of a task that was overtaken")
        publisher.publish(batch, attempt(tmp_path, batch, b"counts"))
        assert {message.head for message in lost} <= data(tmp_path)
    publisher.publish(10, attempt(tmp_path, 10, b"counts"))
    assert not {message.head for message in lost} & data(tmp_path)
    for batch in (8, 9, 10):
        assert value_after(tmp_path, batch, f"key {batch % 3}") == b"counts"


def test_a_shard_without_input_keeps_its_state(tmp_path: Path) -> None:
    publisher = StatePublisher(str(tmp_path), 2, may_replay=False)
    publisher.publish(0, attempt(tmp_path, 0, b"zero"))
    for batch in range(1, 6):
        publisher.publish(batch, [])
    assert value_after(tmp_path, 5, "key 0") == b"zero"


def test_a_damaged_version_is_reported(tmp_path: Path) -> None:
    StatePublisher(str(tmp_path), 2).publish(0, [])
    file = tmp_path / "versions" / "000000000.json"
    assert version_after(str(tmp_path), 0).heads == {}
    file.write_text(file.read_text().replace("unused", "unusee"))
    with pytest.raises(ValueError, match="is not what was written"):
        version_after(str(tmp_path), 0)
