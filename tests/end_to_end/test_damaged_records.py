"""Damaged records of a run are named and left out; they are no evidence against the checkpoint."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.end_to_end.test_copies import Job


@pytest.mark.parametrize("kind", ["files", "table"])
def test_a_record_with_another_digit_is_named_and_does_not_end_a_run(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, kept = tmp_path / "run", tmp_path / "kept"
    folder.mkdir()
    job = Job(folder, kind)
    for number in range(3):
        job.give(number)
        job.run()
    job.give(3)
    shutil.copytree(folder, kept)
    path = folder / "original" / "beamlike" / "records.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    last = max(number for number, line in enumerate(lines) if line.startswith(b'{"batch":'))
    digits = [at for at, byte in enumerate(lines[last]) if chr(byte).isdigit()]
    # The first one is the number of the batch; the last ones are those of the rows of the sink, and of the checksum.
    for at in [*digits[:4], *digits[4 :: max(1, len(digits) // 8)], *digits[-14:]]:
        shutil.rmtree(folder)
        shutil.copytree(kept, folder)
        changed = bytearray(lines[last])
        changed[at] = ord("0") + (changed[at] - ord("0") + 1) % 10 if at == digits[0] else changed[at] ^ 1
        path.write_bytes(b"".join([*lines[:last], changed, *lines[last + 1 :]]))
        caplog.clear()
        job.run()
        assert f"{path}' is no record of a batch, and is left out" in caplog.text, bytes(changed)
        assert job.numbers(kind) == [0, 1, 2, 3]
