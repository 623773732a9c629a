"""Undoes the end of sources that a drain has commanded, if its batch failed."""

from __future__ import annotations

from beamlike.spark.checkpoint.checkpoint import END, Checkpoint
from beamlike.spark.checkpoint.sourcelog import last_batch, last_entry, offset_lines

_COMPACT = ".compact"


def take_back_end(checkpoint: Checkpoint) -> bool:
    """Removes the command, and its batch from Spark's logs; True if that was possible.

    No sink may have received anything of that batch. The next run plans a new batch of its number: state that some
    tasks have left is written again, as in any replay. The log of a source may be ahead of the offsets, so the next
    batch reads what this batch had of other sources.
    """
    begun, done = last_batch(checkpoint, "offsets"), last_batch(checkpoint, "commits")
    if begun > done:
        *_, control = lines = offset_lines(checkpoint, begun)
        before = offset_lines(checkpoint, done)
        entry = last_entry(control)
        # Control is the last stream, after two lines of facts.
        folder = checkpoint.of_spark("sources", str(len(lines) - 3))
        if before and last_entry(before[-1]) == entry:
            return False  # the command belongs to a batch that is done
        checkpoint.files.remove(checkpoint.of_spark("offsets", str(begun)))
        for name in (str(entry), f"{entry}{_COMPACT}"):
            checkpoint.files.remove(f"{folder}/{name}")
    checkpoint.files.remove(f"{checkpoint.control()}/{END}")
    return True
