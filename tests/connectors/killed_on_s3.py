"""A run on Spark with its checkpoint in S3, as a process that kills itself: python -m tests.connectors.killed_on_s3."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import beamlike as bl
from beamlike.records.model import BatchRecord


def totals(folder: Path) -> bl.Pipeline:
    """Declares the totals of each user, of the files in `in`, one in a batch, in files in `out`."""
    p = bl.Pipeline("plays")
    source = bl.JSONLines(folder / "in", {"user": str, "at": int}, max_files_per_trigger=1)
    plays = p.read("plays", source, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    counted = plays.group_by("user", name="totals").running(order="arrival", keep_forever=True, n=bl.count())
    counted.write("out", bl.JSONLines(folder / "out"))
    return p


def main(checkpoint: str, folder: str, config: str, last: int) -> None:
    """Runs to the end of the input, or to the record of the batch `last`, which Spark has not committed then."""

    def on_batch(record: BatchRecord) -> None:
        if record.batch == last:
            os.killpg(0, signal.SIGKILL)

    runner = bl.SparkRunner(
        checkpoint, master="local[2]", shards=1, config=json.loads(config), quiet=True, on_batch=on_batch
    )
    totals(Path(folder)).run(runner)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
