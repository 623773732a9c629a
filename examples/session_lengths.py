"""The session lengths of players on two platforms: Examples 3-1, 3-2 and 3-3 of *Streaming Systems*.

    beamlike run examples.session_lengths:end_of_window --runner local

reads the plays that `python -m examples.generate build/demo/plays` writes.
"""

from __future__ import annotations

import os
from pathlib import Path

import polars as pl

import beamlike as bl

SCHEMA = {"event_time": pl.Datetime("us", "UTC"), "user": pl.Int64, "score": pl.Int32}
DATA = Path("build/demo/plays")
OUT = Path("build/demo/averages")


def session_lengths(plays: bl.Collection, platform: str, combiner: bl.TimestampCombiner) -> bl.Collection:
    """Example 3-1: the length in seconds of each session of a user, which a minute without a play ends.

    The combiner sets the event time of a session's length: the end of its window, or (Example 3-3) its first
    play, which holds the output watermark there until the session is over.
    """
    sessions = plays.window_into(bl.Sessions(gap="1m"), timestamp_combiner=combiner)
    return sessions.group_by("user", name=f"sessions of {platform}").aggregate(length=bl.window_length())


def pipeline(
    data: str | os.PathLike[str], out: str | os.PathLike[str], combiner: bl.TimestampCombiner
) -> bl.Pipeline:
    """Example 3-2: the mean length of the sessions of both platforms, and their number, every two minutes.

    Reads the plays below `data/mobile` and `data/console`, a file of each in a batch, and writes below `out`
    for each pane its window and timestamp with mean (seconds) and sessions.
    """
    p = bl.Pipeline("average-session-length")
    lengths = []
    for platform in ("mobile", "console"):
        plays = p.read(
            platform,
            bl.Parquet(Path(data) / platform, SCHEMA, max_files_per_trigger=1),
            timestamp="event_time",
            watermark=bl.BoundedOutOfOrderness("5s"),
        )
        lengths.append(session_lengths(plays, platform, combiner))
    average = (
        bl.flatten(*lengths)
        .window_into(bl.FixedWindows("2m"))
        .aggregate(mean=bl.mean("length"), sessions=bl.count())
        .named("average")
    )
    average.write("averages", bl.Parquet(out))
    return p


def end_of_window() -> bl.Pipeline:
    """Declares the variant with a session's length at the end of its window, where watermarks advance smoothly."""
    return pipeline(DATA, OUT / "end_of_window", bl.END_OF_WINDOW)


def earliest() -> bl.Pipeline:
    """Declares the variant with a session's length at its first play, which holds the second stage back."""
    return pipeline(DATA, OUT / "earliest", bl.EARLIEST)
