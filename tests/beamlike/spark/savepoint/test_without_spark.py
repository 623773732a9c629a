"""A savepoint of a run whose state is in files is written without Spark."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

import beamlike as bl
from beamlike.spark.savepoint import savepoint as savepoints
from stages.state.store import ENCODING
from tests.support import kept


@pytest.fixture
def checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The kept checkpoint of a run on Spark, where Spark cannot be started."""
    monkeypatch.delattr(savepoints, "open_session")
    with tarfile.open(kept.DATA / f"files-encoding-{ENCODING}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "checkpoint"


def test_a_run_in_process_continues_from_it(checkpoint: Path, tmp_path: Path) -> None:
    saved = bl.savepoint.save(checkpoint, tmp_path / "saved")
    assert saved.batch == kept.HALF - 1
    kept.write(tmp_path / "rest", kept.HALF, kept.FILES)
    kept.write(tmp_path / "plays", 0, kept.FILES)
    sessions, games = bl.Memory(), bl.Memory()
    p = kept.pipeline(tmp_path / "rest", sessions, games)
    bl.savepoint.restore(tmp_path / "saved", tmp_path / "local", p, runner="local")
    p.run(bl.LocalRunner(checkpoint=tmp_path / "local", drain=True))
    assert kept.panes(sessions, games) == kept.expected(tmp_path / "plays", kept.HALF)


def test_damaged_state_is_named(checkpoint: Path, tmp_path: Path) -> None:
    state = checkpoint / "beamlike" / "state"
    for damaged in (max((state / "data").glob("0-1-*")), state / "versions" / f"{kept.HALF - 1:09d}.json"):
        content = damaged.read_bytes()
        damaged.write_bytes(content.replace(b'"', b"'", 1))
        with pytest.raises(bl.CheckpointError, match=rf"{checkpoint} is damaged: {damaged} is not what was"):
            bl.savepoint.save(checkpoint, tmp_path / f"saved without {damaged.name}")
        damaged.write_bytes(content)
