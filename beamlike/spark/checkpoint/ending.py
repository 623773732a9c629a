"""The end of sources that a drain has ordered, taken back where the batch that had it failed."""

from __future__ import annotations

from beamlike.spark.checkpoint.checkpoint import END, Checkpoint
from beamlike.spark.checkpoint.sourcelog import last_batch, last_entry, offset_lines

_COMPACT = ".compact"


def take_back_end(checkpoint: Checkpoint) -> bool:
    """Removes the order, and the batch that has it from Spark's logs; True if that was possible.

    No sink may have got anything of that batch. The next run plans a batch of its number anew: state that some of its
    tasks have left is written once more, as in any batch that is done again. The log of a source may be ahead of the
    offsets, so what the batch has of other sources is taken by the next one.
    """
    begun, done = last_batch(checkpoint, "offsets"), last_batch(checkpoint, "commits")
    if begun > done:
        *_, control = lines = offset_lines(checkpoint, begun)
        before = offset_lines(checkpoint, done)
        entry = last_entry(control)
        # Control is the last of the streams, after two lines with facts.
        folder = checkpoint.of_spark("sources", str(len(lines) - 3))
        if before and last_entry(before[-1]) == entry:
            return False  # a batch that is done has it
        checkpoint.files.remove(checkpoint.of_spark("offsets", str(begun)))
        for name in (str(entry), f"{entry}{_COMPACT}"):
            checkpoint.files.remove(f"{folder}/{name}")
    checkpoint.files.remove(f"{checkpoint.control()}/{END}")
    return True
