"""A stored checkpoint of a run in process is resumed."""

from __future__ import annotations

import tarfile
from pathlib import Path

import beamlike as bl
from stages.state.store import ENCODING
from tests.support import kept


def test_a_checkpoint_of_this_encoding_is_gone_on_with(tmp_path: Path) -> None:
    with tarfile.open(kept.DATA / f"local-encoding-{ENCODING}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    kept.write(tmp_path / "rest", kept.HALF, kept.FILES)
    kept.write(tmp_path / "plays", 0, kept.FILES)
    sessions, games = bl.Memory(), bl.Memory()
    runner = bl.LocalRunner(checkpoint=tmp_path / "checkpoint", drain=True)
    run = kept.pipeline(tmp_path / "rest", sessions, games).run(runner)
    assert run.batches[0].batch == kept.HALF
    assert kept.panes(sessions, games) == kept.expected(tmp_path / "plays", kept.HALF)
