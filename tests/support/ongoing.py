"""A pipeline with state of all kinds, for runs that stop and resume: sessions, timers, a join by time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import beamlike as bl

SCHEMA = {"user": str, "at": int, "n": int}


class Source(Protocol):
    """A source of rows with the columns of `SCHEMA`."""


class Silence(bl.Process):
    """Emits users that have been silent for twenty seconds, with the values that each has sent before."""

    sent = bl.List(int)
    quiet = bl.EventTimer()

    def element(self, row: dict[str, Any]) -> None:
        self.sent.append(row["n"])
        self.quiet.after("20s")

    def on_quiet(self) -> Iterator[dict[str, Any]]:
        yield {"user": self.key.user, "sent": list(self.sent)}
        self.sent.clear()


def ongoing(clicks: Source, views: Source, sinks: Mapping[str, Any]) -> bl.Pipeline:
    """Declares it over clicks and views by user; `sinks` are "sessions", "totals", "silences" and "joined"."""
    p = bl.Pipeline("ongoing")
    read = [
        p.read(name, source, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
        for name, source in (("clicks", clicks), ("views", views))
    ]
    sessions = (
        read[0]
        .window_into(bl.Sessions("30s"))
        .group_by("user", name="by session")
        .aggregate(n=bl.sum("n"), length=bl.window_length())
    )
    sessions.write("sessions", sinks["sessions"])
    totals = sessions.window_into(bl.FixedWindows("1m")).aggregate(sessions=bl.count(), n=bl.sum("n"))
    totals.write("totals", sinks["totals"])
    silent = read[1].group_by("user", name="by silence").process(Silence(), {"user": str, "sent": list[int]})
    silent.write("silences", sinks["silences"])
    seen = read[1].select("user", seen="n")
    joined = read[0].join(seen, on="user", how="left", within=("-10s", "10s"), name="join")
    joined.write("joined", sinks["joined"])
    return p


NAMES = ("sessions", "totals", "silences", "joined")


def memories() -> dict[str, bl.Memory]:
    """Returns a memory sink for each name."""
    return {name: bl.Memory() for name in NAMES}


def rows_of(sinks: Mapping[str, bl.Memory]) -> dict[str, list[str]]:
    """Returns the rows of the sinks, sorted."""
    return {name: sorted(map(repr, sink.rows())) for name, sink in sinks.items()}
