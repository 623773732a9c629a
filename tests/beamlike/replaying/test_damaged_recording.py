"""A damaged recording is named as such: nothing of it is parsed before its checksum is right."""

from __future__ import annotations

from pathlib import Path

import pytest

import beamlike as bl
from tests.support.killed_commands import Job


def test_a_recording_with_another_bit_or_without_its_end_is_refused(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.give(1)
    job.give(2)
    job.run("checkpoint")
    job.record()
    file = tmp_path / "made"
    content = file.read_bytes()
    expected = bl.replay(file, job.pipeline(), batch=1).record
    size = len(content)
    # The seal, the heads of the files in it, their content, and the list of files at the end.
    places = {*range(0, 120, 7), *range(120, size, size // 60), *range(size - 60, size, 5)}
    refused = 0
    for at in sorted(places):
        flipped = content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :]
        for damaged in (flipped, content[:at]):
            file.write_bytes(damaged)
            with pytest.raises(bl.CheckpointError, match=f"{file}"):
                bl.replay(file, job.pipeline(), batch=1)
            refused += 1
    assert refused > 100
    file.write_bytes(content)
    assert bl.replay(file, job.pipeline(), batch=1).record == expected
