"""Undoes the commanded end of sources if the batch that drains the run has failed."""

from __future__ import annotations

from beamlike.spark.checkpoint.checkpoint import END, Checkpoint
from beamlike.spark.checkpoint.sourcelog import last_batch, last_entry, offset_lines

_COMPACT = ".compact"


def take_back_end(checkpoint: Checkpoint) -> bool:
    """Removes the command and its batch from Spark's logs. Returns True if that was possible.

    No sink may have received output of that batch. The next run plans a new batch with its number. State that some
    tasks have already written is replaced, as in any replay. The log of a source may be ahead of the offsets; the next
    batch then reads the failed batch's input of other sources.
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
    checkpoint.files.remove(f"{checkpoint.control}/{END}")
    return True
